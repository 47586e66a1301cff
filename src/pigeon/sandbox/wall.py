"""The wall that `process/start` puts around programs: turns a program to run into what is run instead.

    builder       what encloses a command
    -----------   -------------------------------------------------------------------------------------------------
    bubblewrap    the program `bwrap` makes namespaces and mounts, and loads the filter of system calls
    landlock      the reaper does the same by itself (`process/namespaces`), and adds rules of Landlock to it

`app` chooses the first that really works here; if a sandbox was requested, no command runs without one.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from pigeon.sandbox.plan import STANDS_IN_SINCE, Mount, MountPlan, plan_of
from pigeon.sandbox.policy import SandboxPolicy, is_inside
from pigeon.sandbox.seccomp import build_filter_for
from pigeon.system.paths import keep_absolute_entries
from pigeon.system.process.messages import BubblewrapWall, LandlockWall
from pigeon.system.process.start import EnclosedProgram

WallBuilder = Literal["bubblewrap", "landlock"]
# The reaper passes the arguments of `bwrap` and the filter as these descriptors, and folders after them.
_ARGUMENTS, _FILTER, _FOLDERS = 3, 4, 5
# Variables that lead to programs and sockets outside the sandbox.
_LEADING_OUT = frozenset(
    {
        *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "SSH_ASKPASS", "GIT_ASKPASS", "GPG_AGENT_INFO", "XDG_RUNTIME_DIR", "TMUX"),
        *("DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"),
        *("DOCKER_HOST", "CONTAINER_HOST", "VSCODE_IPC_HOOK_CLI", "VSCODE_GIT_IPC_HANDLE"),
        *("VSCODE_GIT_ASKPASS_MAIN", "VSCODE_GIT_ASKPASS_NODE"),
    }
)
MARKER = "PIGEON_SANDBOX"
_LOCK_TRIES, _LOCK_PAUSE = 50, 0.002
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1


class Wall:
    """Encloses the commands of one agent. `artifacts` returns the folder of the session's full outputs, if any.

    With `apart`, bubblewrap runs in a namespace where later mounts do not appear; on its own it would let them in.

    `prepare_program` and `on_program_ended` are called around each command: while one runs, stand-ins are where
    commands must create nothing. They are locked, so that of several agents in a folder the last one removes them.
    Folders are moved to the agent's temporary folder and back, if that is in the same file system: ext4 takes long to
    create what was just removed.
    """

    def __init__(
        self,
        policy: SandboxPolicy,
        builder: WallBuilder,
        program: str,
        machine: str,
        artifacts: Callable[[], str | None] = lambda: None,
        apart: bool = False,
    ) -> None:
        self.policy = policy
        self.builder = builder
        self._program = program
        self._machine = machine
        self._artifacts = artifacts
        self._apart = apart
        self._running = 0
        self._held: dict[str, int] = {}
        self._environment: tuple[Mapping[str, str], dict[str, str]] = ({}, {})

    @property
    def temporary_folder(self) -> str:
        return self.policy.temporary_folder

    def with_policy(self, policy: SandboxPolicy) -> Wall:
        """The same wall for another policy, without a folder for outputs."""
        return Wall(policy, self.builder, self._program, self._machine, apart=self._apart)

    async def prepare_program(
        self, program: str, argv: Sequence[str], cwd: str, environment: Mapping[str, str]
    ) -> EnclosedProgram:
        """The program to run instead; raises `OSError` if there is none. `on_program_ended` must follow."""
        _check_program(program, cwd)
        plan = plan_of(self.policy, self._artifacts())
        self._running += 1
        try:
            await self._lock_stand_ins(plan.stand_ins)
            return self._enclose_program(program, argv, cwd, self._adapt_variables(environment), plan)
        except BaseException:
            self.on_program_ended()
            raise

    def on_program_ended(self) -> None:
        """Called when a command has ended with all that it started."""
        self._running -= 1
        while self._running == 0 and self._held:
            path, held = self._held.popitem()
            _release_stand_in(path, held, self._spare_for(path))

    def _spare_for(self, path: str) -> str:
        """Where the stand-in of a path is while no command runs."""
        # Two with the same name do no harm: one of them is then removed as it would be without a spare.
        return os.path.join(self.policy.scratch, f"spare-{zlib.crc32(os.fsencode(path)):08x}")

    def _enclose_program(
        self, program: str, argv: Sequence[str], cwd: str, environment: Mapping[str, str], plan: MountPlan
    ) -> EnclosedProgram:
        calls = build_filter_for(self._machine)
        if calls is None:
            raise OSError(errno.ENOSYS, f"there is no system call filter for {self._machine}")
        if self.builder == "landlock":
            private = self.policy.private
            mounts = [
                (
                    "view" if mount.kind == "hide folder" and mount.path in private else str(mount.kind),
                    os.fsencode(mount.path),
                    os.fsencode(mount.source),
                )
                for mount in plan.mounts
            ]
            empty, folder = os.fsencode(self.policy.empty_file), os.fsencode(cwd)
            wall = LandlockWall(mounts, empty, self.policy.network, folder, calls)
            return EnclosedProgram(program, list(argv), environment, wall)
        fixed, held = bubblewrap_arguments(self.policy, plan)
        arguments = b"".join(os.fsencode(word) + b"\0" for word in [*fixed, "--chdir", cwd])
        line = [self._program, "--args", str(_ARGUMENTS), "--", program, *argv[1:]]
        files = BubblewrapWall([arguments, calls], [os.fsencode(path) for path in held], self._apart)
        return EnclosedProgram(self._program, line, environment, files)

    def _adapt_variables(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        if environment != self._environment[0]:
            seen = {name: value for name, value in environment.items() if name not in _LEADING_OUT}
            seen.update(dict.fromkeys(("TMPDIR", "TMP", "TEMP"), self.policy.temporary_folder))
            seen[MARKER] = self.policy.mode
            self._environment = (dict(environment), seen)
        return self._environment[1]

    async def _lock_stand_ins(self, stand_ins: Mapping[str, bytes | None]) -> None:
        """Lock all stand-ins; raises `OSError`. Waits for another agent that is about to remove one."""
        for _ in range(_LOCK_TRIES):
            try:
                return self._lock_stand_ins_now(stand_ins)
            except BlockingIOError as error:
                busy = error.filename
            await asyncio.sleep(_LOCK_PAUSE)
        raise OSError(errno.EBUSY, f"the sandbox cannot keep {busy} as it is: another program has locked it")

    def _lock_stand_ins_now(self, stand_ins: Mapping[str, bytes | None]) -> None:
        for path, content in stand_ins.items():
            known = self._held.get(path)
            if known is not None:
                if _is_same_file(known, path):
                    continue
                os.close(self._held.pop(path))
            self._held[path] = _lock_stand_in(path, content, self._spare_for(path))


def _lock_stand_in(path: str, content: bytes | None, spare: str) -> int:
    """A lock on the stand-in at a path, created if necessary: an empty folder, or a file.

    Raises `BlockingIOError` while another agent has locked it to remove it, and `OSError`.
    """
    with suppress(FileExistsError):
        _create_stand_in(path, content, spare)
    held = -1
    try:
        held = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if _is_same_file(held, path):
            return held
    except (FileNotFoundError, BlockingIOError):
        pass
    except OSError:
        if held < 0:
            raise
        # The file system has no locks: then nothing is removed.
        return held
    if held >= 0:
        os.close(held)
    raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)


def _create_stand_in(path: str, content: bytes | None, spare: str) -> None:
    if content is None:
        if _try_move(spare, path):
            return
        os.mkdir(path, 0o755)
    else:
        with open(path, "xb") as file:
            file.write(content)
    with suppress(OSError):
        os.utime(path, (STANDS_IN_SINCE, STANDS_IN_SINCE), follow_symlinks=False)


def _release_stand_in(path: str, held: int, spare: str) -> None:
    """Release a lock, and remove the stand-in if no other agent needs it."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(held).st_mtime == STANDS_IN_SINCE and _is_same_file(held, path):
            if not os.path.isdir(path):
                os.unlink(path)
            elif os.listdir(held) or not _try_move(path, spare):
                os.rmdir(path)
    except OSError:
        pass
    finally:
        os.close(held)


