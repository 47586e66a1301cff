"""All conversations of `pigeon serve`: which exist, how many may be awake, and when each is put to sleep.

A conversation is identified by the id of the session that it began as, and has a folder of that name with its record
and its event log. A session that was created elsewhere, such as in the terminal, becomes a conversation when a client
requests it.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pigeon.app.options import AgentOptions
from pigeon.frontends.serve.client_rights import AllowedPaths
from pigeon.frontends.serve.conversation import ServedConversation
from pigeon.frontends.serve.conversation_record import LOG_FOLDER, ConversationFolders, ConversationRecord, read_record
from pigeon.frontends.serve.counts import ServeCounts
from pigeon.frontends.serve.served_worker import WorkerLauncher
from pigeon.frontends.serve.wake_queue import Stopping, TooMany, WakeQueue, has_usable_worker
from pigeon.frontends.serve.worker_checks import ServeLimits, WorkerChecks
from pigeon.frontends.serve.worker_process import Workers, WorkerStarts, end_log_owner
from pigeon.session.history.listing import row_of
from pigeon.session.history.session_folders import SessionFolders
from pigeon.session.history.trash import SessionTrash
from pigeon.system.clock import now_ms
from pigeon.system.ids import RANDOM_IDS
from pigeon.wire.answers import SessionRow
from pigeon.wire.base import value_or_default
from pigeon.wire.choices import ToolOffer
from pigeon.wire.commands import NAMES, READING_NAMES, SILENT_NAMES, Abort, AbortBash, AbortRetry
from pigeon.wire.errors import PigeonError, Refusal

# The warm-up of the parent begins after the first run, so that it does not delay it, or if there is none so soon.
QUIET_SECONDS = 3.0
DRAIN_PAUSE = 0.05
STOPPING = "The service is shutting down. Try again when it is back"
# How long aborted runs may take to end when the service stops.
ABORT_SECONDS = 5.0
# Commands that are still accepted while the service stops: those that let runs finish, and those that only read.
WHILE_STOPPING = READING_NAMES | SILENT_NAMES | {NAMES[Abort], NAMES[AbortBash], NAMES[AbortRetry]}
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class UnknownConversation(Refusal): ...


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
        self._options = options
        self._variables = variables
        self._limits = limits
        self._counts = counts
        self._now = now
        self.workers = workers
        self._store = SessionFolders.from_agent_dir(agent_dir)
        self.paths = AllowedPaths(roots, self._store, agent_dir, variables.get("HOME", "/"), limits.allow_exec)
        self._folders = ConversationFolders(agent_dir)
        self._known: dict[str, ServedConversation] = {}
        self._tasks: set[asyncio.Task[bool]] = set()
        # While it is stopping, runs may still finish; when it is closing, no worker is started any more.
        self._stopping = self._closing = False
        self._wakes = WakeQueue(limits.awake, lambda: self.awake_conversations, now, self._note_change)
        self._checks = WorkerChecks(limits, workers, self._wakes, lambda: self.awake_conversations, now)

    @property
    def awake_conversations(self) -> list[ServedConversation]:
        return [one for one in self._known.values() if one.has_worker]

    @property
    def known_conversations(self) -> list[ServedConversation]:
        """The conversations that were used since the server started."""
        return list(self._known.values())

    async def open(self) -> None:
        """Prepare the folders, and find the workers that an earlier supervisor left running; raises `StartupError`.

        The parent of the workers starts meanwhile, and warms up when no conversation waits for it.
        """
        self._folders.lock_and_clean_up()
        self._start_task(self._start_parent())
        self.workers.prepare_parent_in(QUIET_SECONDS)
        found = []
        for name in self.workers.sockets.names():
            try:
                found.append(self.find_conversation(name).try_reconnect_worker())
            except Refusal:
                # Its folder is no longer allowed, or it was deleted: its worker cannot be reached.
                found.append(self._end_stray_worker(name))
        await asyncio.gather(*found)
        self._checks.start()

    async def _start_parent(self) -> bool:
        """Start it before the first worker needs it; if that fails, the worker's client hears why."""
        with suppress(OSError):
            await self.workers.ensure_parent()
        return True

    async def _end_stray_worker(self, name: str) -> bool:
        with suppress(OSError):
            await end_log_owner(os.path.join(self._folders.path_of(name), LOG_FOLDER))
        self.workers.sockets.remove(name)
        return False

    async def drain(self, seconds: float) -> None:
        """Start nothing more; give runs `seconds` to finish, then abort them."""
        self._refuse_new_work()
        await self._wait_until_settled(seconds)
        running = [one for one in self.awake_conversations if one.is_running]
        for one in running:
            self._start_task(self._abort_run(one))
        if running:
            await self._wait_until_settled(ABORT_SECONDS)

    async def _wait_until_settled(self, seconds: float) -> None:
        """Wait until no run is active, for at most `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while any(one.is_running for one in self.awake_conversations):  # noqa: ASYNC110 - of many, each in its own time
                    await asyncio.sleep(DRAIN_PAUSE)

    async def _abort_run(self, one: ServedConversation) -> bool:
        with suppress(PigeonError, OSError):
            await one.send_request({"type": "abort"})
        return True

    def check_not_stopping(self, command: str) -> None:
        """Raise `Stopping` if the service is stopping and the command would start something."""
        if self._stopping and command not in WHILE_STOPPING:
            raise Stopping(STOPPING)

    def _refuse_new_work(self) -> None:
        self._stopping = True
        self._wakes.refuse_all(Stopping, STOPPING)

    def _check_not_closing(self) -> None:
        if self._closing:
            raise Stopping(STOPPING)

    def kill(self) -> None:
        """End all workers at once, and start none in their place."""
        self._closing = True
        self._refuse_new_work()
        for one in self.awake_conversations:
            one.kill()

    async def close(self, stop: bool = True) -> None:
        """Stop all workers, or leave them to the next supervisor."""
        self._closing = True
        self._refuse_new_work()
        self._checks.stop()
        if stop:
            await asyncio.gather(*(one.try_sleep(forced=True) for one in self.awake_conversations))
        for one in self._known.values():
            one.disconnect_worker()
        self.workers.hand_over_processes()

    def create_conversation(
        self, cwd: str, model: str | None = None, id: str | None = None, offers: tuple[ToolOffer, ...] = ()
    ) -> ServedConversation:
        """Create a conversation in a folder; raises `FolderRefused`, `FolderMissing` or `TooMany`."""
        return self._create(self.paths.check_folder(cwd), None, model, id, offers)

    def create_elsewhere(
        self, workspace: str, model: str | None = None, id: str | None = None, offers: tuple[ToolOffer, ...] = ()
    ) -> ServedConversation:
        """Create a conversation on another machine; raises `WrongWorkspace`, `FolderRefused` or `TooMany`."""
        return self._create(self.paths.check_workspace(workspace), workspace, model, id, offers)

    def _create(
        self, folder: str, workspace: str | None, model: str | None, id: str | None, offers: tuple[ToolOffer, ...]
    ) -> ServedConversation:
        if self._stopping:
            raise Stopping(STOPPING)
        if self._folders.count >= self._limits.kept:
            raise TooMany(f"{self._limits.kept} conversations exist, which is the limit (--max-kept). Delete one")
        name = id or RANDOM_IDS.session_id(now_ms())
        record = ConversationRecord(id=name, cwd=folder, model=model, offers=offers, workspace=workspace)
        made = self._build_conversation(record)
        record.save(self._folders.path_of(record.id))
        return made

    def find_conversation(self, id: str) -> ServedConversation:
        """Raises `UnknownConversation`."""
        known = self._known.get(id)
        if known is not None:
            return known
        if not _ID.fullmatch(id):
            raise UnknownConversation(f"There is no session {id[:100]!r}")
        record = read_record(self._folders.path_of(id))
        if record is None:
            path = self._store.find_by_id_in_name(id)
            row = None if path is None else row_of(path)
            if path is None or row is None:
                raise UnknownConversation(f"There is no session {id}")
            owner = self._folders.find_owner(path)
            if owner is not None:
                return self.find_conversation(owner)
            workspace = value_or_default(row.workspace, None)
            record = ConversationRecord(id=id, cwd=row.cwd, session_file=path, workspace=workspace)
        # The folder need not exist any more: the conversation can still be read, and deleted.
        if record.workspace is None:
            self.paths.check_below_roots(record.cwd)
        else:
            self.paths.check_workspace(record.workspace)
        return self._build_conversation(record)

    async def wait_until_wakeable(self, one: ServedConversation) -> None:
        """Wait until a conversation may have a worker; the caller then wakes it at once. Raises `TooMany`.

        If necessary, another conversation is put to sleep for it.
        """
        if has_usable_worker(one):
            return
        if self._stopping:
            raise Stopping(STOPPING)
        await self._wakes.wait_for_admission(one)

    async def forget_conversation(self, id: str) -> None:
        """Forget a conversation and its event log; its session file is left alone."""
        one = self.find_conversation(id)
        await one.try_sleep(forced=True)
        one.shut_down_as_deleted()
        self._known.pop(one.record.id, None)
        await self._folders.remove(one.record.id)
        self._wakes.process_requests()

    async def delete_session(self, id: str) -> None:
        """End a conversation and move its session to the trash.

        Raises `UnknownConversation`, and `StartupError` if another process writes the session.
        """
        one = self.find_conversation(id)
        file = one.session_file or self._store.find_by_id_in_name(id)
        await one.try_sleep(forced=True)
        await asyncio.to_thread(self._trash_session, file)
        await self.forget_conversation(one.record.id)

    def list_sessions(
        self, cwd: str | None, query: str | None, limit: int, cursor: str | None
    ) -> tuple[list[SessionRow], str | None]:
        """A page of the sessions on disk in the folders that may be opened, newest first, and where the next begins."""
        folders = self._store.folders() if cwd is None else [self._store.folder_of(self.paths.check_folder(cwd))]
        wanted = (query or "").casefold()

        def is_wanted(row: SessionRow) -> bool:
            return self.paths.can_open_session(row) and wanted in _search_text_of(row)

        return self._store.list_sessions(folders, cursor, limit, is_wanted)

    def find_sessions(self, session_id: str) -> list[SessionRow]:
        """The session with this id, if there is one in a folder that may be opened."""
        found = self._store.find_rows_by_id(self._store.folders(), session_id)
        return [row for row in found if self.paths.can_open_session(row)]

    def find_other_owner(self, path: str, besides: ServedConversation) -> str | None:
        """The id of another conversation that has a session file open, or None."""
        owner = self._folders.find_owner(path)
        return None if owner == besides.record.id else owner

    def _trash_session(self, file: str | None) -> None:
        if file is not None and os.path.lexists(file):
            SessionTrash(self._store, now_ms).move_to_trash(file)

    def _build_conversation(self, record: ConversationRecord) -> ServedConversation:
        folder = self._folders.ensure_folder(record.id)
        made = ServedConversation(
            record,
            folder,
            WorkerLauncher(record, folder, self._options, self._variables, self.workers, self.paths),
            self._counts,
            WorkerStarts(self._limits.worker_restarts, self._now, self._check_not_closing),
            self._on_conversation_changed,
            self._now,
        )
        self._known[record.id] = made
        return made

    def _note_change(self) -> None:
        self._checks.note_change()

    def _on_conversation_changed(self) -> None:
        """Called when a conversation may have become busy, idle or asleep."""
        self._wakes.process_requests()
        self._checks.note_change()
        if self._counts.totals["runs"] > 0:
            self.workers.prepare_parent()

    def _start_task(self, work: Coroutine[Any, Any, bool]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._wakes.process_requests())


def _search_text_of(row: SessionRow) -> str:
    """The text of a session that a search query is compared with."""
    words = (row.id, row.cwd, value_or_default(row.name, ""), value_or_default(row.first_message, ""))
    return "\n".join(words).casefold()
