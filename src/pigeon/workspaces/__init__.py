"""Where the files of a conversation are and its commands run: this machine, or another one.

`Workspace` is the interface, `LocalWorkspace` a folder of this machine.
"""

from pigeon.system.held_paths import HeldPath
from pigeon.workspaces.errors import FileHasChanged, WorkspaceLost, WorkspaceUnusable, WrongWorkspace
from pigeon.workspaces.local import LocalWorkspace
from pigeon.workspaces.records import (
    CommandEnd,
    Entry,
    FileStat,
    Look,
    Match,
    SearchEnd,
    SearchQuery,
    Seen,
)
from pigeon.workspaces.workspace import Workspace

__all__ = [
    "CommandEnd",
    "Entry",
    "FileHasChanged",
    "FileStat",
    "HeldPath",
    "LocalWorkspace",
    "Look",
    "Match",
    "SearchEnd",
    "SearchQuery",
    "Seen",
    "Workspace",
    "WorkspaceLost",
    "WorkspaceUnusable",
    "WrongWorkspace",
]