def _try_move(source: str, target: str) -> bool:
    """Move a folder unless something has the new name; returns False if that is impossible, here or at all."""
    import ctypes

    move = getattr(ctypes.CDLL(None), "renameat2", None)
    names = os.fsencode(source), os.fsencode(target)
    return move is not None and move(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_NOREPLACE) == 0


def _is_same_file(held: int, path: str) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.fstat(held), os.lstat(path))
    return False


def bubblewrap_arguments(policy: SandboxPolicy, plan: MountPlan) -> tuple[list[str], list[str]]:
    """The arguments of `bwrap`, and the files and folders that it gets as descriptors, in their order."""
    words = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    words += [*([] if policy.network else ["--unshare-net"]), "--new-session", "--cap-drop", "ALL"]
    # Root could write some of what is below /proc without a capability.
    words += ["--seccomp", str(_FILTER), "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    words += ["--remount-ro", "/proc"]
    held: list[str] = []
    for mount in plan.mounts:
        if mount.kind == "hide folder":
            words += ["--tmpfs", mount.path]
            if mount.path not in policy.private:
                words += ["--remount-ro", mount.path]
        elif mount.kind == "hide file":
            words += ["--ro-bind", policy.empty_file, mount.path]
        else:
            words += [_bind_option(mount), str(_FOLDERS + len(held)), mount.path]
            held.append(mount.source or mount.path)
    for mount in plan.mounts:
        if mount.kind == "hide folder" and mount.path in policy.private:
            words += ["--remount-ro", mount.path]
    return words, held


def _bind_option(mount: Mount) -> str:
    return "--bind-fd" if mount.kind in ("write", "pin") else "--ro-bind-fd"


def find_bubblewrap(search_path: str | None, written: Sequence[str]) -> str | None:
    """The program `bwrap`, from entries of a PATH that are in no folder to which commands can or could write."""
    for folder in filter(None, keep_absolute_entries(search_path).split(os.pathsep)):
        candidate = os.path.realpath(os.path.join(folder, "bwrap"))
        planted = any(is_inside(candidate, folder) for folder in written)
        if not planted and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None


def _check_program(program: str, cwd: str) -> None:
    """Raise `OSError` if a program cannot be started: in the sandbox this would look like a failing program."""
    for path, wanted in ((cwd, os.path.isdir), (program, os.path.isfile)):
        if not wanted(path):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if not os.access(program, os.X_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), program)
