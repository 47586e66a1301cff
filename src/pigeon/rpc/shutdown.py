"""How the process ends: for which event, with which exit code, and how long it may take."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

from pigeon.transport import exit_codes


class Shutdown:
    """The first reason to end wins; a second signal ends at once. `asked` is called with each reason when it occurs."""

    def __init__(self, asked: Callable[[int], None] = lambda code: None) -> None:
        self._asked = asked
        self._loop = asyncio.get_running_loop()
        self._reason: asyncio.Future[int] = self._loop.create_future()
        self._again: asyncio.Future[int] = self._loop.create_future()

    def watch_signals(self) -> None:
        for number, code in exit_codes.BY_SIGNAL.items():
            self._loop.add_signal_handler(number, self.request_exit, code)

    def request_exit(self, code: int) -> None:
        self._asked(code)
        if not self._reason.done():
            self._reason.set_result(code)
        elif not self._again.done():
            self._again.set_result(code)

    async def wait_for_request(self) -> int:
        """Wait until an exit is requested; returns the exit code."""
        return await asyncio.shield(self._reason)

    async def wait_for_work(self, work: asyncio.Future[None]) -> int:
        """Wait for work to finish; a signal in the meantime decides the exit code and leaves time for a clean end."""
        await _wait_for_first(work, self._again)
        if not self._again.done():
            return exit_codes.OK
        code = self._again.result()
        self._again = self._loop.create_future()
        return code

    async def wait_for_cleanup(self, work: asyncio.Future[Any], seconds: float) -> None:
        """Let closing work continue for at most this long, and only until the end is requested again."""
        await _wait_for_first(work, self._again, timeout=seconds)


def die_if_interrupted(code: int) -> None:
    """End the process by SIGINT if that is its exit code: a shell only ends the whole script if its child died of the
    signal."""
    if code == exit_codes.BY_SIGNAL[signal.SIGINT]:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


async def _wait_for_first(*futures: asyncio.Future[Any], timeout: float | None = None) -> None:
    await asyncio.wait(set(futures), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
