"""Commands as our own children in a process group: for systems without subreapers, or where the helper cannot run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pigeon.system.process.start import Streams

PIPE_GRACE = 0.1
CHUNK = 256 * 1024


async def start_unsupervised(
    program: str,
    argv: Sequence[str],
    cwd: str,
    environment: Mapping[str, str],
    on_gone: Callable[[UnsupervisedProcess], None],
    *,
    separate_errors: bool,
    stdin: bytes | int | None,
    streams: Streams | None,
) -> UnsupervisedProcess:
    loop = asyncio.get_running_loop()
    usual = (
        stdin if isinstance(stdin, int) else asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        asyncio.subprocess.PIPE,
        asyncio.subprocess.PIPE if separate_errors else asyncio.subprocess.STDOUT,
    )
    given = usual if streams is None else streams
    try:
        transport, protocol = await loop.subprocess_exec(
            lambda: _ExitProtocol(CHUNK, loop),
            *argv,
            executable=program,
            stdin=given[0],
            stdout=given[1],
            stderr=given[2],
            cwd=cwd,
            env=dict(environment),
            start_new_session=True,
        )
    finally:
        for descriptor in (*(streams or ()), *((stdin,) if isinstance(stdin, int) else ())):
            os.close(descriptor)
    process = UnsupervisedProcess(transport, protocol, on_gone)
    if protocol.stdin is not None:
        protocol.stdin.write(stdin if isinstance(stdin, bytes) else b"")
        protocol.stdin.close()
    return process


class _ExitProtocol(asyncio.subprocess.SubprocessStreamProtocol):
    """Reports the exit when it happens; asyncio's own `wait` also waits for background children to close the pipe."""

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit, loop)
        self.exited: asyncio.Future[None] = loop.create_future()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set_result(None)


class UnsupervisedProcess:
    """A command whose process group can be killed; processes that left the group are out of reach."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        protocol: _ExitProtocol,
        on_gone: Callable[[UnsupervisedProcess], None],
    ) -> None:
        self._transport = transport
        self._protocol = protocol
        self._on_gone = on_gone
        self._exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        protocol.exited.add_done_callback(self._on_exit)

    def _on_exit(self, exited: asyncio.Future[None]) -> None:
        """Report the end first, so that it is reported when `wait` returns."""
        self._on_gone(self)
        self._exited.set_result(None)

    async def read(self, timeout: float | None = None) -> bytes | None:
        """More output; after the exit, a silence of `PIPE_GRACE` counts as its end."""
        return await self._read(self._protocol.stdout, timeout)

    async def read_errors(self) -> bytes | None:
        """More of what it wrote to its error output, if that is separate."""
        return await self._read(self._protocol.stderr, None)

    async def _read(self, stream: asyncio.StreamReader | None, timeout: float | None) -> bytes | None:
        assert stream is not None
        arrived = asyncio.ensure_future(stream.read(CHUNK))
        either: set[asyncio.Future[Any]] = {arrived, self._exited}
        try:
            await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if arrived.done():
                return arrived.result()
            if not self._exited.done():
                return None
            await asyncio.wait({arrived}, timeout=PIPE_GRACE)
            return arrived.result() if arrived.done() else b""
        finally:
            arrived.cancel()

    async def wait(self) -> int:
        """The exit code; 128 plus the signal's number for a death by signal."""
        await asyncio.shield(self._exited)
        code = self._transport.get_returncode() or 0
        return code if code >= 0 else 128 - code

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self, keep_helper: bool = False) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(OSError):
            if sys.platform == "win32":
                self._transport.kill()
            else:
                os.killpg(self._transport.get_pid(), number)

    async def wait_until_gone(self, timeout: float) -> bool:
        """Wait until the command itself has ended; returns False if that takes longer than the timeout."""
        await asyncio.wait({self._exited}, timeout=timeout)
        return self._exited.done()

    def close(self) -> None:
        self._transport.close()
