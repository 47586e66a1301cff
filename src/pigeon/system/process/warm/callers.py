"""Whether a process that asks for a warm start may have one: what it may do and see must be what we may and see.

A process that we fork has our namespaces, capabilities, filters and groups, and a caller in a sandbox must not get out
of it by asking us. So all of this is read from the kernel, about the process at the other end of a connection; what
that process says is not used. If something cannot be read, the answer is no.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
from collections.abc import Iterator
from contextlib import suppress

from pigeon.system.process.warm.call import peer_of

_SO_PEERPIDFD = 77
_IOPRIO_GET = {"x86_64": 251 + 1, "aarch64": 31, "riscv64": 31}
_IOPRIO_WHO_PROCESS = 1
_NAMESPACES = (
    *("cgroup", "ipc", "mnt", "net", "pid", "pid_for_children"),
    *("time", "time_for_children", "user", "uts"),
)
_STATUS = frozenset(
    {
        *("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"),
        *("Seccomp_filters", "Cpus_allowed", "Mems_allowed", "THP_enabled", "TracerPid"),
    }
)
# None of these needs the right to trace the process, which a user may lack for processes of their own.
_FILES = ("cgroup", "oom_score_adj", "coredump_filter", "attr/current")
# What /proc/PID/limits calls the limits that a forked process can take over at any time. The others are read when a
# program starts, or what was allocated before would count.
LIMITS = {
    "Max cpu time": "RLIMIT_CPU",
    "Max file size": "RLIMIT_FSIZE",
    "Max core file size": "RLIMIT_CORE",
    "Max resident set": "RLIMIT_RSS",
    "Max processes": "RLIMIT_NPROC",
    "Max open files": "RLIMIT_NOFILE",
    "Max pending signals": "RLIMIT_SIGPENDING",
    "Max msgqueue size": "RLIMIT_MSGQUEUE",
}
_NNP = "NoNewPrivs:\t1"


class CallerCheck:
    """Compares callers with this process as it was at the beginning."""

    def __init__(self) -> None:
        self._ours = _describe_process("self", os.getpid())

    @property
    def refuses_all(self) -> str:
        """Why no caller can be known well enough here; empty if some can."""
        if self._ours is None:
            return "the kernel does not show here in which namespaces and with which rights a process runs"
        if _NNP in self._ours:
            # A process may be enclosed by Landlock, which is shown nowhere; it needs this bit, or root.
            return "processes here run with no_new_privs, so one in a sandbox cannot be told from one outside"
        return ""

    def may_call(self, link: socket.socket) -> int | None:
        """The process at the other end, if it may have a process of ours; else None."""
        pid, user = peer_of(link)
        if pid <= 0 or user != os.geteuid() or self.refuses_all:
            return None
        with suppress(OSError):
            handle = _open_peer(link, pid)
            try:
                theirs = _describe_process(str(pid), pid)
                # Its number was not another's while we looked.
                if theirs == self._ours and not select.select([handle], [], [], 0)[0]:
                    return pid
            finally:
                os.close(handle)
        return None


def _open_peer(link: socket.socket, pid: int) -> int:
    """A pidfd of the process that has connected; older kernels only know its number."""
    try:
        return link.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        return os.pidfd_open(pid)


def _describe_process(name: str, pid: int) -> list[str] | None:
    """Everything that must be equal; None if some of it cannot be read."""
    try:
        return list(_facts_of(f"/proc/{name}", pid))
    except (OSError, ValueError):
        return None


def _facts_of(folder: str, pid: int) -> Iterator[str]:
    for namespace in _NAMESPACES:
        with suppress(FileNotFoundError):
            yield os.readlink(f"{folder}/ns/{namespace}")
    root = os.stat(f"{folder}/root")
    yield f"{os.readlink(f'{folder}/root')} {root.st_dev} {root.st_ino}"
    for line in _read(f"{folder}/status").splitlines():
        if line.partition(":")[0] in _STATUS:
            yield line
    for line in _read(f"{folder}/limits").splitlines()[1:]:
        yield line[:25].strip() if line[:25].strip() in LIMITS else line
    for file in _FILES:
        # Kernels are built without some of them; what cannot be read for one process must not be readable for another.
        try:
            yield f"{file}: {_read(f'{folder}/{file}')}"
        except OSError as error:
            yield f"{file}: {error.errno}"
    yield f"{os.sched_getscheduler(pid)} {_io_priority(pid)}"


def _io_priority(pid: int) -> int:
    call = _IOPRIO_GET.get(os.uname().machine)
    return 0 if call is None else ctypes.CDLL(None).syscall(call, _IOPRIO_WHO_PROCESS, pid)


def _read(path: str) -> str:
    with open(path, "rb") as file:
        return file.read().decode("ascii", "replace")
