"""Handlers: checkpoints, and going back to them."""

from __future__ import annotations

from collections.abc import Awaitable

from pigeon.rpc.router import handles
from pigeon.session.session import Session
from pigeon.wire.base import value_or_default
from pigeon.wire.commands import (
    Checkpoints,
    GetCheckpoints,
    PreviewUndo,
    Redo,
    RestoredFiles,
    Undo,
    UndoPreview,
)


@handles(GetCheckpoints)
def get_checkpoints(cmd: GetCheckpoints, s: Session) -> Awaitable[Checkpoints]:
    """Waits until what has ended is recorded."""
    return s.dependencies.checkpoints.list_checkpoints()


@handles(PreviewUndo)
def preview_undo(cmd: PreviewUndo, s: Session) -> Awaitable[UndoPreview]:
    """Looks at the files as they are now, and changes none."""
    checkpoint, files = value_or_default(cmd.checkpoint, None), value_or_default(cmd.files, None)
    return s.dependencies.checkpoints.preview(checkpoint, files)


@handles(Undo)
def undo(cmd: Undo, s: Session) -> Awaitable[RestoredFiles]:
    """Conflicts are no failure: the other files are restored."""
    checkpoint, files = value_or_default(cmd.checkpoint, None), value_or_default(cmd.files, None)
    return s.history.file_undo.undo(checkpoint, files, cmd.force)


@handles(Redo)
def redo(cmd: Redo, s: Session) -> Awaitable[RestoredFiles]:
    """The same the other way round."""
    return s.history.file_undo.redo(cmd.force)
