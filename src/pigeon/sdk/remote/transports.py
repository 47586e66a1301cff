"""How a `Client` reaches its agent: as a process that it starts, or over a unix socket of its own; conversations of
`pigeon serve` are in `sdk/remote/served_transport.py`.

A transport carries bytes. It passes on its input (`receive`), reports its end once (`lost`), and knows the reason
(`explain_death`). `close` ends it cleanly: the input is closed, which every agent of the family treats as the end, and
only an agent that does not end is killed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from pigeon.sdk.errors import ProcessDied
from pigeon.system.process.peer import PeerProcess
from pigeon.transport.unix_socket import user_of
from pigeon.wire.errors import StartupError

END_SECONDS = 5.0
TERM_SECONDS = 3.0
KILL_SECONDS = 3.0
WORDS_SECONDS = 2.0
# Pigeon reads its key from the first line of its stdin, where no list of processes shows it.
READ_KEY = ("--api-key-file", "-")


class Transport(Protocol):
    """A byte stream to and from one agent."""

    async def open(self, receive: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        """Start or reach the agent; raises `StartupError` if that is impossible."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes; never waits, and is ignored once the agent is gone."""
        ...

    async def explain_death(self) -> ProcessDied:
        """The error that explains why the agent is gone."""
        ...

    async def close(self) -> None:
        """End the agent, or disconnect from it."""
        ...


class ProgramChoices(Struct, frozen=True):
    """How an agent's program is started: where, with which variables, its first line of input, and the receiver of its
    stderr."""

    cwd: str | None = None
    env: Mapping[str, str] | None = None
    first_line: bytes = b""
    on_stderr: Callable[[str], None] | None = None


class SubprocessTransport:
    """An agent in a separate process."""

    def __init__(self, command: Sequence[str], choices: ProgramChoices) -> None:
        self._command = list(command)
        self._choices = choices
        self._process: PeerProcess | None = None
        # Output that came before it was opened, and whether the output has ended.
        self._early: list[bytes] = []
        self._ended = False
        self._receive: Callable[[bytes], None] = self._early.append
        self._lost: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Start the process; it is opened once there is a receiver. Raises like `open`."""
        choices = self._choices
        process = PeerProcess(self._on_data, self._on_end, choices.on_stderr)
        try:
            await process.start(self._command, choices.cwd, choices.env)
        except OSError as error:
            what = error.filename or self._command[0]
            raise StartupError(f"{what}: {error.strerror or error}") from None
        process.write(choices.first_line)
        self._process = process

    async def open(self, receive: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        """Start the process, unless it was started."""
        if self._process is None:
            await self.start()
        self._receive, self._lost = receive, lost
        for data in self._early:
            receive(data)
        if self._ended:
            asyncio.get_running_loop().call_soon(lost)

    def _on_data(self, data: bytes) -> None:
        self._receive(data)

    def _on_end(self) -> None:
        self._ended = True
        self._lost()

    @property
    def pid(self) -> int | None:
        """The id of the process, once there is one."""
        return None if self._process is None else self._process.pid

    def write(self, data: bytes) -> None:
        if self._process is not None:
            self._process.write(data)

    async def explain_death(self) -> ProcessDied:
        """Its exit code and its last words."""
        process = self._process
        if process is None:
            return ProcessDied(f"{self._command[0]} does not run")
        if not await process.wait_until_ended(WORDS_SECONDS):
            return ProcessDied(f"{self._command[0]} has closed its stdout", None, process.last_error_lines)
        return ProcessDied(f"{self._command[0]} has ended", process.exit_code, process.last_error_lines)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def close(self) -> None:
        """End the input, then SIGTERM, then SIGKILL, each if the previous step did not help in time."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.end_input()
            if not await process.wait_until_ended(END_SECONDS):
                process.terminate()
                if not await process.wait_until_ended(TERM_SECONDS):
                    process.kill()
                    await process.wait_until_ended(KILL_SECONDS)
        finally:
            process.close()


class SocketTransport(asyncio.Protocol):
    """An agent behind a unix socket."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._receive: Callable[[bytes], None] = lambda data: None
        self._lost: Callable[[], None] = lambda: None
        self._transport: Any = None
        self._gone = asyncio.Event()
        self._reason = ""

    async def open(self, receive: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self._receive, self._lost = receive, lost
        self._gone.clear()
        try:
            transport, _ = await asyncio.get_running_loop().create_unix_connection(lambda: self, self._path)
        except OSError as error:
            raise StartupError(f"{self._path}: {error.strerror or error}") from None
        # The peer can make this program run tools, so it must belong to our own user or to the system.
        if user_of(transport.get_extra_info("socket")) not in (None, 0, os.geteuid()):
            transport.abort()
            await self._gone.wait()
            raise StartupError(f"{self._path}: the process that listens there is another user's")

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def explain_death(self) -> ProcessDied:
        """Why the connection is gone, as far as known here."""
        return ProcessDied(f"The connection to {self._path} has ended" + (f": {self._reason}" if self._reason else ""))

    def kill(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """End the input; the agent closes its side when it is done."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        try:
            if not transport.is_closing():
                transport.write_eof()
            async with asyncio.timeout(END_SECONDS):
                await self._gone.wait()
        except TimeoutError:
            transport.abort()
        finally:
            transport.close()

    # Called by asyncio

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._reason = "" if exc is None else str(exc)
        self._gone.set()
        self._lost()


def key_line(key: str) -> bytes:
    """The first line of the input of an agent that is started with `READ_KEY`; raises `ValueError`."""
    if not key.strip() or "\n" in key:
        raise ValueError("api_key must be one line that is not empty")
    return key.encode() + b"\n"


def transport_of(
    command: Sequence[str] | None, url: str | None, choices: ProgramChoices
) -> SubprocessTransport | SocketTransport:
    """The requested transport; raises `ValueError` for an invalid address."""
    if (command is None) == (url is None):
        raise ValueError("give either command= or url=")
    if command is not None:
        if isinstance(command, str) or not command:
            raise ValueError("command must be a list of words: the program and its arguments")
        return SubprocessTransport(command, choices)
    assert url is not None
    if choices != ProgramChoices():
        raise ValueError("env=, api_key= and on_stderr= are for command=; an agent behind a socket has its own")
    return SocketTransport(url.removeprefix("unix:").removeprefix("//"))
