from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.transport.writer import BATCH_BYTES, DIRECT_LIMIT, HARD_LIMIT, SOFT_LIMIT, LineQueue, Writer

MEBI = 1024 * 1024


class Pipe:
    """A pipe to a host that reads when it is told to."""

    def __init__(self) -> None:
        self.source, self.sink = os.pipe()
        self.broken = asyncio.Event()
        self.told = 0
        self.writer = Writer(self.sink, self._on_broken)

    def _on_broken(self) -> None:
        self.told += 1
        self.broken.set()

    async def read(self, size: int) -> bytes:
        """Exactly so many bytes, without holding up the loop."""
        return await asyncio.to_thread(self._read, size)

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            parts.append(os.read(self.source, min(size, MEBI)))
            size -= len(parts[-1]) or size
        return b"".join(parts)

    def hang_up(self) -> None:
        if self.source >= 0:
            os.close(self.source)
            self.source = -1


@pytest.fixture
async def pipe() -> AsyncIterator[Pipe]:
    made = Pipe()
    yield made
    made.hang_up()
    made.writer.close(5)
    os.close(made.sink)


async def test_a_short_line_is_there_when_put_returns(pipe: Pipe) -> None:
    os.set_blocking(pipe.source, False)
    pipe.writer.put((b'{"a":', b"1}", b"\n"))
    assert os.read(pipe.source, 100) == b'{"a":1}\n'


async def test_a_line_that_can_wait_goes_out_with_the_next(pipe: Pipe) -> None:
    os.set_blocking(pipe.source, False)
    pipe.writer.put((b"1\n",), can_wait=True)
    pipe.writer.put((b"2", b"\n"), can_wait=True)
    with pytest.raises(BlockingIOError):
        os.read(pipe.source, 100)
    pipe.writer.put((b"3\n",))
    assert os.read(pipe.source, 100) == b"1\n2\n3\n"


async def test_a_line_that_can_wait_goes_out_when_the_loop_comes_round(pipe: Pipe) -> None:
    os.set_blocking(pipe.source, False)
    pipe.writer.put((b"1\n",), can_wait=True)
    await asyncio.sleep(0)
    assert os.read(pipe.source, 100) == b"1\n"


async def test_a_line_apart_has_a_write_call_of_its_own(pipe: Pipe) -> None:
    os.set_blocking(pipe.source, False)
    pipe.writer.put((b"1\n",), can_wait=True)
    pipe.writer.put((b"2\n",), apart=True, can_wait=True)
    assert os.read(pipe.source, 100) == b"1\n"
    await asyncio.sleep(0)
    assert os.read(pipe.source, 100) == b"2\n"


async def test_lines_that_can_wait_are_written_before_the_end(pipe: Pipe) -> None:
    pipe.writer.put((b"1\n",), can_wait=True)
    assert pipe.writer.close(5)
    assert os.read(pipe.source, 100) == b"1\n"


@pytest.mark.parametrize("waits", [0b0000, 0b1111, 0b0101, 0b1010, 0b0011, 0b1100])
async def test_lines_that_can_wait_keep_their_place(pipe: Pipe, waits: int) -> None:
    sizes = [5, DIRECT_LIMIT - 3, 5, DIRECT_LIMIT + 1, 7, 70_000, 1, 2, 3, DIRECT_LIMIT, 9, 11] * 2
    lines = [bytes([65 + at]) * size + b"\n" for at, size in enumerate(sizes)]
    expected = b"".join(lines)
    reading = asyncio.ensure_future(pipe.read(len(expected)))
    for at, line in enumerate(lines):
        pipe.writer.put((line,), can_wait=bool(waits >> at % 4 & 1))
        if at % 5 == 0:
            await asyncio.sleep(0)
    assert await reading == expected


async def test_lines_of_all_sizes_arrive_in_order(pipe: Pipe) -> None:
    sizes = [1, DIRECT_LIMIT, 70_000, 3, DIRECT_LIMIT + 1, 0, 300_000, 2, 2, 200_000, 5] * 3
    lines = [bytes([65 + at % 26]) * size + b"\n" for at, size in enumerate(sizes)]
    expected = b"".join(lines)
    reading = asyncio.ensure_future(pipe.read(len(expected)))
    for line in lines:
        pipe.writer.put((line[:-1], line[-1:]))
        await pipe.writer.wait_for_room()
    assert await reading == expected


