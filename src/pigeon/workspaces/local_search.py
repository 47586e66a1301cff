"""Searches on this machine: from a query to ripgrep's options, and from its output to matches."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from itertools import islice

from pigeon.system.held_paths import OpenedPath
from pigeon.workspaces.records import Match, MatchKind, SearchEnd, SearchQuery
from pigeon.workspaces.ripgrep import Ripgrep, RipgrepEnd
from pigeon.workspaces.workspace import OnFound

LONGEST_LINE = 4000
# Ripgrep reports binary files between its records, in a line that has no NUL after the path.
_REMARK = re.compile(rb"([^\0]*?): (?:WARNING: stopped searching b|b)inary file [^\0\n]*byte around offset \d+\)\n")
_BATCH = 1000


async def search_text(ripgrep: Ripgrep, held: OpenedPath, query: SearchQuery, on_found: OnFound) -> SearchEnd:
    """Search the lines of the files below a folder, or of one file."""
    # A bad glob is an error for a single file too, which is searched whatever the glob.
    chosen, is_chosen = select_files(query.glob)
    if not held.is_folder:
        chosen, is_chosen = ["--text"], None
    options = [*text_options(query), *chosen]
    lines = TextRecords(on_found, is_chosen)
    ended = await ripgrep.search([*options, "--", held.name], held, lines.consume_until_full, query.time_box)
    return _end_of(ended, lines.is_full)


async def search_files(ripgrep: Ripgrep, held: OpenedPath, query: SearchQuery, on_found: OnFound) -> SearchEnd:
    """Search the paths of files, folders and links below a folder."""
    paths = FileRecords(on_found, make_path_test(query.pattern, held.place))
    deadline = time.monotonic() + query.time_box
    ended = await ripgrep.search(["--files", "--null"], held, paths.consume_until_full, query.time_box)
    if paths.is_full or ended.out_of_time or (ended.code == 2 and ended.complaint and not paths.has_found):
        return _end_of(ended, paths.is_full)
    has_ended = False

    def must_stop() -> bool:
        return has_ended or time.monotonic() > deadline

    unlisted = ripgrep.find_unlisted(held, paths.folders, paths.matches, must_stop)
    try:
        while part := await asyncio.to_thread(lambda: list(islice(unlisted, _BATCH))):
            if paths.add_unlisted(part):
                return SearchEnd(stopped=True)
    finally:
        has_ended = True
    return SearchEnd(out_of_time=time.monotonic() > deadline)


def _end_of(ended: RipgrepEnd, is_full: bool) -> SearchEnd:
    return SearchEnd(ended.complaint if ended.code == 2 else "", ended.code == 2, ended.out_of_time, is_full)


def text_options(query: SearchQuery) -> list[str]:
    # Ripgrep shortens long lines itself, so that a file of one huge line cannot fill our memory.
    options = ["--line-number", "--null", "--no-heading", "--with-filename", "--no-context-separator"]
    options += [f"--max-columns={LONGEST_LINE}", "--max-columns-preview", f"--regexp={query.pattern}"]
    if query.literal:
        options.append("--fixed-strings")
    if query.ignore_case:
        options.append("--ignore-case")
    if query.context:
        options.append(f"--context={query.context}")
    return options


def select_files(glob: str) -> tuple[list[str], Callable[[str], bool] | None]:
    """How a glob selects files: options for ripgrep, and a test for the paths if those are not enough.

    A plain `--glob` would include files that .gitignore excludes, a file type does not; but a type only matches names,
    and its definition cannot contain a colon.
    """
    from pigeon.system.globs import compile_grep_glob

    if not glob:
        return [], None
    matches = compile_grep_glob(glob.removeprefix("!"))
    if glob.startswith("!"):
        return [f"--glob={glob}"], None
    if "/" not in glob and ":" not in glob:
        return [f"--type-add=wanted:{glob}", "--type=wanted"], None
    options: list[str] = []
    name = glob.rpartition("/")[2]
    if name and name.count("{") == name.count("}") and ":" not in name:
        options += [f"--type-add=wanted:{name}", "--type=wanted"]
    return options, matches


def make_path_test(pattern: str, folder: str) -> Callable[[str], bool]:
    """Whether a path relative to a folder matches a glob, which may be absolute."""
    from pigeon.system.globs import compile_find_glob

    matches = compile_find_glob(pattern)
    root = folder.rstrip("/")
    return (lambda path: matches(f"{root}/{path}")) if pattern.startswith("/") else matches


class TextRecords:
    """Reads records `path NUL number :|- text` of chosen files, as they come."""

    def __init__(self, on_found: OnFound, is_chosen: Callable[[str], bool] | None = None) -> None:
        self._on_found = on_found
        self._is_chosen = is_chosen
        self._raw = b""
        self._path = ""
        self._skips = False
        self.is_full = False

    def consume_until_full(self, buffer: bytearray) -> bool:
        """Remove every complete record from the buffer; returns True once there is enough."""
        found: list[Match] = []
        at = 0
        while True:
            nul = buffer.find(0, at)
            newline = buffer.find(b"\n", at)
            if newline >= 0 and not 0 <= nul < newline and (remark := _REMARK.match(buffer, at)):
                self._enter_file(remark.group(1))
                if not self._skips:
                    found.append(Match(self._path, kind="binary"))
                at = remark.end()
                continue
            end = -1 if nul < 0 else buffer.find(b"\n", nul)
            if end < 0:
                break
            self._enter_file(bytes(buffer[at:nul]))
            if not self._skips:
                found.append(self._read_record(bytes(buffer[nul + 1 : end])))
            at = end + 1
            if len(found) >= _BATCH and self._announce(found):
                return True
        del buffer[:at]
        return self._announce(found)

    def _announce(self, found: list[Match]) -> bool:
        self.is_full = bool(found) and self._on_found(found)
        found.clear()
        return self.is_full

    def _enter_file(self, raw: bytes) -> None:
        if raw != self._raw:
            self._raw = raw
            self._path = os.fsdecode(raw).removeprefix("./")
            self._skips = self._is_chosen is not None and not self._is_chosen(self._path)

    def _read_record(self, record: bytes) -> Match:
        digits = len(record) - len(record.lstrip(b"0123456789"))
        kind: MatchKind = "match" if record[digits : digits + 1] == b":" else "context"
        text = record[digits + 1 :].decode("utf-8", "replace").rstrip("\r").replace("\0", "\ufffd")
        return Match(self._path, int(record[:digits] or b"0"), text, kind)


class FileRecords:
    """Reads the NUL-ended paths of files, and adds each folder the first time something below it appears."""

    def __init__(self, on_found: OnFound, matches: Callable[[str], bool]) -> None:
        self._on_found = on_found
        self.matches = matches
        self.folders: set[str] = {""}
        self.is_full = False
        self.has_found = False

    def consume_until_full(self, buffer: bytearray) -> bool:
        *paths, rest = bytes(buffer).split(b"\0")
        buffer[:] = rest
        found: list[Match] = []
        for raw in paths:
            path = os.fsdecode(raw).removeprefix("./")
            self._add_folders(path.rpartition("/")[0], found)
            if self.matches(path):
                found.append(Match(path, kind="file"))
        return self._announce(found)

    def add_unlisted(self, unlisted: list[tuple[str, bool]]) -> bool:
        """Announce what ripgrep does not list; returns True if there is enough."""
        return self._announce([Match(path, kind="folder" if is_folder else "other") for path, is_folder in unlisted])

    def _announce(self, found: list[Match]) -> bool:
        self.has_found = self.has_found or bool(found)
        self.is_full = bool(found) and self._on_found(found)
        return self.is_full

    def _add_folders(self, folder: str, found: list[Match]) -> None:
        if folder not in self.folders:
            self._add_folders(folder.rpartition("/")[0], found)
            self.folders.add(folder)
            if self.matches(folder):
                found.append(Match(folder, kind="folder"))
