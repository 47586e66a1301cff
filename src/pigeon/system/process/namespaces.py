"""A command in a sandbox that the reaper builds itself: namespaces, mounts, Landlock rules, a system call filter.

`helper_main` imports this with the first command that needs it. `sandbox/plan` decides what is mounted where and
describes the kinds of mounts. Everything is mounted through descriptors that were opened without following links,
because commands that still run could plant one.

    reaper --- monitor --- first process of the namespace --- command --- all that the command starts
                  |            |
                  |            +-- adopts orphans; ends when nothing is left
                  +-- ends as the command does, which passes its exit code to the reaper
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import signal
import socket
import struct

from pigeon.system.process.messages import LandlockWall, StartCommand

# From the kernel's headers.
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 0x4000, 1 << 18
OPEN_TREE, MOVE_MOUNT, OPENAT2, MOUNT_SETATTR = 428, 429, 437, 442
RESOLVE_NO_SYMLINKS = 4
OPEN_TREE_CLONE, AT_RECURSIVE, AT_EMPTY_PATH = 1, 0x8000, 0x1000
MOVE_FROM_ITSELF, MOVE_TO_ITSELF = 4, 0x40
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_CAPBSET_DROP = 4, 38, 22, 24
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION = 0x20080522
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
SIOCSIFFLAGS, IFF_UP = 0x8914, 1

WRITE_FILE, TRUNCATE, IOCTL_DEV = 1 << 1, 1 << 14, 1 << 15
# All Landlock rights to change something, as of its first version; creating devices is never allowed.
CHANGES = WRITE_FILE | (0x1FF << 4)
DEVICES = (1 << 6) | (1 << 11)
REFER = 1 << 13
SCOPES = 3
DEVICE_FILES = (b"null", b"zero", b"full", b"random", b"urandom", b"tty")
HIDDEN = ("hide folder", "view")
SETUP_FAILED = 125

_libc = ctypes.CDLL(None, use_errno=True)


def start_enclosed(command: StartCommand, descriptors: tuple[int, int, int], wall: LandlockWall) -> int:
    """Start a command in the sandbox with these descriptors as input, output and errors; returns the pid of its
    monitor."""
    pid = os.fork()
    if pid:
        return pid
    try:
        _set_up_command_process(descriptors)
        os.closerange(3, 65536)
        _monitor_command(command, wall)
    except BaseException as error:
        _print_error(error)
    finally:
        os._exit(SETUP_FAILED)


def start_in_own_namespace(command: StartCommand, descriptors: tuple[int, int, int], files: list[int]) -> int:
    """Start a program that builds its own sandbox (`bwrap`), in a namespace where later mounts do not appear.

    It gets these files as descriptors from 3 on, in their order, and starts in the current folder.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        _set_up_command_process(descriptors)
        for index, file in enumerate(files):
            os.dup2(file, 3 + index)
        _unshare(CLONE_NEWUSER | CLONE_NEWNS)
        _mount(b"none", b"/", None, MS_REC | MS_PRIVATE)
        os.execve(command.program, command.argv, command.environment)
    except BaseException as error:
        _print_error(error)
    finally:
        os._exit(SETUP_FAILED)


def _set_up_command_process(descriptors: tuple[int, int, int]) -> None:
    """Start a new session, use these as input, output and errors, and reset all signals to their defaults."""
    os.setsid()
    for target, descriptor in enumerate(_duplicate_high(descriptors)):
        os.dup2(descriptor, target)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        # Setting each of them would take longer than the rest of this.
        if signal.getsignal(number) is not signal.SIG_DFL:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _duplicate_high(descriptors: tuple[int, int, int]) -> list[int]:
    return [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10) for descriptor in descriptors]


def _monitor_command(command: StartCommand, wall: LandlockWall) -> None:
    wanted = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP
    _unshare(wanted if wall.network else wanted | CLONE_NEWNET)
    told, tells = os.pipe()
    first = os.fork()
    if first == 0:
        os.close(told)
        _run_first_process(command, wall, tells)
    _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    os.close(tells)
    for descriptor in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    status = os.read(told, 4)
    if len(status) < 4:
        status = struct.pack("=i", os.waitpid(first, 0)[1])
    code = os.waitstatus_to_exitcode(struct.unpack("=i", status)[0])
    os._exit(code if code >= 0 else 128 - code)


def _unshare(wanted: int) -> None:
    """Enter new namespaces, as the same user and group."""
    user, group = os.getuid(), os.getgid()
    # A process may write its id maps only while it is dumpable.
    _libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    _check_result("unshare", _libc.unshare(wanted))
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")


