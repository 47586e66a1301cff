"""The live part on the screen, made so that a key costs nothing for it: rows that have not moved are neither laid out
nor compared again.

A window of prompt_toolkit makes a cell of each character and compares all cells at every key, which takes longer for a
full screen than everything else together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from prompt_toolkit.formatted_text import ANSI, to_formatted_text
from prompt_toolkit.layout.containers import Container
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.screen import Char, Screen, Transparent

if TYPE_CHECKING:
    from prompt_toolkit.layout.mouse_handlers import MouseHandlers
    from prompt_toolkit.layout.screen import WritePosition

MOST_CELLS = 20_000
BLANK = Char(" ", Transparent)
# The cell behind a character of two columns.
COVERED = Char("", "")


class Row(defaultdict[int, Char]):
    """The cells of a row; those beyond its end are blank."""

    def __missing__(self, column: int) -> Char:
        return BLANK


# On both sides of a comparison, this row leaves nothing to compare.
UNCHANGED = Row()
_cell = lru_cache(MOST_CELLS)(Char)


def row_of(painted: str) -> Row:
    """A row from a line of the painter."""
    row = Row()
    column = 0
    for style, text, *_ in to_formatted_text(ANSI(painted)):
        for letter in text:
            cell = _cell(letter, style)
            if cell.width == 0 and (before := _previous_column(row, column)) is not None:
                # The character combines with the one before it.
                row[before] = _cell(row[before].char + letter, row[before].style)
                continue
            row[column] = cell
            for more in range(1, cell.width):
                row[column + more] = COVERED
            column += cell.width
    return row


def _previous_column(row: Row, column: int) -> int | None:
    """The column at which the character before a column begins."""
    return next((at for at in (column - 1, column - 2) if row[at].char and at in row), None)


class LiveRows(Container):
    """Shows lines of the painter. `last` is the screen as drawn last, or None to draw everything."""

    def __init__(self, lines: Callable[[], Sequence[str]], last: Callable[[], Screen | None]) -> None:
        self._lines = lines
        self._last = last
        self._made: dict[str, Row] = {}
        self._left_out: tuple[Screen, dict[int, Row]] | None = None

    @property
    def has_lines(self) -> bool:
        return bool(self._lines())

    def reset(self) -> None:
        """Does nothing: there is no state to reset."""

    def preferred_width(self, max_available_width: int) -> Dimension:
        """Asks for the whole width of the terminal."""
        return Dimension()

    def preferred_height(self, width: int, max_available_height: int) -> Dimension:
        """Asks for one row for each line that is drawn."""
        return Dimension.exact(min(len(self._lines()), max_available_height))

    def write_to_screen(
        self,
        screen: Screen,
        mouse_handlers: MouseHandlers,
        write_position: WritePosition,
        parent_style: str,
        erase_bg: bool,
        z_index: int | None,
    ) -> None:
        """Write the rows; if there is too little room, only the newest ones."""
        lines = self._lines()[-write_position.height :] if write_position.height else []
        self._made = {line: self._made[line] if line in self._made else row_of(line) for line in lines}
        last = self._last()
        left_out: dict[int, Row] = {}
        for number, line in enumerate(lines, write_position.ypos):
            row = self._made[line]
            if last is not None and last.data_buffer[number] is row:
                left_out[number] = row
                last.data_buffer[number] = row = UNCHANGED
            screen.data_buffer[number] = row
        self._left_out = (screen, left_out)
        screen.width = max(screen.width, write_position.xpos + write_position.width)
        screen.height = max(screen.height, write_position.ypos + write_position.height)

    def restore_left_out_rows(self, _: Any = None) -> None:
        """After drawing: rows that were left out of the comparison are on the screen as before."""
        if self._left_out is not None:
            screen, rows = self._left_out
            screen.data_buffer.update(rows)
            self._left_out = None

    def get_children(self) -> list[Container]:
        """Returns an empty list: the rows contain no other containers."""
        return []
