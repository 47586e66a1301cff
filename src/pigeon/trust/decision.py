"""Whether a project's own files may be used: those that run code, redirect requests or become part of the prompt in our
name.

The search only checks names: nothing of the project is opened before the decision. `control.py` keeps the decisions of
an agent, one for each folder that its conversations are in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from pigeon.system.file_view import LOCAL_FILES, FileView
from pigeon.wire.answers import DecidedBy

# Everything in a project's folder of ours that is more than a note to read.
RESOURCES = (
    "settings.json",
    "models.json",
    "mcp.json",
    "extensions",
    "skills",
    "prompts",
    "themes",
    "rules",
    "hooks",
    "SYSTEM.md",
    "APPEND_SYSTEM.md",
)
# In the folder of the project itself, for any agent: the tool servers to start.
SERVERS = ".mcp.json"
SKILLS = os.path.join(".agents", "skills")
Default = Literal["ask", "always", "never"]


def find_guarded_paths(cwd: str, folders: Iterable[str], home: str, view: FileView = LOCAL_FILES) -> list[str]:
    """The paths in a project that need trust; `folders` are those that may contain our files.

    This is repeated with each run, so folders that do not exist must cost next to nothing.
    """
    found = [os.path.join(folder, name) for folder in filter(view.lexists, folders) for name in RESOURCES]
    found.append(os.path.join(cwd, SERVERS))
    return [path for path in found if view.lexists(path)] + _find_skill_folders(cwd, home, view)


def _find_skill_folders(cwd: str, home: str, view: FileView) -> list[str]:
    """The folders with skills for any agent in a project's folder and above, but not the user's own."""
    # The user's own skills are on this machine.
    own = os.path.realpath(os.path.join(home, SKILLS)) if view.is_local else None
    found = []
    folder = view.real_path(cwd)
    while True:
        candidate = os.path.join(folder, SKILLS)
        if view.lexists(candidate) and view.real_path(candidate) != own:
            found.append(candidate)
        above = os.path.dirname(folder)
        if above == folder:
            return found
        folder = above


class Decision(Struct, frozen=True):
    """Whether a project is trusted, and the source of the decision; None if there is no decision.

    `harmless` is set if nothing needed a decision at that time. Such a project is not trusted either: files that appear
    in it later wait for a decision.
    """

    trusted: bool | None
    by: DecidedBy | None
    harmless: bool = False


def initial_decision(
    *,
    option: bool | None = None,
    vote: bool | None = None,
    saved: bool | None = None,
    default: Default = "ask",
    harmless: bool = False,
) -> Decision:
    """The decision about a project before a host makes one.

    `option` is `--approve` or `--no-approve`, `vote` the vote of an extension, `saved` an earlier decision. There is no
    person to ask yet, so the setting "ask" decides nothing.
    """
    if option is not None:
        return Decision(option, "option", harmless)
    if vote is not None:
        return Decision(vote, "extension", harmless)
    if saved is not None:
        return Decision(saved, "saved", harmless)
    return Decision(None, None, harmless) if default == "ask" else Decision(default == "always", "setting", harmless)
