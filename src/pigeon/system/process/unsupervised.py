"""Commands as our own children in a process group: for systems without keepers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence

PIPE_GRACE = 0.1
CHUNK = 256 * 1024
_alive: set[Direct] = set()


async def start_direct(
    argv: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    program: str | None = None,
    *,
    apart: bool = False,
    stdin: bytes | None = None,
) -> Direct:
    """Run a command as a child of ours."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        executable=program,
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE if apart else asyncio.subprocess.STDOUT,
        cwd=cwd,
        env=dict(env),
        start_new_session=True,
        limit=CHUNK,
    )
    if process.stdin is not None:
        process.stdin.write(stdin or b"")
        process.stdin.close()
    return Direct(process)


class Direct:
    """A command whose group can be killed; what left the group is out of reach."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._exited = asyncio.ensure_future(process.wait())
        self._exited.add_done_callback(lambda _: _alive.discard(self))
        self.pid = process.pid
        _alive.add(self)

    async def read(self, timeout: float | None = None) -> bytes | None:
        """More output; after the exit, a silence of `PIPE_GRACE` counts as its end."""
        return await self._read(self._process.stdout, timeout)

    async def read_errors(self) -> bytes | None:
        """More of what it wrote to its error output, which is apart."""
        return await self._read(self._process.stderr, None)

    async def _read(self, stream: asyncio.StreamReader | None, timeout: float | None) -> bytes | None:
        assert stream is not None
        arrived = asyncio.ensure_future(stream.read(CHUNK))
        try:
            await asyncio.wait({arrived, self._exited}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
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
        code = await asyncio.shield(self._exited)
        return code if code >= 0 else 128 - code

    def ask_to_end(self) -> None:
        """Send SIGTERM to the group."""
        self._signal(signal.SIGTERM)

    def kill(self, tidy: bool = True) -> None:
        """Kill the group."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(OSError):
            if sys.platform == "win32":
                self._process.kill()
            else:
                os.killpg(self.pid, number)

    async def gone(self, timeout: float) -> bool:
        """True once the command itself has ended."""
        await asyncio.wait({self._exited}, timeout=timeout)
        return self._exited.done()

    def close(self) -> None:
        """Give the pipe back."""
        self._process._transport.close()  # type: ignore[attr-defined]


async def kill_direct(timeout: float) -> bool:
    """Kill all groups."""
    alive = list(_alive)
    kill_direct_now()
    return all([await process.gone(timeout) for process in alive])


def kill_direct_now() -> None:
    """Kill all groups without waiting."""
    for process in list(_alive):
        process.kill()
