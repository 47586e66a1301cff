"""What can go wrong with a workspace besides the errors of files, which are `OSError` with the system's numbers."""

from __future__ import annotations

from pigeon.wire.errors import StartupError, UsageError


class WorkspaceUnusable(StartupError):
    """A workspace that cannot be opened; the text names the machine and the reason."""


class WrongWorkspace(UsageError):
    """A workspace that cannot be meant; the text says what is wrong with its URL."""


class FileHasChanged(OSError):
    """The file is not the one that was read: nothing was written."""


class WorkspaceLost(OSError):
    """The connection to a machine broke; the text is for the model, and says what is known."""
