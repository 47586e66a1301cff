"""The wall as `process/start` meets it: a program to run becomes what this system runs in its place.

    builder       what encloses a command
    -----------   -------------------------------------------------------------------------------------------------
    bubblewrap    the program `bwrap` makes namespaces and mounts, and loads the filter of system calls
    landlock      the reaper does the same by itself (`process/namespaces`), and adds rules of Landlock to it
    seatbelt      the program `sandbox-exec` of macOS, by a profile

`app` chooses the first that really works here; there is no command without the wall that was asked for.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct

from pigeon.system.paths import absolute_entries
from pigeon.system.sandbox.plan import Mount, MountPlan, plan_of
from pigeon.system.sandbox.policy import SandboxPolicy, is_inside
from pigeon.system.sandbox.seccomp import filter_for

WallBuilder = Literal["bubblewrap", "landlock", "seatbelt"]
# The reaper puts the arguments of `bwrap` and the filter here, and folders behind them.
_ARGUMENTS, _FILTER, _FOLDERS = 3, 4, 5
# Variables that only lead to what is behind the wall.
_LEADING_OUT = frozenset(
    {
        *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "SSH_ASKPASS", "GIT_ASKPASS", "GPG_AGENT_INFO", "XDG_RUNTIME_DIR", "TMUX"),
        *("DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"),
        *("DOCKER_HOST", "CONTAINER_HOST", "VSCODE_IPC_HOOK_CLI", "VSCODE_GIT_IPC_HANDLE"),
        *("VSCODE_GIT_ASKPASS_MAIN", "VSCODE_GIT_ASKPASS_NODE"),
    }
)
MARKER = "PIGEON_SANDBOX"
KERNEL_FILES = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")

# How the reaper is to enclose a command: a word for the kind, and what that needs.
Orders = tuple[str, Any]


class EnclosedProgram(Struct, frozen=True):
    """What is run in the place of a program; `orders` are for the reaper."""

    program: str
    argv: list[str]
    environment: Mapping[str, str]
    orders: Orders | None


class Wall:
    """Encloses the commands of one agent. `artifacts` says where the session's full outputs are, if anywhere.

    `begin` and `end` are called around each command: while one runs, empty folders stand where commands must make none.
    """

    def __init__(
        self,
        policy: SandboxPolicy,
        builder: WallBuilder,
        program: str,
        machine: str,
        artifacts: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.policy = policy
        self.builder = builder
        self._program = program
        self._machine = machine
        self._artifacts = artifacts
        self._running = 0
        self._made: list[str] = []
        self._unwanted: set[str] = set()
        self._environment: tuple[Mapping[str, str], dict[str, str]] = ({}, {})

    def begin(self, program: str, argv: Sequence[str], cwd: str, environment: Mapping[str, str]) -> EnclosedProgram:
        """What to run instead; raises `OSError` if that cannot be done. `end` must follow."""
        _check(program, cwd)
        plan = plan_of(self.policy, self._artifacts())
        self._make(plan)
        self._running += 1
        try:
            return self._enclosed(program, argv, cwd, self._variables(environment), plan)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """A command has ended with all that it started."""
        self._running -= 1
        for path in self._unwanted:
            with suppress(OSError):
                os.unlink(path)
        if self._running == 0:
            self._unwanted.clear()
            while self._made:
                with suppress(OSError):
                    os.rmdir(self._made.pop())

    def _enclosed(
        self, program: str, argv: Sequence[str], cwd: str, environment: Mapping[str, str], plan: MountPlan
    ) -> EnclosedProgram:
        if self.builder == "seatbelt":
            from pigeon.system.sandbox.seatbelt import profile_of

            profile = profile_of(self.policy, plan)
            return EnclosedProgram(self._program, [self._program, "-p", profile, program, *argv[1:]], environment, None)
        calls = filter_for(self._machine)
        if calls is None:
            raise OSError(errno.ENOSYS, f"there is no filter of system calls for {self._machine}")
        if self.builder == "landlock":
            mounts = [(mount.kind, os.fsencode(mount.path)) for mount in plan.mounts]
            orders = (mounts, os.fsencode(self.policy.empty_file), self.policy.network, os.fsencode(cwd), calls)
            return EnclosedProgram(program, list(argv), environment, ("landlock", orders))
        fixed, held = bubblewrap_arguments(self.policy, plan)
        arguments = b"".join(os.fsencode(word) + b"\0" for word in [*fixed, "--chdir", cwd])
        line = [self._program, "--args", str(_ARGUMENTS), "--", program, *argv[1:]]
        files = ([arguments, calls], [os.fsencode(path) for path in held])
        return EnclosedProgram(self._program, line, environment, ("bubblewrap", files))

    def _variables(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        if environment != self._environment[0]:
            seen = {name: value for name, value in environment.items() if name not in _LEADING_OUT}
            seen.update(dict.fromkeys(("TMPDIR", "TMP", "TEMP"), self.policy.temporary))
            seen[MARKER] = self.policy.mode
            self._environment = (dict(environment), seen)
        return self._environment[1]

    def _make(self, plan: MountPlan) -> None:
        for path in plan.missing:
            with suppress(FileExistsError):
                os.mkdir(path, 0o755)
                self._made.append(path)
        self._unwanted.update(plan.unwanted)


def bubblewrap_arguments(policy: SandboxPolicy, plan: MountPlan) -> tuple[list[str], list[str]]:
    """The arguments of `bwrap`, and the files and folders that it gets as descriptors, in their order."""
    words = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    words += [*([] if policy.network else ["--unshare-net"]), "--new-session", "--cap-drop", "ALL"]
    words += ["--seccomp", str(_FILTER), "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    # It leaves these open to root, who may write some of them without a capability.
    for path in KERNEL_FILES:
        words += ["--ro-bind-try", path, path]
    held: list[str] = []
    for mount in plan.mounts:
        if mount.kind == "hide folder":
            words += ["--tmpfs", mount.path, "--remount-ro", mount.path]
        elif mount.kind == "hide file":
            words += ["--ro-bind", policy.empty_file, mount.path]
        else:
            words += [_binding(mount), str(_FOLDERS + len(held)), mount.path]
            held.append(mount.path)
    return words, held


def _binding(mount: Mount) -> str:
    return "--ro-bind-fd" if mount.kind == "keep" else "--bind-fd"


def find_bubblewrap(search_path: str | None, policy: SandboxPolicy) -> str | None:
    """The program, from entries of a PATH that commands cannot write; it is never downloaded."""
    for folder in filter(None, absolute_entries(search_path).split(os.pathsep)):
        candidate = os.path.realpath(os.path.join(folder, "bwrap"))
        written = any(is_inside(candidate, root) for root in policy.roots)
        if not written and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None


def _check(program: str, cwd: str) -> None:
    """Tell what cannot be started apart from a program that fails: behind the wall both would be an exit code."""
    for path, wanted in ((cwd, os.path.isdir), (program, os.path.isfile)):
        if not wanted(path):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if not os.access(program, os.X_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), program)
