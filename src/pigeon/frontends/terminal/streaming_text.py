"""Markdown that arrives in pieces, cut where nothing that follows can change what stands before.

Each line is examined once, when it is complete. A cut is made before a line that begins a new block: after a blank
line, outside a fence, and not indented, because an indented line may belong to the item of a list above it.

    line          in a fence   after a blank line   then
    ```           no           any                  opens a fence
    ```           yes          any                  closes it
    text          no           yes, not indented    everything before it is finished
    other         any          any                  belongs to the block
"""

from __future__ import annotations

import re

# While a very long line grows, only its end is shown.
LONGEST_LINE = 4_000
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])\s")


class StreamingText:
    """The unfinished part of an answer; `add` returns what has become finished."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        # The pieces of the last line.
        self._partial: list[str] = []
        self._fence = ""
        self._blank = False
        self._in_list = False

    def add_and_take_finished(self, delta: str) -> str:
        """Add text; returns the blocks that it finishes, or an empty text."""
        if "\n" not in delta:
            self._partial.append(delta)
            return ""
        head, *rest = delta.split("\n")
        self._partial.append(head)
        lines = ["".join(self._partial), *rest[:-1]]
        self._partial = [rest[-1]]
        return "".join(finished for line in lines if (finished := self._add_line(line)))

    @property
    def has_unfinished(self) -> bool:
        return bool(self._lines or any(self._partial))

    @property
    def tail(self) -> str:
        """The text of the block that is not finished."""
        return "\n".join([*self._lines, "".join(self._partial)])

    def tail_lines(self, most: int) -> tuple[list[str], int]:
        """Its last lines, and how many come before them; the cost depends on `most`, not on its length."""
        if len(self._partial) > 1:
            self._partial = ["".join(self._partial)]
        lines = [line[-LONGEST_LINE:] for line in [*self._lines[-most:], *self._partial][-most:]]
        return lines, len(self._lines) + len(self._partial) - len(lines)

    @property
    def fence(self) -> str:
        """The opening line of the fence that the tail is in, or an empty text."""
        return self._lines[0] if self._fence and self._lines else ""

    def flush(self) -> str:
        """Return the unfinished text and start over."""
        text = self.tail
        self.__init__()  # type: ignore[misc]
        return text

    def _add_line(self, line: str) -> str:
        fence = _FENCE.match(line)
        if self._fence:
            if fence and fence[1].startswith(self._fence) and not fence[2].strip():
                self._fence = ""
            self._lines.append(line)
            return ""
        finished = ""
        begins = self._blank and line.strip() != "" and not line.startswith((" ", "\t"))
        if begins and not (self._in_list and _ITEM.match(line)):
            finished = "\n".join(self._lines) + "\n"
            self._lines = []
        if line.strip() and not line.startswith((" ", "\t")):
            self._in_list = bool(_ITEM.match(line))
        self._blank = not line.strip()
        if fence:
            self._fence = fence[1]
        self._lines.append(line)
        return finished
