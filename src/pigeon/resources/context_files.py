"""Context files: notes of the user and the project for agents, one file per folder.

They are plain text for the model, so they are read whether or not the project is trusted; the prompt notes if it is
not. For the same reason only few links are followed (`resources/instruction_files.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec import Struct

from pigeon.resources.instruction_files import LinkLimit, check_instruction_file, hold_instruction_file, limit_links
from pigeon.resources.roots import ancestors
from pigeon.system.file_view import LOCAL_FILES, FileView
from pigeon.system.files import error_text

NAMES = ("AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD")
LARGEST_FILE = 65_536
LARGEST_ALL = 262_144


class ContextFile(Struct, frozen=True):
    """One file in its form for the model."""

    path: str
    text: str
    of_user: bool


class _Places(Struct, frozen=True):
    """Where context files are: the user's on this machine, the others where the project is."""

    agent_dir: str
    project: FileView

    def view_of(self, folder: str) -> FileView:
        return LOCAL_FILES if folder == self.agent_dir else self.project

    def limit_links_in(self, folder: str) -> LinkLimit | None:
        return None if folder == self.agent_dir else limit_links(folder, False, self.project)


def read_context_files(
    agent_dir: str, cwd: str, report: Callable[[str], None], project: FileView = LOCAL_FILES
) -> list[ContextFile]:
    """The user's own file, then those from the root of the file system down to the folder, on the machine that
    `project` shows; shortened if too long."""
    places = _Places(agent_dir, project)
    folders = [agent_dir, *reversed(ancestors(cwd))]
    skipped = _find_repository_and_worktree(cwd, project)
    paths: dict[str, str] = {}
    for folder in folders:
        path = _find_file_in(folder, places, report)
        if path is not None and not (skipped and folder == skipped[0] and _find_file_in(skipped[1], places, report)):
            paths.setdefault(places.view_of(folder).real_path(path), path)
    found: list[ContextFile] = []
    room = LARGEST_ALL
    for path in reversed(paths.values()):  # the nearest matters most, so it gets its room first
        file = _read_context_file(path, min(LARGEST_FILE, room), places, report)
        if file is not None:
            found.append(file)
            room -= len(file.text.encode("utf-8", "replace"))
    found.reverse()
    return found


def _find_file_in(folder: str, places: _Places, report: Callable[[str], None]) -> str | None:
    """The first readable file of those names; the others are reported."""
    view = places.view_of(folder)
    for path in (os.path.join(folder, name) for name in NAMES):
        if not view.lexists(path):
            continue
        try:
            check_instruction_file(path, view.real_path(path), places.limit_links_in(folder), view)
            return path
        except OSError as error:
            report(f"context file not loaded: {error_text(error, 'read', path)}")
    return None


def _read_context_file(path: str, room: int, places: _Places, report: Callable[[str], None]) -> ContextFile | None:
    if room <= 0:
        report(f"{path} is left out: the context files together are larger than {LARGEST_ALL} bytes")
        return None
    folder = os.path.dirname(path)
    try:
        view = places.view_of(folder)
        with hold_instruction_file(path, places.limit_links_in(folder), view) as held:
            text, cut = view.read_beginning(held, room)
            size = view.held_size(held) if cut else 0
    except OSError as error:
        report(f"context file not loaded: {error_text(error, 'read', path)}")
        return None
    if cut:
        report(f"{path} has {size} bytes: only the first {room} are given to the model")
        text += f"\n\n[shortened: {room} of {size} bytes; read the file for the rest]"
    return ContextFile(path, text, folder == places.agent_dir) if text.strip() else None


def _find_repository_and_worktree(cwd: str, view: FileView) -> tuple[str, str] | None:
    """In a git worktree inside its own repository: the root of the repository, and that of the worktree."""
    for folder in ancestors(cwd):
        mark = os.path.join(folder, ".git")
        if view.is_folder(mark):
            return None
        if view.is_file(mark):
            main = _read_main_repository_root(mark, folder, view)
            return (main, folder) if main and folder.startswith(main.rstrip(os.sep) + os.sep) else None
    return None


def _read_main_repository_root(mark: str, folder: str, view: FileView) -> str | None:
    """From `gitdir: <repository>/.git/worktrees/<name>`."""
    try:
        text, _ = view.read_beginning(mark, 4096)
    except OSError:
        return None
    if not text.startswith("gitdir:"):
        return None
    place = os.path.normpath(os.path.join(folder, text.removeprefix("gitdir:").strip()))
    kept, _, _ = place.rpartition(os.sep)
    if os.path.basename(kept) != "worktrees":
        return None
    store = os.path.dirname(kept)
    return os.path.dirname(store) if os.path.basename(store) == ".git" else None
