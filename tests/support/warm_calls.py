"""Calls of the program with a warm parent and without one, to compare.

Both have the same folders and variables, and start in the same way; a parent that answers under the home of the call
is the only difference.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pigeon.system.process.messages import receive, send
from pigeon.system.process.warm.call import connect_to, open_warm_folder
from pigeon.system.process.warm.link import SUFFIX, StatusRequest, WarmStatus
from support.agent_folders import AgentFolders
from support.agent_process import command_line
from support.processes import eventually

SECONDS = 30.0
# What differs from call to call anyway.
CHANGING = (
    (re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), b"<id>"),
    (re.compile(rb"\d{4}-\d\d-\d\d[T_]\d\d[:-]\d\d[:-]\d\d[.-]\d{3}Z"), b"<time>"),
    (re.compile(rb"(?<=:)\d{13}(?=[,}])"), b"<ms>"),
    (re.compile(rb'(?<="durationMs":)[\d.]+|(?<="duration":)[\d.]+'), b"<duration>"),
    (re.compile(rb'(?<="runId":")[0-9a-f]{16}'), b"<run>"),
    (re.compile(rb'(?<="id":")[0-9a-f]{8}(?=")|(?<="parentId":")[0-9a-f]{8}(?=")'), b"<entry>"),
)


class WarmHome:
    """A home with folders for calls, and perhaps a warm parent."""

    def __init__(self, root: Path, program: Sequence[str] = (), **variables: str) -> None:
        """`program` is called instead of the one under test."""
        self.program = program or command_line()
        self.folders = AgentFolders(root)
        self.folders.configure()
        self.variables = variables
        self.parent = 0

    @property
    def folder(self) -> Path:
        """Where sockets are."""
        return self.folders.home / ".pigeon" / "warm"

    @property
    def variables_of_calls(self) -> dict[str, str]:
        """Those that decide which parent is found."""
        return {"LANG": "C.UTF-8", **self.variables}

    def environment(self, **more: str) -> dict[str, str]:
        return self.folders.environment({**self.variables_of_calls, **more})

    def start(self, *arguments: str) -> int:
        """Start a parent; returns its process."""
        ran = self.call("warm", *arguments)
        assert ran.returncode == 0, ran.stderr
        self.parent = int(ran.stdout.split(b"from process ")[1].split(b";")[0])
        return self.parent

    def status(self) -> WarmStatus | None:
        """What the parent says; None if there is none."""
        folder = open_warm_folder(str(self.folders.home))
        assert folder is not None
        try:
            (name,) = (name for name in os.listdir(folder) if name.endswith(SUFFIX))
            with contextlib.closing(connect_to(folder, name)) as link:
                send(link, StatusRequest())
                status, _ = receive(link)
        except (OSError, ValueError):
            return None
        finally:
            os.close(folder)
        return status if isinstance(status, WarmStatus) else None

    @property
    def finished(self) -> int:
        """How many calls have run warm and ended."""
        status = None
        while status is None:
            # A parent on a busy machine may not answer at once; a test that finds none has a time limit.
            status = self.status()
        return status.calls

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.parent, signal.SIGKILL)
        assert eventually(lambda: not is_alive(self.parent))

    def call(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
        more.setdefault("input", b"")
        return subprocess.run(
            [*self.program, *arguments],
            env=self.environment(**more.pop("env", {})),
            cwd=more.pop("cwd", self.folders.work),
            capture_output="stdout" not in more,
            timeout=SECONDS,
            check=False,
            **more,
        )

    def open(self, *arguments: str, before: Sequence[str] = (), **more: Any) -> subprocess.Popen[bytes]:
        """Start a call, behind the words `before`."""
        pipe = subprocess.PIPE
        streams = {"stdin": pipe, "stdout": pipe, "stderr": pipe, **more}
        return subprocess.Popen(
            [*before, *self.program, *arguments],
            env=self.environment(**streams.pop("env", {})),
            cwd=self.folders.work,
            bufsize=0,
            **streams,
        )

    def forked(self) -> list[int]:
        """The processes that the parent has forked and that run."""
        with contextlib.suppress(OSError):
            return [int(pid) for pid in Path(f"/proc/{self.parent}/task/{self.parent}/children").read_text().split()]
        return []


@contextlib.contextmanager
def warm_home(root: Path, program: Sequence[str] = (), **variables: str) -> Iterator[WarmHome]:
    """A home with a warm parent, which is gone afterwards."""
    home = WarmHome(root, program, **variables)
    home.start()
    try:
        yield home
    finally:
        home.stop()


def ready_agent(home: WarmHome, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
    """An agent in RPC mode that has answered once."""
    agent = home.open("--mode", "rpc", "--model", "demo", "--no-session", *arguments, **more)
    ask(agent, b'{"type":"get_state"}')
    return agent


def ask(agent: subprocess.Popen[bytes], command: bytes) -> bytes:
    """The next response to a command."""
    assert agent.stdin is not None
    assert agent.stdout is not None
    agent.stdin.write(command + b"\n")
    line: bytes = b""
    while b'"type":"response"' not in line:
        line = agent.stdout.readline()
        assert line, "the agent has ended"
    return line


def end(agent: subprocess.Popen[bytes]) -> int:
    """Close everything and wait; the exit code."""
    agent.communicate(timeout=SECONDS)
    return agent.returncode


def without_changes(output: bytes) -> bytes:
    """Output without what differs from call to call."""
    for pattern, text in CHANGING:
        output = pattern.sub(text, output)
    return output


def is_alive(pid: int) -> bool:
    """True unless the process has ended, whether it was waited for or not."""
    with contextlib.suppress(OSError):
        return state_of(pid) not in "ZX"
    return False


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def read_memory(pid: int) -> Iterator[bytes]:
    """Everything that a process can write to, as root sees it."""
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in maps:
            span, rights = line.split()[:2]
            if rights.startswith("rw"):
                first, last = (int(part, 16) for part in span.split("-"))
                with contextlib.suppress(OSError, ValueError, OverflowError):
                    memory.seek(first)
                    yield memory.read(last - first)


def run_as_root() -> bool:
    return os.geteuid() == 0
