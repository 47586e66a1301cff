"""What a list of files does not show: links, special files, and directories that lead to no file; links stay links."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

from pigeon.system.ignore_files import Ignored

LOOK_EVERY = 256


def unlisted(
    root: str, folders: set[str], matches: Callable[[str], bool], stopped: Callable[[], bool]
) -> Iterator[tuple[str, bool]]:
    """Paths below `root` that match and are not ignored, each with whether it is a directory.

    `folders` are the directories that lead to listed files; nobody ignores them.
    """
    ignored = Ignored(root)
    waiting = [""]
    while waiting and not stopped():
        folder = waiting.pop()
        for number, entry in enumerate(_entries(f"{root}/{folder}")):
            if number % LOOK_EVERY == LOOK_EVERY - 1 and stopped():
                return
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name == ".git" or (not is_folder and entry.is_file(follow_symlinks=False)):
                continue
            if path in folders:
                waiting.append(path)
                continue
            found = matches(path)
            if (found or is_folder) and not ignored(path, is_folder):
                if is_folder:
                    waiting.append(path)
                if found:
                    yield path, is_folder


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        return list(entries)
    return []
