"""The worker of one conversation, as the supervisor sees it: when it is started, put to sleep and replaced.

    state      command of a client      nothing for a while    connection to the worker is lost
    --------   ----------------------   --------------------   ------------------------------------------------
    asleep     start it, then send it   -                      -
    starting   wait, then send it       -                      the command is refused, with the worker's last words
    awake      send it                  ask it to sleep        open commands are refused; started again if it is needed
    stopping   wait, then start it      -                      asleep

Conversations may share a process (`shared_worker.py`): each sleeps and wakes for itself, and if the process dies, this
happens to all of them. Then each is started in a process of its own, so that one that crashes again does so alone.

A worker that is asked to sleep may reply that it is needed, and stays awake. Its state beyond the session file is in
its state file (`worker_state.py`), and the settings that clients sent are repeated to the next worker (`REMEMBERED`).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, Literal, Protocol

from msgspec.structs import replace

from pigeon.app.options import AgentOptions
from pigeon.config.paths import project_dirs
from pigeon.frontends.serve.client_rights import AllowedPaths
from pigeon.frontends.serve.conversation_record import LOG_FOLDER, STDERR_FILE, ConversationRecord
from pigeon.frontends.serve.watching import AGAIN_SECONDS, FollowedLog
from pigeon.frontends.serve.worker_process import (
    RESTART_PAUSE,
    WorkerConnection,
    WorkerProcess,
    Workers,
    WorkerStarts,
    describe_ending,
    end_log_owner,
    open_stderr,
)
from pigeon.frontends.serve.worker_request import WorkerRequest, encode_options
from pigeon.frontends.serve.worker_state import STATE_FILE, WorkerState, options_for, read_last_run, read_state
from pigeon.rpc.worker_records import END, SLEEP, Logged, WorkerAnswer
from pigeon.system.process.forking import read_last_line
from pigeon.transport.event_log import LogEnd
from pigeon.trust.decision import find_guarded_paths
from pigeon.wire import codec
from pigeon.wire.commands import NAMES, OpenSession, SetPermissions, SetTrust, SwitchSession
from pigeon.wire.errors import PigeonError, StartupError

START_SECONDS = 60.0
# How long a worker may take to reply whether it is needed.
SLEEP_SECONDS = 5.0
ENDED = (
    "The agent ended before it answered: {}. Its session is intact. Its events show what it had started, and "
    "that this has ended. Send the command again if they do not show it"
)
STOPPED = "The agent was stopped before it answered"
HANGS = "it did nothing for {} seconds (--worker-silence)"
NOT_ENDING = "a conversation of its process did not end when it was asked to"
# Settings of a conversation that those in its process must have in common with it, and commands after which it may be
# in another folder.
SHARED_SETTINGS = frozenset((NAMES[SetPermissions], NAMES[SetTrust]))
MOVING = frozenset((NAMES[SwitchSession], NAMES[OpenSession]))
ConversationState = Literal["asleep", "starting", "awake", "stopping"]


class WorkerOwner(Protocol):
    """The interface through which a worker queries and informs its conversation."""

    @property
    def is_idle(self) -> bool:
        """Whether stopping the worker would interrupt nothing."""

    @property
    def needs_worker(self) -> bool:
        """True if a worker that has died is to be replaced at once."""

    def on_log_grown(self, end: LogEnd) -> None:
        """Called when the log has new events, up to `end`."""

    def on_answer(self, answer: WorkerAnswer) -> None: ...

    def on_worker_woken(self) -> None: ...

    def on_worker_ended(self, why: str, crashed: bool) -> None:
        """Called when the worker will not answer its open commands any more."""

    def on_worker_changed(self) -> None:
        """Called when the conversation may have become busy, idle or asleep."""


class WorkerLauncher:
    """Starts and ends the processes of one conversation's worker. `variables` are the environment of its agent."""

    def __init__(
        self,
        record: ConversationRecord,
        folder: str,
        options: AgentOptions,
        variables: Mapping[str, str],
        workers: Workers,
        paths: AllowedPaths,
    ) -> None:
        """`paths` knows the roots that folders are below."""
        self._record = record
        self._folder = folder
        self._options = options
        self._variables = variables
        self._workers = workers
        self._paths = paths

    @property
    def has_earlier_state(self) -> bool:
        """True if an earlier worker has left its state."""
        return read_state(self._folder) is not None

    async def start(self, last_ending: str, with_model: bool, alone: bool) -> WorkerProcess:
        """Start the worker and pass it how the previous one ended; raises `OSError` or `StartupError`.

        Without its model, the settings decide which one the agent uses. A worker that is `alone` shares no process.
        """
        # Before the worker writes anything there: a folder without a record counts as the remains of a removed
        # conversation.
        self._record.save_if_missing(self._folder)
        stderr = open_stderr(os.path.join(self._folder, STDERR_FILE))
        try:
            with self._workers.sockets.listen(self._record.id) as listener:
                request = self._build_request(last_ending, with_model)
                key = None if alone or not self._workers.is_sharing else self._make_sharing_key(request)
                return await self._workers.start(request, listener, stderr, key)
        finally:
            os.close(stderr)

    async def connect(self, connection: WorkerConnection) -> None:
        """Connect to the worker that listens on the conversation's socket; raises `OSError`."""
        await self._workers.sockets.connect(self._record.id, connection)

    def remove_socket(self) -> None:
        """Delete the socket, so that no later supervisor looks for a worker there."""
        self._workers.sockets.remove(self._record.id)

    async def end_lost_worker(self) -> None:
        """End a worker that the supervisor has lost track of: it would write to the same log. Raises `OSError`."""
        await end_log_owner(os.path.join(self._folder, LOG_FOLDER))

    def adopt(self, pid: int, is_shared: bool) -> WorkerProcess:
        """The process of a worker that was found running; raises `OSError`."""
        return self._workers.adopt(pid, is_shared)

    async def leave_process(self, process: WorkerProcess) -> None:
        """Leave a process, which ends with its last conversation."""
        await self._workers.leave(process)

    async def wait_for_exit_code(self, process: WorkerProcess) -> int | None:
        """The exit code of a process that has ended, or None if it is unknown."""
        return await self._workers.wait_for_exit_code(process)

    async def describe_failure(self, error: Exception, process: WorkerProcess | None) -> str:
        """Why a start failed, in the worker's last words if there are any."""
        if isinstance(error, TimeoutError):
            return f"it was not ready within {START_SECONDS:g} seconds"
        if process is None:
            return str(error)
        words = read_last_line(os.path.join(self._folder, STDERR_FILE))
        if process.is_shared and words and not await process.wait_until_ended(0.0):
            return words
        code = await self.wait_for_exit_code(process)
        words = read_last_line(os.path.join(self._folder, STDERR_FILE)) if code is not None and code > 0 else ""
        return words or describe_ending(code)

    def _make_sharing_key(self, request: WorkerRequest) -> bytes:
        """What must be the same for conversations in one process, besides the user: the variables and options of the
        server, the root, the settings of the folder, and what clients have changed for this conversation."""
        options = replace(request.options, session=None, session_id=None, model=None, thinking=None)
        folder = request.folder if request.state is None else request.state.cwd
        home = self._variables.get("HOME", "/")
        has_settings = bool(find_guarded_paths(folder, project_dirs(folder), home))
        kept = [command for command in request.commands if command["type"] in SHARED_SETTINGS]
        place = [self._paths.root_of(folder), folder if has_settings else ""]
        return codec.encode([request.variables, encode_options(options), place, kept])

    def _build_request(self, last_ending: str, with_model: bool) -> WorkerRequest:
        state, record = read_state(self._folder), self._record
        folder = record.cwd if record.workspace is None else self._paths.roots[0]
        if not os.path.isdir(folder):
            raise StartupError(f"its folder is gone: {folder}")
        options = self._agent_options(state)
        options = replace(options, offers=tuple(dict.fromkeys((*options.offers, *record.offers))))
        if record.workspace is not None:
            options = replace(options, workspace=record.workspace)
        if state is not None:
            # Earlier releases have it in the state itself.
            state = replace(state, run=read_last_run(self._folder) or state.run)
        return WorkerRequest(
            options=options if with_model else replace(options, model=None, thinking=None),
            folder=folder,
            variables=dict(self._variables),
            log_folder=os.path.join(self._folder, LOG_FOLDER),
            state_file=os.path.join(self._folder, STATE_FILE),
            commands=record.list_commands_to_resend(state),
            state=state,
            died=last_ending,
        )

    def _agent_options(self, state: WorkerState | None) -> AgentOptions:
        if state is not None:
            return options_for(state, self._options)
        if self._record.session_file is not None:
            return replace(self._options, session=self._record.session_file, model=None)
        return replace(self._options, session_id=self._record.id, model=self._record.model or self._options.model)


