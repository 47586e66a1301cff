"""A question above the input: an agent's choices or text, or a list that the person asked for.

No key that can be part of a sentence answers an agent's question: what is written stays in the input. The arrow keys
select an answer, and Enter on an empty input takes it. A list that the person asked for has the keys for itself, and
typing narrows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from prompt_toolkit.filters import Filter
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, HSplit, Window
from prompt_toolkit.layout.controls import FormattedTextControl

from pigeon.frontends.cleaning import clean_text
from pigeon.frontends.terminal.painting import Painter
from pigeon.frontends.terminal.screen.input_line import InputLine
from pigeon.frontends.terminal.view import Choice, ChoiceQuestion, Question, TextQuestion, find_by_key

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.layout.containers import AnyContainer

LIST_ROWS = 10
DETAIL_ROWS = 12
# The rows of a terminal that the subject of a question leaves to its choices, the input and the footer.
ROWS_BESIDE_DETAIL = 11
# Lines that begin so are commands, also while a question is open.
COMMAND_SIGNS = ("/", "!")


class Detail(Struct, frozen=True):
    """The painted subject of a question: its first lines, how many follow them, and all lines."""

    shown: str = ""
    left_out: int = 0
    whole: str = ""


class QuestionPanel:
    """One question at a time. `on_closed` is called when it is gone; `roomy` tells whether there are rows to spare."""

    def __init__(
        self,
        painter: Painter,
        line: InputLine,
        refresh: Callable[[], None],
        on_closed: Callable[[], None],
        roomy: Filter,
        write: Callable[[str], None],
        width: Callable[[], int],
    ) -> None:
        self._painter = painter
        self._line = line
        self._write = write
        self._refresh = refresh
        self._roomy = roomy
        self._on_closed = on_closed
        self._width = width
        self._question: Question | None = None
        self._answer: asyncio.Future[str | None] | None = None
        # The question that is declined as soon as the message written in its place is sent.
        self._held: asyncio.Future[str | None] | None = None
        self._shown_at = 0.0
        self._at = 0
        self._typed = ""
        self._list = FormattedTextControl(self._question_text, focusable=True, key_bindings=self._make_search_keys())
        self._detail = Detail()

    @property
    def is_active(self) -> bool:
        return self._question is not None

    @property
    def has_focus(self) -> bool:
        """True if a list that the person asked for has all keys."""
        return isinstance(self._question, ChoiceQuestion) and self._question.search

    @property
    def has_choices(self) -> bool:
        """True if the arrow keys select an answer while nothing is written."""
        return isinstance(self._question, ChoiceQuestion) and not self._question.search

    @property
    def rows(self) -> int:
        """About how many rows the question takes."""
        return self._detail.shown.count("\n") + 2 + len(self._find_matching_choices()[:LIST_ROWS])

    async def ask(self, question: Question, detail: Detail, app: Application[Any], now: float) -> str | None:
        """Show it, and return the answer, or None if the person declines. A text is asked for in an empty input."""
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._question, self._answer, self._at, self._typed, self._detail = question, answer, 0, "", detail
        self._shown_at = now
        if isinstance(question, ChoiceQuestion):
            values = [one.value for one in question.choices]
            self._at = values.index(question.chosen) if question.chosen in values else 0
        else:
            self._line.set_text(question.text)
        if detail.left_out:
            # Nothing is allowed unseen: all of it is written to the conversation.
            self._write(detail.whole)
        if self.has_focus:
            app.layout.focus(self._list)
        self._refresh()
        try:
            return await answer
        finally:
            if isinstance(question, TextQuestion) and self._line.text == question.text:
                self._line.clear()
            self._question = self._answer = None
            if self._held is answer:
                self._held = None
            self._on_closed()

    def paint_detail(self, question: Question, columns: int, rows: int) -> Detail:
        """The painted subject of the question; a long one takes time, so it is called in a thread."""
        if isinstance(question, TextQuestion) or not (question.diff or question.detail):
            return Detail()
        lines = self._painter.render_unshortened(question.diff or question.detail, columns, bool(question.diff))
        most = max(3, min(DETAIL_ROWS, rows - ROWS_BESIDE_DETAIL))
        shown = self._painter.render_lines([line.copy() for line in lines[:most]])
        return Detail(shown, max(0, len(lines) - most), self._painter.render_lines(lines))

    def make_container(self) -> AnyContainer:
        return HSplit(
            [
                Window(self._list, wrap_lines=True, dont_extend_height=True, always_hide_cursor=True),
                ConditionalContainer(
                    Window(FormattedTextControl(self._hint), height=1, style="class:hint", always_hide_cursor=True),
                    filter=self._roomy,
                ),
            ]
        )

    # Keys of the input while a question is open

    @property
    def is_answered_by_text(self) -> bool:
        """True if what is written now is the text that was asked for."""
        return isinstance(self._question, TextQuestion)

    @property
    def is_declined_by_text(self) -> bool:
        """True if what is written now is a message in place of an answer."""
        text = self._line.text
        return self.has_choices and bool(text.strip()) and not self._has_draft and not text.startswith(COMMAND_SIGNS)

    @property
    def _has_draft(self) -> bool:
        """True if what is written was begun before the question appeared: then it has nothing to do with it."""
        return bool(self._line.text) and self._line.begun_at < self._shown_at

    def move_selection(self, by: int, wraps: bool = True) -> None:
        count = len(self._find_matching_choices())
        if wraps:
            self._at = (self._at + by) % count if count else 0
        else:
            self._at = max(0, min(count - 1, self._at + by))
        self._refresh()

    def select(self) -> None:
        """Answer with the selected choice; does nothing if no choice matches what was typed."""
        choices = self._find_matching_choices()
        if choices:
            self.finish(choices[self._at].value)

    def finish(self, value: str | None) -> None:
        """Answer the question; None declines it."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(value)
            # At once: the next key is not for this question.
            self._question = None
            self._on_closed()

    def hold(self) -> None:
        """Take the question away until `decline_held`: a message in its place is being sent."""
        self._held, self._question = self._answer, None
        self._on_closed()

    def decline_held(self) -> None:
        if self._held is not None and not self._held.done():
            self._held.set_result(None)

    # Drawing

    def _find_matching_choices(self) -> list[Choice]:
        question = self._question
        if not isinstance(question, ChoiceQuestion):
            return []
        words = self._typed.lower().split()
        return [one for one in question.choices if all(word in f"{one.label} {one.hint}".lower() for word in words)]

    def _question_text(self) -> StyleAndTextTuples:
        question = self._question
        if question is None:
            return []
        text: StyleAndTextTuples = []
        if isinstance(question, ChoiceQuestion):
            text += to_formatted_text(ANSI(self._detail.shown))
            if count := self._detail.left_out:
                text.append(
                    ("class:hint", f"{self._painter.signs['cut']} {count:,} more lines; see above for all of it\n")
                )
        text.append(("class:question", clean_text(question.title)))
        if isinstance(question, TextQuestion) and question.placeholder and not self._line.text:
            text.append(("class:placeholder", f"  {clean_text(question.placeholder)}"))
        if self._typed:
            text.append(("class:hint", f"  {self._typed}"))
        return text + self._choice_rows()

    def _choice_rows(self) -> StyleAndTextTuples:
        choices = self._find_matching_choices()
        begin = max(0, min(self._at - LIST_ROWS // 2, len(choices) - LIST_ROWS))
        # What Enter takes is marked; while something is written, that is nothing here.
        marks = self.has_focus or not self._line.text
        rows: StyleAndTextTuples = []
        for index, one in list(enumerate(choices))[begin : begin + LIST_ROWS]:
            chosen = index == self._at
            mark = self._painter.signs["user"] if chosen and marks else " "
            rows.append(("", "\n"))
            if chosen:
                # A terminal with few rows scrolls to this one.
                rows.append(("[SetCursorPosition]", ""))
            rows.append(("class:chosen" if chosen and marks else "", f"{mark} {clean_text(one.label)}"))
            if one.hint:
                rows.append(("class:hint", f"  {clean_text(one.hint)}"))
        return rows

    def _hint(self) -> StyleAndTextTuples:
        """What Enter and Esc do now; the longest text that fits."""
        if self.has_focus:
            texts = ["Type to search, Enter to select, Esc to cancel", "Enter to select, Esc to cancel"]
        elif self.is_answered_by_text:
            texts = ["Enter to answer, Ctrl-J for a new line, Esc to decline", "Enter to answer, Esc to decline"]
        elif self.is_declined_by_text:
            texts = ["Enter to decline and send this instead, Esc to decline", "Enter to decline and send this"]
        elif self._line.text.strip():
            texts = ["Enter to send what you have written, Esc to decline", "Enter to send, Esc to decline"]
        else:
            texts = ["Enter to select, Esc to decline, or write what to do instead", "Enter to select, Esc to decline"]
        return [("", next((text for text in texts if len(text) < self._width()), texts[-1]))]

    # A list that the person asked for

    def _make_search_keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("up")
        @keys.add("c-p")
        @keys.add("s-tab")
        def _(event: KeyPressEvent) -> None:
            self.move_selection(-1)

        @keys.add("down")
        @keys.add("tab")
        @keys.add("c-n")
        def _(event: KeyPressEvent) -> None:
            self.move_selection(1)

        @keys.add("pageup")
        def _(event: KeyPressEvent) -> None:
            self.move_selection(-LIST_ROWS, wraps=False)

        @keys.add("pagedown")
        def _(event: KeyPressEvent) -> None:
            self.move_selection(LIST_ROWS, wraps=False)

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            self.select()

        @keys.add("escape", eager=True)
        @keys.add("c-c")
        @keys.add("c-d")
        def _(event: KeyPressEvent) -> None:
            self.finish(None)

        @keys.add("backspace")
        def _(event: KeyPressEvent) -> None:
            self._typed, self._at = self._typed[:-1], 0

        @keys.add(Keys.Any)
        @keys.add(Keys.BracketedPaste)
        def _(event: KeyPressEvent) -> None:
            if not self._typed and (value := find_by_key(self._question, event.data)) is not None:
                self.finish(value)
            elif event.data.isprintable():
                self._typed, self._at = self._typed + event.data, 0

        return keys
