"""One conversation of `pigeon serve`: its worker (`served_worker.py`), its event log, its clients, their commands."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from pigeon.frontends.serve.conversation_record import LOG_FOLDER, REMEMBERED, ConversationRecord
from pigeon.frontends.serve.counts import ServeCounts
from pigeon.frontends.serve.served_worker import ConversationState, ServedWorker, WorkerLauncher
from pigeon.frontends.serve.watching import AGAIN_SECONDS, ConversationClients, FollowedLog, Watcher
from pigeon.frontends.serve.worker_process import WorkerStarts
from pigeon.frontends.serve.worker_state import read_state
from pigeon.rpc.worker_records import WorkerAnswer
from pigeon.transport.event_log import LogEnd
from pigeon.wire import codec
from pigeon.wire.answers import failure_response
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.commands import SILENT_NAMES
from pigeon.wire.errors import PigeonError, Refusal
from pigeon.wire.open_work import OpenWork

SNAPSHOT_TRIES = 5
# The most input from clients, in bytes, that may wait for a worker that does not read.
MOST_WAITING = 64 * 1024 * 1024
BEHIND = "The agent of this conversation has not read earlier commands yet. Try again later"
DELETED = "This conversation was deleted"


class OpenCommand(Struct, frozen=True):
    """A command without an answer yet: its name, its id, and the client or the future that waits for it."""

    name: str
    id: Json | Absent
    command: Mapping[str, Json]
    watcher: Watcher | None
    future: asyncio.Future[dict[str, Any]] | None

    def send_answer(self, answer: WorkerAnswer, end: LogEnd) -> None:
        """Pass on the worker's answer, with the client's id in place of the supervisor's own."""
        if self.watcher is not None:
            self.watcher.send_answer(answer.encode_with_id(self.id), end)
        elif self.future is not None and not self.future.done():
            self.future.set_result(codec.decode(answer.encode_with_id(ABSENT)))

    def refuse(self, why: str, end: LogEnd) -> None:
        """Send the client a failure as the command's answer."""
        if self.watcher is not None:
            self.watcher.send_answer(codec.encode(failure_response(self.name, why, self.id)), end)
        elif self.future is not None and not self.future.done():
            self.future.set_exception(PigeonError(why))


class OpenCommands:
    """The commands that a worker has not answered, by the id under which the supervisor sent each.

    The supervisor uses ids of its own because clients may use the same ones. They differ from those of an earlier
    supervisor, which the worker may still answer.
    """

    def __init__(self) -> None:
        self._open: dict[str, OpenCommand] = {}
        self._count = 0
        self._prefix = os.urandom(4).hex()

    @property
    def is_empty(self) -> bool:
        return not self._open

    def add_and_encode(self, waiting: OpenCommand) -> bytes:
        """Keep a command until it is answered; returns the line to send to the worker."""
        self._count += 1
        id = f"{self._prefix}-{self._count}"
        self._open[id] = waiting
        if waiting.watcher is not None and waiting.name == "bash":
            waiting.watcher.remember_bash_id(id, waiting.id)
        return codec.encode({**waiting.command, "id": id})

    def pop(self, id: Json | Absent) -> OpenCommand | None:
        """Remove the command with this id; returns None if it is no longer open."""
        return self._open.pop(id, None) if isinstance(id, str) else None

    def refuse_all(self, why: str, end: LogEnd) -> None:
        """Answer every open command with a failure."""
        for waiting in list(self._open.values()):
            waiting.refuse(why, end)
        self._open.clear()