async def test_a_pipe_that_the_host_made_non_blocking_loses_nothing(pipe: Pipe) -> None:
    os.set_blocking(pipe.sink, False)
    lines = [bytes([65 + at]) * 200_000 + b"\n" for at in range(8)]
    for line in lines:
        pipe.writer.put((line,))
    expected = b"".join(lines)
    assert await pipe.read(len(expected)) == expected
    assert pipe.told == 0


async def test_more_buffers_than_one_call_takes_arrive_in_order(pipe: Pipe) -> None:
    blocker = b"x" * 200_000
    pipe.writer.put((blocker,))
    lines = [b"%d\n" % number for number in range(5000)]
    for line in lines:
        pipe.writer.put((line[:-1], b"\n"))
    expected = blocker + b"".join(lines)
    assert await pipe.read(len(expected)) == expected


async def test_a_host_that_stops_reading_makes_it_full_and_reading_on_makes_room(pipe: Pipe) -> None:
    line = b"x" * (MEBI // 4 - 1) + b"\n"
    count = 0
    while not pipe.writer.is_full:
        pipe.writer.put((line,))
        count += 1
    assert count * len(line) > SOFT_LIMIT
    assert not pipe.writer.is_overfull
    waiting = asyncio.ensure_future(pipe.writer.wait_for_room())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await pipe.read(count * len(line)) == line * count
    await waiting
    assert not pipe.writer.is_full
    pipe.writer.put((b"again\n",))
    assert await pipe.read(6) == b"again\n"


async def test_far_beyond_that_it_is_overfull_and_loses_nothing(pipe: Pipe) -> None:
    line = b"x" * (MEBI - 1) + b"\n"
    count = 0
    while not pipe.writer.is_overfull:
        pipe.writer.put((line,))
        count += 1
    assert count * len(line) > HARD_LIMIT
    assert await pipe.read(count * len(line)) == line * count
    await pipe.writer.wait_for_room()
    assert not pipe.writer.is_overfull


async def test_room_is_free_while_nothing_waits(pipe: Pipe) -> None:
    await asyncio.wait_for(pipe.writer.wait_for_room(), 30)
    assert (pipe.writer.is_full, pipe.writer.is_overfull) == (False, False)


@pytest.mark.parametrize("size", [5, 200_000])
async def test_a_host_that_hung_up_is_told_once(pipe: Pipe, size: int) -> None:
    pipe.hang_up()
    pipe.writer.put((b"x" * size,))
    await pipe.broken.wait()
    pipe.writer.put((b"more",))
    await asyncio.wait_for(pipe.writer.wait_for_room(), 30)
    assert pipe.writer.close(5) is False
    assert (pipe.told, pipe.writer.is_full) == (1, False)


async def test_waiting_for_room_ends_when_the_host_hangs_up(pipe: Pipe) -> None:
    while not pipe.writer.is_full:
        pipe.writer.put((b"x" * MEBI,))
    waiting = asyncio.ensure_future(pipe.writer.wait_for_room())
    await asyncio.sleep(0)
    pipe.hang_up()
    await asyncio.wait_for(waiting, 5)
    await pipe.broken.wait()
    assert (pipe.told, pipe.writer.is_full) == (1, False)


async def test_closing_writes_what_is_queued_and_takes_nothing_more(pipe: Pipe) -> None:
    line = b"x" * 300_000
    pipe.writer.put((line,))
    reading = asyncio.ensure_future(pipe.read(len(line)))
    assert await asyncio.to_thread(pipe.writer.close, 5) is True
    assert await reading == line
    pipe.writer.put((b"late",))
    os.set_blocking(pipe.source, False)
    with pytest.raises(BlockingIOError):
        os.read(pipe.source, 10)


async def test_closing_does_not_wait_for_ever_for_a_host_that_does_not_read(pipe: Pipe) -> None:
    pipe.writer.put((b"x" * 300_000,))
    assert pipe.writer.close(0) is False
    pipe.hang_up()
    await pipe.broken.wait()


async def test_a_line_that_stands_apart_begins_a_write_of_its_own() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        try:
            while True:
                ours.send(b"-" * 1000, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        writer = Writer(ours.fileno(), lambda: None)
        for line, apart in ((b"first", False), (b"a", False), (b"b", True), (b"c", False)):
            writer.put((line,), apart)
        packets: list[bytes] = []
        while b"".join(packets[-3:]) != b"firstabc" and b"".join(packets[-2:]) != b"firstabc":
            packets.append(await asyncio.to_thread(theirs.recv, 10_000))
        assert packets[-1] == b"bc"
        assert await asyncio.to_thread(writer.close, 5) is True


class HeldWrites:
    """Holds the writing thread before each of its write calls, and remembers what they were given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[int] = []
        self._came = threading.Semaphore(0)
        self._may_go = threading.Semaphore(0)
        self._real = os.writev
        monkeypatch.setattr(os, "writev", self._hold_write)

    def _hold_write(self, descriptor: int, buffers: list[bytes]) -> int:
        self.calls.append(sum(map(len, buffers)))
        self._came.release()
        self._may_go.acquire()
        return self._real(descriptor, buffers)

    async def came(self) -> None:
        """Wait until the thread stands before a write call."""
        await asyncio.to_thread(self._came.acquire)

    def release_writes(self, count: int = 1) -> None:
        self._may_go.release(count)


async def test_a_short_line_does_not_overtake_one_that_is_being_written(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = HeldWrites(monkeypatch)
    long = b"l" * (DIRECT_LIMIT + 1)
    pipe.writer.put((long,))
    await writes.came()
    pipe.writer.put((b"short\n",))
    writes.release_writes(2)
    assert await pipe.read(len(long) + 6) == long + b"short\n"


async def test_a_write_call_takes_little_more_than_a_batch_and_room_comes_late(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = HeldWrites(monkeypatch)
    line = b"x" * (SOFT_LIMIT * 3 // 8)
    pipe.writer.put((line,))
    await writes.came()
    for _ in range(8):
        pipe.writer.put((line,))
    waiting = asyncio.ensure_future(pipe.writer.wait_for_room())
    reading = asyncio.ensure_future(pipe.read(9 * len(line)))
    left = 8
    while left:
        # The next call is there: what came before it has been counted off.
        writes.release_writes()
        await writes.came()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert waiting.done() is (left * len(line) <= SOFT_LIMIT // 2)
        left -= min(left, 3)
    writes.release_writes()
    assert await reading == line * 9
    await waiting
    assert writes.calls[1:] == [3 * len(line), 3 * len(line), 2 * len(line)]
    assert BATCH_BYTES <= 3 * len(line) < BATCH_BYTES + len(line)


def test_a_loop_that_is_gone_does_not_hurt_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    hurt: list[object] = []
    monkeypatch.setattr(threading, "excepthook", hurt.append)

    async def briefly() -> Pipe:
        pipe = Pipe()
        while not pipe.writer.is_full:
            pipe.writer.put((b"x" * MEBI,))
        return pipe

    pipe = asyncio.run(briefly())
    pipe.hang_up()
    assert pipe.writer.close(10) is False
    os.close(pipe.sink)
    assert hurt == []


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=9), st.booleans()), max_size=30))
def test_batches_keep_the_order_and_a_line_that_is_apart_begins_one(lines: list[tuple[bytes, bool]]) -> None:
    queue = LineQueue()
    for line, apart in lines:
        queue.add([line], len(line), apart)
    batches = []
    while queue:
        batch, size = queue.pop_batch()
        assert queue.size >= size == sum(map(len, batch))
        queue.mark_written(size)
        batches.append(batch)
    assert queue.size == 0
    assert [line for batch in batches for line in batch] == [line for line, _ in lines]
    assert len(batches) == (1 + sum(apart for _, apart in lines[1:]) if lines else 0)
