"""How the supervisor starts, stops and replaces the worker of a conversation, without any process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from pigeon.frontends.serve.counts import ServeCounts
from pigeon.frontends.serve.served_worker import ServedWorker, WorkerLauncher
from pigeon.frontends.serve.watching import FollowedLog
from pigeon.frontends.serve.worker_process import WorkerConnection, WorkerProcess, WorkerStarts
from pigeon.rpc.worker_records import SLEEP, WorkerAnswer
from pigeon.system.process.forking import ForkedProcess
from pigeon.transport.event_log import LogEnd
from pigeon.wire.errors import StartupError

READY = b'{"type":"logged","segment":1,"offset":0,"pid":1}\n'
NEEDED = b'{"type":"needed"}\n'


class Pipe(asyncio.WriteTransport):
    """The supervisor's end of a connection; `on_write` is what the worker does with a line."""

    def __init__(self, on_write: Callable[[bytes], None]) -> None:
        super().__init__()
        self._on_write = on_write

    def write(self, data: Any) -> None:
        self._on_write(bytes(data))

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass


class Process:
    """A process that ends when it is told to."""

    pid = 1

    def __init__(self) -> None:
        self.signals: list[int] = []

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    async def wait_until_ended(self, seconds: float) -> bool:
        return True


class Launcher:
    """Starts nothing; `on_connect` is what happens on each new connection."""

    def __init__(self, on_connect: Callable[[int, WorkerConnection], None]) -> None:
        self._on_connect = on_connect
        self.forks: list[str] = []
        self.lines: list[bytes] = []
        self.answer_to_sleep = NEEDED
        self.connection: WorkerConnection | None = None
        self.has_earlier_state = False

    async def start(self, last_ending: str, with_model: bool, alone: bool) -> WorkerProcess:
        self.forks.append(last_ending)
        return WorkerProcess(cast(ForkedProcess, Process()))

    async def connect(self, connection: WorkerConnection) -> None:
        self.connection = connection
        connection.connection_made(Pipe(self._on_line))
        self._on_connect(len(self.forks), connection)

    def _on_line(self, line: bytes) -> None:
        self.lines.append(line)
        if line == SLEEP + b"\n":
            assert self.connection is not None
            self.connection.data_received(self.answer_to_sleep)

    async def end_lost_worker(self) -> None:
        pass

    async def leave_process(self, process: WorkerProcess) -> None:
        pass

    async def wait_for_exit_code(self, process: WorkerProcess) -> int | None:
        return 3

    async def describe_failure(self, error: Exception, process: WorkerProcess | None) -> str:
        return str(error)

    def remove_socket(self) -> None:
        pass


class Owner:
    """A conversation that always wants a worker; `endings` is what it was told of those that ended."""

    is_idle = needs_worker = True

    def __init__(self) -> None:
        self.endings: list[tuple[str, bool]] = []
        self.woken = asyncio.Semaphore(0)

    def on_log_grown(self, end: LogEnd) -> None:
        pass

    def on_answer(self, answer: WorkerAnswer) -> None:
        pass

    def on_worker_woken(self) -> None:
        self.woken.release()

    def on_worker_ended(self, why: str, crashed: bool) -> None:
        self.endings.append((why, crashed))

    def on_worker_changed(self) -> None:
        pass


def made(folder: Path, owner: Owner, launcher: Launcher, starts: WorkerStarts) -> ServedWorker:
    log = FollowedLog(str(folder), ServeCounts(), lambda: None, time.monotonic)
    return ServedWorker(owner, cast(WorkerLauncher, launcher), log, starts)


def freely() -> WorkerStarts:
    return WorkerStarts(5, time.monotonic, lambda: None)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 10))


def test_a_worker_that_dies_while_it_is_being_connected_is_replaced(tmp_path: Path) -> None:
    def on_connect(number: int, connection: WorkerConnection) -> None:
        connection.data_received(READY)
        if number == 1:
            connection.connection_lost(None)

    async def test() -> None:
        owner, launcher = Owner(), Launcher(on_connect)
        worker = made(tmp_path, owner, launcher, freely())
        await worker.ensure_awake()
        await owner.woken.acquire()
        await owner.woken.acquire()
        assert worker.state == "awake"
        assert launcher.forks == ["", "it ended with exit code 3"]
        assert [crashed for _, crashed in owner.endings] == [True]

    run(test())


def test_a_worker_that_is_needed_stays_awake_unless_it_is_forced(tmp_path: Path) -> None:
    async def test() -> None:
        owner, launcher = Owner(), Launcher(lambda number, connection: connection.data_received(READY))
        worker = made(tmp_path, owner, launcher, freely())
        await worker.ensure_awake()
        assert not await worker.sleep(forced=False)
        assert (worker.state, owner.endings) == ("awake", [])
        stopping = asyncio.ensure_future(worker.sleep(forced=True))
        await asyncio.sleep(0)
        assert launcher.connection is not None
        launcher.connection.connection_lost(None)
        assert await stopping
        assert (worker.state, worker.pid, worker.is_present) == ("asleep", None, False)
        assert owner.endings == [("The agent was stopped before it answered", False)]

    run(test())


def test_a_worker_is_awaited_by_one_caller_as_by_several(tmp_path: Path) -> None:
    async def test() -> None:
        may_be_ready = asyncio.Event()

        async def get_ready(connection: WorkerConnection) -> None:
            await may_be_ready.wait()
            connection.data_received(READY)

        tasks: list[asyncio.Task[None]] = []
        launcher = Launcher(lambda number, connection: tasks.append(asyncio.ensure_future(get_ready(connection))))
        worker = made(tmp_path, Owner(), launcher, freely())
        assert not worker.is_awaited
        callers = [asyncio.ensure_future(worker.ensure_awake())]
        await asyncio.sleep(0)
        assert worker.is_awaited
        callers.append(asyncio.ensure_future(worker.ensure_awake()))
        await asyncio.sleep(0)
        assert worker.is_awaited
        may_be_ready.set()
        await asyncio.gather(*callers, *tasks)
        assert not worker.is_awaited

    run(test())


def test_no_worker_is_started_once_that_is_forbidden(tmp_path: Path) -> None:
    async def test() -> None:
        starts = freely()
        worker = made(tmp_path, Owner(), Launcher(lambda number, connection: None), starts)
        starts.forbid("This conversation was deleted")
        with pytest.raises(StartupError, match="was deleted"):
            await worker.ensure_awake()
        assert worker.state == "asleep"

    run(test())
