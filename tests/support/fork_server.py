"""Agents without the cost of a start: one server per pytest worker forks them, having imported everything already.

A forked agent has a pid, descriptors, an environment, a folder, arguments and a session of its own, as
`subprocess.Popen` would have given it, and the test sees its real exit code. What it does not have is a start: modules
are loaded already, and `/proc/<pid>/cmdline` and `/proc/<pid>/environ` are those of the server. A test that is about
such things says `by_exec=True` (see `support.agent_process`); `PIGEON_TESTS_EXEC=1` says it for all of them.

Pigeon's own fork server (`pigeon.system.process.fork_server`) cannot do this. All its answers go over one link to one
event loop, while agents are started here from any thread, in tests with and without a loop, and by other processes (the
relay). When its owner dies it either leaves the processes alone, so that agents would outlive a killed pytest worker,
or it owns all they start: then it continues what a test has stopped and kills what a killed agent has left, which is
what tests check that Pigeon does itself.
"""

from __future__ import annotations

import contextlib
import io
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

from support.agent_folders import KEPT

PROGRAM = Path(__file__).with_name("fork_server_main.py")
# The interpreter and the loader read these when they start, which a forked agent does not do.
READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "COVERAGE_", "MALLOC_")
STARTS_WITHIN = 30.0
_starting = threading.Lock()


def can_fork_agents() -> bool:
    """False where the system cannot do it, or where a start of its own is asked for every agent."""
    asked = os.environ.get("PIGEON_TESTS_EXEC") or os.environ.get("COVERAGE_PROCESS_START")
    return hasattr(os, "pidfd_open") and not asked


class ServerGone(OSError):
    """The fork server ended before the agent did."""


class ForkedProcess:
    """An agent that the server has forked; as much of `subprocess.Popen` as the tests use."""

    def __init__(self, channel: socket.socket, *pipes: int) -> None:
        """`pipes` are our ends of its stdin and its stdout, or none where it was given others."""
        self.stdin, self.stdout = (io.FileIO(pipes[0], "w"), io.FileIO(pipes[1])) if pipes else (None, None)
        self.returncode: int | None = None
        self._channel = channel
        self._unread = b""
        self.pid = self._next_number(STARTS_WITHIN)

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float = STARTS_WITHIN) -> int:
        """The exit code, or minus the signal that ended it; `subprocess.TimeoutExpired` if it does not end."""
        if self.returncode is None:
            self.returncode = self._next_number(timeout)
            self._channel.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float) -> None:
        """Wait for its end, and close the pipes."""
        self.wait(timeout)
        for pipe in filter(None, (self.stdin, self.stdout)):
            pipe.close()

    def _next_number(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while b"\n" not in self._unread:
            if not select.select([self._channel], [], [], max(0.0, end - time.monotonic()))[0]:
                raise subprocess.TimeoutExpired("pigeon", timeout)
            data = self._channel.recv(64)
            if not data:
                raise ServerGone("the fork server has ended")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return int(line)


class ForkServer:
    """The server of this process; it ends when our end of the control socket is closed, by `stop` or by our death."""

    def __init__(self, script: str) -> None:
        self.address = f"pigeon-tests-{uuid.uuid4().hex}"
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            subprocess.run(
                [_interpreter(script), "-I", str(PROGRAM), "serve", str(theirs.fileno()), script, self.address],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                cwd="/",
                env={name: os.environ[name] for name in KEPT if name in os.environ},
                check=True,
            )
        self.pid = int(self._control.recv(64))

    def start(self, arguments: list[str], stderr: int, folder: Path, environment: dict[str, str]) -> ForkedProcess:
        """Fork an agent with these arguments (without the program's name)."""
        their_stdin, stdin = os.pipe()
        stdout, their_stdout = os.pipe()
        channel = self._request_fork([their_stdin, their_stdout, stderr], arguments, folder, environment)
        os.close(their_stdin)
        os.close(their_stdout)
        return ForkedProcess(channel, stdin, stdout)

    def start_at(self, terminal: int, arguments: list[str], folder: Path, environment: dict[str, str]) -> ForkedProcess:
        """The same at a terminal, which becomes that of its session."""
        return ForkedProcess(self._request_fork([terminal] * 3, arguments, folder, environment))

    def _request_fork(
        self, streams: list[int], arguments: list[str], folder: Path, environment: dict[str, str]
    ) -> socket.socket:
        channel, their_channel = socket.socketpair()
        with their_channel:
            socket.send_fds(self._control, [b"f"], [*streams, their_channel.fileno()])
        channel.sendall(marshal.dumps((arguments, str(folder), environment)))
        channel.shutdown(socket.SHUT_WR)
        return channel

    def stop(self) -> None:
        """Hang up, and wait until it has ended."""
        with contextlib.suppress(ProcessLookupError):
            ended = os.pidfd_open(self.pid)
            self._control.close()
            select.select([ended], [], [], STARTS_WITHIN)
            os.close(ended)
        self._control.close()


def _interpreter(script: str) -> str:
    """The Python that the installer has written beside the script; agents know it as `sys.executable`."""
    try:
        named = Path(script).with_name("pigeon-main").read_text().partition("\n")[0].removeprefix("#!")
    except FileNotFoundError:
        return sys.executable
    return named if "python" in Path(named).name else sys.executable


_servers: dict[str, ForkServer] = {}


def fork_server(script: str) -> ForkServer:
    """The server of this pytest worker, started when the first agent is, unless `start_early` did."""
    with _starting:
        if script not in _servers:
            _servers[script] = ForkServer(script)
        return _servers[script]


def start_early(script: str) -> None:
    """Start the server in the background, so that the first test need not wait for it."""

    def start() -> None:
        # What goes wrong is reported by the first test that needs it.
        with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
            fork_server(script)

    threading.Thread(target=start, name="fork-server", daemon=True).start()


def relay_command(script: str) -> list[str]:
    """Words that start a child process which is the program to whoever started it; the script where none is forked."""
    if not can_fork_agents():
        return [script]
    return [sys.executable, "-I", "-S", str(PROGRAM), "relay", fork_server(script).address]


def stop_servers() -> None:
    """At the end of the pytest run."""
    with _starting:
        while _servers:
            _servers.popitem()[1].stop()
