"""Ways out of a sandbox, tried one after the other: run as a program behind the wall, and without it for comparison.

It gets a JSON object with the targets (see `sandboxed_runs`) and prints a JSON object: for each attempt true if it did
what it must not. It imports nothing of Pigeon. Each attempt only touches what `sandboxed_runs` has made for it. Those
by files come first: to write what is outside, and to read what is hidden.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

Targets = dict[str, Any]
libc = ctypes.CDLL(None, use_errno=True)
ATTEMPTS: dict[str, Callable[[Targets], object]] = {}
ROOT_ONLY: set[str] = set()
IS_64 = os.uname().machine == "x86_64"


def attempt(function: Callable[[Targets], object]) -> Callable[[Targets], object]:
    """It escapes if it returns something true; an error means that it did not."""
    ATTEMPTS[function.__name__] = function
    return function


def as_root(function: Callable[[Targets], object]) -> Callable[[Targets], object]:
    """An attempt that only root can make where there is no wall."""
    ROOT_ONLY.add(function.__name__)
    return attempt(function)


def call(number: int, *arguments: Any) -> int:
    """A system call; raises `OSError`."""
    given = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = libc.syscall(ctypes.c_long(number), *given)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


def shell(command: str) -> bool:
    """Whether a command of the shell succeeds."""
    line = ["/bin/bash", "-c", command]
    return subprocess.run(line, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=5).returncode == 0


def rename_and_back(path: Path) -> bool:
    """Rename what others rely on; another could be put in its place meanwhile."""
    os.rename(path, path.with_name("renamed"))
    os.rename(path.with_name("renamed"), path)
    return True


@attempt
def write_into_the_home(t: Targets) -> object:
    return (Path(t["home"]) / "new").write_text("x")


@attempt
def change_a_start_file_of_the_shell(t: Targets) -> object:
    with open(Path(t["home"]) / ".bashrc", "a") as file:
        return file.write("evil")


@attempt
def make_an_environment_file_in_the_home(t: Targets) -> object:
    return (Path(t["home"]) / ".envrc").write_text("export LD_PRELOAD=/evil.so")


@attempt
def write_beside_the_working_folder(t: Targets) -> object:
    return (Path(t["folder"]).parent / "beside").write_text("x")


@attempt
def write_into_the_shared_temporary_folder(t: Targets) -> object:
    return Path(f"/tmp/{t['name']}.tmp").write_text("x")


@attempt
def read_a_private_key(t: Targets) -> object:
    return "PRIVATE" in (Path(t["home"]) / ".ssh" / "id_rsa").read_text()


@attempt
def list_the_private_keys(t: Targets) -> object:
    return os.listdir(Path(t["home"]) / ".ssh")


@attempt
def read_a_private_key_by_the_root_of_the_first_process(t: Targets) -> object:
    return "PRIVATE" in Path(f"/proc/{t['victim']}/root{t['home']}/.ssh/id_rsa").read_text()


@attempt
def read_keys_of_the_cloud(t: Targets) -> object:
    return "PRIVATE" in (Path(t["home"]) / ".aws" / "credentials").read_text()


@attempt
def read_a_token_in_a_file(t: Targets) -> object:
    return "PRIVATE" in (Path(t["home"]) / ".npmrc").read_text()


@attempt
def read_keys_of_the_agent(t: Targets) -> object:
    return "PRIVATE" in (Path(t["home"]) / ".pigeon" / "agent" / "auth.json").read_text()


@attempt
def read_what_was_typed(t: Targets) -> object:
    return "PRIVATE" in (Path(t["home"]) / ".bash_history").read_text()


@attempt
def change_settings_of_the_agent(t: Targets) -> object:
    return (Path(t["home"]) / ".pigeon" / "agent" / "settings.json").write_text("{}")


@attempt
def plant_a_hook(t: Targets) -> object:
    return (Path(t["folder"]) / ".git" / "hooks" / "pre-commit").write_text("x")


@attempt
def change_the_configuration_of_git(t: Targets) -> object:
    with open(Path(t["folder"]) / ".git" / "config", "a") as file:
        return file.write("[core]\n fsmonitor = evil\n")


@attempt
def replace_the_configuration_of_git(t: Targets) -> object:
    git = Path(t["folder"]) / ".git"
    (git / "config.new").write_text("[core]\n")
    os.rename(git / "config.new", git / "config")
    return True


@attempt
def configure_git_by_git(t: Targets) -> object:
    return shell(f"git -C {t['folder']} config core.fsmonitor evil")


@attempt
def rename_the_hooks(t: Targets) -> object:
    return rename_and_back(Path(t["folder"]) / ".git" / "hooks")


@attempt
def put_another_folder_in_the_place_of_git(t: Targets) -> object:
    return rename_and_back(Path(t["folder"]) / ".git")


@attempt
def put_a_link_in_the_place_of_the_hooks(t: Targets) -> object:
    hooks = Path(t["folder"]) / ".git" / "hooks"
    shutil.rmtree(hooks)
    os.symlink("/tmp", hooks)
    os.unlink(hooks)
    os.mkdir(hooks)
    return True


@attempt
def plant_a_hook_in_a_submodule(t: Targets) -> object:
    return (Path(t["folder"]) / ".git" / "modules" / "part" / "hooks" / "post-checkout").write_text("x")


@attempt
def change_a_file_that_a_hook_is_a_link_to(t: Targets) -> object:
    return (Path(t["folder"]) / "scripts" / "pre-push").write_text("evil")


@attempt
def make_a_file_that_a_hook_is_a_link_to(t: Targets) -> object:
    scripts = Path(t["folder"]) / "scripts" / "later"
    scripts.mkdir()
    return (scripts / "pre-merge-commit").write_text("evil")


@attempt
def rename_the_folder_of_what_a_hook_is_a_link_to(t: Targets) -> object:
    return rename_and_back(Path(t["folder"]) / "scripts")


@attempt
def change_an_extension_that_a_folder_of_the_agent_has_a_link_to(t: Targets) -> object:
    return (Path(t["folder"]) / "a" / "extension.py").write_text("evil")


@attempt
def rename_the_data_of_submodules(t: Targets) -> object:
    return rename_and_back(Path(t["folder"]) / ".git" / "modules")


@attempt
def plant_a_hook_in_a_repository_below(t: Targets) -> object:
    return (Path(t["folder"]) / "nested" / ".git" / "hooks" / "pre-commit").write_text("x")


@attempt
def plant_a_hook_in_a_repository_far_below(t: Targets) -> object:
    return (Path(t["folder"]) / "a" / "b" / "deep" / ".git" / "hooks" / "pre-commit").write_text("x")


@attempt
def change_the_configuration_of_a_repository_far_below(t: Targets) -> object:
    return shell(f"git -C {t['folder']}/a/b/deep config core.fsmonitor evil")


@attempt
def change_a_file_that_the_configuration_of_git_includes(t: Targets) -> object:
    return (Path(t["folder"]) / "a" / "b" / "deep" / "shared").write_text("[core] fsmonitor = evil\n")


@attempt
def change_a_program_that_the_configuration_of_git_names(t: Targets) -> object:
    return (Path(t["folder"]) / "a" / "b" / "deep" / "filter").write_text("#!/bin/sh\nevil\n")


@attempt
def make_hooks_where_the_users_configuration_looks_for_them(t: Targets) -> object:
    hooks = Path(t["folder"]) / "git-hooks"
    hooks.mkdir(exist_ok=True)
    return (hooks / "pre-commit").write_text("x")


@attempt
def lead_a_submodule_to_other_data(t: Targets) -> object:
    return (Path(t["folder"]) / "part" / ".git").write_text("gitdir: ../evil\n")


@attempt
def put_another_folder_in_the_place_of_one_above_a_repository(t: Targets) -> object:
    return rename_and_back(Path(t["folder"]) / "a")


@attempt
def make_an_extension_for_the_agent_far_below(t: Targets) -> object:
    os.makedirs(Path(t["folder"]) / "a" / "b" / "deep" / ".pigeon" / "extensions")
    return True


@attempt
def make_skills_for_the_agent(t: Targets) -> object:
    os.makedirs(Path(t["folder"]) / ".agents" / "skills")
    return True


@attempt
def read_keys_of_another_agent(t: Targets) -> object:
    return "PRIVATE" in (Path(t["home"]) / ".codex" / "auth.json").read_text()


@attempt
def list_the_files_of_the_agent(t: Targets) -> object:
    return "auth.json" in os.listdir(Path(t["home"]) / ".pigeon" / "agent")


@attempt
def make_a_folder_of_the_agent(t: Targets) -> object:
    os.makedirs(Path(t["folder"]) / ".pigeon" / "extensions")
    return True


@attempt
def change_a_folder_of_another_agent(t: Targets) -> object:
    return (Path(t["folder"]) / ".pi" / "settings.json").write_text("{}")


@attempt
def rename_a_folder_of_another_agent(t: Targets) -> object:
    return rename_and_back(Path(t["folder"]) / ".pi")


@attempt
def name_tool_servers_for_the_agent(t: Targets) -> object:
    return (Path(t["folder"]) / ".mcp.json").write_text("{}")


@attempt
def write_through_a_link_that_leads_out(t: Targets) -> object:
    return (Path(t["folder"]) / "link-to-home" / "through-a-link").write_text("x")


@attempt
def write_through_a_link_that_was_just_made(t: Targets) -> object:
    os.symlink(Path(t["home"]) / "by-link", Path(t["folder"]) / "made-link")
    return (Path(t["folder"]) / "made-link").write_text("x")


@attempt
def link_a_file_into_the_folder_and_write_it(t: Targets) -> object:
    own = Path(t["folder"]) / "linked"
    os.link(Path(t["home"]) / "document", own)
    return own.write_text("changed")


@attempt
def link_a_file_out_of_the_folder(t: Targets) -> object:
    os.link(Path(t["folder"]) / "file", Path(t["home"]) / "linked-out")
    return True


@attempt
def rename_a_file_out_of_the_folder(t: Targets) -> object:
    (Path(t["folder"]) / "leaving").write_text("x")
    os.rename(Path(t["folder"]) / "leaving", Path(t["home"]) / "left")
    return True


@attempt
def delete_a_file_of_the_user(t: Targets) -> object:
    os.unlink(Path(t["home"]) / "to-delete")
    return True


@attempt
def change_permissions_of_a_file_of_the_user(t: Targets) -> object:
    os.chmod(Path(t["home"]) / "document", 0o777)
    return True


@attempt
def change_the_time_of_a_file_of_the_user(t: Targets) -> object:
    os.utime(Path(t["home"]) / "document", (1, 1))
    return True


@attempt
def open_a_file_of_the_user_by_a_descriptor_of_its_folder(t: Targets) -> object:
    folder = os.open(t["home"], os.O_PATH)
    descriptor = os.open("by-descriptor", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=folder)
    return os.write(descriptor, b"x")


@attempt
def make_a_program_that_runs_as_its_owner(t: Targets) -> object:
    program = Path(t["folder"]) / "as-owner"
    program.write_text("x")
    os.chmod(program, 0o4755)
    return program.stat().st_mode & stat.S_ISUID


@attempt
def make_a_program_that_runs_as_its_owner_at_once(t: Targets) -> object:
    path = os.path.join(t["folder"], "as-owner-at-once")
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o4755))
    return os.stat(path).st_mode & stat.S_ISUID


@attempt
def make_an_extension_that_settings_name(t: Targets) -> object:
    (Path(t["folder"]) / "not-yet").mkdir()
    return (Path(t["folder"]) / "not-yet" / "extension.py").write_text("evil")


@attempt
def change_what_the_agent_runs_from(t: Targets) -> object:
    return (Path(t["folder"]) / "own" / "module.py").write_text("evil")


# Network and sockets


@attempt
def connect_to_a_port_of_the_machine(t: Targets) -> object:
    with socket.create_connection(("127.0.0.1", t["port"]), 1) as connection:
        return connection.recv(5) == b"hello"


@attempt
def ask_by_datagrams(t: Targets) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(0.3)
        asking.sendto(b"x", ("127.0.0.1", t["udp"]))
        return asking.recv(5) == b"hello"


@attempt
def connect_by_the_shell(t: Targets) -> object:
    return shell(f'exec 3<>/dev/tcp/127.0.0.1/{t["port"]} && read -n 5 -t 1 -u 3 word && [ "$word" = hello ]')


@attempt
def fetch_with_curl(t: Targets) -> object:
    return shell(f"curl -sS -m 2 http://127.0.0.1:{t['http']}/ | grep hello")


@attempt
def fetch_with_wget(t: Targets) -> object:
    return shell(f"wget -q -T 2 -t 1 -O - http://127.0.0.1:{t['http']}/ | grep hello")


@attempt
def connect_with_ssh(t: Targets) -> object:
    done = subprocess.run(
        ["ssh", "-v", "-o", "ConnectTimeout=1", "-o", "BatchMode=yes", "-p", str(t["port"]), "127.0.0.1", "true"],
        check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=5,
    )  # fmt: skip
    return b"Connection established" in done.stderr


@attempt
def connect_to_a_socket_in_the_file_system(t: Targets) -> object:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(t["socket"])
        return connection.recv(5) == b"hello"


@attempt
def connect_to_a_socket_like_that_of_docker(t: Targets) -> object:
    return shell(f"curl -sS -m 2 --unix-socket {t['http_socket']} http://docker/ | grep hello")


@attempt
def connect_to_the_agent_of_ssh(t: Targets) -> object:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["SSH_AUTH_SOCK"])
        return connection.recv(5) == b"hello"


@attempt
def connect_to_an_abstract_socket(t: Targets) -> object:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("\0" + t["abstract"])
        return connection.recv(5) == b"hello"


@attempt
def send_a_datagram_to_a_socket_in_the_file_system(t: Targets) -> object:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
        return sending.sendto(b"x", t["datagrams"])


@attempt
def talk_to_the_machine_around_this_one(t: Targets) -> object:
    socket.socket(40, socket.SOCK_STREAM).close()
    return True


@attempt
def listen_to_the_kernel(t: Targets) -> object:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15).close()
    return True


# Other processes


@attempt
def signal_a_process_of_the_user(t: Targets) -> object:
    os.kill(t["victim"], signal.SIGURG)
    return True


@attempt
def see_the_processes_of_the_user(t: Targets) -> object:
    return "sleep" in Path(f"/proc/{t['victim']}/comm").read_text()


@attempt
def read_the_variables_of_a_process(t: Targets) -> object:
    return b"PRIVATE" in Path(f"/proc/{t['victim']}/environ").read_bytes()


@attempt
def read_the_variables_of_every_process(t: Targets) -> object:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if b"SECRET=PRIVATE" in (entry / "environ").read_bytes():
                    return True
    return False


@attempt
def open_the_memory_of_a_process(t: Targets) -> object:
    with open(f"/proc/{t['victim']}/mem", "rb"):
        return True


@attempt
def trace_a_process(t: Targets) -> object:
    call(101 if IS_64 else 117, 0x4206, t["victim"], 0, 0)
    return True


@attempt
def trace_a_child(t: Targets) -> object:
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        call(101 if IS_64 else 117, 0x4206, child, 0, 0)
        return True
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@attempt
def read_the_memory_of_a_child(t: Targets) -> object:
    data = ctypes.create_string_buffer(b"x" * 8)
    part = struct.pack("=QQ", ctypes.addressof(data), 8)
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        return call(310 if IS_64 else 270, child, part, 1, part, 1, 0) == 8
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@attempt
def hold_a_process(t: Targets) -> object:
    os.close(os.pidfd_open(t["victim"]))
    return True


@attempt
def take_a_descriptor_of_a_process(t: Targets) -> object:
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        os.close(call(438, os.pidfd_open(child), 1, 0))
        return True
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@attempt
def change_limits_of_a_process(t: Targets) -> object:
    import resource

    resource.prlimit(t["victim"], resource.RLIMIT_CORE, resource.prlimit(t["victim"], resource.RLIMIT_CORE))
    return True


@attempt
def enter_the_namespace_of_a_process(t: Targets) -> object:
    descriptor = os.open(f"/proc/{t['victim']}/ns/uts", os.O_RDONLY)
    result = libc.setns(descriptor, 0)
    # Without the wall only root may; that another user gets as far as the question is enough to tell.
    return result == 0 or ctypes.get_errno() == errno.EPERM


@attempt
def read_shared_memory_of_the_user(t: Targets) -> object:
    return "PRIVATE" in Path(f"/dev/shm/{t['name']}").read_text()


@attempt
def attach_shared_memory_by_its_key(t: Targets) -> object:
    return call(29 if IS_64 else 194, t["shm_key"], 0, 0) >= 0


@attempt
def write_to_a_terminal_of_the_user(t: Targets) -> object:
    descriptor = os.open(t["terminal"], os.O_WRONLY | os.O_NOCTTY)
    return os.write(descriptor, b"x")


@attempt
def open_a_terminal_of_the_user_by_another_process(t: Targets) -> object:
    return os.open(f"/proc/{t['victim']}/fd/0", os.O_RDONLY | os.O_NOCTTY) >= 0


# The kernel


@attempt
def make_calls_by_the_numbers_of_another_processor(t: Targets) -> object:
    """`getpid` as programs of 32 bits call it: numbers of theirs are not those that the filter knows."""
    if (child := os.fork()) == 0:
        memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        memory.write(b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x5b\xc3" if IS_64 else b"\xc0\x03\x5f\xd6")
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        os._exit(0 if ctypes.CFUNCTYPE(ctypes.c_int)(start)() == os.getpid() else 1)
    return os.waitpid(child, 0)[1] == 0


@attempt
def write_what_the_kernel_keeps_about_a_process(t: Targets) -> object:
    return Path("/proc/self/oom_score_adj").write_text("1000")


@attempt
def compare_descriptors_with_a_process(t: Targets) -> object:
    return call(312 if IS_64 else 272, os.getpid(), os.getpid(), 0, 0, 0) == 0


@attempt
def ask_the_kernel_for_its_mounts(t: Targets) -> object:
    found = ctypes.create_string_buffer(8 * 64)
    return call(458, ctypes.create_string_buffer(struct.pack("=IIQQQ", 32, 0, 2**64 - 1, 0, 0)), found, 64, 0) > 0


@attempt
def make_a_namespace_of_users(t: Targets) -> object:
    if (child := os.fork()) == 0:
        os._exit(0 if libc.unshare(0x10000000) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


@attempt
def make_namespaces_by_a_program(t: Targets) -> object:
    return shell("unshare -Ur true")


@attempt
def make_a_sandbox_in_the_sandbox(t: Targets) -> object:
    return shell("bwrap --dev-bind / / true")


@attempt
def make_a_namespace_with_a_process(t: Targets) -> object:
    pid = libc.syscall(56 if IS_64 else 220, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    if pid < 0:
        return False
    return os.waitpid(pid, 0)[1] == 0


@attempt
def use_queues_of_the_kernel(t: Targets) -> object:
    os.close(call(425, 2, ctypes.create_string_buffer(256)))
    return True


@attempt
def keep_keys_in_the_kernel(t: Targets) -> object:
    return call(248 if IS_64 else 217, b"user", b"pigeon-test", b"x", 1, -1)


@attempt
def look_for_handles_of_files(t: Targets) -> object:
    handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0) + bytes(128))
    mount = ctypes.c_int()
    call(303 if IS_64 else 264, -100, t["home"].encode(), handle, ctypes.byref(mount), 0)
    return True


@attempt
def run_a_program_of_another_owner(t: Targets) -> object:
    done = subprocess.run([t["as_root"], "-u"], check=False, capture_output=True, text=True)
    return done.stdout.strip() == "0" and (os.getuid() != 0 or not t["walled"])


@as_root
def mount_something(t: Targets) -> object:
    if libc.mount(b"tmpfs", t["mount_point"].encode(), b"tmpfs", 0, None):
        return False
    libc.umount2(t["mount_point"].encode(), 2)
    return True


@as_root
def take_a_mount_away(t: Targets) -> object:
    result = libc.umount2((t["home"] + "/.ssh").encode(), 2)
    return result == 0 or ctypes.get_errno() == errno.EINVAL


@as_root
def make_the_disk_writable_again(t: Targets) -> object:
    return shell(f"mount -o remount,bind,rw {t['mounted']}")


@as_root
def change_the_root(t: Targets) -> object:
    if (child := os.fork()) == 0:
        with suppress(OSError):
            os.chroot(t["folder"])
            os._exit(0)
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


@as_root
def make_a_device(t: Targets) -> object:
    path = os.path.join(t["folder"], "device")
    os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(7, 0))
    return True


@as_root
def open_the_disk(t: Targets) -> object:
    os.close(os.open(t["disk"], os.O_RDONLY))
    return True


@as_root
def write_to_the_log_of_the_kernel(t: Targets) -> object:
    os.close(os.open("/dev/kmsg", os.O_WRONLY))
    return True


@as_root
def set_a_parameter_of_the_kernel(t: Targets) -> object:
    path = Path("/proc/sys/kernel/panic")
    return path.write_text(path.read_text())


@as_root
def set_a_parameter_below_sys(t: Targets) -> object:
    path = Path("/sys/kernel/profiling") if os.path.exists("/sys/kernel/profiling") else Path("/sys/module")
    descriptor = os.open(t["below_sys"] or path, os.O_WRONLY)
    os.close(descriptor)
    return True


@as_root
def make_a_group_of_processes(t: Targets) -> object:
    path = f"{t['cgroup']}/{t['name']}"
    os.mkdir(path)
    os.rmdir(path)
    return True


@as_root
def load_a_program_into_the_kernel(t: Targets) -> object:
    attributes = ctypes.create_string_buffer(struct.pack("=IIII", 2, 4, 4, 1) + bytes(112))
    os.close(call(321 if IS_64 else 280, 0, attributes, 128))
    return True


@as_root
def put_text_into_a_terminal(t: Targets) -> object:
    master, slave = os.openpty()
    try:
        fcntl.ioctl(slave, termios.TIOCSTI, b"x")
        return True
    finally:
        os.close(master)
        os.close(slave)


@as_root
def read_the_passwords_of_the_system(t: Targets) -> object:
    return "root:" in Path("/etc/shadow").read_text()


@as_root
def leave_a_job_for_later(t: Targets) -> object:
    path = Path(t["spool"])
    path.write_text("x")
    path.unlink()
    return True


@as_root
def use_a_capability(t: Targets) -> object:
    os.chown(os.path.join(t["folder"], "file"), 12345, 12345)
    os.chown(os.path.join(t["folder"], "file"), 0, 0)
    return True


@as_root
def set_the_name_of_the_machine(t: Targets) -> object:
    socket.sethostname(socket.gethostname())
    return True


def main() -> None:
    targets: Targets = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    found: dict[str, bool] = {}
    for name, function in ATTEMPTS.items():
        if name in ROOT_ONLY and os.getuid() != 0:
            continue
        try:
            found[name] = bool(function(targets))
        except (OSError, KeyError, subprocess.SubprocessError, AttributeError) as error:
            found[name] = False
            if "-v" in sys.argv:
                sys.stderr.write(f"{name} {error!r}\n")
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
