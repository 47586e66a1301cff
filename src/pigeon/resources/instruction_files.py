"""Files with instructions for the model, and where links at their names may lead.

A folder that was cloned, unpacked, or written to by a command may have a link at a name that is read for the model. So
a link of a project is followed only to another file of instructions of the same project: Markdown, inside the
repository; outside of one, inside the folder of a trusted project, and for context files, which need no trust, in the
same folder. The user's own files may be links to anywhere.
"""

from __future__ import annotations

import os

from msgspec import Struct

from pigeon.resources.roots import ResourceRoot, ancestors
from pigeon.system.file_view import LOCAL_FILES, FileView
from pigeon.system.held_paths import HeldPath

_SPECIAL = ("/proc", "/dev", "/sys")
_ENDINGS = (".md", ".mdc", ".mdx", ".markdown")
# Files of instructions of other agents, which have no ending.
_OTHER_NAMES = (".clinerules", ".cursorrules", ".goosehints", ".roorules", ".rules", ".windsurfrules")


class LinkRefused(OSError):
    """The path leads to a file that must not be read for the model; the text says why."""


class LinkLimit(Struct, frozen=True):
    """Where links may lead that are at or below `start`: into `within`, or if not `below`, only directly into it."""

    start: str
    within: str
    below: bool


def limit_links(folder: str, trusted: bool, view: FileView = LOCAL_FILES) -> LinkLimit:
    """The limit for the files of a project in this folder; `trusted` is the user's decision about it."""
    start = view.real_path(folder)
    repository = next((above for above in ancestors(start) if view.lexists(os.path.join(above, ".git"))), None)
    return LinkLimit(start=folder, within=repository or start, below=trusted or repository is not None)


def limit_links_of_root(root: ResourceRoot) -> LinkLimit | None:
    """The limit for skills or templates of a project; None for those that the user put there or named."""
    if root.location != "project":
        return None
    return limit_links(os.path.dirname(root.path if root.source == "local" else root.base_dir), True, root.view)


def check_instruction_file(path: str, place: str, limit: LinkLimit | None, view: FileView = LOCAL_FILES) -> None:
    """Raise `OSError` unless the real place of a path may be read; without a limit, a link may lead anywhere."""
    if _is_below(place, _SPECIAL):
        raise LinkRefused(f"{path} leads to {place}, which is not a project file")
    if limit is not None and place != _place_without_links(path, limit.start, view):
        name = os.path.basename(place)
        if not _is_below(place, (limit.within,)):
            raise LinkRefused(f"{path} is a link that leads out of {limit.within}")
        if not limit.below and os.path.dirname(place) != limit.within:
            raise LinkRefused(f"{path} is a link to {place}: outside a repository it may only lead to a file beside it")
        if not name.lower().endswith(_ENDINGS) and name not in _OTHER_NAMES:
            raise LinkRefused(f"{path} is a link to {place}, which is not a Markdown file")
    view.check_regular(place, path)


def hold_instruction_file(path: str, limit: LinkLimit | None, view: FileView = LOCAL_FILES) -> HeldPath:
    """The file, held so that no link can replace it before it is read; raises `OSError`, `LinkRefused` for a link that
    leads too far."""
    held = view.hold(path)
    try:
        check_instruction_file(path, held.place, limit, view)
    except BaseException:
        held.close()
        raise
    return held


def _place_without_links(path: str, start: str, view: FileView) -> str:
    return os.path.normpath(os.path.join(view.real_path(start), os.path.relpath(path, start)))


def _is_below(place: str, folders: tuple[str, ...]) -> bool:
    return any(place == folder or place.startswith(folder.rstrip("/") + "/") for folder in folders)
