"""The command that combines the changes of tools to files, and its answer."""

from __future__ import annotations

from typing import Literal

from pigeon.wire.base import ABSENT, Absent, Record
from pigeon.wire.commands.base import Command

DiffFormat = Literal["patch", "html"]


class ChangedFile(Record, kw_only=True):
    """A file that the agent has changed, with the lines that were added and removed in all, and the last answer that
    has changed it.

    A path within the working directory is relative to it. `whole` says that the file was written as a whole and that
    the session does not know what stood there before, so that all of its lines count as added. There are several
    `diffs` if something else has changed the file between them, and none if all was changed back.
    """

    path: str
    added: int
    removed: int
    entry_id: str
    whole: bool
    diffs: list[str] | Absent = ABSENT


class Changes(Record, kw_only=True):
    """Answer of `get_changes`, in the order of their paths, those outside of the working directory last."""

    files: list[ChangedFile]


class GetChanges(Command, tag="get_changes", kw_only=True):
    """The files that the agent has changed on the active branch, each with all changes put together.

    With `path`, only this file, and with its diffs: as unified diffs, or as HTML. Where there are checkpoints
    (`get_checkpoints`), changes of commands and of started agents are among them, and what was undone, or changed by
    others, is not.
    """

    lane = "beside"
    answer = Changes
    required_scope = "read"
    effect = "reads"
    path: str | Absent = ABSENT
    format: DiffFormat = "patch"


CHANGES: tuple[type[Command], ...] = (GetChanges,)
