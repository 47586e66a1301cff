"""What is recorded of files: their states, the steps between states, and restorations of earlier ones."""

from __future__ import annotations

import os
from typing import Literal

from msgspec import Struct, field, json

from pigeon.wire.commands.undo import FileChange

StateKind = Literal["file", "link", "folder", "special"]
LARGE, IGNORED, UNREADABLE, OUTSIDE = "large", "ignored", "cannot be read", "outside"
SPECIAL = "neither a file nor a link"


class FileState(Struct, frozen=True, array_like=True, omit_defaults=True):
    """What stands at a path. `content` is the id of a file's bytes, or of a link's target, in the store.

    `unsaved` says why the content is not in the store; `mark` recognizes such a file.
    """

    kind: StateKind
    mode: int
    content: str = ""
    unsaved: str = ""
    mark: str = ""


class Step(Struct, array_like=True):
    """One agent's change of one path; `number` counts the steps of a conversation, `reverted` is when it was."""

    number: int
    path: bytes
    before: FileState | None
    after: FileState | None
    reverted: int = 0

    @property
    def name(self) -> str:
        return os.fsdecode(self.path)


class Began(Struct, tag="began", kw_only=True):
    """A checkpoint: the state before the changes of one message. `place` is the message of the conversation, and
    `entry_id` that of the agent itself."""

    id: str
    entry_id: str
    place: str
    text: str
    time: int
    agent_id: str = ""


class Changed(Struct, tag="changed", kw_only=True):
    """Steps of a checkpoint; one with a known number replaces that. `answer` is the entry of the answer that made
    them."""

    checkpoint: str
    steps: list[Step]
    answer: str = ""


class LeftOut(Struct, tag="leftOut", kw_only=True):
    """Paths that a checkpoint does not cover, with the reasons."""

    checkpoint: str
    paths: dict[str, str]


class RestoredPath(Struct, array_like=True):
    """A path of a restoration, and the steps that it reverts or does again."""

    path: bytes
    was: FileState | None
    now: FileState | None
    reverts: list[int] = []
    repeats: list[int] = []

    @property
    def name(self) -> str:
        return os.fsdecode(self.path)

    def invert(self) -> RestoredPath:
        """What takes the restoration of this path back."""
        return RestoredPath(self.path, self.now, self.was, self.repeats, self.reverts)


class Restored(Struct, tag="restored", kw_only=True):
    """A restoration that has happened: an undo, or with `undoes` the redo of an earlier one, which `completes` it if
    nothing of that is left. `closes` are checkpoints that are undone by it although they have no steps."""

    id: str
    checkpoint: str
    time: int
    paths: list[RestoredPath]
    undoes: str = ""
    completes: bool = False
    closes: list[str] = []
    opens: list[str] = []


class Forgot(Struct, tag="forgot", kw_only=True):
    """A new prompt: nothing can be done again."""


StoreRecord = Began | Changed | LeftOut | Restored | Forgot


class Checkpoint(Struct, kw_only=True):
    """A checkpoint with everything that is recorded of it."""

    began: Began
    steps: dict[int, Step] = field(default_factory=dict)
    answers: dict[int, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def open_steps(self) -> list[Step]:
        """Those that are not reverted."""
        return [step for step in self.steps.values() if not step.reverted]


def shown_path(path: str) -> str:
    """A path as text that any JSON can hold: bytes that are not UTF-8 as `\\xNN`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def change_between(before: FileState | None, after: FileState | None) -> FileChange:
    if before is None:
        return "create"
    return "delete" if after is None else "change"


encode_record = json.Encoder().encode
decode_record = json.Decoder(StoreRecord).decode
