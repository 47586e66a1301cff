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


async def start_direct(argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> Direct:
    """Run a command as a child of ours."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=cwd,
        env=dict(env),
        start_new_session=True,
        limit=CHUNK,
    )
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
        stream = self._process.stdout
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

    def kill(self, tidy: bool = True) -> None:
        """Kill the group."""
        with contextlib.suppress(OSError):
            if sys.platform == "win32":
                self._process.kill()
            else:
                os.killpg(self.pid, signal.SIGKILL)

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