class ServedConversation:
    """One conversation: what its clients and the supervisor can do with it, and how it handles its worker's reports.

    `on_changed` is called when it may have become busy, idle or asleep, because another conversation may be waiting for
    that.
    """

    def __init__(
        self,
        record: ConversationRecord,
        folder: str,
        launcher: WorkerLauncher,
        counts: ServeCounts,
        starts: WorkerStarts,
        on_changed: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.record = record
        self._folder = folder
        self._counts = counts
        self._starts = starts
        self._on_changed = on_changed
        self._now = now
        self.clients = ConversationClients()
        self.log = FollowedLog(os.path.join(folder, LOG_FOLDER), counts, lambda: self._forget_command("set_todos"), now)
        self._commands = OpenCommands()
        self._worker = ServedWorker(self, launcher, self.log, starts)
        self.used = now()

    @property
    def state(self) -> ConversationState:
        return self._worker.state

    @property
    def work(self) -> OpenWork:
        """The runs, questions and calls that have not ended."""
        return self.log.work

    @property
    def has_worker(self) -> bool:
        """Whether a worker is running or being started."""
        return self._worker.is_present

    @property
    def is_idle(self) -> bool:
        """True if, as far as the supervisor knows, stopping the worker would interrupt nothing."""
        is_free = self._commands.is_empty and not self._worker.is_awaited
        return self.state == "awake" and not self.log.is_busy and is_free

    @property
    def is_running(self) -> bool:
        return self.log.is_running

    @property
    def must_move(self) -> bool:
        """True if it is to sleep as soon as it is idle, because it must not share its process any more."""
        return self._worker.must_move

    @property
    def needs_worker(self) -> bool:
        """True if a worker that has died is to be replaced at once."""
        return self.log.is_busy or self.clients.count > 0

    @property
    def pid(self) -> int | None:
        return self._worker.pid

    @property
    def log_folder(self) -> str:
        return self.log.folder

    @property
    def session_file(self) -> str | None:
        """The file of the current session, which need not exist yet."""
        state = read_state(self._folder)
        return self.record.session_file if state is None else state.session_file

    # Commands

    async def forward_command(self, command: dict[str, Json], watcher: Watcher) -> None:
        """Send a client's command to the worker, waking it if necessary; only that client gets the answer."""
        name = str(command.get("type"))
        waiting = OpenCommand(name, command.get("id", ABSENT), command, watcher, None)
        self.used = self._now()
        try:
            if self._worker.unread_bytes > MOST_WAITING:
                raise Refusal(BEHIND)
            if name in SILENT_NAMES:
                await self._forward_question_answer(command)
                return
            await self._worker.ensure_awake()
        except (PigeonError, OSError) as error:
            if name not in SILENT_NAMES or isinstance(error, Refusal):
                waiting.refuse(str(error), self.log.end)
            return
        self._worker.send(self._commands.add_and_encode(waiting))

    async def _forward_question_answer(self, command: dict[str, Json]) -> None:
        """Forward an answer to a question, which gets no response: the worker uses the first answer that fits and
        cancels the question for all other clients."""
        if self.state != "asleep":
            await self._worker.ensure_awake()
            if str(command.get("id")) in self.work.questions:
                self._worker.send(codec.encode(command))

    async def send_request(self, command: dict[str, Json]) -> dict[str, Any]:
        """Send a command of the supervisor itself and return its answer; raises `PigeonError` or `OSError`."""
        await self._worker.ensure_awake()
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._worker.send(
            self._commands.add_and_encode(OpenCommand(str(command["type"]), ABSENT, command, None, answer))
        )
        return await answer

    async def make_snapshot(self) -> tuple[bytes, int]:
        """The current conversation as JSON, and the number of the last event that it covers.

        An unfinished message is not included: the events after that number start at its beginning.
        """
        for _ in range(SNAPSHOT_TRIES):
            await self._worker.ensure_awake()
            said = self.work.messages
            number = self.log.number if self.work.message is None else self.work.message - 1
            messages = await self.send_request({"type": "get_messages"})
            state = await self.send_request({"type": "get_state"})
            if said == self.work.messages:
                break
        data = {
            "seq": number,
            "runId": self.work.run_id,
            "state": state.get("data"),
            "messages": (messages.get("data") or {}).get("messages"),
            "questions": [codec.decode(line) for line in self.work.questions.values()],
        }
        return codec.encode(data), number

    # What the supervisor does with the worker

    async def wake(self) -> None:
        """Start the worker unless it runs; raises `PigeonError` or `OSError`."""
        self.used = self._now()
        await self._worker.ensure_awake()

    async def try_reconnect_worker(self) -> bool:
        """Reconnects to a worker that an earlier supervisor left running; returns False if it has ended."""
        return await self._worker.adopt_running_process()

    async def try_sleep(self, forced: bool = False) -> bool:
        """Stop the worker; the next command starts another. Returns False if it is needed, unless `forced`."""
        return await self._worker.sleep(forced)

    def kill(self, why: str = "") -> None:
        """Kill the worker; every event that it has announced is already on disk."""
        self._worker.kill(why)

    def enforce_time_limits(self, silence: int, unserved: int) -> None:
        """Called once a second: end a worker that hangs, and host tool calls that wait too long for a client."""
        if self.state != "awake" or not self._worker.is_connected:
            return
        self._worker.kill_if_silent(silence)
        for result in self.clients.fail_unserved_calls(self.work.questions, unserved):
            self._worker.send(codec.encode(result))

    def disconnect_worker(self) -> None:
        """Disconnect from the worker, which keeps running until the next supervisor finds it."""
        self._worker.disconnect()

    def shut_down_as_deleted(self) -> None:
        """Disconnect all clients, because the conversation was removed."""
        self._starts.forbid(DELETED)
        self.clients.end_all("deleted")
        self.disconnect_worker()

    # Reports of the worker (`WorkerOwner`)

    def on_log_grown(self, end: LogEnd) -> None:
        """Read the new events, and let clients read them."""
        self.used = self._now()
        try:
            if self.log.read_and_detect_run_change(end):
                self._on_changed()
        except OSError:
            asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._read_new_events_again)
        self.clients.notify_log_grown()

    def _read_new_events_again(self) -> None:
        if self._worker.is_connected:
            self.on_log_grown(self.log.end)

    def on_answer(self, answer: WorkerAnswer) -> None:
        """Pass an answer on to the sender of its command."""
        self.used = self._now()
        waiting = self._commands.pop(answer.id)
        if waiting is None:
            return
        if answer.success:
            self._on_command_succeeded(waiting, answer)
        waiting.send_answer(answer, self.log.end)
        self._on_changed()

    def _on_command_succeeded(self, waiting: OpenCommand, answer: WorkerAnswer) -> None:
        """Record a successful command before its client is answered: for the next worker, or for the coming run."""
        if waiting.name in ("prompt", "abort_and_prompt"):
            data = answer.decode_data() or {}
            if data.get("disposition") == "started":
                self.log.expect_run(str(data.get("runId")))
        self._worker.note_success(waiting.name)
        if waiting.name in REMEMBERED:
            self.record.remember(waiting.command, read_state(self._folder))
            self._save_record()

    def on_worker_woken(self) -> None:
        self._counts.count_and_log("worker_wakes", self.record.id)

    def on_worker_ended(self, why: str, crashed: bool) -> None:
        """Refuse the commands that the worker has not answered."""
        if crashed:
            self._counts.count_and_log("worker_restarts", self.record.id)
        self._commands.refuse_all(why, self.log.end)

    def on_worker_changed(self) -> None:
        """Report that the conversation may have become busy, idle or asleep."""
        self._on_changed()

    # The record

    def _forget_command(self, name: str) -> None:
        if self.record.remembered.pop(name, None) is not None:
            self._save_record()

    def _save_record(self) -> None:
        """Write the record to disk if there is room; a full disk must not cost the worker its connection."""
        with suppress(OSError):
            self.record.save(self._folder)
