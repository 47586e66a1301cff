"""What the chat needs of the place where it is shown: `screen/` draws, `plain.py` writes lines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from pigeon.frontends.terminal.blocks import Block


class Choice(Struct, frozen=True):
    """One of the answers to a question: `key` is the letter that gives it at once, if there is one."""

    value: str
    label: str
    key: str = ""
    hint: str = ""


class ChoiceQuestion(Struct, frozen=True):
    """Choose one. `diff` or `detail` is shown above the choices; with `search` the list is narrowed by typing.

    `chosen` is the value that is proposed, `seconds` how long the answer may take.
    """

    title: str
    choices: Sequence[Choice]
    detail: str = ""
    diff: str = ""
    search: bool = False
    chosen: str = ""
    seconds: float | None = None


class TextQuestion(Struct, frozen=True):
    """Write an answer, of one line or of several."""

    title: str
    text: str = ""
    placeholder: str = ""
    multiline: bool = False
    seconds: float | None = None


Question = ChoiceQuestion | TextQuestion


class View(Protocol):
    """A place to show a chat, and to ask the person. `shown` is set once the person can write."""

    shown: asyncio.Event

    def show(self, block: Block) -> None:
        """Write a finished block above the input."""
        ...

    def refresh(self) -> None:
        """Something that is drawn has changed: live blocks, queue, footer, widgets."""
        ...

    async def ask(self, question: Question) -> str | None:
        """The value that was chosen or the text that was written; none if the person declined."""
        ...

    def set_input(self, text: str) -> None:
        """Put a text where the person writes, in place of what stands there."""
        ...

    def prepend_input(self, text: str) -> None:
        """Put a text where the person writes, before what stands there: it was sent, and did not arrive."""
        ...

    def set_title(self, title: str) -> None:
        """Set the title of the terminal window."""
        ...

    def send_control(self, sequence: str) -> None:
        """Send a sequence to the terminal itself, which shows nothing by it."""
        ...

    def clear(self) -> None:
        """Remove everything that the screen shows."""
        ...

    async def run(self) -> None:
        """Show the chat until `leave` is called; raises `OSError` if the terminal is gone before."""
        ...

    def leave(self) -> None:
        """End the chat, so that `run` returns."""
        ...
