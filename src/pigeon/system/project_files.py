"""The files of a project by parts of their names, for completion in the chat, and for hosts by `find_files`.

The search runs in a separate thread: a folder may have many files, and its disk may be slow.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from itertools import islice

MOST_FILES = 20_000
FEW_FILES = 1_000
FRESH_SECONDS = 5.0
# How long the first search may take before its results so far are offered.
FIRST_SECONDS = 0.2


class ProjectFiles:
    """The files below a folder that git would not ignore, searched again when the last search is old.

    During a new search, the previous results are offered; during the first, those found so far. `folder` is called each
    time: for another folder, everything starts over. So is `concealment`, for a test of real paths that must not be
    offered.
    """

    def __init__(
        self,
        folder: Callable[[], str],
        variables: Mapping[str, str],
        home: str,
        concealment: Callable[[], Callable[[str], bool]] = lambda: lambda place: False,
    ) -> None:
        self._folder = folder
        self._root = folder()
        self._variables = variables
        self._home = home
        self._concealment = concealment
        self._paths: list[str] = []
        self._looked = float("-inf")
        self._looking: threading.Thread | None = None
        self._starting = threading.Lock()

    @property
    def is_small(self) -> bool:
        """Whether they are known, and few enough to be compared without a noticeable delay."""
        return self._has_searched and len(self._paths) <= FEW_FILES

    def find_files(self, wanted: str, most: int) -> list[str]:
        """Paths with the letters in this order; those with adjacent letters, and in the name, come first."""
        self._refresh_paths()
        paths = list(self._paths)
        ranked = sorted((rank, len(path), path) for path in paths if (rank := rank_path(path, wanted)) is not None)
        conceals, root = self._concealment(), os.path.realpath(self._root)
        # Most are not requested, so the rules are checked for no more than are needed.
        shown = (path for _, _, path in ranked if not conceals(os.path.join(root, path.rstrip(os.sep))))
        return list(islice(shown, most))

    def _refresh_paths(self) -> None:
        """Start a search when it is due; wait a moment for the first result."""
        with self._starting:
            root = self._folder()
            if root != self._root:
                self._root, self._paths, self._looked, self._looking = root, [], float("-inf"), None
            if self._looking is None and time.monotonic() - self._looked > FRESH_SECONDS:
                found = [] if self._has_searched else self._paths
                # A separate thread that ends with the program: a disk that does not answer blocks nothing.
                self._looking = threading.Thread(
                    target=self._search_and_store, args=(root, found), daemon=True, name="pigeon-files"
                )
                self._looking.start()
            looking = None if self._has_searched else self._looking
        if looking is not None:
            looking.join(FIRST_SECONDS)

    @property
    def _has_searched(self) -> bool:
        return self._looked > float("-inf")

    def _search_and_store(self, root: str, found: list[str]) -> None:
        try:
            self._walk(root, found)
        finally:
            if root == self._root:
                self._paths = found
                self._looked = time.monotonic()
                self._looking = None

    def _walk(self, root: str, found: list[str]) -> None:
        from pigeon.system.ignore_files import Ignored, user_ignore_file

        ignored = Ignored(root, user_ignore_file(self._variables, self._home))
        folders = [""]
        while folders and len(found) < MOST_FILES:
            folder = folders.pop(0)
            try:
                entries = sorted(os.scandir(os.path.join(root, folder)), key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in entries:
                path = os.path.join(folder, entry.name)
                is_folder = entry.is_dir(follow_symlinks=False)
                if entry.name == ".git" or ignored(path, is_folder):
                    continue
                if is_folder:
                    folders.append(path)
                    found.append(path + os.sep)
                else:
                    found.append(path)


def rank_path(path: str, wanted: str) -> int | None:
    """How well a path fits the letters, 0 for the best; None if it does not."""
    path = path.lower()
    if not wanted:
        return path.count(os.sep)
    if os.path.basename(path.rstrip(os.sep)).startswith(wanted):
        return 0
    if path.startswith(wanted):
        return 1
    if wanted in path:
        return 2
    letters = iter(path)
    return 3 if all(letter in letters for letter in wanted) else None
