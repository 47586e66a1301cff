"""A worker's channel: events go to a log on disk before anybody hears of them, commands come over a socket."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pigeon.rpc import worker_link
from pigeon.rpc.worker_link import WorkerLink
from pigeon.rpc.worker_records import SLEEP
from pigeon.transport.event_log import EventLog, LogEnd
from pigeon.transport.reader import Frame

ALIVE = b'{"type":"alive"}\n'
NEEDED = b'{"type":"needed"}\n'


class FullLog(EventLog):
    """A log on a disk that can be full."""

    full = False

    def append(self, data: bytes, lines: int) -> LogEnd:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().append(data, lines)


class Worker:
    """A link with what stands around it, and the supervisor's end of its socket."""

    def __init__(self, folder: Path) -> None:
        self.log = FullLog(str(folder))
        # Without a path, which could be too long for a socket.
        self.path = f"\0pigeon-test-{uuid.uuid4().hex}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self.path)
        listener.listen(4)
        self.busy = False
        self.notes = 0
        self.left: list[int] = []
        self.taken: list[Frame] = []
        self.arrived = asyncio.Event()
        self.link = WorkerLink(listener, self.log, lambda: self.busy, self._note, 10_000)
        self.link.open(self._leave)
        self.link.start(self._on_frames, lambda: None)

    def _note(self) -> None:
        self.notes += 1

    def _leave(self, code: int) -> None:
        self.left.append(code)
        self.arrived.set()

    def _on_frames(self, frames: list[Frame]) -> None:
        self.taken += frames
        self.arrived.set()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self.path)


async def said_to(reader: asyncio.StreamReader) -> bytes:
    """The next line besides those that only say that the worker is alive; nothing when there will be none."""
    while (line := await asyncio.wait_for(reader.readline(), 20)) == ALIVE:
        pass
    return line


async def line_of(reader: asyncio.StreamReader) -> Any:
    return json.loads(await said_to(reader))


def run(test: Callable[[Worker], Awaitable[None]], folder: Path) -> None:
    async def run_with_limit() -> None:
        worker = Worker(folder)
        async with asyncio.timeout(40):
            await test(worker)
            worker.link.close(0)
            for _ in range(5):  # both ends of a connection notice that it is closed
                await asyncio.sleep(0)

    asyncio.run(run_with_limit())


def test_an_answer_comes_behind_the_notice_of_the_events_before_it(tmp_path: Path) -> None:
    async def test(worker: Worker) -> None:
        reader, writer = await worker.connect()
        assert await line_of(reader) == {"type": "logged", "segment": 1, "offset": 0, "pid": os.getpid(), "heard": 0}
        assert await reader.readline() == ALIVE
        worker.link.events.put([b'{"seq":1}', b"\n"])
        worker.link.events.put([b'{"seq":2}\n'])
        worker.link.answers.put([b'{"answer":1}\n'])
        assert (await line_of(reader))["offset"] == 20
        assert await line_of(reader) == {"answer": 1}
        assert worker.notes
        writer.close()

    run(test, tmp_path)


def test_a_supervisor_that_comes_back_hears_how_far_the_log_reaches(tmp_path: Path) -> None:
    async def test(worker: Worker) -> None:
        reader, writer = await worker.connect()
        await line_of(reader)
        writer.transport.abort()
        worker.link.events.put([b'{"seq":1}\n'])
        second, other = await worker.connect()
        assert (await line_of(second))["offset"] == 10
        third, another = await worker.connect()
        assert (await line_of(third))["offset"] == 10
        # The one before is taken for gone.
        assert await said_to(second) == b""
        other.close()
        another.close()

    run(test, tmp_path)


def test_commands_are_answered_while_the_disk_is_full_and_events_come_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_link, "PAUSE_SECONDS", 0.01)

    async def test(worker: Worker) -> None:
        reader, writer = await worker.connect()
        await line_of(reader)
        worker.log.full = True
        for number in range(1, 4):
            worker.link.events.put([b'{"seq":%d}\n' % number])
            worker.link.answers.put([b'{"answer":%d}\n' % number])
            assert await line_of(reader) == {"answer": number}
        assert worker.link.events.is_full
        waiting = asyncio.ensure_future(worker.link.events.wait_for_room())
        writer.write(SLEEP + b"\n")
        assert await said_to(reader) == NEEDED
        worker.log.full = False
        await waiting
        assert (await line_of(reader))["offset"] == 30
        assert worker.log.next_number == 4
        writer.close()

    run(test, tmp_path)


def test_a_worker_that_is_asked_to_sleep_goes_only_if_it_is_not_needed(tmp_path: Path) -> None:
    async def test(worker: Worker) -> None:
        reader, writer = await worker.connect()
        await line_of(reader)
        worker.busy = True
        writer.write(b'{"type":"get_state"}\n' + SLEEP + b"\n")
        assert await said_to(reader) == NEEDED
        assert worker.taken == [b'{"type":"get_state"}']
        assert not worker.left
        worker.busy = False
        worker.arrived.clear()
        writer.write(SLEEP + b"\n")
        await worker.arrived.wait()
        assert worker.left == [143]
        writer.close()

    run(test, tmp_path)


@pytest.mark.parametrize("busy", [False, True])
async def test_a_worker_without_a_supervisor_ends_once_it_has_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    monkeypatch.setattr(worker_link, "LINGER_SECONDS", 0.02)
    monkeypatch.setattr(worker_link, "LONGEST_LINGER", 0.3 if busy else 3600.0)
    began = asyncio.get_running_loop().time()
    worker = Worker(tmp_path)
    worker.busy = busy
    await asyncio.wait_for(worker.arrived.wait(), 20)
    assert worker.left == [143]
    assert asyncio.get_running_loop().time() - began >= (0.3 if busy else 0.02)
    worker.link.close(1)


async def test_a_worker_with_a_supervisor_never_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_link, "LINGER_SECONDS", 0.01)
    monkeypatch.setattr(worker_link, "LONGEST_LINGER", 0.02)
    worker = Worker(tmp_path)
    reader, writer = await worker.connect()
    assert (await line_of(reader))["type"] == "logged"
    for _ in range(5):
        checked = asyncio.Event()
        asyncio.get_running_loop().call_later(0.02, checked.set)
        await checked.wait()
    assert worker.left == []
    writer.close()
    await asyncio.wait_for(worker.arrived.wait(), 20)
    assert worker.left == [143]
    worker.link.close(1)
