"""Blocks on their way to the terminal, in order. A long one is painted in a thread, so that keys are answered.

Painted text is handed out in pieces of a few screens, because a terminal needs time for a long text too. Painting time
is proportional to the length of a block, so the length decides whether it can be painted at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from msgspec.structs import astuple

from pigeon.frontends.terminal.blocks import Block
from pigeon.frontends.terminal.painting import Painter

# The length that is painted without a noticeable pause, whatever the text.
LONGEST_AT_ONCE = 1_000
PIECE_CHARACTERS = 8_000


class BlockQueue:
    """`changed` is called when there is text to pop (`pop_text`), and when nothing is being painted any more."""

    def __init__(self, painter: Painter, changed: Callable[[], None]) -> None:
        self._painter = painter
        self._changed = changed
        self._unpainted: deque[Callable[[], str]] = deque()
        self._painted: list[str] = []
        self._working: asyncio.Future[None] | None = None

    @property
    def is_painting(self) -> bool:
        return self._working is not None

    @property
    def has_text(self) -> bool:
        return bool(self._painted)

    def add(self, block: Block, width: int) -> None:
        """Add a block, which is painted for this width."""
        self._paint_or_enqueue(partial(self._painter.paint, block, width), _text_length(block))

    def add_lines(self, lines: str) -> None:
        """Add lines that are painted already."""
        self._paint_or_enqueue(lambda: lines, 0)

    def pop_text(self) -> str:
        """The next piece of painted text, in whole lines."""
        text = "".join(self._painted)
        end = text.find("\n", PIECE_CHARACTERS) + 1 or len(text)
        self._painted = [text[end:]] if end < len(text) else []
        return text[:end]

    async def wait_until_painted(self) -> None:
        if self._working is not None:
            await asyncio.wait({self._working})

    def _paint_or_enqueue(self, paint: Callable[[], str], length: int) -> None:
        if self._working is None and length <= LONGEST_AT_ONCE:
            self._painted.append(paint())
            self._changed()
            return
        self._unpainted.append(paint)
        if self._working is None:
            self._working = asyncio.ensure_future(self._paint_all())

    async def _paint_all(self) -> None:
        try:
            while self._unpainted:
                try:
                    # Not in one expression: `pop_text` replaces the list while the thread paints.
                    text = await asyncio.to_thread(self._unpainted.popleft())
                    self._painted.append(text)
                    self._changed()
                except Exception as fault:  # the following blocks must still be shown
                    asyncio.get_running_loop().call_exception_handler({"exception": fault})
        finally:
            self._working = None
            self._changed()


def _text_length(block: Block) -> int:
    """The length of a block's texts, including the arguments of a tool."""
    values = [
        inner for value in astuple(block) for inner in (value.values() if isinstance(value, Mapping) else (value,))
    ]
    return sum(len(value) for value in values if isinstance(value, str))
