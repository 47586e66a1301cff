"""When tool servers are connected: after a pause or earlier if something needs them, and not all at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pigeon.mcp.server import ToolServer

START_PAUSE = 0.2
MOST_STARTING = 4
# After this time, a server that is still starting no longer delays the next one.
LONGEST_TURN = 2.0


class StartSchedule:
    """The pause before the first start, and the turns of the servers. `connect_all` calls `begin`.

    Once it `has_begun`, servers that are added are connected at once.
    """

    def __init__(self, connect_all: Callable[[], None]) -> None:
        self._connect_all = connect_all
        self._pause: asyncio.TimerHandle | None = None
        self._skips_pause = False
        self._turns = asyncio.Semaphore(MOST_STARTING)
        self.has_begun = False

    def schedule_connecting(self) -> None:
        """Connect all servers after a pause, unless that has begun; at once for a host that shows their progress."""
        if self._skips_pause:
            self._connect_all()
        elif not self.has_begun and self._pause is None:
            self._pause = asyncio.get_running_loop().call_later(START_PAUSE, self._connect_all)

    def end_pause_and_mark_begun(self) -> None:
        """Connect all servers: the pause is over."""
        self.end_pause()
        self.mark_begun()

    def mark_begun(self) -> None:
        """One server is being connected; those that wait for the end of the pause still do."""
        self.has_begun = True

    def end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def skip_startup_delay(self) -> None:
        """End the pause before servers are connected, and have none from now on."""
        self._skips_pause = True
        if self._pause is not None:
            self._connect_all()

    async def wait_for_turn(self) -> None:
        """Wait until fewer than `MOST_STARTING` others are starting; `release_turn_when_settled` follows."""
        await self._turns.acquire()

    async def release_turn_when_settled(self, server: ToolServer) -> None:
        """End the turn of a server when it is settled, or after `LONGEST_TURN`."""
        try:
            async with asyncio.timeout(LONGEST_TURN):
                await server.wait_until_settled()
        except TimeoutError:
            pass
        finally:
            self._turns.release()
