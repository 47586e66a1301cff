"""Tables of markdown that fit the terminal: narrow columns keep their width, wide ones are wrapped.

If columns would still be too narrow to read, each row becomes a few lines, one for each cell, behind the name of its
column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pigeon.frontends.terminal.content.wrapping import join_texts, wrap_words

if TYPE_CHECKING:
    from rich.text import Text

GAP = 2
NARROWEST_COLUMN = 10
Alignment = Literal["left", "right", "center"]


def table_lines(
    header: Sequence[Text], rows: Sequence[Sequence[Text]], alignments: Sequence[Alignment], width: int, rule: str
) -> list[Text]:
    """The lines of a table, none wider than `width`; `rule` is the character below the header."""
    widths = _fit_column_widths([header, *rows], width - GAP * (len(header) - 1))
    if widths is None:
        return _render_as_records(header, rows, width)
    from rich.text import Text

    lines = _row_lines(header, widths, alignments)
    lines.append(Text((" " * GAP).join(rule * column for column in widths), style="faint"))
    made = [_row_lines(row, widths, alignments) for row in rows]
    # If a cell takes several lines, a blank line marks the end of its row.
    apart = any(len(row) > 1 for row in made)
    for index, row in enumerate(made):
        if apart and index:
            lines.append(Text())
        lines += row
    return lines


def _fit_column_widths(rows: Sequence[Sequence[Text]], room: int) -> list[int] | None:
    """Natural widths, with the widest reduced until all fit; None if a column would get too narrow."""
    widths = [max(1, *(cell.cell_len for cell in column)) for column in zip(*rows, strict=True)]
    while sum(widths) > room:
        widest = max(widths)
        second = max((one for one in widths if one < widest), default=0)
        count = widths.count(widest)
        cut = min(widest - second, -(-(sum(widths) - room) // count))
        if widest - cut < NARROWEST_COLUMN:
            return None
        widths = [one - cut if one == widest else one for one in widths]
    return widths


def _row_lines(row: Sequence[Text], widths: Sequence[int], alignments: Sequence[Alignment]) -> list[Text]:
    from rich.text import Text

    cells = [wrap_words(cell, width) for cell, width in zip(row, widths, strict=True)]
    lines = []
    for number in range(max(len(cell) for cell in cells)):
        line = Text()
        at = 0
        for cell, width, alignment in zip(cells, widths, alignments, strict=True):
            text = cell[number] if number < len(cell) else Text()
            free = width - text.cell_len
            before = {"left": 0, "right": free, "center": free // 2}[alignment]
            line.append(" " * (at - line.cell_len + before))
            line.append_text(text)
            at += width + GAP
        line.rstrip()
        lines.append(line)
    return lines


def _render_as_records(header: Sequence[Text], rows: Sequence[Sequence[Text]], width: int) -> list[Text]:
    from rich.text import Text

    lines: list[Text] = []
    for index, row in enumerate(rows):
        if index:
            lines.append(Text())
        for name, cell in zip(header, row, strict=True):
            if cell.plain.strip():
                lines += wrap_words(join_texts(name, Text(": " if name.plain.strip() else ""), cell), width)
    return lines
