"""Which folders have checkpoints, and how large they may be."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from pigeon.checkpoints.tree import TreeLimits
from pigeon.system.git import is_git_installed

DISABLED = "undo is switched off (setting undo.enabled)"
NO_HOME = "No undo here: {} is your home folder. Start in the folder of a project."
NO_ROOT = "No undo here: / is everything. Start in the folder of a project."
ELSEWHERE = "No undo here: the files are on {}, and only those of this machine are recorded."
NO_GIT = "No undo here: it needs git, which is not installed."
TOO_LARGE = "No undo here: {place}: {why} (settings undo.maxFiles, undo.maxBytes)."
BROKEN = "No undo here: {}"


class UndoChoices(Struct, frozen=True, kw_only=True):
    """The settings of undo, and where its store is."""

    store: str
    enabled: bool
    limits: TreeLimits
    keep_bytes: int
    keep_days: float


def find_refusal(place: str, home: str, variables: Mapping[str, str], machine: str) -> str | None:
    """Why a folder cannot have checkpoints, as far as that can be said without looking into it; for a thread."""
    if machine:
        return ELSEWHERE.format(machine)
    if place == "/":
        return NO_ROOT
    if place == os.path.realpath(home):
        return NO_HOME.format(place)
    return None if is_git_installed(variables) else NO_GIT
