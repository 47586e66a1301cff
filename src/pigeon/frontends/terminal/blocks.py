"""The blocks that a chat shows: `transcript.py` makes them from events, and `painting.py` turns them into text.

A block is finished when nothing of it can change any more; only then is it written above the input, where the terminal
keeps it. Texts of blocks come from models, tools and files; they are cleaned by `painting.py`, never trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from pigeon.wire.base import Json

NoticeKind = Literal["info", "warning", "error", "faint"]
# How much of a running tool's output is kept; only a few lines of it are shown.
KEPT_OUTPUT = 64 * 1024


class UserText(Struct):
    """A message of the person, shown when the model gets it."""

    text: str
    images: int = 0


class AnswerText(Struct):
    """A finished part of an answer in markdown; `first` marks the start of its message."""

    text: str
    first: bool = True


class ThinkingText(Struct):
    """What the model thought before it answered; the duration is unknown for earlier messages."""

    text: str
    seconds: float | None


class ToolCard(Struct):
    """A tool call with what is known about it so far; `note` is about the agent that it has started."""

    call_id: str
    name: str
    args: Mapping[str, Json]
    started: float
    output: str = ""
    diff: str | None = None
    failed: bool = False
    seconds: float | None = None
    note: str = ""

    def update_output(self, output: str) -> None:
        """Replace the output so far; only its end is kept."""
        self.output = output[-KEPT_OUTPUT:]

    def finish(
        self, seconds: float, failed: bool, output: str | None = None, diff: str | None = None, note: str = ""
    ) -> None:
        self.seconds = seconds
        self.failed = failed
        self.diff = diff
        self.note = note
        if output is not None:
            self.output = output

    @property
    def is_running(self) -> bool:
        return self.seconds is None


class ShellCard(Struct):
    """A command that the person ran with `!`."""

    command: str
    output: str = ""
    exit_code: int | None = None
    seconds: float | None = None
    for_model: bool = True


class BackgroundOutput(Struct):
    """The end of the output of something in the background, which the person wants to see."""

    title: str
    state: str
    output: str


class Notice(Struct):
    """A line from Pigeon, not from the model or a tool."""

    text: str
    kind: NoticeKind = "info"


class ChatHead(Struct):
    """The first lines of a chat: version, model, folder and hints."""

    version: str
    model: str | None
    cwd: str
    hints: list[str] = []


Block = UserText | AnswerText | ThinkingText | ToolCard | ShellCard | BackgroundOutput | Notice | ChatHead
