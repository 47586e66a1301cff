"""The files of a folder as they were when it was last looked at, and what has changed since.

All names are looked at each time, but only the content of what has changed is read: a file whose inode, size, mode and
times are the same is the same, unless it changed so recently that its times could not tell. Folder by folder, listings
are compared as a whole.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Collection, Iterable
from functools import partial
from operator import attrgetter

from msgspec import Struct, field
from msgspec.structs import replace

from pigeon.checkpoints.descriptors import FOLDER, Content, Signature, held_folder, make_mark, read_name
from pigeon.checkpoints.ignoring import IGNORE_FILE, GitIgnoring
from pigeon.checkpoints.objects import AT_ONCE, MANY, ObjectFolder, object_id, pack_objects
from pigeon.checkpoints.records import IGNORED, FileState
from pigeon.system.files import run_in_thread
from pigeon.system.git import OwnRepository

REPOSITORY = ".git"
# What is larger gets a file of its own in the store: a process of git is not given it.
LARGEST_IN_PACK = 4 * 1024 * 1024
# Times of files have steps, the coarsest of them seconds: a change within the same step leaves no trace in them.
_STEP = 50_000_000
_COARSE_STEP = 2_000_000_000
NOTHING: Signature = (0, 0, 0, 0, 0)
_stat_entry = partial(os.DirEntry.stat, follow_symlinks=False)
_sign = attrgetter("st_mode", "st_size", "st_mtime_ns", "st_ctime_ns", "st_ino")
_name_of = attrgetter("name")


class FolderTooLarge(Exception):
    """The folder has more than the limits allow; the text says what."""


class TreeLimits(Struct, frozen=True):
    """How much a folder may have to be covered, and how large a file may be."""

    files: int
    bytes: int
    file_bytes: int


class Differences(Struct):
    """The paths that have changed, with what they were and are."""

    paths: dict[str, tuple[FileState | None, FileState | None]] = field(default_factory=dict)


class KnownTree(Struct):
    """What is known of a folder: listings, the states of covered paths, ignored paths, and what to look at again."""

    folders: dict[str, dict[str, Signature]] = field(default_factory=dict)
    states: dict[str, FileState] = field(default_factory=dict)
    ignored: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)
    fading: set[str] = field(default_factory=set)
    rules: tuple[str, ...] = ()


class _Walk:
    """One look at the listings; for a thread."""

    def __init__(self, root: int, known: KnownTree, below: dict[str, list[str]]) -> None:
        self._root = root
        self._known = known
        self._below = below
        self.fresh: dict[str, Signature] = {}
        self.touched: dict[str, Signature] = {}
        self.gone: list[str] = []

    def visit(self, folders: Iterable[str]) -> None:
        """Look at folders and at all known ones below them."""
        stack = list(folders)
        known, below = self._known.folders, self._below
        while stack:
            folder = stack.pop()
            try:
                descriptor = os.open(folder or ".", FOLDER, dir_fd=self._root)
            except OSError:
                continue
            try:
                with os.scandir(descriptor) as listed:
                    entries = list(listed)
                here = dict(zip(map(_name_of, entries), map(_sign, map(_stat_entry, entries)), strict=True))
            except OSError:
                # A name went away between the listing and the look at it.
                here = _list_slowly(descriptor)
            finally:
                os.close(descriptor)
            if here != known.get(folder) or folder not in below:
                self._compare(folder, here)
            stack += below[folder]

    def _compare(self, folder: str, here: dict[str, Signature]) -> None:
        known = self._known
        before = known.folders.get(folder, {})
        prefix = f"{folder}/" if folder else ""
        descend = []
        for name, now in here.items():
            if name == REPOSITORY:
                continue
            path, old = prefix + name, before.get(name)
            if old is not None and stat.S_IFMT(old[0]) != stat.S_IFMT(now[0]):
                self.gone.append(path)
                old = None
            if old is None:
                self.fresh[path] = now
            elif path not in known.ignored:
                if stat.S_ISDIR(now[0]):
                    descend.append(path)
                    if old[0] != now[0]:
                        self.touched[path] = now
                elif old != now:
                    self.touched[path] = now
        self.gone += [prefix + name for name in before if name not in here and name != REPOSITORY]
        known.folders[folder] = here
        self._below[folder] = descend


def _list_slowly(descriptor: int) -> dict[str, Signature]:
    found = {}
    with os.scandir(descriptor) as listed:
        for entry in listed:
            try:
                found[entry.name] = _sign(entry.stat(follow_symlinks=False))
            except OSError:
                continue
    return found


class WatchedTree:
    """A folder and what is known of it; new content goes to the store. Not for two tasks at once."""

    def __init__(
        self,
        folder: str,
        rules: GitIgnoring,
        repository: OwnRepository,
        objects: ObjectFolder,
        limits: TreeLimits,
        known: KnownTree | None,
        excluded: Collection[str] = (),
    ) -> None:
        """`excluded` are paths below the folder that hold what Pigeon itself writes."""
        self._folder = folder
        self._rules = rules
        self._repository = repository
        self._objects = objects
        self._limits = limits
        self._excluded = frozenset(excluded)
        self.is_new = known is None
        self.known = known or KnownTree()
        self._below: dict[str, list[str]] = {}
        self._restore_below()
        self._bytes: int | None = None
        self.seconds = 0.0

    def _restore_below(self) -> None:
        known = self.known
        for folder, here in known.folders.items():
            prefix = f"{folder}/" if folder else ""
            self._below[folder] = [
                prefix + name
                for name, now in here.items()
                if stat.S_ISDIR(now[0]) and name != REPOSITORY and prefix + name not in known.ignored
            ]

    async def look(self, keeps_ignored: bool) -> Differences:
        """Bring what is known up to date; returns the changes. Raises `GitError`, `OSError` and `FolderTooLarge`.

        A covered file that is ignored now is covered once more if the look `keeps_ignored`: what made it so may be
        the change that is looked for. Its content is not stored.
        """
        began = time.monotonic()
        root = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            found = await self._look(root, keeps_ignored)
        except BaseException:
            # What is known may be half new: the next look begins anew.
            self.known, self._below, self._bytes = KnownTree(), {}, None
            self.is_new = True
            raise
        finally:
            os.close(root)
        self.is_new = False
        self.seconds = time.monotonic() - began
        return found

    async def _look(self, root: int, keeps_ignored: bool) -> Differences:
        known, found = self.known, Differences()
        if not keeps_ignored:
            self._drop(known.fading)
            known.fading = set()
        rules = await run_in_thread(self._rules.signature)
        rules_changed = rules != known.rules and not self.is_new
        known.rules = rules
        to_read = await self._explore(root, [""], found)
        rules_changed |= not self.is_new and any(map(_is_rules, (*to_read, *found.paths)))
        if rules_changed:
            to_read |= await self._apply_new_rules(root, keeps_ignored, found)
        to_read.update({path: NOTHING for path in known.again if path in known.states and path not in to_read})
        await self._read_and_store(root, to_read, found)
        return found

    async def _explore(self, root: int, folders: list[str], found: Differences) -> dict[str, Signature]:
        """Look at the names in folders and below; returns the paths to read."""
        known = self.known
        to_read: dict[str, Signature] = {}
        fresh_files = 0
        while folders:
            walk = _Walk(root, known, self._below)
            await run_in_thread(partial(walk.visit, folders))
            for path in walk.gone:
                self._forget(path, found)
            ignored = await self._rules.find_ignored([path for path in walk.fresh if path not in self._excluded])
            ignored |= self._excluded & walk.fresh.keys()
            known.ignored |= ignored
            fresh = {path: one for path, one in walk.fresh.items() if path not in ignored}
            folders = [path for path, one in fresh.items() if stat.S_ISDIR(one[0])]
            for path in folders:
                self._below.setdefault(path.rpartition("/")[0], []).append(path)
            to_read |= walk.touched
            to_read |= fresh
            fresh_files += len(fresh) - len(folders)
            self._check_count(fresh_files)
            self._check_bytes(fresh)
        return to_read

    async def _apply_new_rules(self, root: int, keeps_ignored: bool, found: Differences) -> dict[str, Signature]:
        """Ask about all names once more; returns those that are covered from now on."""
        known = self.known
        asked = [path for path in (*known.states, *known.ignored) if path not in self._excluded]
        ignored = await self._rules.find_ignored(asked)
        covered = {path for path in known.states if path in ignored}
        known.fading -= known.fading - ignored
        if keeps_ignored:
            known.fading |= covered
        else:
            self._drop(covered)
        released = known.ignored - ignored - self._excluded
        known.ignored -= released
        folders = set()
        for path in released:
            folder, _, name = path.rpartition("/")
            # As if the name were new.
            if known.folders.get(folder, {}).pop(name, None) is not None:
                folders.add(folder)
        return await self._explore(root, sorted(folders), found)

    def _drop(self, paths: Iterable[str]) -> None:
        """Paths are ignored from now on."""
        for path in paths:
            self._forget(path, Differences())
            self.known.ignored.add(path)

    def _forget(self, path: str, found: Differences) -> None:
        """A path is gone, with everything below it."""
        known = self.known
        known.ignored.discard(path)
        known.again.discard(path)
        state = known.states.pop(path, None)
        if state is not None:
            first = found.paths.get(path, (state, None))[0]
            found.paths[path] = (first, None)
        here = known.folders.pop(path, None)
        self._below.pop(path, None)
        beside = self._below.get(path.rpartition("/")[0])
        if beside is not None and path in beside:
            beside.remove(path)
        for name in here or ():
            if name != REPOSITORY:
                self._forget(f"{path}/{name}", found)

    def _check_count(self, fresh: int) -> None:
        files = len(self.known.states) - len(self.known.folders) + fresh
        if files > self._limits.files:
            raise FolderTooLarge(f"it has more than {self._limits.files} files")

    def _check_bytes(self, fresh: dict[str, Signature]) -> None:
        """Only what is stored counts; what shrinks is noticed when the limit is reached."""
        if not fresh:
            return
        if self._bytes is not None:
            self._bytes += sum(map(self._stored_size, fresh.values()))
        if self._bytes is None or self._bytes > self._limits.bytes:
            known = self.known
            self._bytes = sum(
                self._stored_size(one)
                for folder, here in known.folders.items()
                for name, one in here.items()
                if name != REPOSITORY and (f"{folder}/{name}" if folder else name) not in known.ignored
            )
        if self._bytes > self._limits.bytes:
            raise FolderTooLarge(f"it has more than {self._limits.bytes} bytes")

    def _stored_size(self, signature: Signature) -> int:
        size = signature[1]
        return size if stat.S_ISREG(signature[0]) and size <= self._limits.file_bytes else 0

    async def _read_and_store(self, root: int, to_read: dict[str, Signature], found: Differences) -> None:
        """Git packs what was read while the next files are read."""
        waiting = sorted(to_read, reverse=True)
        many = len(waiting) >= MANY
        packing: asyncio.Future[None] | None = None
        try:
            while waiting:
                began = time.time_ns()
                read, contents = await run_in_thread(partial(self._read_some, root, waiting, many))
                if packing is not None:
                    await packing
                packing = asyncio.ensure_future(pack_objects(self._repository, contents)) if contents else None
                for path, content in read:
                    self._take(path, content, began, found)
            if packing is not None:
                await packing
        finally:
            if packing is not None:
                packing.cancel()

    def _read_some(self, root: int, waiting: list[str], many: bool) -> tuple[list[tuple[str, Content]], list[bytes]]:
        """Read from the end of the list as much as git is given at once, and store it, or return it to be packed."""
        read: list[tuple[str, Content]] = []
        contents: list[bytes] = []
        size = 0
        while waiting and size < AT_ONCE:
            folder = waiting[-1].rpartition("/")[0]
            try:
                with held_folder(root, folder) as descriptor:
                    while waiting and size < AT_ONCE:
                        above, _, name = waiting[-1].rpartition("/")
                        if above != folder:
                            break
                        content = read_name(descriptor, name, self._limits.file_bytes)
                        size += 0 if content.data is None else len(content.data)
                        path = waiting.pop()
                        read.append((path, self._store(path, content, contents if many else None)))
            except OSError:
                # The folder went away, or a link took its place.
                while waiting and waiting[-1].rpartition("/")[0] == folder:
                    read.append((waiting.pop(), Content(None)))
        return read, contents

    def _store(self, path: str, content: Content, contents: list[bytes] | None) -> Content:
        state, data, signature = content.state, content.data, content.signature
        if state is None or data is None or signature is None:
            return content
        known = self.known.states.get(path)
        name = object_id(data)
        is_known = known is not None and known.content == name
        if path in self.known.fading and not is_known:
            return Content(
                FileState(state.kind, state.mode, unsaved=IGNORED, mark=make_mark(signature)), None, signature
            )
        if not is_known:
            if contents is None or len(data) > LARGEST_IN_PACK:
                self._objects.write(data)
            else:
                contents.append(data)
        return Content(replace(state, content=name), None, signature)

    def _take(self, path: str, content: Content, began: int, found: Differences) -> None:
        known, state, signature = self.known, content.state, content.signature
        known.again.discard(path)
        if signature is not None:
            folder, _, name = path.rpartition("/")
            here = known.folders.get(folder)
            if here is not None:
                # What was read counts, not what was listed a moment before.
                here[name] = signature
            if not stat.S_ISDIR(signature[0]) and _may_change_unseen(signature, began):
                known.again.add(path)
        before = known.states.get(path)
        if state == before:
            return
        self._put(path, state)
        first = found.paths.get(path, (before, None))[0]
        if first == state:
            found.paths.pop(path, None)
        else:
            found.paths[path] = (first, state)

    def _put(self, path: str, state: FileState | None) -> None:
        if state is None:
            self.known.states.pop(path, None)
        else:
            self.known.states[path] = state

    def set_state(self, path: str, state: FileState | None) -> None:
        """Note what a tool or a restoration made of a path, so that the next look finds nothing new there."""
        if not self.is_new:
            self._put(path, state)


def _may_change_unseen(signature: Signature, now: int) -> bool:
    """Whether a change after this moment could leave the times of the file as they are."""
    changed = max(signature[2], signature[3])
    coarse = signature[2] % 1_000_000_000 == 0 and signature[3] % 1_000_000_000 == 0
    return changed + (_COARSE_STEP if coarse else _STEP) >= now


def _is_rules(path: str) -> bool:
    return path == IGNORE_FILE or path.endswith(f"/{IGNORE_FILE}")
