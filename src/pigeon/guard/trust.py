"""Whether a project's own files may be used: those that run code, redirect requests or speak to the model in our name.

Finding out what there is looks at names only: nothing of the project is opened before the decision. `app/extensions`
asks for the decision between loading the extensions of the user and those of the project.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal

# Everything in a project's folder of ours that is more than a note to read.
RESOURCES = (
    "settings.json",
    "models.json",
    "extensions",
    "skills",
    "prompts",
    "themes",
    "rules",
    "hooks",
    "SYSTEM.md",
    "APPEND_SYSTEM.md",
)
SKILLS = os.path.join(".agents", "skills")
Default = Literal["ask", "always", "never"]


def guarded(cwd: str, folders: Iterable[str], home: str) -> list[str]:
    """What there is in a project that needs trust; `folders` are those that may hold our files."""
    found = [os.path.join(folder, name) for folder in folders for name in RESOURCES]
    found += skill_folders(cwd, home)
    return [path for path in found if os.path.lexists(path)]


def skill_folders(cwd: str, home: str) -> list[str]:
    """Where a project may keep skills for any agent: in its folder or above, but not the user's own."""
    own = os.path.realpath(os.path.join(home, SKILLS))
    found = []
    folder = os.path.realpath(cwd)
    while True:
        candidate = os.path.join(folder, SKILLS)
        if os.path.realpath(candidate) != own:
            found.append(candidate)
        above = os.path.dirname(folder)
        if above == folder:
            return found
        folder = above


def is_trusted(
    *,
    option: bool | None = None,
    vote: bool | None = None,
    saved: bool | None = None,
    default: Default = "ask",
) -> bool:
    """The decision for a project that needs trust.

    `option` is `--approve` or `--no-approve`, `vote` what an extension said, `saved` what was decided earlier. There is
    no person to ask yet, so a setting that says "ask" is a no.
    """
    first = next((answer for answer in (option, vote, saved) if answer is not None), None)
    return default == "always" if first is None else first
