"""When a question is shown: one at a time, and only while the person is not writing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from pigeon.frontends.terminal.blocks import Block, Notice
from pigeon.frontends.terminal.screen.input_line import PAUSE_SECONDS, InputLine
from pigeon.frontends.terminal.screen.question_panel import QuestionPanel
from pigeon.frontends.terminal.view import Question, TextQuestion

if TYPE_CHECKING:
    from pigeon.frontends.terminal.screen.chat_output import ChatApplication


class QuestionTurns:
    """Shows questions in `panel`, each in its turn. `now` is a steady clock in seconds, `show` shows a block."""

    def __init__(
        self, panel: QuestionPanel, line: InputLine, now: Callable[[], float], show: Callable[[Block], None]
    ) -> None:
        self._panel = panel
        self._line = line
        self._now = now
        self._show = show
        self._turn = asyncio.Lock()
        self._key_pressed = float("-inf")

    def watch_keys(self, app: ChatApplication) -> None:
        """Remember when a key was pressed last in this application."""
        app.key_processor.before_key_press.add_handler(self._remember_key_press)

    async def ask(self, question: Question, app: ChatApplication) -> str | None:
        """The answer, or None if the person declines or the time is up.

        A question of the agent appears once no key was pressed for a moment, so that an Enter which ends a message, or
        answers the question before this one, does not answer it.
        """
        try:
            async with asyncio.timeout(question.seconds), self._turn:
                size = app.output.get_size()
                detail = await asyncio.to_thread(self._panel.paint_detail, question, size.columns, size.rows)
                if isinstance(question, TextQuestion):
                    await self._wait_for_empty_input(question)
                elif not question.search:
                    await self._wait_for_pause()
                return await self._panel.ask(question, detail, app, self._now())
        except TimeoutError:
            return None

    async def _wait_for_pause(self) -> None:
        while (left := self._key_pressed + PAUSE_SECONDS - self._now()) > 0:  # noqa: ASYNC110 - there are many pauses
            await asyncio.sleep(left)

    async def _wait_for_empty_input(self, question: TextQuestion) -> None:
        """A text is written in the input, so it is asked for when nothing else is written there."""
        await self._wait_for_pause()
        if self._line.text:
            self._show(Notice(f"{question.title}\nSend or clear what you have written, then answer this.", "faint"))
        while self._line.text:
            await asyncio.sleep(PAUSE_SECONDS)
            await self._wait_for_pause()

    def _remember_key_press(self, _: object) -> None:
        self._key_pressed = self._now()
