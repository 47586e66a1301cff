"""The terminal as prompt_toolkit writes to it: each drawing is one update, and can be forced."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.application.current import set_app
from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.vt100 import Vt100_Output

# How long an Esc waits for a second key: Alt-Enter arrives as both.
ESCAPE_SECONDS = 0.05
# Save the position, clear the row, go down, clear the rest, restore the position.
ERASE_DOWN = "\x1b7\x1b[K\x1b[B\x1b[J\x1b8"
BEGIN_UPDATE, END_UPDATE = "\x1b[?2026h", "\x1b[?2026l"


class ChatOutput(Vt100_Output):
    """An output whose terminal shows each drawing as a whole.

    It never clears from the first cell of the screen: tmux keeps a screen that is cleared that way, and scrolling back
    would show the lower part once more.
    """

    _drawing = False

    def erase_down(self) -> None:
        """Clear the rest of the row and the rows below it."""
        self.write_raw(ERASE_DOWN)

    def flush(self) -> None:
        """Send what was written as one update."""
        if self._buffer and not self._drawing:
            self._buffer = [BEGIN_UPDATE, *self._buffer, END_UPDATE]
            super().flush()

    @contextmanager
    def as_single_update(self) -> Iterator[None]:
        """Everything written in this context, flushed or not, is one update."""
        self._drawing = True
        try:
            yield
        finally:
            self._drawing = False
            self.flush()


class ChatApplication(Application[None]):
    """An application that stops waiting for a second key soon after an Esc."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.ttimeoutlen = ESCAPE_SECONDS
        self.timeoutlen = ESCAPE_SECONDS * 4

    def draw_now(self) -> None:
        """Draw the lower part at once."""
        self.render_counter += 1
        with set_app(self):
            self.renderer.render(self, self.layout)
        self.after_render.fire()


def terminal_size() -> Size:
    """The size of the terminal, or the usual one if the terminal does not report it or is gone."""
    with suppress(OSError, ValueError):
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        if columns and rows:
            return Size(rows, columns)
    return Size(24, 80)
