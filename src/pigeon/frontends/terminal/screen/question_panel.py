"""A question in place of the input: choices by letter, number or arrows, or a text to write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, Filter
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, HSplit, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension

from pigeon.frontends.cleaning import clean_text
from pigeon.frontends.terminal.painting import Painter
from pigeon.frontends.terminal.view import Choice, ChoiceQuestion, Question, TextQuestion

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.layout.containers import AnyContainer

LIST_ROWS = 10
DETAIL_ROWS = 12


class Detail(Struct, frozen=True):
    """The painted subject of a question: its first lines, how many follow them, and all lines."""

    shown: str = ""
    left_out: int = 0
    whole: str = ""


class QuestionPanel:
    """One question at a time; others wait for their turn.

    `on_answered` is called when a key has answered it; `roomy` tells whether there are rows to spare.
    """

    def __init__(
        self,
        painter: Painter,
        refresh: Callable[[], None],
        on_answered: Callable[[], None],
        roomy: Filter,
        write: Callable[[str], None],
    ) -> None:
        self._painter = painter
        self._write = write
        self._refresh = refresh
        self._roomy = roomy
        self._on_answered = on_answered
        self._turn = asyncio.Lock()
        self._question: Question | None = None
        self._answer: asyncio.Future[str | None] | None = None
        self._at = 0
        self._typed = ""
        self._list = FormattedTextControl(self._question_text, focusable=True, key_bindings=self._make_choice_keys())
        self._buffer = Buffer(multiline=True)
        self._writer = BufferControl(self._buffer, key_bindings=self._make_text_keys())
        self._detail = Detail()

    @property
    def is_active(self) -> bool:
        return self._question is not None

    async def ask(self, question: Question, detail: Detail, app: Application[Any]) -> str | None:
        """The answer, or None if the person declines or the time is up."""
        async with self._turn:
            self._question, self._at, self._typed = question, 0, ""
            if isinstance(question, ChoiceQuestion):
                values = [one.value for one in question.choices]
                self._at = values.index(question.chosen) if question.chosen in values else 0
            self._detail = detail
            if detail.left_out:
                # Nothing is allowed unseen: all of it is written to the conversation.
                self._write(detail.whole)
            self._answer = asyncio.get_running_loop().create_future()
            if isinstance(question, TextQuestion):
                self._buffer.set_document(Document(question.text, len(question.text)))
                app.layout.focus(self._writer)
            else:
                app.layout.focus(self._list)
            self._refresh()
            try:
                async with asyncio.timeout(question.seconds):
                    return await self._answer
            except TimeoutError:
                return None
            finally:
                self._question = self._answer = None

    def paint_detail(self, question: Question, columns: int) -> Detail:
        """The painted subject of the question; a long one takes time, so it is called in a thread."""
        if isinstance(question, TextQuestion) or not (question.diff or question.detail):
            return Detail()
        lines = self._painter.render_unshortened(question.diff or question.detail, columns, bool(question.diff))
        shown = self._painter.render_lines([line.copy() for line in lines[:DETAIL_ROWS]])
        return Detail(shown, max(0, len(lines) - DETAIL_ROWS), self._painter.render_lines(lines))

    def make_container(self) -> AnyContainer:
        writes = Condition(lambda: isinstance(self._question, TextQuestion))
        return HSplit(
            [
                Window(self._list, wrap_lines=True, dont_extend_height=True, always_hide_cursor=True),
                ConditionalContainer(
                    Window(
                        self._writer,
                        height=Dimension(min=1, max=LIST_ROWS),
                        wrap_lines=True,
                        dont_extend_height=True,
                        get_line_prefix=_line_prefix,
                    ),
                    filter=writes,
                ),
                ConditionalContainer(
                    Window(FormattedTextControl(self._hint), height=1, style="class:hint", always_hide_cursor=True),
                    filter=self._roomy,
                ),
            ]
        )

    def _finish(self, value: str | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(value)
            # At once: the next key is not for this question.
            self._question = None
            self._on_answered()

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
        if isinstance(question, TextQuestion) and question.placeholder and not self._buffer.text:
            text.append(("class:placeholder", f"  {clean_text(question.placeholder)}"))
        if self._typed:
            text.append(("class:hint", f"  {self._typed}"))
        return text + self._choice_rows()

    def _choice_rows(self) -> StyleAndTextTuples:
        choices = self._find_matching_choices()
        begin = max(0, min(self._at - LIST_ROWS // 2, len(choices) - LIST_ROWS))
        rows: StyleAndTextTuples = []
        for index, one in list(enumerate(choices))[begin : begin + LIST_ROWS]:
            chosen = index == self._at
            mark = self._painter.signs["user"] if chosen else " "
            key = f"({one.key}) " if one.key else ""
            rows.append(("", "\n"))
            if chosen:
                # A terminal with few rows scrolls to this one.
                rows.append(("[SetCursorPosition]", ""))
            rows.append(("class:chosen" if chosen else "", f"{mark} {key}{clean_text(one.label)}"))
            if one.hint:
                rows.append(("class:hint", f"  {clean_text(one.hint)}"))
        return rows

    def _hint(self) -> StyleAndTextTuples:
        if isinstance(self._question, TextQuestion):
            return [("", "Enter answers, Ctrl-J adds a line, Esc cancels")]
        search = isinstance(self._question, ChoiceQuestion) and self._question.search
        return [("", "Type to search, Enter chooses, Esc cancels" if search else "Enter chooses, Esc says no")]

    def _make_choice_keys(self) -> KeyBindings:
        keys = KeyBindings()

        def move_selection(by: int) -> None:
            count = len(self._find_matching_choices())
            self._at = (self._at + by) % count if count else 0
            self._refresh()

        @keys.add("up")
        @keys.add("c-p")
        def _(event: KeyPressEvent) -> None:
            move_selection(-1)

        @keys.add("down")
        @keys.add("tab")
        @keys.add("c-n")
        def _(event: KeyPressEvent) -> None:
            move_selection(1)

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            choices = self._find_matching_choices()
            if choices:
                self._finish(choices[self._at].value)

        @keys.add("escape", eager=True)
        @keys.add("c-c")
        @keys.add("c-d")
        def _(event: KeyPressEvent) -> None:
            self._finish(None)

        @keys.add("backspace")
        def _(event: KeyPressEvent) -> None:
            self._typed, self._at = self._typed[:-1], 0

        @keys.add(Keys.Any)
        def _(event: KeyPressEvent) -> None:
            self._search_or_choose_by_letter(event.data)

        return keys

    def _search_or_choose_by_letter(self, letter: str) -> None:
        question = self._question
        if not isinstance(question, ChoiceQuestion) or not letter.isprintable():
            return
        if question.search:
            self._typed, self._at = self._typed + letter, 0
            return
        for index, one in enumerate(question.choices, 1):
            if letter.lower() == one.key or letter == str(index):
                self._finish(one.value)
                return

    def _make_text_keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            self._finish(self._buffer.text)

        @keys.add("c-j")
        def _(event: KeyPressEvent) -> None:
            self._buffer.insert_text("\n")

        @keys.add("escape", eager=True)
        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            self._finish(None)

        return keys


def _line_prefix(line: int, wrapped: int) -> StyleAndTextTuples:
    return [("class:prompt", "  " if line or wrapped else "> ")]
