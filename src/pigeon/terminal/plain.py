"""The chat in plain lines: nothing is drawn over, nothing moves. For screen readers, simple terminals and slow lines.

A line is sent with Enter, also while the agent works. Questions are lines too, answered by a letter, a number or a
text.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TextIO

from pigeon.terminal.blocks import Block, ToolCard, UserText
from pigeon.terminal.content.cleaning import cleaned
from pigeon.terminal.content.tool_details import main_argument
from pigeon.terminal.inputs import Input, Inputs
from pigeon.terminal.painting import Painter
from pigeon.terminal.transcript import ChatTranscript
from pigeon.terminal.view import ChoiceQuestion, Question, TextQuestion

LISTED = 20


class PlainView:
    """Writes lines and reads lines."""

    def __init__(
        self,
        transcript: ChatTranscript,
        painter: Painter,
        inputs: Inputs,
        source: TextIO,
        target: TextIO,
        width: Callable[[], int],
    ) -> None:
        self._transcript = transcript
        self._painter = painter
        self._inputs = inputs
        self._source = source
        self._target = target
        self._width = width
        self._asking: asyncio.Future[str | None] | None = None
        self._turn = asyncio.Lock()
        self._told = ""
        self._left = asyncio.Event()

    def show(self, block: Block) -> None:
        """Write a block; who speaks is said in words."""
        if isinstance(block, UserText):
            return
        if isinstance(block, ToolCard):
            state = "failed" if block.failed else "done"
            self._line(f"Tool {block.name} {state}: {main_argument(block.args)}")
        self._write(self._painter.paint(block, self._width()))

    def refresh(self) -> None:
        """Say what the agent does when that changes."""
        activity = self._transcript.activity
        if (activity != self._told and activity in ("", "Compacting")) or activity.startswith("Trying"):
            if not activity and self._told:
                self._line("Ready.")
            self._told = activity
        elif activity:
            self._told = activity

    async def ask(self, question: Question) -> str | None:
        """Ask in lines."""
        async with self._turn:
            self._line(cleaned(question.title))
            if isinstance(question, ChoiceQuestion):
                self._list(question)
            elif question.text:
                self._line(f"(empty for: {cleaned(question.text)})")
            self._asking = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(question.seconds):
                    return await self._answered(question)
            except TimeoutError:
                return None
            finally:
                self._asking = None

    async def _answered(self, question: Question) -> str | None:
        while True:
            assert self._asking is not None
            given = await self._asking
            if given is None:
                return None
            if isinstance(question, TextQuestion):
                return given or question.text or None
            word = given.strip().lower()
            if not word:
                return None
            for index, one in enumerate(question.choices, 1):
                if word in (str(index), one.key or None, one.label.lower()):
                    return one.value
            self._line(f"{cleaned(given)} is none of the answers; an empty line is a no.")
            self._asking = asyncio.get_running_loop().create_future()

    def _list(self, question: ChoiceQuestion) -> None:
        if question.diff or question.detail:
            self._line(cleaned(question.diff or question.detail).rstrip())
        for index, one in enumerate(question.choices[:LISTED], 1):
            key = f" ({one.key})" if one.key else ""
            self._line(f"{index}{key}: {cleaned(one.label)} {cleaned(one.hint)}".rstrip())
        self._line("Your answer:")

    def set_input(self, text: str) -> None:
        """Lines cannot be put into the hands of the person: the text is shown."""
        if text:
            self._line(f"To send again: {cleaned(text)}")

    def set_title(self, title: str) -> None:
        """There is no window to name."""

    def control(self, sequence: str) -> None:
        """Nothing but text is written."""

    def clear(self) -> None:
        """Nothing is taken away."""

    def leave(self) -> None:
        """End."""
        self._inputs.put_nowait(Input("leave"))
        self._left.set()

    async def run(self) -> None:
        """Read lines until `leave` or the end of the input."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            # A thread of its own: the terminal edits the line, and its end may never come.
            for line in self._source:
                loop.call_soon_threadsafe(self._typed, line.rstrip("\n"))
            loop.call_soon_threadsafe(self.leave)

        threading.Thread(target=read, daemon=True, name="pigeon-lines").start()
        await self._left.wait()

    def _typed(self, line: str) -> None:
        if self._asking is not None and not self._asking.done():
            self._asking.set_result(line)
        elif line.strip():
            self._inputs.put_nowait(Input("send", line))

    def stop(self) -> None:
        """Ctrl-C: stop the agent, or leave if it is idle."""
        if self._asking is not None and not self._asking.done():
            self._asking.set_result(None)
        elif self._transcript.activity:
            self._inputs.put_nowait(Input("stop"))
        else:
            self.leave()

    def _line(self, text: str) -> None:
        self._write(text + "\n")

    def _write(self, text: str) -> None:
        self._target.write(text)
        self._target.flush()
