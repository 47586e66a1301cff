"""Rows of the live part: what is drawn is right, and rows that have not changed cost nothing."""

from __future__ import annotations

import io

from prompt_toolkit.application import Application, create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition
from prompt_toolkit.input import DummyInput
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.output.vt100 import Vt100_Output
from pyte import ByteStream, Screen

from pigeon.frontends.terminal.screen.live_rows import LiveRows, row_of

RED = "\x1b[31m"
PLAIN = "\x1b[0m"


class Drawn:
    """The live part above a line to write in, on a terminal that shows what it gets."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.written = io.StringIO()
        self.typed = ""
        self.size = Size(10, 20)
        self.terminal = Screen(20, 10)
        self.stream = ByteStream(self.terminal)
        self.rows = LiveRows(lambda: self.lines, lambda: self.app.renderer.last_rendered_screen)
        live = ConditionalContainer(self.rows, filter=Condition(lambda: bool(self.lines)))
        line = LiveRows(lambda: [self.typed], lambda: self.app.renderer.last_rendered_screen)
        output = Vt100_Output(self.written, lambda: self.size, enable_cpr=False)
        with create_app_session(DummyInput(), output):
            self.app: Application[None] = Application(Layout(HSplit([live, line, Window()])))

    def draw(self, *lines: str) -> str:
        """Draw these; returns what the terminal was sent for it."""
        self.lines = list(lines)
        self.written.seek(0)
        self.written.truncate()
        self.app.renderer.render(self.app, self.app.layout)
        self.rows.restore_left_out_rows()
        sent = self.written.getvalue()
        self.stream.feed(sent.encode())
        return sent

    @property
    def screen_lines(self) -> list[str]:
        return [line.rstrip() for line in self.terminal.display][: len(self.lines) + 1]


def test_lines_are_shown_and_change() -> None:
    drawn = Drawn()
    drawn.draw("one", f"{RED}two{PLAIN} more", "three")
    assert drawn.screen_lines[:3] == ["one", "two more", "three"]
    assert drawn.terminal.buffer[1][0].fg == "red"
    drawn.draw("one", "2", "", "four")
    assert drawn.screen_lines[:4] == ["one", "2", "", "four"]


def test_a_key_writes_nothing_of_rows_that_stay() -> None:
    drawn = Drawn()
    drawn.draw("one", "two")
    drawn.typed = "Q"
    sent = drawn.draw("one", "two")
    assert "Q" in sent
    assert "one" not in sent
    assert drawn.screen_lines == ["one", "two", "Q"]


def test_rows_that_were_left_out_once_are_known_when_they_change_or_go() -> None:
    drawn = Drawn()
    for _ in range(3):
        drawn.draw("a long line", "another one")
    drawn.draw("short", "another one")
    assert drawn.screen_lines[:2] == ["short", "another one"]
    drawn.draw("short", "another one")
    drawn.draw()
    assert [line.strip() for line in drawn.terminal.display] == [""] * 10


def test_rows_that_move_are_drawn_at_their_new_place() -> None:
    drawn = Drawn()
    for first in range(6):
        drawn.draw(*(f"line {number}" for number in range(first, first + 4)))
    assert drawn.screen_lines[:4] == ["line 5", "line 6", "line 7", "line 8"]


def test_a_terminal_of_another_width_is_drawn_whole() -> None:
    drawn = Drawn()
    drawn.draw("one", "two")
    drawn.size = Size(10, 19)
    assert "one" in drawn.draw("one", "two")


def test_wide_and_combined_characters_take_the_cells_that_they_take() -> None:
    row = row_of("a\u65e5e\u0301z")
    assert [row[column].char for column in range(5)] == ["a", "\u65e5", "", "e\u0301", "z"]
    assert row[99].char == " "
    assert 99 not in row
    assert row_of("\u65e5\u0301")[0].char == "\u65e5\u0301"
