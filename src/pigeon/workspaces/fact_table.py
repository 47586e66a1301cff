"""What is known of the files of another machine, for code that cannot wait: permission rules, context files, skills.

Such code asks many small questions, and each would be a round trip. So it runs on a `FactTable`: what it asks and the
table does not know is noted, fetched in one request, and the code runs again, until it has asked nothing new.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pigeon.system.file_view import FileView, FolderEntry
from pigeon.system.files import NotRegular, refuse_irregular
from pigeon.system.held_paths import HeldPath, resolve_and_hold
from pigeon.system.paths import PathResolver
from pigeon.wire.errors import ToolFailed
from pigeon.workspaces.records import MISSING, FileStat, Look, Seen
from pigeon.workspaces.workspace import Workspace

_T = TypeVar("_T")
FETCHED_AHEAD = 256 * 1024
FRESH_SECONDS = 2.0
_MOST_ROUNDS = 64
_NOTHING = Seen(FileStat(kind="missing", version=MISSING), FileStat(kind="missing", version=MISSING))


class SeenPath(HeldPath):
    """A path on another machine, with what there was when it was resolved."""

    seen: Seen
    seen_at: float

    @property
    def is_missing(self) -> bool:
        return self.seen.stat.kind == "missing"

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() <= self.seen_at + FRESH_SECONDS

    @property
    def fresh_content(self) -> bytes | None:
        """All of the file, if it came with the path, and just now."""
        content = self.seen.content
        if content is None or len(content) < self.seen.followed.size or not self.is_fresh:
            return None
        return content


class FactTable(FileView):
    """Answers from what has been fetched; what was not counts as missing, and is noted."""

    is_local = False

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._facts: dict[str, Seen] = {}
        self._asked: dict[str, Look] = {}
        self._unknown: dict[str, Look] = {}
        self._fetched_at = 0.0
        # The folder of a workspace is its real path.
        folder = FileStat(kind="folder", place=workspace.folder)
        self._known = {workspace.folder: Seen(folder, folder)}

    async def answer(self, question: Callable[[], _T], ahead: Iterable[Look] = ()) -> _T:
        """What the question says once all that it asks is known; `ahead` is what it will ask for."""
        for look in ahead:
            self._note(look.path, look.content, look.entries)
        for _ in range(_MOST_ROUNDS):
            await self._fetch_unknown()
            try:
                result = question()
            except Exception:
                if not self._unknown:
                    raise
                continue
            if not self._unknown:
                return result
        raise OSError(errno.ELOOP, "too many files to look at", self._workspace.folder)

    async def refresh(self) -> None:
        """Look again at everything that has been asked about."""
        self._unknown = dict(self._asked)
        await self._fetch_unknown()

    def forget(self) -> None:
        self._facts.clear()
        self._asked.clear()

    async def _fetch_unknown(self) -> None:
        if not self._unknown:
            return
        wanted, self._unknown = self._unknown, {}
        found = await self._workspace.look(list(wanted.values()))
        self._fetched_at = time.monotonic()
        for path, look, seen in zip(wanted, wanted.values(), found, strict=True):
            self._facts[path] = seen
            self._asked[path] = look

    def _see(self, path: str, content: int = 0, entries: bool = False) -> Seen:
        path = os.path.normpath(path)
        if path in self._known and not entries:
            return self._known[path]
        known, asked = self._facts.get(path), self._asked.get(path)
        if known is None or asked is None:
            self._note(path, content, entries)
            return known or _NOTHING
        lacks_content = known.followed.kind == "file" and min(content, known.followed.size) > asked.content
        if lacks_content or (entries and not asked.entries and known.followed.kind == "folder"):
            self._note(path, max(content, asked.content), entries or asked.entries)
        return known

    def _note(self, path: str, content: int, entries: bool) -> None:
        path = os.path.normpath(path)
        if "\0" in path:
            return
        known = self._unknown.get(path)
        if known is not None:
            content, entries = max(content, known.content), entries or known.entries
        self._unknown[path] = Look(path, content, entries)

    def lexists(self, path: str) -> bool:
        return self._see(path).stat.kind != "missing"

    def exists(self, path: str) -> bool:
        return self._see(path).followed.kind != "missing"

    def is_folder(self, path: str) -> bool:
        return self._see(path).followed.kind == "folder"

    def is_file(self, path: str) -> bool:
        return self._see(path).followed.kind == "file"

    def real_path(self, path: str) -> str:
        return self._see(path).followed.place or self._see(path).stat.place or os.path.normpath(path)

    def size_of(self, path: str) -> int:
        return self._require(path).followed.size

    def identity_of(self, path: str) -> str:
        return self._see(path).stat.identity

    def check_regular(self, place: str, path: str) -> None:
        refuse_irregular(self._require(place).stat.kind, path)

    def hold(self, path: str, names: tuple[str, ...] = ()) -> HeldPath:
        seen = self._see(path)
        held = SeenPath(self.real_path(path), names or (path,), seen.followed.kind == "folder")
        held.seen = seen
        held.seen_at = self._fetched_at
        return held

    def list_folder(self, path: str) -> list[FolderEntry]:
        seen = self._see(path, entries=True)
        self._require(path)
        if seen.followed.kind != "folder":
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if seen.error:
            raise OSError(seen.error, os.strerror(seen.error), path)
        found = [FolderEntry(entry.name, entry.leads_to == "folder") for entry in seen.entries or ()]
        return sorted(found, key=lambda entry: entry.name)

    def read(self, path: str, at_most: int) -> bytes:
        data, size = self._content(path, at_most)
        if size > at_most:
            raise OSError(errno.EFBIG, "file too large")
        return data

    def read_beginning(self, path: str, at_most: int) -> tuple[str, bool]:
        data, size = self._content(path, at_most)
        text = data[:at_most].decode("utf-8", "replace").removeprefix("\ufeff")
        return (text.rstrip("\ufffd") if size > at_most else text), size > at_most

    def held_size(self, held: HeldPath) -> int:
        return self._require(held.place).followed.size

    def _content(self, path: str, at_most: int) -> tuple[bytes, int]:
        seen = self._see(path, content=at_most)
        self._require(path)
        kind = seen.followed.kind
        refuse_irregular(kind, path)
        if seen.error:
            raise OSError(seen.error, os.strerror(seen.error), path)
        return seen.content or b"", seen.followed.size

    def _require(self, path: str) -> Seen:
        if "\0" in path:
            raise NotRegular(f"No path: {path!r}")
        seen = self._see(path)
        if seen.followed.kind == "missing":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return seen


class WorkspacePaths(PathResolver, frozen=True):
    """Resolves paths of a workspace on another machine; `find_output_folders` returns the folders of this machine in
    which the long outputs of its commands are kept."""

    workspace: Workspace
    find_output_folders: Callable[[], Sequence[str]] = lambda: ()

    def hold_path(self, path: str, for_reading: bool = True) -> HeldPath:
        """Fails: what is there has to be fetched first, by `decide` or `hold_there`."""
        raise ToolFailed(f"{path} is on {self.workspace.name}, and was not looked at.")

    async def decide(self, question: Callable[[PathResolver], _T]) -> _T:
        """The answer to a question about files, asked until all that it needs has been fetched."""
        return await self.decide_in_thread(question)

    async def decide_in_thread(self, question: Callable[[PathResolver], _T], ahead: Sequence[str] = ()) -> _T:
        """The same; `ahead` are paths in the working directory that it will read."""
        table = FactTable(self.workspace)
        likely = [Look(os.path.join(self.cwd, path), FETCHED_AHEAD) for path in ahead]
        return await table.answer(lambda: question(self._with_view(table)), likely)

    async def hold_there(self, path: str, for_reading: bool, content: int = FETCHED_AHEAD) -> HeldPath:
        """What a path names there; a small file comes with its content."""
        kept = await asyncio.to_thread(self._hold_output, path) if for_reading else None
        if kept is not None:
            return kept
        table = FactTable(self.workspace)
        resolver = self._with_view(table)
        likely = [Look(place, content) for place in resolver.list_likely_places(path)]
        return await table.answer(lambda: resolver.hold_path(path, for_reading), likely)

    def _hold_output(self, path: str) -> HeldPath | None:
        """A file of an output, which is on this machine; None for all other paths."""
        place = os.path.normpath(path)
        folders = [folder for folder in self.find_output_folders() if place.startswith(f"{folder}/")]
        if not folders:
            return None
        held = resolve_and_hold(place)
        if any(held.place.startswith(f"{os.path.realpath(folder)}/") for folder in folders):
            return held
        held.close()
        return None

    def _with_view(self, view: FileView) -> PathResolver:
        return PathResolver(self.cwd, self.home, view=view)
