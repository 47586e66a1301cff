"""When and how the screen is drawn: finished blocks above, and a new lower part below them.

Changes are drawn at most twenty times a second, whatever arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from pigeon.frontends.terminal.blocks import Block
from pigeon.frontends.terminal.painting import Painter
from pigeon.frontends.terminal.screen.block_queue import BlockQueue
from pigeon.frontends.terminal.screen.chat_output import ChatApplication, ChatOutput
from pigeon.frontends.terminal.screen.live_view import LiveView

DRAWS_A_SECOND = 20
# The rows that the live part leaves to what is below it.
ROWS_BELOW = 8


class Drawing:
    """Draws the blocks and the live part of one chat. `asked_rows` returns the rows of an open question, or 0; `app`
    returns the application, which is created later."""

    def __init__(
        self,
        output: ChatOutput,
        painter: Painter,
        live: LiveView,
        asked_rows: Callable[[], int],
        app: Callable[[], ChatApplication],
    ) -> None:
        self._output = output
        self._live = live
        self._asked_rows = asked_rows
        self._app = app
        self._blocks = BlockQueue(painter, self.refresh)
        self._pauses = 0
        self._refreshing: asyncio.Handle | None = None

    def show(self, block: Block) -> None:
        self._blocks.add(block, self._output.get_size().columns)

    def show_lines(self, lines: str) -> None:
        """Write lines that are painted already."""
        self._blocks.add_lines(lines)

    def live_lines(self) -> Sequence[str]:
        """The lines of the live part as of its last refresh."""
        size, asked = self._output.get_size(), self._asked_rows()
        return self._live.draw_or_reuse_lines(size.columns, max(1, size.rows - ROWS_BELOW - asked), asked > 0)

    def refresh(self) -> None:
        """Redraw soon: many changes are combined into one drawing, and do not delay a key."""
        if self._refreshing is None:
            self._refreshing = asyncio.get_running_loop().call_later(1 / DRAWS_A_SECOND, self._draw)

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """In this context nothing is written above the lower part, because another program has the terminal."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            self.refresh()

    async def finish(self) -> None:
        """Write all remaining blocks; the lower part is not drawn any more."""
        await self._blocks.wait_until_painted()
        while self._blocks.has_text:
            text = self._blocks.pop_text().replace("\n", "\r\n")
            with suppress(OSError):
                self._output.write_raw(text)
                self._output.flush()

    def _draw(self) -> None:
        """Draw both parts together: text that leaves the live part appears above it at the same moment."""
        self._refreshing = None
        app = self._app()
        if self._blocks.has_text and not self._pauses and app.is_running:
            self._write_finished_blocks(app)
            if self._blocks.has_text:
                self._refreshing = asyncio.get_running_loop().call_soon(self._draw)
        else:
            self._discard_live_lines()
            # Now, not when it is drawn: what has ended by then must not be missing in both parts.
            self.live_lines()
            # After the keys that came meanwhile, so that they are part of this drawing and not of one before and one
            # after it.
            asyncio.get_running_loop().call_later(0, app.invalidate)

    def _discard_live_lines(self) -> None:
        """While a block that left the live part is being painted, it stays there."""
        if not self._blocks.is_painting:
            self._live.discard_drawn_lines()

    def _write_finished_blocks(self, app: ChatApplication) -> None:
        """Write finished text above the lower part, which is redrawn below it."""
        text = self._blocks.pop_text().replace("\n", "\r\n")
        with self._output.as_single_update():
            app.renderer.erase(leave_alternate_screen=False)
            self._output.write_raw(text)
            self._discard_live_lines()
            app.draw_now()