def _run_first_process(command: StartCommand, wall: LandlockWall, tells: int) -> None:
    """Run the init process of the namespace: it mounts, starts the command, and stays until nothing is left."""
    try:
        os.setsid()
        _mount_all(wall.mounts, wall.empty_file)
        if not wall.network:
            _raise_loopback()
        pid = os.fork()
        if pid == 0:
            os.close(tells)
            _exec_command_restricted(
                command, [path for kind, path, _ in wall.mounts if kind == "write"], wall.folder, wall.calls
            )
        _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
        _drop_capabilities()
        for descriptor in (0, 1, 2):
            os.close(descriptor)
        while True:
            ended, status = os.wait()
            if ended == pid:
                os.write(tells, struct.pack("=i", status))
                os.close(tells)
    except ChildProcessError:
        os._exit(0)
    except BaseException as error:
        _print_error(error)
    finally:
        os._exit(SETUP_FAILED)


def _exec_command_restricted(command: StartCommand, written: list[bytes], folder: bytes, calls: bytes) -> None:
    try:
        os.chdir(folder)
        _drop_capabilities()
        _check_result("no_new_privs", _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _apply_landlock_rules(written)
        _libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
        _install_call_filter(calls)
        os.execve(command.program, command.argv, command.environment)
    except BaseException as error:
        _print_error(error)
    finally:
        os._exit(SETUP_FAILED)


# Mounts


def _mount_all(mounts: list[tuple[str, bytes, bytes]], empty: bytes) -> None:
    """Apply the mounts of the wall; a view is a hidden folder in which something is shown."""
    _mount(b"none", b"/", None, MS_REC | MS_PRIVATE)
    # Everything that will be mounted is cloned first, before the whole tree becomes read-only.
    copies = [(kind, path, None if kind in HIDDEN else _clone_mount(empty if kind == "hide file" else source or path))
              for kind, path, source in mounts]  # fmt: skip
    devices = [(name, _clone_mount(b"/dev/" + name)) for name in DEVICE_FILES if os.path.exists(b"/dev/" + name)]
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    _set_attributes(root, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV)
    os.close(root)
    _mount_devices(devices)
    # Root could write some files in it even without capabilities.
    _mount(b"proc", b"/proc", b"proc", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for kind, path, taken in copies:
        if taken is None:
            held = open_without_links(path)
            here = b"/proc/self/fd/%d" % held
            kept = MS_RDONLY if kind == "hide folder" else 0
            _mount(b"tmpfs", here, b"tmpfs", kept | MS_NOSUID | MS_NODEV, b"mode=0755,size=64k")
            os.close(held)
            continue
        if kind == "show":
            os.mkdir(path, 0o755)
        _set_attributes(taken, ATTR_NOSUID | ATTR_NODEV | (0 if kind in ("write", "pin") else ATTR_RDONLY))
        _attach_mount(taken, path)
    for path in [path for kind, path, _ in mounts if kind == "view"]:
        held = open_without_links(path)
        _set_attributes(held, ATTR_RDONLY, alone=True)
        os.close(held)
    _check_read_only(
        [path for kind, path, _ in mounts if kind == "keep"], [path for kind, path, _ in mounts if kind in HIDDEN]
    )


def _check_read_only(kept: list[bytes], hidden: list[bytes]) -> None:
    """Refuse to run the command if something that it must not change can be written after all.

    The kernel takes away a mount without an error when its mount point is removed in another namespace.
    """
    for path in kept:
        if any(path == folder or path.startswith(folder + b"/") for folder in hidden):
            continue
        held = open_without_links(path)
        flags = os.fstatvfs(held).f_flag
        os.close(held)
        if not flags & os.ST_RDONLY:
            raise OSError(errno.EROFS, f"{os.fsdecode(path)} could not be kept from being written")


def _mount_devices(devices: list[tuple[bytes, int]]) -> None:
    _mount(b"tmpfs", b"/dev", b"tmpfs", MS_NOSUID, b"mode=0755")
    for name, copy in devices:
        os.close(os.open(b"/dev/" + name, os.O_CREAT | os.O_WRONLY, 0o666))
        _attach_mount(copy, b"/dev/" + name)
    os.mkdir("/dev/shm", 0o1777)
    os.chmod("/dev/shm", 0o1777)
    os.mkdir("/dev/pts")
    _mount(b"devpts", b"/dev/pts", b"devpts", MS_NOSUID | MS_NOEXEC, b"newinstance,ptmxmode=0666,mode=0620")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for link, target in links.items():
        os.symlink(target, f"/dev/{link}")


def _clone_mount(path: bytes) -> int:
    """A detached clone of the mount tree at a path, which must not contain links."""
    held = open_without_links(path)
    try:
        return _check_result("open_tree", _libc.syscall(
            OPEN_TREE, held, b"", OPEN_TREE_CLONE | os.O_CLOEXEC | AT_RECURSIVE | AT_EMPTY_PATH
        ))  # fmt: skip
    finally:
        os.close(held)


def _attach_mount(copy: int, path: bytes) -> None:
    held = open_without_links(path)
    moved = _libc.syscall(MOVE_MOUNT, copy, b"", held, b"", MOVE_FROM_ITSELF | MOVE_TO_ITSELF)
    _check_result(f"move_mount {os.fsdecode(path)}", moved)
    os.close(held)
    os.close(copy)


def _set_attributes(tree: int, attributes: int, alone: bool = False) -> None:
    """Set the attributes of a mount and, unless `alone`, of the mounts in it."""
    wanted = struct.pack("=QQQQ", attributes, 0, 0, 0)
    how = AT_EMPTY_PATH if alone else AT_EMPTY_PATH | AT_RECURSIVE
    done = _libc.syscall(MOUNT_SETATTR, tree, b"", how, wanted, len(wanted))
    _check_result("mount_setattr", done)


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int, options: bytes | None = None) -> None:
    _check_result(f"mount {os.fsdecode(target)}", _libc.mount(source, target, kind, ctypes.c_ulong(flags), options))


def open_without_links(path: bytes) -> int:
    """A descriptor of an absolute path; raises `OSError` if any folder on the way is a link."""
    how = struct.pack("=QQQ", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS)
    held = int(_libc.syscall(OPENAT2, -1, path, how, len(how)))
    if held >= 0:
        return held
    number = ctypes.get_errno()
    if number not in (errno.ENOSYS, errno.EPERM):
        raise OSError(number, os.strerror(number), path)
    return open_part_by_part(path)


def open_part_by_part(path: bytes) -> int:
    """The same where the kernel cannot do it at once: before 5.6, and in containers that do not know the call."""
    held = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    parts = [part for part in path.split(b"/") if part]
    for index, part in enumerate(parts):
        kind = os.O_DIRECTORY if index < len(parts) - 1 else 0
        try:
            below = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=held)
        finally:
            os.close(held)
        held = below
    return held


