"""All conversations of `pigeon serve`: which there are, how many may be awake, and when one is put to sleep.

A conversation is known by the id of the session that it began as, and has a folder of that name with its record and its
event log. A session that was made elsewhere, as in the terminal, becomes one when it is asked for.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from pigeon.app.options import AgentOptions
from pigeon.frontends.serve.conversation import LOG_FOLDER, STATE_FILE, ServedConversation
from pigeon.frontends.serve.conversation_record import ConversationRecord, is_kept, read_record
from pigeon.frontends.serve.counts import ServeCounts
from pigeon.frontends.serve.resources import ProcessUse, private_memory, uses_of
from pigeon.frontends.serve.worker_process import Workers, WorkerStarts, end_log_owner
from pigeon.frontends.serve.worker_state import read_state
from pigeon.session.history.file_store import FileStore
from pigeon.session.history.listing import header_of, row_of
from pigeon.session.history.trash import SessionTrash
from pigeon.system.append_file import make_private_folder
from pigeon.system.clock import now_ms
from pigeon.system.ids import RANDOM_IDS
from pigeon.system.paths import absolute
from pigeon.transport.event_log import lock_log, log_owner
from pigeon.wire.answers import SessionRow
from pigeon.wire.base import or_else
from pigeon.wire.commands import SILENT_NAMES
from pigeon.wire.errors import PigeonError, Refusal, StartupError

LOOK_SECONDS = 1.0
# How long a conversation may have to wait before it is woken, and how many may.
WAKE_SECONDS = 3.0
MOST_WAITING = 100
ASLEEP_AT_ONCE = 8
# How long a conversation whose worker has said that it is needed is left alone.
NEEDED_SECONDS = 1.0
BUSY = "All conversations that may be awake are busy (--max-awake {}). Try again later"
CROWDED = "Too many conversations were to be woken at once (--max-awake {}). Try again later"
DRAIN_PAUSE = 0.05
STOPPING = "The service is shutting down. Try again when it is back"
# How long runs that are aborted when the service stops may take to end.
ABORT_SECONDS = 5.0
# Commands that are still accepted while the service stops: those that let runs finish, and those that only read.
WHILE_STOPPING = frozenset(("abort", "abort_bash", "abort_retry", "hello")) | SILENT_NAMES
MB = 1024 * 1024
MOST_FOLDERS = 1_000
# Prefix of the folder of a conversation that is being removed; no id begins like this.
REMOVED = ".removed-"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class UnknownConversation(Refusal):
    """There is no conversation with this id."""


class FolderRefused(Refusal):
    """A folder or a file outside the roots."""


class FolderMissing(Refusal):
    """There is no such folder, or it cannot be read."""


class TooMany(Refusal):
    """The limit of awake conversations is reached and none can sleep, or the limit of kept conversations is."""


class Stopping(TooMany):
    """The service is about to stop."""


class ServeLimits(Struct, frozen=True, kw_only=True):
    """How much may be served at once, and how much one worker may take: `worker_memory` in MB, with all its processes.

    A worker that dies is started again `worker_restarts` times within a minute, and one that hangs for
    `worker_silence` seconds is ended; 0 is for ever. A host tool waits `host_tool_wait` seconds for a client.
    """

    awake: int = 200
    kept: int = 10_000
    idle_seconds: float = 600.0
    worker_memory: int = 4096
    worker_processes: int = 500
    worker_restarts: int = 5
    worker_silence: int = 60
    host_tool_wait: int = 120


class WakeRequest(Struct, frozen=True, eq=False):
    """A conversation that waits to be woken, and until when."""

    one: ServedConversation
    until: float
    let_in: asyncio.Future[None]


class WakeQueue:
    """Lets at most `most` conversations be awake; those that have to wait are woken in the order in which they came.

    For these, idle conversations are put to sleep, beginning with the one that has been idle longest. They are refused
    when all that are awake are busy, and after some seconds.
    """

    def __init__(self, most: int, awake: Callable[[], list[ServedConversation]], now: Callable[[], float]) -> None:
        self._most = most
        self._awake = awake
        self._now = now
        self._waiting: deque[WakeRequest] = deque()
        # Those that were let in and have not begun to wake, and those that are being put to sleep.
        self._let_in: set[ServedConversation] = set()
        self._leaving: dict[ServedConversation, asyncio.Task[None]] = {}
        self._needed: dict[ServedConversation, float] = {}

    async def enter(self, one: ServedConversation) -> None:
        """Return when it may be woken, which the caller does at once; raises `TooMany`."""
        if not self._waiting and self._has_room():
            return
        if len(self._waiting) >= MOST_WAITING:
            raise TooMany(CROWDED.format(self._most))
        loop = asyncio.get_running_loop()
        request = WakeRequest(one, self._now() + WAKE_SECONDS, loop.create_future())
        self._waiting.append(request)
        self.look()
        try:
            await request.let_in
        finally:
            with suppress(ValueError):
                self._waiting.remove(request)
            self._let_in.discard(one)
            # The caller may have gone meanwhile, or may not wake it after all.
            loop.call_soon(self.look)

    def look(self) -> None:
        """Let in those for whom there is room, make room for others, and refuse those that would wait in vain.

        Called when a conversation may have become busy, idle or asleep, and once a second.
        """
        if not self._waiting:
            return
        self._admit()
        now = self._now()
        self._needed = {one: until for one, until in self._needed.items() if until > now}
        self._make_room()
        under_way = self._leaving or self._let_in
        if not under_way and all(_is_busy(one) or one in self._needed for one in self._awake()):
            self.refuse(TooMany, BUSY.format(self._most))
        while self._waiting and self._waiting[0].until <= now:
            _settle(self._waiting.popleft(), TooMany(CROWDED.format(self._most)))

    def refuse(self, kind: type[TooMany], why: str) -> None:
        """Refuse all that wait."""
        while self._waiting:
            _settle(self._waiting.popleft(), kind(why))

    def _has_room(self) -> bool:
        return len({*self._awake(), *self._let_in}) < self._most

    def _admit(self) -> None:
        for request in list(self._waiting):
            # Another client may have asked for the same one.
            if stays_awake(request.one) or request.one in self._let_in or self._has_room():
                self._waiting.remove(request)
                self._let_in.add(request.one)
                _settle(request)

    def _make_room(self) -> None:
        wanted = min(len(self._waiting), ASLEEP_AT_ONCE) - len(self._leaving)
        idle = [one for one in self._awake() if one.idle and one not in self._leaving and one not in self._needed]
        for one in sorted(idle, key=lambda one: one.used)[: max(0, wanted)]:
            self._leaving[one] = asyncio.ensure_future(self._put_to_sleep(one))

    async def _put_to_sleep(self, one: ServedConversation) -> None:
        try:
            # One that is still idle has work that only its worker knows.
            if not await one.sleep() and one.idle:
                self._needed[one] = self._now() + NEEDED_SECONDS
        finally:
            del self._leaving[one]
            self.look()


class Conversations:
    """The conversations below one agent's folder. `roots` are the folders that may be worked in."""

    def __init__(
        self,
        agent_dir: str,
        options: AgentOptions,
        variables: Mapping[str, str],
        roots: Sequence[str],
        limits: ServeLimits,
        counts: ServeCounts,
        workers: Workers,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agent_dir = agent_dir
        self._options = options
        self._variables = variables
        self.roots = [os.path.realpath(root) for root in roots]
        self._limits = limits
        self._counts = counts
        self._now = now
        self._folder = os.path.join(agent_dir, "serve", "conversations")
        make_private_folder(self._folder)
        self.workers = workers
        self._known: dict[str, ServedConversation] = {}
        self._looking: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[bool]] = set()
        # Runs may still come to their end while it is stopping; when it is closing, no worker is started any more.
        self._stopping = self._closing = False
        self._wakes = WakeQueue(limits.awake, lambda: self.awake, now)
        self._store = FileStore.of_agent(agent_dir)

    @property
    def awake(self) -> list[ServedConversation]:
        """The conversations that have a worker."""
        return [one for one in self._known.values() if one.has_worker]

    @property
    def known(self) -> list[ServedConversation]:
        """The conversations that were used since the server started."""
        return list(self._known.values())

    async def open(self) -> None:
        """Prepare the folders, and find the workers that an earlier supervisor left running; raises `StartupError`."""
        place = os.path.dirname(self._folder)
        try:
            lock_log(place)
        except OSError:
            other = log_owner(place)
            raise StartupError(f"Another pigeon serve (process {other}) already serves {self._agent_dir}") from None
        for name in os.listdir(self._folder):
            if name.startswith(REMOVED):
                shutil.rmtree(os.path.join(self._folder, name), ignore_errors=True)
        await self.workers.open()
        found = []
        for name in self.workers.sockets.names():
            try:
                found.append(self.conversation(name).find())
            except Refusal:
                # Its folder may not be opened any more, or it was deleted: its worker cannot be reached.
                found.append(self._end_stray(name))
        await asyncio.gather(*found)
        self._looking = asyncio.ensure_future(self._look_after())

    async def _end_stray(self, name: str) -> bool:
        with suppress(OSError):
            await end_log_owner(os.path.join(self._folder, name, LOG_FOLDER))
        self.workers.sockets.remove(name)
        return False

    async def drain(self, seconds: float) -> None:
        """Start nothing more; give runs `seconds` to finish, then abort them."""
        self._stop_waking()
        await self._settled(seconds)
        running = [one for one in self.awake if one.running]
        for one in running:
            self._start(self._abort(one))
        if running:
            await self._settled(ABORT_SECONDS)

    async def _settled(self, seconds: float) -> None:
        """Wait until no run is active, for at most `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while any(one.running for one in self.awake):  # noqa: ASYNC110 - of many, each in its own time
                    await asyncio.sleep(DRAIN_PAUSE)

    async def _abort(self, one: ServedConversation) -> bool:
        with suppress(PigeonError, OSError):
            await one.ask({"type": "abort"})
        return True

    def check_open(self, command: str) -> None:
        """Raise `Stopping` if the service is stopping and the command would start something."""
        if self._stopping and command not in WHILE_STOPPING and not command.startswith("get_"):
            raise Stopping(STOPPING)

    def _stop_waking(self) -> None:
        self._stopping = True
        self._wakes.refuse(Stopping, STOPPING)

    def _check_closing(self) -> None:
        if self._closing:
            raise Stopping(STOPPING)

    def kill(self) -> None:
        """End all workers at once, and start none in their place."""
        self._closing = True
        self._stop_waking()
        for one in self.awake:
            one.kill()

    async def close(self, stop: bool = True) -> None:
        """Stop all workers, or leave them to the next supervisor."""
        self._closing = True
        self._stop_waking()
        if self._looking is not None:
            self._looking.cancel()
        if stop:
            await asyncio.gather(*(one.sleep(forced=True) for one in self.awake))
        for one in self._known.values():
            one.leave()

    def new(self, cwd: str, model: str | None = None, id: str | None = None) -> ServedConversation:
        """Create a conversation in a folder; raises what `allowed` raises, and `TooMany`."""
        folder = self.allowed(cwd)
        if self._stopping:
            raise Stopping(STOPPING)
        if len(os.listdir(self._folder)) >= self._limits.kept:
            raise TooMany(f"{self._limits.kept} conversations exist, which is the limit (--max-kept). Delete one")
        record = ConversationRecord(id=id or RANDOM_IDS.session_id(now_ms()), cwd=folder, model=model)
        made = self._make(record)
        record.save(os.path.join(self._folder, record.id))
        return made

    def conversation(self, id: str) -> ServedConversation:
        """The conversation with this id; raises `UnknownConversation`."""
        known = self._known.get(id)
        if known is not None:
            return known
        if not _ID.fullmatch(id):
            raise UnknownConversation(f"There is no session {id[:100]!r}")
        record = read_record(os.path.join(self._folder, id))
        if record is None:
            path = self._file_of(id)
            row = None if path is None else row_of(path)
            if path is None or row is None:
                raise UnknownConversation(f"There is no session {id}")
            owner = self._owner(os.path.realpath(path))
            if owner is not None:
                return self.conversation(owner)
            record = ConversationRecord(id=id, cwd=row.cwd, session_file=path)
        # It need not be there any more: what was said can still be read, and deleted.
        self._check_place(record.cwd)
        return self._make(record)

    async def ready(self, one: ServedConversation) -> None:
        """Wait until it may have a worker, which the caller wakes at once; raises `TooMany`.

        If necessary, another conversation is put to sleep for it.
        """
        if stays_awake(one):
            return
        if self._stopping:
            raise Stopping(STOPPING)
        await self._wakes.enter(one)

    async def remove(self, id: str) -> None:
        """Forget a conversation and its event log; its session file is left alone."""
        one = self.conversation(id)
        await one.sleep(forced=True)
        one.remove()
        self._known.pop(one.record.id, None)
        # A kill must not leave half of it under its name.
        folder = os.path.join(self._folder, f"{REMOVED}{one.record.id}")
        os.rename(os.path.join(self._folder, one.record.id), folder)
        shutil.rmtree(folder, ignore_errors=True)
        self._wakes.look()

    async def delete(self, id: str) -> None:
        """End a conversation and move its session to the trash.

        Raises `UnknownConversation`, and `StartupError` if another process writes the session.
        """
        one = self.conversation(id)
        file = one.session_file or self._file_of(id)
        await one.sleep(forced=True)
        await asyncio.to_thread(self._throw_away, file)
        await self.remove(one.record.id)

    def rows(
        self, cwd: str | None, query: str | None, limit: int, cursor: str | None
    ) -> tuple[list[SessionRow], str | None]:
        """A page of the sessions on disk in the folders that may be opened, newest first, and where the next begins."""
        folders = self._store.folders() if cwd is None else [self._store.folder_of(self.allowed(cwd))]
        wanted = (query or "").casefold()
        found: list[SessionRow] = []
        while True:
            rows, cursor = self._store.list_sessions(folders, cursor, limit - len(found))
            found += [row for row in rows if self.may_open(row.cwd) and wanted in _words_of(row)]
            if cursor is None or len(found) >= limit:
                return found, cursor

    def rows_with_id(self, session_id: str) -> list[SessionRow]:
        """The session with this id, if there is one in a folder that may be opened."""
        found = self._store.rows_with_id(self._store.folders(), session_id)
        return [row for row in found if self.may_open(row.cwd)]

    def folders(self, path: str) -> list[str]:
        """The names of the folders in a folder that may be opened, without hidden ones; raises `Refusal`."""
        try:
            with os.scandir(self.allowed(path)) as found:
                inside = [item for item in found if not item.name.startswith(".") and item.is_dir()]
        except OSError as error:
            raise FolderMissing(f"{path} cannot be read: {error.strerror}") from None
        # A link may lead out.
        names = [item.name for item in inside if not item.is_symlink() or self.may_open(item.path)]
        return sorted(names, key=str.casefold)[:MOST_FOLDERS]

    def may_open(self, cwd: str) -> bool:
        """Whether a folder is one of those that may be worked in, or a file below one."""
        try:
            path = os.path.realpath(cwd)
        except ValueError:
            # No path: it has a NUL, or half of a surrogate pair.
            return False
        return any(path == root or path.startswith(root.rstrip(os.sep) + os.sep) for root in self.roots)

    def usable_session(self, path: str, cwd: str) -> str:
        """The session file, or the folder of such, that a client has named from a folder; raises `Refusal`.

        Not only its place counts but also the folder that it says it works in.
        """
        real = self._placed(path, cwd)
        own = self._is_own(real)
        if not (self.may_open(real) and not own) and not self._store.contains(real):
            raise FolderRefused(f"{path} is outside the folders that may be opened")
        file = self._store.find_newest_with_message(real) if os.path.isdir(real) else real
        header = header_of(file) if file is not None else None
        where = header.get("cwd") if header is not None else None
        if isinstance(where, str) and where and not self.may_open(os.path.join(cwd, where)):
            raise FolderRefused(f"{path} is the session of a folder that may not be opened: {where}")
        if own and file is not None and header is None:
            raise Refusal(f"There is no session in {path}")
        return real

    def usable_output(self, path: str, cwd: str) -> str:
        """The file that a client wants written, named from a folder; raises `Refusal`."""
        real = self._placed(path, cwd)
        if not self.may_open(real) or self._is_own(real):
            raise FolderRefused(f"{path} is outside the folders that may be opened")
        return real

    def allowed(self, cwd: str) -> str:
        """The folder, if it may be worked in; raises `FolderRefused` or `FolderMissing`."""
        self._check_place(cwd)
        if not os.path.isdir(cwd):
            raise FolderMissing(f"{cwd} is not a folder")
        return cwd

    def _check_place(self, cwd: str) -> None:
        if not os.path.isabs(cwd) or not self.may_open(cwd):
            raise FolderRefused(f"{cwd} is not below a folder that may be opened: {', '.join(self.roots)}")

    def _throw_away(self, file: str | None) -> None:
        if file is not None and os.path.lexists(file):
            SessionTrash(self._store, now_ms).put(file)

    def _placed(self, path: str, cwd: str) -> str:
        try:
            return os.path.realpath(absolute(path, cwd, self._variables.get("HOME", "/")))
        except ValueError:
            raise Refusal("A path cannot contain a NUL character or half of a surrogate pair") from None

    def _is_own(self, real: str) -> bool:
        """Whether it is in the agent's own folder, where keys and tokens are."""
        return (real + os.sep).startswith(os.path.realpath(self._agent_dir) + os.sep)

    def _make(self, record: ConversationRecord) -> ServedConversation:
        folder = os.path.join(self._folder, record.id)
        make_private_folder(folder)
        made = ServedConversation(
            record,
            folder,
            self._options,
            self._variables,
            self.workers,
            self._counts,
            WorkerStarts(self._limits.worker_restarts, self._now, self._check_closing, self._wakes.look),
            self._now,
        )
        self._known[record.id] = made
        return made

    def owner_of(self, path: str, besides: ServedConversation) -> str | None:
        """The conversation, besides that one, that has a session file open."""
        owner = self._owner(os.path.realpath(path))
        return None if owner == besides.record.id else owner

    def _owner(self, path: str) -> str | None:
        for name in os.listdir(self._folder):
            folder = os.path.join(self._folder, name)
            # The remains of a removed conversation have no session open, and cannot be reached.
            if not is_kept(folder):
                continue
            place = read_state(os.path.join(folder, STATE_FILE))
            record = read_record(folder) if place is None else None
            file = place.session_file if place is not None else None if record is None else record.session_file
            if file is not None and os.path.realpath(file) == path:
                return name
        return None

    def _file_of(self, id: str) -> str | None:
        return self._store.find_by_name(id)

    def _start(self, work: Coroutine[Any, Any, bool]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._wakes.look())

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            before = self._now() - self._limits.idle_seconds
            for one in self.awake:
                one.look(self._limits.worker_silence, self._limits.host_tool_wait)
                if one.idle and one.used < before:
                    self._start(one.sleep())
            self._wakes.look()
            await self._end_greedy()

    async def _end_greedy(self) -> None:
        """End workers that exceed their limits of memory or processes."""
        workers = {one.pid: one for one in self.awake if one.pid is not None}
        shared = self.workers.parent_pid
        uses, base = await asyncio.to_thread(lambda: (uses_of(list(workers)), private_memory(shared)))
        for pid, use in uses.items():
            why = self._excess(use, base)
            if why and workers[pid].pid == pid:
                workers[pid].kill(why)

    def _excess(self, use: ProcessUse, base: int) -> str:
        limits = self._limits
        # A worker has the memory of the parent that it was forked from, which costs nothing.
        if limits.worker_memory and use.memory - base > limits.worker_memory * MB:
            return f"it and its commands used more than {limits.worker_memory} MB of memory (--worker-memory)"
        if limits.worker_processes and use.processes > limits.worker_processes:
            return f"it had more than {limits.worker_processes} processes (--worker-processes)"
        return ""


def stays_awake(one: ServedConversation) -> bool:
    """Whether it has a worker, or will have, that is not being stopped."""
    return one.has_worker and one.state != "stopping"


def _is_busy(one: ServedConversation) -> bool:
    """Whether there is a run or a question, which may take long to end."""
    return one.running or one.work.busy


def _settle(request: WakeRequest, why: Refusal | None = None) -> None:
    if request.let_in.done():
        # Its client has gone.
        return
    if why is None:
        request.let_in.set_result(None)
    else:
        request.let_in.set_exception(why)


def _words_of(row: SessionRow) -> str:
    """The text of a session that a search compares with its query."""
    words = (row.id, row.cwd, or_else(row.name, ""), or_else(row.first_message, ""))
    return "\n".join(words).casefold()
