"""One folder whose files are watched: whether that is possible, what is known of it, and when it is looked at."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from msgspec import Struct

from pigeon.checkpoints.baseline import Baseline
from pigeon.checkpoints.cleaning import remove_old
from pigeon.checkpoints.ignoring import GitIgnoring
from pigeon.checkpoints.objects import ObjectFolder
from pigeon.checkpoints.places import BROKEN, TOO_LARGE, UndoChoices, find_refusal
from pigeon.checkpoints.records import FileState
from pigeon.checkpoints.tree import Differences, FolderTooLarge, WatchedTree
from pigeon.system.files import run_in_thread
from pigeon.system.git import Git, GitError
from pigeon.system.ignore_files import user_ignore_file
from pigeon.wire.errors import text_for_host


class CheckpointParts(Struct, frozen=True, kw_only=True):
    """What the checkpoints of an agent need of it; `own_places` hold what Pigeon itself writes."""

    home: str
    variables: Mapping[str, str]
    make_git: Callable[[], Git]
    own_places: Sequence[str]
    report: Callable[[str], None]
    now: Callable[[], int]
    new_id: Callable[[], str]
    mask: Callable[[str], str]
    find_session_file: Callable[[], str | None]
    machine: str


class RecordedFolder:
    """A folder, from the first change of a conversation there. Once it is `refused`, nothing is recorded."""

    def __init__(
        self, folder: str, choices: UndoChoices, given: CheckpointParts, session_id: Callable[[], str]
    ) -> None:
        self.root = os.path.realpath(folder)
        self._choices = choices
        self._given = given
        self._session_id = session_id
        self._first_look: asyncio.Task[None] | None = None
        self._opened: asyncio.Task[bool] | None = None
        self._saving: asyncio.Future[None] | None = None
        self._changed = False
        self._reported = False
        self.refused: str | None = find_refusal(self.root, given.home, given.variables, given.machine)
        self.baseline: Baseline | None = None
        self.rules: GitIgnoring | None = None
        self.tree: WatchedTree | None = None

    @property
    def file_bytes(self) -> int:
        return self._choices.limits.file_bytes

    def start(self) -> None:
        """Look at the folder for the first time, in the background."""
        if self._first_look is None:
            self._opened = asyncio.ensure_future(self._open())
            self._first_look = asyncio.ensure_future(self._look_first())

    async def wait_until_opened(self) -> bool:
        """Wait for the store; False if the folder is refused. To be called after `start`."""
        assert self._opened is not None
        return await asyncio.shield(self._opened)

    async def wait_until_known(self) -> bool:
        """Wait for the first look; False if the folder is refused."""
        if self._first_look is not None:
            await asyncio.shield(self._first_look)
        return self.refused is None

    async def look(self, keeps_ignored: bool) -> Differences:
        """What has changed since the last look; nothing if that fails, which is reported, and ends the recording."""
        if self.tree is None or self.refused is not None:
            return Differences()
        try:
            found = await self.tree.look(keeps_ignored)
        except FolderTooLarge as error:
            self.refuse(TOO_LARGE.format(place=self.root, why=error))
        except (GitError, OSError) as error:
            self.refuse(BROKEN.format(text_for_host(error) if isinstance(error, OSError) else error))
        else:
            self._changed |= bool(found.paths)
            return found
        return Differences()

    @property
    def looks_quickly(self) -> bool:
        """Whether a look takes so little that there can be one for every command."""
        return self.tree is not None and self.tree.seconds < 0.05

    def refuse(self, reason: str) -> None:
        """Record nothing from here on, and say so once."""
        self.refused = reason
        if not self._reported:
            self._reported = True
            self._given.report(reason)

    def is_own_place(self, path: str) -> bool:
        """Whether Pigeon itself writes there."""
        return any(path == own or path.startswith(f"{own}/") for own in self._find_own_places())

    def take_over(self, path: str, state: FileState | None, objects: ObjectFolder) -> None:
        """Note what a tool or a restoration made of a path, with its content."""
        if self.tree is None or self.baseline is None:
            return
        if state is not None and state.content and not self.baseline.objects.link_from(objects, state.content):
            return
        self.tree.set_state(path, state)
        self._changed = True

    def save(self) -> None:
        """Keep what is known for later conversations, in the background."""
        if self._changed and self.refused is None and (self._saving is None or self._saving.done()):
            self._changed = False
            self._saving = asyncio.ensure_future(self._save())

    async def close(self) -> None:
        """End the first look if it is going on, and release the store."""
        if self._opened is not None:
            # A thread that is opening the store cannot be stopped.
            await asyncio.wait({self._opened})
        if self._first_look is not None and not self._first_look.done():
            self._first_look.cancel()
            await asyncio.wait({self._first_look})
        self.save()
        if self._saving is not None:
            await asyncio.wait({self._saving})
        if self.baseline is not None:
            self.baseline.close()

    async def _open(self) -> bool:
        if self.refused is not None:
            self.refuse(self.refused)
            return False
        given, choices = self._given, self._choices
        setup = f"{choices.limits.file_bytes} {sorted(self._find_own_places())}"
        try:
            git = given.make_git()
            await self._make_room()
            self.baseline = Baseline(choices.store, self.root, git, setup)
            known = await asyncio.to_thread(self.baseline.open_store)
        except OSError as error:
            self.refuse(BROKEN.format(text_for_host(error)))
            return False
        users_file = user_ignore_file(given.variables, given.home)
        self.rules = GitIgnoring(git, self.baseline.folder, self.root, given.home, users_file)
        self.tree = WatchedTree(
            self.root,
            self.rules,
            self.baseline.repository,
            self.baseline.objects,
            choices.limits,
            known,
            self._find_own_places(),
        )
        return True

    async def _make_room(self) -> None:
        choices = self._choices
        keep = (choices.store, choices.keep_bytes, choices.keep_days, time.time(), self._session_id())
        await asyncio.to_thread(remove_old, *keep)

    async def _look_first(self) -> None:
        if await self.wait_until_opened():
            await self.look(keeps_ignored=False)
            self.save()

    def _find_own_places(self) -> frozenset[str]:
        inside = f"{self.root}/"
        places = (os.path.realpath(place) for place in self._given.own_places)
        return frozenset(place.removeprefix(inside) for place in places if place.startswith(inside))

    async def _save(self) -> None:
        assert self.baseline is not None
        assert self.tree is not None
        with suppress(OSError):
            await run_in_thread(partial(self.baseline.save, self.tree.known))
