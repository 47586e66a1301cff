"""Commands about checkpoints: what the agent has changed, and going back to the files as they were."""

from __future__ import annotations

from typing import Literal

from pigeon.wire.base import ABSENT, Absent, Record
from pigeon.wire.commands.base import Command, Scope

FileChange = Literal["create", "change", "delete"]


class FileAndChange(Record, kw_only=True):
    """A file, and what happened or will happen to it. Its path is relative to the workspace; bytes that are not UTF-8
    stand there as `\\xNN`."""

    path: str
    change: FileChange


class FileAndReason(Record, kw_only=True):
    """A file that is left as it is, and why."""

    path: str
    reason: str


class CheckpointInfo(Record, kw_only=True):
    """The files as they were before a prompt, and those that the prompt has changed.

    `entry_id` is its message and `text` what that says; of a started agent, which has an `agent_id`, they are those of
    its own conversation. `time` is in milliseconds. It is `undone` when nothing of it is left.
    """

    id: str
    entry_id: str
    text: str
    time: int
    files: list[FileAndChange]
    undone: bool
    agent_id: str | Absent = ABSENT


class Checkpoints(Record, kw_only=True):
    """Answer of `get_checkpoints`, oldest first; `off` says why there are none here."""

    checkpoints: list[CheckpointInfo]
    off: str | Absent = ABSENT


class RestoredFiles(Record, kw_only=True):
    """Answer of `undo` and `redo`: what was done. Files in `conflicts` were changed by others and are left alone;
    those in `not_covered` cannot be restored."""

    files: list[FileAndChange]
    conflicts: list[FileAndReason]
    not_covered: list[FileAndReason]


class UndoPreview(Record, kw_only=True):
    """Answer of `preview_undo`: what `undo` would do; `diff` is a unified diff from now to then."""

    files: list[FileAndChange]
    diff: str
    conflicts: list[FileAndReason]
    not_covered: list[FileAndReason]


class GetCheckpoints(Command, tag="get_checkpoints", kw_only=True):
    """The checkpoints of the conversation: one for each prompt, and for each started agent, that has changed files."""

    lane = "beside"
    answer = Checkpoints
    required_scope = "read"
    effect = "reads"


class PreviewUndo(Command, tag="preview_undo", kw_only=True):
    """What `undo` with the same arguments would do."""

    lane = "beside"
    answer = UndoPreview
    required_scope = "read"
    effect = "reads"
    checkpoint: str | Absent = ABSENT
    files: list[str] | Absent = ABSENT


class Undo(Command, tag="undo", kw_only=True):
    """Bring files back to what they were before a prompt: that of a `checkpoint`, or the newest one that is not undone.

    All later prompts are undone, too. `files` are paths in the workspace, folders included; without them it is about
    all files that the agent has changed. What others have changed since is left as it is, unless `force` is true.
    """

    answer = RestoredFiles
    required_scope = "talk"
    checkpoint: str | Absent = ABSENT
    files: list[str] | Absent = ABSENT
    force: bool = False

    def find_needed_scope(self) -> Scope:
        return "admin" if self.force else self.required_scope


class Redo(Command, tag="redo", kw_only=True):
    """Take back the last `undo`, with what `force` has overwritten; possible until the next prompt."""

    answer = RestoredFiles
    required_scope = "talk"
    force: bool = False

    def find_needed_scope(self) -> Scope:
        return "admin" if self.force else self.required_scope


UNDO: tuple[type[Command], ...] = (GetCheckpoints, PreviewUndo, Undo, Redo)