class ServedWorker:
    """The worker of one conversation through all its processes; the module header explains `state`."""

    def __init__(self, owner: WorkerOwner, launcher: WorkerLauncher, log: FollowedLog, starts: WorkerStarts) -> None:
        self._owner = owner
        self._launcher = launcher
        self._log = log
        self._starts = starts
        self.state: ConversationState = "asleep"
        self._connection: WorkerConnection | None = None
        self._process: WorkerProcess | None = None
        # Held while the process is started, stopped or replaced.
        self._changing = asyncio.Lock()
        self._waking: asyncio.Future[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._consent: asyncio.Future[bool] | None = None
        self._callers = 0
        self._tasks: set[asyncio.Task[None]] = set()
        # True if it must not share its process with the others there any more.
        self._must_move = False

    @property
    def is_present(self) -> bool:
        """True if there is a worker, or one is being started."""
        return self.state != "asleep" or (self._waking is not None and not self._waking.done())

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    @property
    def is_awaited(self) -> bool:
        """True if a caller waits for the worker, which means that it has a command for it."""
        return self._callers > 0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def unread_bytes(self) -> int:
        """The bytes that were sent and that the worker has not read."""
        return 0 if self._connection is None else self._connection.unread_bytes

    @property
    def must_move(self) -> bool:
        """True if it is to sleep as soon as it is idle, because it must not share its process any more."""
        return self._must_move and self._process is not None and self._process.is_shared

    def note_success(self, command: str) -> None:
        """Called when a command of a client has succeeded, which may have changed a setting or the folder."""
        self._must_move = self._must_move or command in SHARED_SETTINGS or command in MOVING

    def send(self, line: bytes) -> None:
        """Send a command; ignored while there is no connection."""
        if self._connection is not None:
            self._connection.send(line)

    async def ensure_awake(self) -> None:
        """Start the worker unless it is awake; raises `PigeonError` or `OSError`."""
        self._callers += 1
        try:
            while self.state != "awake":
                if self._waking is None or self._waking.done():
                    self._waking = asyncio.ensure_future(self._wake())
                await asyncio.shield(self._waking)
        finally:
            self._callers -= 1
            # Deferred until the caller has sent its command: before that the worker would look idle.
            asyncio.get_running_loop().call_soon(self._owner.on_worker_changed)

    async def adopt_running_process(self) -> bool:
        """Connect to the process that an earlier supervisor has left; returns False if there is none."""
        async with self._changing:
            self.state = "starting"
            try:
                async with asyncio.timeout(START_SECONDS):
                    await self._connect()
            except (OSError, PigeonError):
                self._close_connection()
                self.state = "asleep"
                self._launcher.remove_socket()
                # The worker may be running all the same, and must not continue unsupervised.
                with suppress(OSError):
                    await self._launcher.end_lost_worker()
                return False
            except BaseException:
                self.state = "asleep"
                raise
            return True

    async def sleep(self, forced: bool) -> bool:
        """Stop the worker; the next command wakes another. Returns False if it is needed, unless `forced`."""
        async with self._changing:
            if self.state != "awake":
                return True
            if not forced and not self._owner.is_idle:
                return False
            self.state = "stopping"
            if not await self._ask_worker_to_end(forced):
                self.state = "awake"
                return False
            if self._log.is_busy:
                self._starts.note_ending("it was stopped")
            await self._end_process()
            self._owner.on_worker_ended(STOPPED, crashed=False)
            self._launcher.remove_socket()
            self.state = "asleep"
            return True

    async def _ask_worker_to_end(self, forced: bool) -> bool:
        """Ask the worker to end; returns whether it agrees. If it does not answer, it stays unless `forced`."""
        assert self._connection is not None
        self._consent = asyncio.get_running_loop().create_future()
        try:
            if not forced or self._process is None:
                self._connection.send(SLEEP)
            elif self._process.is_shared:
                self._connection.send(END)
            else:
                self._process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(SLEEP_SECONDS):
                return await self._consent
        except TimeoutError:
            if forced and self._process is not None and self._process.is_shared:
                # It would keep the log, and the others that hang with it are started again.
                self._process.kill(NOT_ENDING)
            return forced
        finally:
            self._consent = None

    def kill(self, why: str) -> None:
        """Kill the process; every event that it has announced is already on disk."""
        if self._process is not None:
            self._process.kill(why)

    def kill_if_silent(self, most: int) -> None:
        """Called once a second: kill a worker that was silent for more than `most` calls in a row; 0 means no limit."""
        if self._connection is not None and self._connection.increment_silence() > most > 0:
            self.kill(HANGS.format(most))

    def disconnect(self) -> None:
        """Disconnect from the worker, which keeps running: the next supervisor will find it."""
        self._close_connection()
        self._log.close()
        for task in self._tasks:
            task.cancel()

    # Starting

    async def _wake(self) -> None:
        async with self._changing:
            if self.state == "awake":
                return
            self._starts.check_may_start()
            self.state = "starting"
            self._must_move = False
            try:
                try:
                    await self._start(with_model=True)
                except StartupError:
                    if not self._launcher.has_earlier_state:
                        raise
                    # The model may no longer exist: then the settings decide.
                    await self._start(with_model=False)
            except BaseException:
                self.state = "asleep"
                raise
            self._owner.on_worker_woken()

    async def _start(self, with_model: bool) -> None:
        await self._launcher.end_lost_worker()
        try:
            async with asyncio.timeout(START_SECONDS):
                alone = self._starts.has_failed_lately
                self._process = await self._launcher.start(self._starts.last_ending, with_model, alone)
                await self._connect()
        except (OSError, PigeonError) as error:
            words = await self._launcher.describe_failure(error, self._process)
            await self._abandon_start(words, has_answered=not isinstance(error, TimeoutError))
            self._launcher.remove_socket()
            # It may have been killed because the service stops.
            self._starts.check_may_start()
            self._starts.count_crash()
            raise StartupError(f"The agent of this conversation could not be started: {words}") from None
        except BaseException:
            await self._abandon_start("a start was stopped", has_answered=False)
            raise
        self._starts.note_ending("")

    async def _abandon_start(self, why: str, has_answered: bool) -> None:
        # A shared process that has refused this conversation goes on; one that is silent may be serving it.
        if self._process is not None and not (self._process.is_shared and has_answered):
            self._process.kill(why)
        await self._end_process()

    async def _connect(self) -> None:
        self._ready = asyncio.get_running_loop().create_future()
        connection = WorkerConnection(
            self._on_logged, self._owner.on_answer, self._on_needed, lambda: self._on_connection_lost(connection)
        )
        # The connection may be lost again before `connect` returns.
        self._connection = connection
        await self._launcher.connect(connection)
        await self._ready

    def _on_logged(self, notice: Logged) -> None:
        if self._ready is not None and not self._ready.done():
            # A worker's first notice: events up to this end were already in the log.
            try:
                self._log.follow_from(notice.end, notice.heard)
                self._process = self._process or self._launcher.adopt(notice.pid, notice.shared)
            except OSError as error:
                self._ready.set_exception(error)
                return
            self.state = "awake"
            self._ready.set_result(None)
        self._owner.on_log_grown(notice.end)

    # Ending

    def _on_needed(self) -> None:
        if self._consent is not None and not self._consent.done():
            self._consent.set_result(False)

    def _on_connection_lost(self, connection: WorkerConnection) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(StartupError("the worker has ended"))
        elif connection is self._connection and self._consent is not None:
            if not self._consent.done():
                self._consent.set_result(True)
        elif connection is self._connection:
            self.state = "stopping"
            self._start_task(self._replace_dead_process())

    async def _replace_dead_process(self) -> None:
        async with self._changing:
            process, self._connection = self._process, None
            code = None if process is None else await self._launcher.wait_for_exit_code(process)
            why = (process.kill_reason if process is not None else "") or describe_ending(code)
            self._starts.note_ending(why)
            has_ended = process is None or code is not None or await process.wait_until_ended(0.0)
            if process is not None and not has_ended and not process.is_shared:
                process.send_signal(signal.SIGKILL)
            await self._end_process()
            self._starts.count_crash()
            self._owner.on_worker_ended(ENDED.format(why), crashed=True)
            self.state = "asleep"
        await self._restart_if_needed()
        self._owner.on_worker_changed()

    async def _restart_if_needed(self) -> None:
        """Start another worker as soon as possible, if anything is waiting for one."""
        while self._owner.needs_worker and not self._starts.is_forbidden:
            try:
                await self.ensure_awake()
                return
            except (PigeonError, OSError):
                await asyncio.sleep(RESTART_PAUSE if self._starts.has_failed_often else AGAIN_SECONDS)

    async def _end_process(self) -> None:
        self._close_connection()
        self._log.close()
        process, self._process = self._process, None
        if process is not None:
            await self._launcher.leave_process(process)

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