# Restrictions of the command itself


def _drop_capabilities() -> None:
    for number in range(64):
        if _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) < 0:
            break
    _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    _check_result("capset", _libc.capset(header, struct.pack("=6I", 0, 0, 0, 0, 0, 0)))


def _apply_landlock_rules(written: list[bytes]) -> None:
    """Apply Landlock rules: changes only in these folders, and no signals to other processes."""
    version = landlock_version()
    if version < 1:
        raise OSError(errno.ENOSYS, "the kernel has no Landlock")
    handled = CHANGES | (REFER if version > 1 else 0) | (TRUNCATE if version > 2 else 0)
    handled |= IOCTL_DEV if version > 4 else 0
    attributes = struct.pack("=QQQ", handled, 0, SCOPES)[: 24 if version > 5 else 16 if version > 3 else 8]
    rules = _check_result("landlock", _libc.syscall(LANDLOCK_CREATE, attributes, len(attributes), 0))
    for path in [*written, b"/dev/shm"]:
        _allow_path(rules, path, handled & ~DEVICES & ~IOCTL_DEV)
    _allow_path(rules, b"/dev", handled & (WRITE_FILE | TRUNCATE | IOCTL_DEV))
    _check_result("landlock_restrict_self", _libc.syscall(LANDLOCK_RESTRICT, rules, 0))
    os.close(rules)


def landlock_version() -> int:
    """The kernel's Landlock version; 0 if it has none."""
    return max(0, int(_libc.syscall(LANDLOCK_CREATE, None, 0, 1)))


def _allow_path(rules: int, path: bytes, rights: int) -> None:
    held = open_without_links(path)
    rule = struct.pack("=Qi", rights, held)
    _check_result("landlock_add_rule", _libc.syscall(LANDLOCK_ADD, rules, 1, rule, 0))
    os.close(held)


def _install_call_filter(calls: bytes) -> None:
    steps = ctypes.create_string_buffer(calls, len(calls))
    program = struct.pack("=HxxxxxxQ", len(calls) // 8, ctypes.addressof(steps))
    _check_result("seccomp", _libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0))


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", IFF_UP)
        fcntl.ioctl(any_socket.fileno(), SIOCSIFFLAGS, request)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _check_result(what: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _print_error(error: BaseException) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"pigeon: the sandbox could not be set up: {error}\n".encode("utf-8", "replace"))
