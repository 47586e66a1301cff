"""One conversation of `pigeon serve`: its worker, which sleeps and wakes, its event log, and its clients.

States of the worker:

    state      command of a client      nothing for a while    connection to the worker is lost
    --------   ----------------------   --------------------   ------------------------------------------------
    asleep     start it, then send it   -                      -
    starting   wait, then send it       -                      the command is refused, with the worker's last words
    awake      send it                  stop it                open commands are refused; started again if it is needed
    stopping   wait, then start it      -                      asleep

What a worker knows beyond its session file, because a client has told it, is told to the next one (`REMEMBERED`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from pigeon.app.options import AgentOptions
from pigeon.serve.counts import ServeCounts
from pigeon.serve.watching import WatchEnd, Watcher
from pigeon.serve.worker import WorkerRequest
from pigeon.serve.worker_process import (
    SocketFolder,
    WorkerConnection,
    Workers,
    how_it_ended,
    last_words,
    open_stderr,
    stop_worker,
)
from pigeon.system.files import replace_file
from pigeon.system.process.forking import ForkedProcess
from pigeon.transport.event_log import LogEnd, LogReader, lines_since, segments_in
from pigeon.wire import codec
from pigeon.wire.answers import failed
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.errors import PigeonError, StartupError
from pigeon.wire.open_work import SETTLED, OpenWork, open_work

RECORD_FILE = "conversation.json"
LOG_FOLDER = "events"
STDERR_FILE = "stderr.log"
START_SECONDS = 60.0
# So often within this time a worker that dies is started again without being asked for.
MOST_RESTARTS = 5
RESTART_SECONDS = 60.0
# What is told to the next worker: the last command of each of these types that was carried out.
REMEMBERED = frozenset(
    (
        "set_host_tools",
        "set_permissions",
        "set_limits",
        "set_steering_mode",
        "set_follow_up_mode",
        "set_interrupt_mode",
        "set_locale",
        "set_auto_compaction",
        "set_auto_retry",
        "set_todos",
    )
)
# After these another session may be the current one; a prompt may be a command of an extension.
CHANGES_SESSION = frozenset(
    ("prompt", "abort_and_prompt", "new_session", "switch_session", "open_session", "fork", "branch", "clone")
)
_OUR_ID = b'{"id":"'
_BASH = b'{"type":"bash_execution_update","id":"'

State = Literal["asleep", "starting", "awake", "stopping"]


class ConversationRecord(Struct, kw_only=True):
    """What is kept of a conversation besides its session: where it works, as what it began, what it was told."""

    id: str
    cwd: str
    model: str | None = None
    session_file: str | None = None
    remembered: dict[str, dict[str, Json]] = field(default_factory=dict)


class OpenCommand(Struct, frozen=True):
    """A command without an answer yet: whose it is, its name, the id it came with, and the command itself."""

    name: str
    id: Json | Absent
    command: Mapping[str, Json]
    watcher: Watcher | None
    answer: asyncio.Future[dict[str, Any]] | None


class ServedConversation:
    """One conversation. `options` are those of its agent; `variables` those of its process."""

    def __init__(
        self,
        record: ConversationRecord,
        folder: str,
        options: AgentOptions,
        variables: Mapping[str, str],
        workers: Workers,
        sockets: SocketFolder,
        counts: ServeCounts,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.record = record
        self._folder = folder
        self._options = options
        self._variables = variables
        self._workers = workers
        self._sockets = sockets
        self._counts = counts
        self._now = now
        self.log_folder = os.path.join(folder, LOG_FOLDER)
        os.makedirs(self.log_folder, 0o700, exist_ok=True)
        self.state: State = "asleep"
        self.work = OpenWork()
        self.end = LogEnd((segments_in(self.log_folder) or [1])[-1], 0)
        self._tracker: LogReader | None = None
        self._watchers: set[Watcher] = set()
        self._open: dict[str, OpenCommand] = {}
        self._count = 0
        self._mark = os.urandom(4).hex()
        self._connection: WorkerConnection | None = None
        self._process: ForkedProcess | None = None
        self._waking: asyncio.Future[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._died = ""
        self._restarts: list[float] = []
        self.used = now()

    # Clients

    @property
    def number(self) -> int:
        """The number of the last event."""
        return 0 if self._tracker is None else self._tracker.number

    @property
    def idle(self) -> bool:
        """Whether the worker could be stopped without cutting anything off."""
        return self.state == "awake" and not self.work.busy and not self._open

    @property
    def watched(self) -> int:
        """How many clients there are."""
        return len(self._watchers)

    @property
    def pid(self) -> int | None:
        """The process of the worker."""
        return None if self._process is None else self._process.pid

    def attach(self, watcher: Watcher) -> None:
        """A client is there."""
        self._watchers.add(watcher)

    def detach(self, watcher: Watcher) -> None:
        """It has gone; what it has begun goes on."""
        self._watchers.discard(watcher)

    def end_clients(self, why: WatchEnd) -> None:
        """Leave all clients."""
        for watcher in self._watchers:
            watcher.end(why)

    async def tell(self, command: dict[str, Json], watcher: Watcher) -> None:
        """Send a client's command on; its answer goes to that client alone. Wakes the worker."""
        name = str(command.get("type"))
        silent = name in ("extension_ui_response", "host_tool_result", "host_tool_update")
        self.used = self._now()
        try:
            await self._awake()
        except (PigeonError, OSError) as error:
            if not silent:
                watcher.answer(codec.encode(failed(name, str(error), command.get("id", ABSENT))), self.end)
            return
        if silent:
            # The first answer counts.
            if name == "host_tool_update" or self.work.answered(str(command.get("id"))):
                self._send(command)
        else:
            self._send_open(OpenCommand(name, command.get("id", ABSENT), command, watcher, None))

    async def ask(self, command: dict[str, Json]) -> dict[str, Any]:
        """Our own command, and its answer; raises `PigeonError`."""
        await self._awake()
        return await self._ask(command)

    async def wake(self) -> None:
        """Have a worker; raises `PigeonError` or `OSError`."""
        self.used = self._now()
        await self._awake()

    async def snapshot(self) -> tuple[bytes, int]:
        """The conversation as it is now, as JSON, and the number of the last event that it covers."""
        state = await self.ask({"type": "get_state"})
        messages = await self.ask({"type": "get_messages"})
        number = self.number
        data = {
            "seq": number,
            "runId": self.work.run_id,
            "state": state.get("data"),
            "messages": messages.get("data", {}).get("messages"),
        }
        return codec.encode(data), number

    # The worker

    async def find(self) -> bool:
        """Look for a worker that an earlier supervisor has left; false if there is none."""
        try:
            await self._connect()
        except (OSError, PigeonError):
            self._sockets.remove(self.record.id)
            return False
        return True

    async def sleep(self) -> None:
        """Stop the worker; its next command wakes another."""
        async with self._changing:
            if self.state != "awake":
                return
            self.state = "stopping"
            connection, process = self._connection, self._process
            self._connection = self._process = None
            if connection is not None:
                connection.close()
            if process is not None:
                await stop_worker(process)
                self._workers.forget(process)
            self._refuse_open("The agent was stopped before it answered")
            self._sockets.remove(self.record.id)
            self.state = "asleep"

    def leave(self) -> None:
        """Let the worker go on without us: another supervisor will find it."""
        if self._connection is not None:
            self._connection.close()
        if self._tracker is not None:
            self._tracker.close()

    async def _awake(self) -> None:
        while self.state != "awake":
            if self._waking is None or self._waking.done():
                self._waking = asyncio.ensure_future(self._wake())
            await asyncio.shield(self._waking)

    async def _wake(self) -> None:
        async with self._changing:
            if self.state == "awake":
                return
            self.state = "starting"
            try:
                await self._start()
            except BaseException:
                self.state = "asleep"
                raise

    async def _start(self) -> None:
        self._count += 1
        request = WorkerRequest(
            number=self._count,
            options=self._agent_options(),
            folder=self.record.cwd,
            variables=dict(self._variables),
            log_folder=self.log_folder,
            died=self._died,
        )
        stderr_path = os.path.join(self._folder, STDERR_FILE)
        stderr = open_stderr(stderr_path)
        listener = self._sockets.listen(self.record.id)
        try:
            process = await self._workers.start(request, listener, stderr)
        finally:
            listener.close()
            os.close(stderr)
        try:
            await self._connect()
        except (OSError, PigeonError):
            code = await self._workers.code_of(process)
            self._workers.forget(process)
            words = last_words(stderr_path) or how_it_ended(code)
            raise StartupError(f"The agent of this conversation could not be started: {words}") from None
        if self._process is not None:
            self._process.release()
        self._process = process
        self._died = ""
        self._counts.count("worker_wakes")
        for command in list(self.record.remembered.values()):
            await self._ask(command)

    def _agent_options(self) -> AgentOptions:
        file = self.record.session_file
        if file is not None and os.path.exists(file):
            return replace(self._options, session=file)
        return replace(self._options, session_id=self.record.id, model=self.record.model or self._options.model)

    async def _connect(self) -> None:
        self._ready = asyncio.get_running_loop().create_future()
        connection = WorkerConnection(self._logged, self._answered, lambda: self._lost(connection))
        await self._sockets.connect(self.record.id, connection)
        self._connection = connection
        async with asyncio.timeout(START_SECONDS):
            await self._ready

    def _logged(self, end: LogEnd, pid: int) -> None:
        """The log has grown."""
        self.used = self._now()
        if self._ready is not None and not self._ready.done():
            self._attached(end, pid)
        self.end = end
        assert self._tracker is not None
        while lines := self._tracker.read(end):
            first = self._tracker.number - len(lines) + 1
            self._counts.count("events", len(lines))
            for number, line in enumerate(lines, first):
                self.work.take(line, number)
                if line.startswith(SETTLED):
                    self._counts.count("runs")
                    self._start_task(self._note_session())
        for watcher in self._watchers:
            watcher.wake()

    def _attached(self, end: LogEnd, pid: int) -> None:
        """The first word of a worker: everything up to here was there before."""
        if self._process is None:
            self._process = ForkedProcess(pid)
        if self._tracker is not None:
            self._tracker.close()
        known = lines_since(self.log_folder, SETTLED, end)
        self.work = open_work(known)
        last = known[-1][0] if known else end.segment - 1
        self._tracker = LogReader(self.log_folder, last, end)
        self.state = "awake"
        assert self._ready is not None
        self._ready.set_result(None)

    def _lost(self, connection: WorkerConnection) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(StartupError("the worker has ended"))
        elif connection is self._connection:
            self.state = "stopping"
            self._start_task(self._died_unasked())

    async def _died_unasked(self) -> None:
        async with self._changing:
            process, self._process, self._connection = self._process, None, None
            code = None if process is None else await self._workers.code_of(process)
            if process is not None:
                self._workers.forget(process)
            self._died = how_it_ended(code)
            self._refuse_open(f"The agent ended before it answered: {self._died}. Its session is whole; send it again")
            self.state = "asleep"
        needed = self.work.busy or self._watchers
        now = self._now()
        self._restarts = [at for at in self._restarts if now - at < RESTART_SECONDS]
        if needed and len(self._restarts) < MOST_RESTARTS:
            self._restarts.append(now)
            self._counts.count("worker_restarts")
            with suppress(PigeonError, OSError):
                await self._awake()

    # Commands and answers

    def _send(self, command: Mapping[str, Json]) -> None:
        if self._connection is not None:
            self._connection.send(codec.encode(command))

    def _send_open(self, waiting: OpenCommand) -> None:
        self._count += 1
        id = f"{self._mark}-{self._count}"
        self._open[id] = waiting
        self._send({**waiting.command, "id": id})

    async def _ask(self, command: Mapping[str, Json]) -> dict[str, Any]:
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._send_open(OpenCommand(str(command["type"]), ABSENT, command, None, answer))
        return await answer

    def _answered(self, line: bytes) -> None:
        """An answer under an id of ours; it goes out under that of the client."""
        self.used = self._now()
        at = line.find(b'"', len(_OUR_ID))
        id = line[len(_OUR_ID) : at].decode("ascii", "replace")
        waiting = self._open.pop(id, None) if line.startswith(_OUR_ID) else None
        if waiting is None:
            return
        if waiting.watcher is None:
            assert waiting.answer is not None
            if not waiting.answer.done():
                waiting.answer.set_result(codec.decode(line))
            return
        rest = line[at + 1 :]
        head = b"{" if isinstance(waiting.id, Absent) else b'{"id":' + codec.encode(waiting.id) + b","
        waiting.watcher.answer(head + rest.removeprefix(b","), self.end)
        if b'"success":true' in rest[:200]:
            self._carried_out(waiting)

    def _carried_out(self, waiting: OpenCommand) -> None:
        if waiting.name in REMEMBERED:
            command = {name: value for name, value in waiting.command.items() if name != "id"}
            self.record.remembered[waiting.name] = command
            self.save()
        if waiting.name in CHANGES_SESSION:
            self._start_task(self._note_session())

    async def _note_session(self) -> None:
        if self.state != "awake":
            return
        with suppress(PigeonError, OSError):
            state = (await self._ask({"type": "get_state"})).get("data") or {}
            file = state.get("sessionFile")
            if isinstance(file, str) and file != self.record.session_file:
                self.record.session_file = file
                self.save()

    def _refuse_open(self, why: str) -> None:
        for waiting in list(self._open.values()):
            if waiting.watcher is not None:
                line = codec.encode(failed(waiting.name, why, waiting.id))
                waiting.watcher.answer(line, self.end)
            elif waiting.answer is not None and not waiting.answer.done():
                waiting.answer.set_exception(PigeonError(why))
        self._open.clear()

    def save(self) -> None:
        """Put the record on disk."""
        replace_file(os.path.join(self._folder, RECORD_FILE), codec.encode(self.record), 0o600)

    def _start_task(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
