"""One conversation of `pigeon serve`: its worker, which sleeps and wakes, its event log, and its clients.

States of the worker:

    state      command of a client      nothing for a while    connection to the worker is lost
    --------   ----------------------   --------------------   ------------------------------------------------
    asleep     start it, then send it   -                      -
    starting   wait, then send it       -                      the command is refused, with the worker's last words
    awake      send it                  ask it to sleep        open commands are refused; started again if it is needed
    stopping   wait, then start it      -                      asleep

A worker that is asked to sleep may say that it is needed, and is awake again. What it knows beyond its session file is
in its state file (`worker_state.py`), and what a client has told it is told to the next one (`REMEMBERED`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from pigeon.app.options import AgentOptions
from pigeon.frontends.serve.conversation_record import REMEMBERED, ConversationRecord
from pigeon.frontends.serve.counts import ServeCounts
from pigeon.frontends.serve.scopes import covers
from pigeon.frontends.serve.watching import FollowedLog, UnservedCalls, Watcher
from pigeon.frontends.serve.worker import WorkerRequest
from pigeon.frontends.serve.worker_process import (
    RESTART_PAUSE,
    WorkerConnection,
    Workers,
    WorkerStarts,
    end_log_owner,
    ending,
    open_stderr,
    stop_worker,
)
from pigeon.frontends.serve.worker_state import WorkerState, options_for, read_state
from pigeon.rpc.worker_records import SLEEP, Logged, WorkerAnswer
from pigeon.system.process.forking import ForkedProcess, last_words
from pigeon.wire import codec
from pigeon.wire.answers import failed
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.commands import SILENT_NAMES, HostToolResult
from pigeon.wire.errors import PigeonError, Refusal, StartupError
from pigeon.wire.open_work import OpenWork

STATE_FILE = "state.json"
LOG_FOLDER = "events"
STDERR_FILE = "stderr.log"
START_SECONDS = 60.0
# How long a worker may take to say whether it is needed.
SLEEP_SECONDS = 5.0
# When to look again at a log that could not be read.
AGAIN_SECONDS = 1.0
# How long extensions may think about a prompt before its run is announced.
ACCEPTED_SECONDS = 60.0
SNAPSHOT_TRIES = 5
# So much of what clients have sent may wait for a worker that does not read.
MOST_WAITING = 64 * 1024 * 1024
BEHIND = "The agent of this conversation has not read earlier commands yet. Try again later"

ENDED = (
    "The agent ended before it answered: {}. Its session is intact. Its events show what it had started, and "
    "that this has ended. Send the command again if they do not show it"
)
HANGS = "it did nothing for {} seconds (--worker-silence)"
ConversationState = Literal["asleep", "starting", "awake", "stopping"]


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
        counts: ServeCounts,
        starts: WorkerStarts,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.record = record
        self._folder = folder
        self._options = options
        self._variables = variables
        self._workers = workers
        self._sockets = workers.sockets
        self._counts = counts
        self._starts = starts
        self._now = now
        self.log_folder = os.path.join(folder, LOG_FOLDER)
        self.log = FollowedLog(self.log_folder, counts, lambda: self._forget("set_todos"), now)
        self.state: ConversationState = "asleep"
        self._watchers: set[Watcher] = set()
        self._unserved = UnservedCalls()
        self._open: dict[str, OpenCommand] = {}
        self._count = 0
        self._mark = os.urandom(4).hex()
        self._connection: WorkerConnection | None = None
        self._process: ForkedProcess | None = None
        self._waking: asyncio.Future[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._parting: asyncio.Future[bool] | None = None
        self._changing = asyncio.Lock()
        self._callers = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._died = ""
        self._ended_for = ""
        self._accepted_at: float | None = None
        self.removed = False
        self.used = now()

    # Clients

    @property
    def work(self) -> OpenWork:
        """The runs, questions and calls that have not ended."""
        return self.log.work

    @property
    def has_worker(self) -> bool:
        """Whether a worker is running or being started."""
        return self.state != "asleep" or (self._waking is not None and not self._waking.done())

    @property
    def idle(self) -> bool:
        """Whether, as far as the supervisor knows, stopping the worker would interrupt nothing."""
        # Who waits for the worker has a command for it.
        waited = bool(self._open or self._callers)
        return self.state == "awake" and not self.work.busy and not self._accepted and not waited

    @property
    def running(self) -> bool:
        """Whether an accepted prompt has not ended yet."""
        return self.work.running or self._accepted

    @property
    def _accepted(self) -> bool:
        """Whether an accepted prompt still waits for its run. A prompt that was sent again may be an old one."""
        return self._accepted_at is not None and self._now() - self._accepted_at < ACCEPTED_SECONDS

    @property
    def watched(self) -> int:
        """The number of connected clients."""
        return len(self._watchers)

    @property
    def pid(self) -> int | None:
        """The process of the worker."""
        return None if self._process is None else self._process.pid

    @property
    def place(self) -> WorkerState | None:
        """The folder and session of the conversation, from the state file of its worker."""
        return read_state(os.path.join(self._folder, STATE_FILE))

    @property
    def session_file(self) -> str | None:
        """The file of the session that the conversation is in now, which need not exist yet."""
        place = self.place
        return self.record.session_file if place is None else place.session_file

    def attach(self, watcher: Watcher) -> None:
        """Add a client."""
        self._watchers.add(watcher)

    def detach(self, watcher: Watcher) -> None:
        """Remove a client; runs that it started continue."""
        self._watchers.discard(watcher)

    async def tell(self, command: dict[str, Json], watcher: Watcher) -> None:
        """Send a client's command on; its answer goes to that client alone. Wakes the worker."""
        name = str(command.get("type"))
        self.used = self._now()
        try:
            if self._connection is not None and self._connection.waiting > MOST_WAITING:
                raise Refusal(BEHIND)
            if name in SILENT_NAMES:
                await self._tell_silently(command)
                return
            await self._awake()
        except (PigeonError, OSError) as error:
            if name not in SILENT_NAMES or isinstance(error, Refusal):
                watcher.answer(codec.encode(failed(name, str(error), command.get("id", ABSENT))), self.log.end)
            return
        self._send_open(OpenCommand(name, command.get("id", ABSENT), command, watcher, None))

    async def _tell_silently(self, command: dict[str, Json]) -> None:
        """An answer to a question: the worker takes the first that fits, and cancels the question for the others."""
        if self.state != "asleep":
            await self._awake()
            if str(command.get("id")) in self.work.questions:
                self._send(command)

    async def ask(self, command: dict[str, Json]) -> dict[str, Any]:
        """Send a command of the supervisor itself, and return its answer; raises `PigeonError` or `OSError`."""
        await self._awake()
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._send_open(OpenCommand(str(command["type"]), ABSENT, command, None, answer))
        return await answer

    async def wake(self) -> None:
        """Start the worker unless it runs; raises `PigeonError` or `OSError`."""
        self.used = self._now()
        await self._awake()

    async def snapshot(self) -> tuple[bytes, int]:
        """The conversation as it is now, as JSON, and the number of the last event that it covers.

        An unfinished message is not included: the events after that number begin with its start.
        """
        for _ in range(SNAPSHOT_TRIES):
            await self._awake()
            said = self.work.messages
            number = self.log.number if self.work.message is None else self.work.message - 1
            messages = await self.ask({"type": "get_messages"})
            state = await self.ask({"type": "get_state"})
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

    # The worker

    async def find(self) -> bool:
        """Look for a worker that an earlier supervisor has left; false if there is none."""
        async with self._changing:
            self.state = "starting"
            try:
                async with asyncio.timeout(START_SECONDS):
                    await self._connect()
            except (OSError, PigeonError):
                self._leave_worker()
                self.state = "asleep"
                self._sockets.remove(self.record.id)
                # The worker may be running all the same, and must not continue unsupervised.
                with suppress(OSError):
                    await end_log_owner(self.log_folder)
                return False
            except BaseException:
                self.state = "asleep"
                raise
            return True

    async def sleep(self, forced: bool = False) -> bool:
        """Stop the worker; its next command wakes another. False if it is needed, unless it is `forced` to go."""
        async with self._changing:
            if self.state != "awake":
                return True
            if not forced and not self.idle:
                return False
            self.state = "stopping"
            assert self._connection is not None
            self._parting = asyncio.get_running_loop().create_future()
            try:
                if forced and self._process is not None:
                    self._process.send(signal.SIGTERM)
                else:
                    self._connection.send(SLEEP)
                if not await self._parted(forced):
                    self.state = "awake"
                    return False
            finally:
                self._parting = None
            if self.work.busy or self._accepted:
                self._died = "it was stopped"
            await self._let_go()
            self._refuse_open("The agent was stopped before it answered")
            self._sockets.remove(self.record.id)
            self.state = "asleep"
            return True

    async def _parted(self, forced: bool) -> bool:
        """Whether the worker agrees to end; if it does not answer, it stays unless `forced`."""
        assert self._parting is not None
        try:
            async with asyncio.timeout(SLEEP_SECONDS):
                return await self._parting
        except TimeoutError:
            return forced

    def kill(self, why: str = "") -> None:
        """Kill the worker; everything that it has announced is on disk."""
        if self._process is not None:
            self._ended_for = why
            self._process.send(signal.SIGKILL)

    def look(self, silence: int, unserved: int) -> None:
        """Called once a second: end a worker that hangs, and host tool calls that wait too long for a client."""
        if self.state != "awake" or self._connection is None:
            return
        if self._connection.looks_silent() > silence > 0:
            self.kill(HANGS.format(silence))
        served = any(covers(watcher.scope, HostToolResult.required_scope) for watcher in self._watchers)
        for result in self._unserved.look(self.work.questions, served, unserved):
            self._send(result)

    def leave(self) -> None:
        """Disconnect from the worker, which keeps running: the next supervisor will find it."""
        self._leave_worker()
        self.log.close()
        for task in self._tasks:
            task.cancel()

    def remove(self) -> None:
        """Disconnect all clients, because the conversation was removed."""
        self.removed = True
        for watcher in self._watchers:
            watcher.end("deleted")
        self.leave()

    def _leave_worker(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _let_go(self) -> None:
        """End the process, by force if necessary, and close everything that belongs to it."""
        self._leave_worker()
        self.log.close()
        process, self._process = self._process, None
        if process is not None:
            await stop_worker(process)
            self._workers.forget(process)

    async def _awake(self) -> None:
        self._callers += 1
        try:
            while self.state != "awake":
                if self._waking is None or self._waking.done():
                    self._waking = asyncio.ensure_future(self._wake())
                await asyncio.shield(self._waking)
        finally:
            self._callers -= 1
            # Not before the caller has sent its command: until then it would look idle.
            asyncio.get_running_loop().call_soon(self._starts.changed)

    async def _wake(self) -> None:
        async with self._changing:
            if self.state == "awake":
                return
            if self.removed:
                raise StartupError("This conversation was deleted")
            self._starts.check(self._died)
            self.state = "starting"
            try:
                try:
                    await self._start()
                except StartupError:
                    if self.place is None:
                        raise
                    # The model may be gone: then the settings decide.
                    await self._start(with_model=False)
            except BaseException:
                self.state = "asleep"
                raise
            self._counts.note("worker_wakes", self.record.id)

    async def _start(self, with_model: bool = True) -> None:
        # A worker that the supervisor has lost track of would write to the same log.
        await end_log_owner(self.log_folder)
        path = os.path.join(self._folder, STDERR_FILE)
        try:
            # Before the worker writes anything there: a folder without a record is what is left of a removed one.
            self.record.keep(self._folder)
            async with asyncio.timeout(START_SECONDS):
                await self._fork(path, with_model)
                await self._connect()
        except (OSError, PigeonError) as error:
            words = await self._failure(error, path)
            # It may have been killed because the service stops.
            self._starts.check(self._died)
            self._starts.add_end()
            raise StartupError(f"The agent of this conversation could not be started: {words}") from None
        except BaseException:
            if self._process is not None:
                self._process.send(signal.SIGKILL)
            await self._let_go()
            raise
        self._died, self._accepted_at = "", None

    async def _fork(self, stderr_path: str, with_model: bool) -> None:
        stderr = open_stderr(stderr_path)
        try:
            listener = self._sockets.listen(self.record.id)
            with listener:
                self._process = await self._workers.start(self._request(with_model), listener, stderr)
        finally:
            os.close(stderr)

    async def _failure(self, error: Exception, stderr_path: str) -> str:
        """Make sure that the worker which failed to start is gone, and return why it failed."""
        process = self._process
        if isinstance(error, TimeoutError):
            words = f"it was not ready within {START_SECONDS:g} seconds"
        elif process is None:
            words = str(error)
        else:
            code = await self._workers.code_of(process)
            said = last_words(stderr_path) if code is not None and code > 0 else ""
            words = said or ending(code)
        if process is not None:
            process.send(signal.SIGKILL)
        await self._let_go()
        self._sockets.remove(self.record.id)
        return words

    def _request(self, with_model: bool) -> WorkerRequest:
        place, record = self.place, self.record
        if not os.path.isdir(record.cwd):
            raise StartupError(f"its folder is gone: {record.cwd}")
        options = self._agent_options(place)
        return WorkerRequest(
            options=options if with_model else replace(options, model=None, thinking=None),
            folder=record.cwd,
            variables=dict(self._variables),
            log_folder=self.log_folder,
            state_file=os.path.join(self._folder, STATE_FILE),
            commands=record.commands(place),
            state=place,
            died=self._died,
        )

    def _agent_options(self, place: WorkerState | None) -> AgentOptions:
        if place is not None:
            return options_for(place, self._options)
        if self.record.session_file is not None:
            return replace(self._options, session=self.record.session_file, model=None)
        return replace(self._options, session_id=self.record.id, model=self.record.model or self._options.model)

    async def _connect(self) -> None:
        self._ready = asyncio.get_running_loop().create_future()
        connection = WorkerConnection(self._logged, self._answered, self._needed, lambda: self._lost(connection))
        await self._sockets.connect(self.record.id, connection)
        self._connection = connection
        await self._ready

    def _logged(self, notice: Logged) -> None:
        """The log has grown."""
        self.used = self._now()
        try:
            if self._ready is not None and not self._ready.done():
                self._attached(notice)
            if self.log.follow(notice.end):
                self._accepted_at = None
                self._starts.changed()
        except OSError as error:
            if self._ready is not None and not self._ready.done():
                self._ready.set_exception(error)
            else:
                asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._follow_again)
        for watcher in self._watchers:
            watcher.wake()

    def _follow_again(self) -> None:
        if self._connection is not None and self._process is not None:
            self._logged(Logged(*self.log.end, self._process.pid))

    def _attached(self, notice: Logged) -> None:
        """The first message of a worker: events up to this end were in the log before."""
        if self._process is None:
            self._process = ForkedProcess(notice.pid)
        self.log.begin(notice.end, notice.heard)
        self.state = "awake"
        assert self._ready is not None
        self._ready.set_result(None)

    def _needed(self) -> None:
        if self._parting is not None and not self._parting.done():
            self._parting.set_result(False)

    def _lost(self, connection: WorkerConnection) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(StartupError("the worker has ended"))
        elif connection is self._connection and self._parting is not None:
            if not self._parting.done():
                self._parting.set_result(True)
        elif connection is self._connection:
            self.state = "stopping"
            self._start_task(self._died_unasked())

    async def _died_unasked(self) -> None:
        async with self._changing:
            process, self._connection = self._process, None
            code = None if process is None else await self._workers.code_of(process)
            self._died, self._ended_for = self._ended_for or ending(code), ""
            if process is not None and code is None and not await process.ended(0.0):
                process.send(signal.SIGKILL)
            await self._let_go()
            self._starts.add_end()
            self._counts.note("worker_restarts", self.record.id)
            self._refuse_open(ENDED.format(self._died))
            self.state = "asleep"
        await self._restart()
        self._starts.changed()

    async def _restart(self) -> None:
        """Start another worker as soon as possible, if anything is waiting for one."""
        while (self.running or self.work.busy or self._watchers) and not self.removed:
            try:
                await self._awake()
                return
            except (PigeonError, OSError):
                await asyncio.sleep(RESTART_PAUSE if self._starts.failed_often else AGAIN_SECONDS)

    # Commands and answers

    def _send(self, command: Mapping[str, Json]) -> None:
        if self._connection is not None:
            self._connection.send(codec.encode(command))

    def _send_open(self, waiting: OpenCommand) -> None:
        self._count += 1
        id = f"{self._mark}-{self._count}"
        self._open[id] = waiting
        if waiting.watcher is not None and waiting.name == "bash":
            waiting.watcher.began_bash(id, waiting.id)
        self._send({**waiting.command, "id": id})

    def _answered(self, answer: WorkerAnswer) -> None:
        """Pass on an answer, with the client's id in place of the supervisor's own."""
        self.used = self._now()
        waiting = self._open.pop(answer.id, None) if isinstance(answer.id, str) else None
        if waiting is None:
            return
        if answer.success:
            self._carried_out(waiting, answer)
        if waiting.watcher is not None:
            waiting.watcher.answer(answer.line_for(waiting.id), self.log.end)
        elif waiting.answer is not None and not waiting.answer.done():
            waiting.answer.set_result(codec.decode(answer.line_for(ABSENT)))
        self._starts.changed()

    def _carried_out(self, waiting: OpenCommand, answer: WorkerAnswer) -> None:
        """Remember a command that succeeded, before its client is told: for the next worker, or for the run to come."""
        if waiting.name in ("prompt", "abort_and_prompt"):
            data = answer.decode_data() or {}
            if data.get("disposition") == "started" and not self.log.has_begun(str(data.get("runId"))):
                self._accepted_at = self._now()
        if waiting.name in REMEMBERED:
            self.record.remember(waiting.command, self.place)
            self._save_soon()

    def _forget(self, name: str) -> None:
        if self.record.remembered.pop(name, None) is not None:
            self._save_soon()

    def _save_soon(self) -> None:
        """Put the record on disk, now if there is room; a full disk must not cost the worker its connection."""
        with suppress(OSError):
            self.record.save(self._folder)

    def _refuse_open(self, why: str) -> None:
        for waiting in list(self._open.values()):
            if waiting.watcher is not None:
                line = codec.encode(failed(waiting.name, why, waiting.id))
                waiting.watcher.answer(line, self.log.end)
            elif waiting.answer is not None and not waiting.answer.done():
                waiting.answer.set_exception(PigeonError(why))
        self._open.clear()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
