"""Searches on machines without Python: the files are read from there and searched here, by the rules of the helper."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pigeon.system.held_paths import HeldPath
from pigeon.workspaces.local_search import TextRecords, make_path_test, select_files
from pigeon.workspaces.records import Look, Match, MatchKind, SearchEnd, SearchQuery, Seen
from pigeon.workspaces.remote.helper.searching import (
    IGNORE_FILES,
    LARGEST_IGNORE_FILE,
    IgnoreRules,
    compile_line_test,
    compile_name_test,
    find_matches,
    parse_ignore_lines,
)
from pigeon.workspaces.remote.remote_search import names_of
from pigeon.workspaces.workspace import OnFound

if TYPE_CHECKING:
    from pigeon.workspaces.remote.shell_workspace import ShellWorkspace

LARGEST_SEARCHED = 1 << 20
READ_AT_ONCE = 1 << 22
BATCH = 1000


class _FetchedRules(IgnoreRules):
    """The ignore files of a folder elsewhere, which were read before."""

    def __init__(self, root: str, texts: dict[str, str], in_repository: bool, repositories: set[str]) -> None:
        self.root = root.rstrip("/")
        self.files: dict[str, list[Any]] = {path: parse_ignore_lines(text) for path, text in texts.items()}
        self.in_repository = in_repository
        self._repositories = repositories
        self.user_file = ""

    def find_lines(self, file: str) -> list[Any]:
        return self.files.get(file, [])

    def is_repository(self, folder: str) -> bool:
        return folder in self._repositories


async def search_files_here(workspace: ShellWorkspace, query: SearchQuery, on_found: OnFound) -> SearchEnd:
    """Search a folder or a file there; ends when there is enough or the time is up."""
    try:
        async with asyncio.timeout(query.time_box):
            return await _search(workspace, query, on_found, time.monotonic() + query.time_box)
    except TimeoutError:
        return SearchEnd(out_of_time=True)
    except re.error as error:
        return SearchEnd(f"regex parse error: {error}", unread=True)


async def _search(workspace: ShellWorkspace, query: SearchQuery, on_found: OnFound, deadline: float) -> SearchEnd:
    (seen,) = await workspace.look([Look(query.path)])
    place = query.path.place if isinstance(query.path, HeldPath) else seen.followed.place
    if seen.followed.kind != "folder":
        if query.what == "files" or seen.followed.kind == "missing":
            return SearchEnd(f"{place}: not a directory", unread=True)
        test = _line_test(query)
        found = _matches_of(os.path.basename(place), await workspace.read(query.path), True, test, query.context)
        return SearchEnd(stopped=_announce(found, on_found))
    line_test = _line_test(query) if query.what == "text" else None
    tree = await workspace.list_tree(place)
    tree.sort(key=lambda item: [os.fsencode(name) for name in item[0].split("/")])
    shown = _leave_out_ignored(tree, await _fetch_ignored(workspace, place, tree))
    if line_test is None:
        matches = make_path_test(query.pattern, place)
        kinds: dict[str, MatchKind] = {"file": "file", "folder": "folder"}
        found = [Match(path, kind=kinds.get(kind, "other")) for path, kind, _ in shown if matches(path)]
        return SearchEnd(stopped=_announce(found, on_found))
    options, is_chosen = select_files(query.glob)
    is_named = compile_name_test(names_of(options))
    wanted = [
        (path, size)
        for path, kind, size in shown
        if kind == "file" and is_named(os.path.basename(path), path) and (is_chosen is None or is_chosen(path))
    ]
    return await _search_contents(workspace, place, wanted, line_test, query, on_found)


def _announce(found: list[Match], on_found: OnFound) -> bool:
    return any(on_found(found[at : at + BATCH]) for at in range(0, len(found), BATCH))


def _line_test(query: SearchQuery) -> Callable[[str], bool]:
    return compile_line_test(query.pattern, query.literal, query.ignore_case)


async def _search_contents(
    workspace: ShellWorkspace,
    place: str,
    wanted: list[tuple[str, int]],
    test: Callable[[str], bool],
    query: SearchQuery,
    on_found: OnFound,
) -> SearchEnd:
    too_large = any(size > LARGEST_SEARCHED for _, size in wanted)
    batch: list[str] = []
    total = 0
    for path, size in [*((path, size) for path, size in wanted if size <= LARGEST_SEARCHED), ("", READ_AT_ONCE)]:
        if batch and total + size > READ_AT_ONCE:
            looks = [Look(os.path.join(place, each), LARGEST_SEARCHED) for each in batch]
            found = _matches_in(batch, await workspace.look(looks), test, query.context)
            if _announce(found, on_found):
                return SearchEnd(stopped=True)
            batch, total = [], 0
        batch.append(path)
        total += size
    return SearchEnd(unread=too_large)


def _matches_in(paths: list[str], seen: Sequence[Seen], test: Callable[[str], bool], context: int) -> list[Match]:
    found: list[Match] = []
    for path, one in zip(paths, seen, strict=True):
        if one.content is not None:
            found += _matches_of(path, one.content, False, test, context)
    return found


def _matches_of(path: str, data: bytes, as_text: bool, test: Callable[[str], bool], context: int) -> list[Match]:
    found: list[Match] = []

    def keep(matches: list[Match]) -> bool:
        found.extend(matches)
        return False

    reader = TextRecords(keep)
    output = bytearray()
    find_matches(os.fsencode(path), data, as_text, test, context, output.extend)
    reader.consume_until_full(output)
    return found


async def _fetch_ignored(workspace: ShellWorkspace, place: str, tree: list[tuple[str, str, int]]) -> IgnoreRules:
    """Read all ignore files that may say something about the tree: those in it, and those above it."""
    names = {kind for kind, _ in IGNORE_FILES if "/" not in kind}
    folders = ["", *(path for path, kind, _ in tree if kind == "folder")]
    above = [place]
    while above[-1] != "/":
        above.append(os.path.dirname(above[-1]))
    paths = [os.path.join(place, path) for path, kind, _ in tree if kind == "file" and os.path.basename(path) in names]
    paths += [os.path.join(folder, name) for folder in above for name in names]
    repositories = [os.path.join(folder, ".git") for folder in above]
    if len(folders) <= 1000:
        repositories += [os.path.join(place, folder, ".git") for folder in folders if folder]
    paths += [os.path.join(path, "info/exclude") for path in repositories]
    looks = [Look(path, LARGEST_IGNORE_FILE) for path in dict.fromkeys(paths)] + [Look(path) for path in repositories]
    seen = {look.path: one for look, one in zip(looks, await workspace.look(looks), strict=True)}
    texts = {path: one.content.decode("utf-8", "surrogateescape") for path, one in seen.items() if one.content}
    found = {os.path.dirname(path) for path in repositories if seen[path].followed.kind != "missing"}
    return _FetchedRules(place, texts, any(folder in found for folder in above), found)


def _leave_out_ignored(tree: list[tuple[str, str, int]], ignored: IgnoreRules) -> list[tuple[str, str, int]]:
    shown: list[tuple[str, str, int]] = []
    hidden: set[str] = set()
    for path, kind, size in tree:
        if path.rpartition("/")[0] in hidden or ignored(path, kind == "folder"):
            if kind == "folder":
                hidden.add(path)
            continue
        shown.append((path, kind, size))
    return shown
