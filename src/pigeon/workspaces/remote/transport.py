"""Ways to another machine: the program that connects its stdin and stdout with a shell there."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import socket
from collections.abc import Callable

from msgspec import Struct

from pigeon.system.paths import keep_absolute_entries
from pigeon.system.process.start import Process, ProcessOwner, Streams
from pigeon.system.process.variables import ProgramEnvironment
from pigeon.wire.choices import WorkspaceKind

STDERR_KEPT = 8 * 1024
BUFFER = 1 << 20


class MachineTransport(Struct, frozen=True):
    """How to get a shell on a machine; `explain` says what the words of the program on its stderr mean.

    `name` is the machine as errors name it. A program that is detached is killed alone, not with what it has started:
    the client of a container engine starts what watches over the container and removes it.
    """

    kind: WorkspaceKind
    name: str
    argv: list[str]
    environment: Callable[[], ProgramEnvironment]
    explain: Callable[[str, int], str]
    is_detached: bool = False


class Link:
    """A running transport: what it brings, what it is sent, and what it says on its stderr."""

    def __init__(self, process: Process, ends: socket.socket, errors: int) -> None:
        self._process = process
        self._socket = ends
        self._errors = errors
        self._said = bytearray()
        self._loop = asyncio.get_running_loop()
        os.set_blocking(errors, False)
        self._loop.add_reader(errors, self._on_errors)
        self._is_closed = False
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def open_streams(self) -> None:
        self.reader, self.writer = await asyncio.open_connection(sock=self._socket, limit=BUFFER)

    def _on_errors(self) -> None:
        try:
            data = os.read(self._errors, 4096)
        except BlockingIOError:
            return
        self._said += data
        del self._said[:-STDERR_KEPT]
        if not data:
            self._loop.remove_reader(self._errors)

    @property
    def said(self) -> str:
        """The end of what the transport wrote to its stderr."""
        return self._said.decode("utf-8", "replace").strip()

    async def wait_for_end(self, timeout: float) -> int | None:
        """Its exit code; None if it does not end in time."""
        with contextlib.suppress(TimeoutError, OSError):
            return await asyncio.wait_for(self._process.wait(), timeout)
        return None

    def close(self) -> None:
        """Cut the connection at once; what runs there is not told."""
        if self._is_closed:
            return
        self._is_closed = True
        self._process.kill()
        self.writer.transport.abort()
        self._loop.remove_reader(self._errors)
        os.close(self._errors)

    async def close_when_written(self, timeout: float) -> None:
        """Let the other side read the last words, then cut the connection."""
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(timeout):
                await self.writer.drain()
                self._socket_shutdown()
                await self._process.wait()
        self.close()
        await self._process.wait_until_gone(timeout)

    def _socket_shutdown(self) -> None:
        with contextlib.suppress(OSError, NotImplementedError):
            self.writer.write_eof()


async def start_transport(transport: MachineTransport, processes: ProcessOwner, cwd: str) -> Link:
    """Start it; raises `OSError` if its program cannot be run."""
    environment = transport.environment()
    program = shutil.which(transport.argv[0], path=keep_absolute_entries(environment.get("PATH")))
    if program is None:
        raise FileNotFoundError(errno.ENOENT, "it is not installed, or not in PATH")
    ours, theirs = socket.socketpair()
    errors_read, errors_write = os.pipe()
    given = theirs.detach()
    try:
        process = await processes.start(
            transport.argv,
            cwd=cwd,
            environment=environment,
            program=program,
            streams=Streams(given, os.dup(given), errors_write),
            outside=True,
            detached=transport.is_detached,
        )
    except BaseException:
        ours.close()
        os.close(errors_read)
        raise
    link = Link(process, ours, errors_read)
    await link.open_streams()
    return link
