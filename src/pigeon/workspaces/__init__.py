"""Where the files of a conversation are and its commands run: this machine, or another one.

`Workspace` is the interface, `LocalWorkspace` a folder of this machine.
"""

from pigeon.system.held_paths import HeldPath
from pigeon.wire.choices import FileKind
from pigeon.workspaces.errors import FileHasChanged, WorkspaceLost, WorkspaceUnusable, WrongWorkspace
from pigeon.workspaces.local import LocalWorkspace
from pigeon.workspaces.records import (
    CommandEnd,
    Entry,
    FileStat,
    Look,
    Match,
    MatchKind,
    SearchEnd,
    SearchQuery,
    Seen,
)
from pigeon.workspaces.workspace import OnFound, OnOutput, Workspace

__all__ = [
    "CommandEnd",
    "Entry",
    "FileHasChanged",
    "FileKind",
    "FileStat",
    "HeldPath",
    "LocalWorkspace",
    "Look",
    "Match",
    "MatchKind",
    "OnFound",
    "OnOutput",
    "SearchEnd",
    "SearchQuery",
    "Seen",
    "Workspace",
    "WorkspaceLost",
    "WorkspaceUnusable",
    "WrongWorkspace",
]
