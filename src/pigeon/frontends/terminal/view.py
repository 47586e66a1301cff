"""The interface between the chat and the place where it is shown: `screen/` draws, `plain.py` writes lines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from pigeon.frontends.terminal.blocks import Block


class Choice(Struct, frozen=True):
    """One answer to a question: its label and hint are shown, its value is returned.

    In a list that the person asked for, its `key` chooses it, too.
    """

    value: str
    label: str
    hint: str = ""
    key: str = ""


class ChoiceQuestion(Struct, frozen=True):
    """Choose one answer. `diff` or `detail` is shown above the choices.

    With `search` it is a list that the person asked for: it is shown at once, and typing narrows it. Otherwise it is a
    question of the agent: what is typed is a message, which declines the question. `chosen` is the proposed value,
    `seconds` the time limit of the answer.
    """

    title: str
    choices: Sequence[Choice]
    detail: str = ""
    diff: str = ""
    search: bool = False
    chosen: str = ""
    seconds: float | None = None


def find_by_key(question: ChoiceQuestion | TextQuestion | None, key: str) -> str | None:
    """The value of the choice with this key; None if there is none."""
    choices = question.choices if isinstance(question, ChoiceQuestion) else ()
    return next((one.value for one in choices if one.key and one.key == key), None)


class TextQuestion(Struct, frozen=True):
    """Write an answer, of one line or of several."""

    title: str
    text: str = ""
    placeholder: str = ""
    multiline: bool = False
    seconds: float | None = None


Question = ChoiceQuestion | TextQuestion


class View(Protocol):
    """Shows a chat, and asks the person. `shown` is set once the person can write."""

    shown: asyncio.Event

    def show(self, block: Block) -> None: ...

    def refresh(self) -> None:
        """Called when something that is drawn has changed: live blocks, queue, footer, widgets."""
        ...

    async def ask(self, question: Question) -> str | None:
        """The value that was chosen or the text that was written, or None if the person declined.

        A message that the person writes instead is an input of the kind "reply".
        """
        ...

    def decline(self) -> None:
        """Decline the question to which a reply was given, if it is still open."""
        ...

    def set_input(self, text: str) -> None:
        """Replace the text of the input."""
        ...

    def prepend_input(self, text: str) -> None:
        """Put a text before that of the input, because it was sent and did not arrive."""
        ...

    def set_title(self, title: str) -> None: ...

    def send_control(self, sequence: str) -> None:
        """Send a control sequence to the terminal, which shows nothing for it."""
        ...

    def clear(self) -> None: ...

    async def run(self) -> None:
        """Show the chat until `leave` is called; raises `OSError` if the terminal is lost before."""
        ...

    def leave(self) -> None: ...
