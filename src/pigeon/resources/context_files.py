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
from pigeon.system.files import error_text, read_beginning

NAMES = ("AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD")
LARGEST_FILE = 65_536
LARGEST_ALL = 262_144


class ContextFile(Struct, frozen=True):
    """One file in its form for the model."""

    path: str
    text: str
    of_user: bool


def read_context_files(agent_dir: str, cwd: str, report: Callable[[str], None]) -> list[ContextFile]:
    """The user's own file, then those from the root of the file system down to the folder; shortened if too long."""
    folders = [agent_dir, *reversed(ancestors(cwd))]
    skipped = _find_repository_and_worktree(cwd)
    paths: dict[str, str] = {}
    for folder in folders:
        path = _find_file_in(folder, agent_dir, report)
        if path is not None and not (skipped and folder == skipped[0] and _find_file_in(skipped[1], agent_dir, report)):
            paths.setdefault(os.path.realpath(path), path)
    found: list[ContextFile] = []
    room = LARGEST_ALL
    for path in reversed(paths.values()):  # the nearest matters most, so it gets its room first
        file = _read_context_file(path, min(LARGEST_FILE, room), agent_dir, report)
        if file is not None:
            found.append(file)
            room -= len(file.text.encode("utf-8", "replace"))
    found.reverse()
    return found


def _find_file_in(folder: str, agent_dir: str, report: Callable[[str], None]) -> str | None:
    """The first readable file of those names; the others are reported."""
    for path in (os.path.join(folder, name) for name in NAMES):
        if not os.path.lexists(path):
            continue
        try:
            check_instruction_file(path, os.path.realpath(path), _limit_links_in(folder, agent_dir))
            return path
        except OSError as error:
            report(f"context file not loaded: {error_text(error, 'read', path)}")
    return None


def _limit_links_in(folder: str, agent_dir: str) -> LinkLimit | None:
    return None if folder == agent_dir else limit_links(folder, trusted=False)


def _read_context_file(path: str, room: int, agent_dir: str, report: Callable[[str], None]) -> ContextFile | None:
    if room <= 0:
        report(f"{path} is left out: the context files together are larger than {LARGEST_ALL} bytes")
        return None
    folder = os.path.dirname(path)
    try:
        with hold_instruction_file(path, _limit_links_in(folder, agent_dir)) as held:
            text, cut = read_beginning(held, room)
            size = os.stat(held.name, dir_fd=held.open_folder(), follow_symlinks=False).st_size if cut else 0
    except OSError as error:
        report(f"context file not loaded: {error_text(error, 'read', path)}")
        return None
    if cut:
        report(f"{path} has {size} bytes: only the first {room} are given to the model")
        text += f"\n\n[shortened: {room} of {size} bytes; read the file for the rest]"
    return ContextFile(path, text, folder == agent_dir) if text.strip() else None


def _find_repository_and_worktree(cwd: str) -> tuple[str, str] | None:
    """In a git worktree inside its own repository: the root of the repository, and that of the worktree."""
    for folder in ancestors(cwd):
        mark = os.path.join(folder, ".git")
        if os.path.isdir(mark):
            return None
        if os.path.isfile(mark):
            main = _read_main_repository_root(mark, folder)
            return (main, folder) if main and folder.startswith(main.rstrip(os.sep) + os.sep) else None
    return None


def _read_main_repository_root(mark: str, folder: str) -> str | None:
    """From `gitdir: <repository>/.git/worktrees/<name>`."""
    try:
        text, _ = read_beginning(mark, 4096)
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
