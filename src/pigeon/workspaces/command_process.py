"""Commands of a workspace as processes that the shell code reads, waits for and kills."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator

from pigeon.workspaces.records import CommandEnd
from pigeon.workspaces.workspace import Workspace

MOST_WAITING = 64
# After a kill the workspace has so long to say that the command has ended.
ENDED_WITHIN = 4.0
_KILLED = 137
_BLOCK = 1 << 16


class WorkspaceCommands:
    """Starts the commands of an agent in its workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def start(self, command: str, cwd: str, stdin: int | None) -> WorkspaceProcess:
        """Start a command; `stdin` is a descriptor that it reads, which is closed here when it has ended."""
        return WorkspaceProcess(self._workspace, command, cwd, stdin)


class WorkspaceProcess:
    """A running command, with the interface of `Process`."""

    def __init__(self, workspace: Workspace, command: str, cwd: str, stdin: int | None) -> None:
        self._waiting: deque[bytes] = deque()
        self._has_output = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._stdin = stdin
        self._is_over = False
        self._is_closed = False
        self._is_killed = False
        self._giving_up: asyncio.TimerHandle | None = None
        fed = None if stdin is None else read_as_it_comes(stdin)
        self._work: asyncio.Task[CommandEnd] = asyncio.create_task(
            workspace.run(command, cwd=cwd, stdin=fed, on_output=self._add_output)
        )
        self._work.add_done_callback(self._on_ended)

    async def read(self, timeout: float | None = None) -> bytes | None:
        """More output; `b""` at its end, `None` when the time is up."""
        while not self._waiting:
            if self._is_over:
                return b""
            self._has_output.clear()
            try:
                await asyncio.wait_for(self._has_output.wait(), timeout)
            except TimeoutError:
                return None
        part = self._waiting.popleft()
        self._has_room.set()
        return part

    async def read_errors(self) -> bytes | None:
        """Nothing: errors are part of the output."""
        return b""

    async def wait(self) -> int:
        """The exit code; raises `OSError` if the command could not be run, or was lost."""
        if not self._work.done():
            await asyncio.wait({self._work}, timeout=ENDED_WITHIN if self._is_killed else None)
        if not self._work.done() or self._work.cancelled():
            return _KILLED
        code = self._work.result().exit_code
        return _KILLED if code is None else code

    def terminate(self) -> None:
        """Kill it: the machine of a workspace has no gentler way."""
        self.kill()

    def kill(self, keep_helper: bool = False) -> None:
        """Kill it and everything it started; returns at once."""
        if not self._is_killed and not self._work.done():
            self._is_killed = True
            self._work.cancel()
            self._giving_up = asyncio.get_running_loop().call_later(ENDED_WITHIN, self._end_output)

    async def wait_until_gone(self, timeout: float) -> bool:
        """Wait until nothing of it is left; returns False if that took too long."""
        done, _ = await asyncio.wait({self._work}, timeout=timeout)
        return bool(done)

    def close(self) -> None:
        """Stop reading the output; what still comes is dropped."""
        self._is_closed = True
        self._has_room.set()

    async def _add_output(self, part: bytes) -> None:
        if self._is_closed or not part:
            return
        self._waiting.append(part)
        self._has_output.set()
        while len(self._waiting) >= MOST_WAITING and not self._is_closed:
            self._has_room.clear()
            await self._has_room.wait()

    def _on_ended(self, work: asyncio.Task[CommandEnd]) -> None:
        if not work.cancelled():
            work.exception()  # `wait` raises it
        self._end_output()
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None

    def _end_output(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        self._is_over = True
        self._has_output.set()


def _set_done(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


async def read_as_it_comes(descriptor: int) -> AsyncIterator[bytes]:
    """What is written to a pipe, until its writer closes it."""
    loop = asyncio.get_running_loop()
    os.set_blocking(descriptor, False)
    while True:
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(descriptor, _set_done, readable)
        try:
            await readable
        finally:
            loop.remove_reader(descriptor)
        data = os.read(descriptor, _BLOCK)
        if not data:
            return
        yield data
