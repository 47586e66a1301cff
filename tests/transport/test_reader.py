"""Input from a pipe, a file or a socket: the same frames, one delivery at a time, and an end."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pigeon.transport.reader import CHUNK, Frame, Framing, Reader


class Deliveries:
    """Takes what a reader delivers: at once, or only when the test says so."""

    def __init__(self, descriptor: int, at_once: bool = True) -> None:
        self.frames: list[Frame] = []
        self.count = 0
        self.ends = 0
        self.ended = asyncio.Event()
        self.threads: set[str] = set()
        self._at_once = at_once
        self._news = asyncio.Event()
        self._handled: asyncio.Future[None] | None = None
        Reader(descriptor, Framing(), self._on_frames, self._end).start()

    def _on_frames(self, frames: list[Frame]) -> Awaitable[None] | None:
        self.count += 1
        self.frames += frames
        self.threads = {thread.name for thread in threading.enumerate()}
        self._news.set()
        if self._at_once:
            return None
        self._handled = asyncio.get_running_loop().create_future()
        return self._handled

    def _end(self) -> None:
        self.ends += 1
        self.ended.set()

    async def next(self) -> None:
        """Wait for the next delivery."""
        await self._news.wait()
        self._news.clear()

    def finish_delivery(self) -> None:
        """The last delivery has been dealt with."""
        assert self._handled is not None
        self._handled.set_result(None)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    source, sink = os.pipe()
    yield source, sink
    for descriptor in (source, sink):
        with suppress(OSError):
            os.close(descriptor)


async def test_lines_of_a_pipe_come_as_they_are_written(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    got = Deliveries(source)
    os.write(sink, b"one\ntw")
    await got.next()
    assert got.frames == [b"one"]
    os.write(sink, b"o\nthree")
    await got.next()
    assert got.frames == [b"one", b"two"]
    os.close(sink)
    await got.ended.wait()
    assert got.frames == [b"one", b"two", b"three"]


async def test_half_a_line_is_not_delivered(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    got = Deliveries(source)
    for piece in (b"ha", b"lf", b"\n"):
        os.write(sink, piece)
        await some_turns()
    assert (got.frames, got.count) == ([b"half"], 1)


async def test_a_pipe_needs_no_thread_and_stays_as_the_host_made_it(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    got = Deliveries(source)
    os.write(sink, b"x\n")
    await got.next()
    assert "pigeon-reader" not in got.threads
    assert os.get_blocking(source)


async def test_nothing_is_read_ahead_of_what_was_taken(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    got = Deliveries(source, at_once=False)
    os.write(sink, b"one\n")
    await got.next()
    os.write(sink, b"two\n")
    await some_turns()
    assert (got.frames, select_ready(source)) == ([b"one"], True)
    got.finish_delivery()
    await got.next()
    assert got.frames == [b"one", b"two"]
    os.close(sink)
    await some_turns()
    assert not got.ended.is_set()
    got.finish_delivery()
    await got.next()
    got.finish_delivery()
    await got.ended.wait()


async def test_the_end_comes_once_and_after_what_was_left_is_taken(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    got = Deliveries(source, at_once=False)
    os.write(sink, b"last")
    os.close(sink)
    await got.next()
    assert got.frames == [b"last"]
    await some_turns()
    assert not got.ended.is_set()
    got.finish_delivery()
    await got.ended.wait()
    await some_turns()
    assert (got.count, got.ends) == (1, 1)


async def test_a_pipe_that_the_host_made_non_blocking_is_waited_for(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    os.set_blocking(source, False)
    got = Deliveries(source)
    os.write(sink, b"one\n")
    await got.next()
    assert got.frames == [b"one"]


async def test_bytes_that_another_reader_took_first_are_no_end(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    os.set_blocking(source, False)
    other = os.dup(source)
    readers = [Deliveries(source), Deliveries(other)]
    os.write(sink, b"one\n")  # both are told that there is something to read
    await some_turns()
    assert [frame for got in readers for frame in got.frames] == [b"one"]
    assert not any(got.ended.is_set() for got in readers)
    os.close(sink)
    for got in readers:
        await got.ended.wait()
    os.close(other)


async def test_a_connection_that_breaks_is_an_end() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        got = Deliveries(ours.fileno())
        theirs.send(b"one\n")
        await got.next()
        ours.send(b"unread")
        theirs.close()  # with bytes that were not read: a reset
        await got.ended.wait()
        assert got.frames == [b"one"]


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_file_is_read_to_its_end_chunk_by_chunk(tmp_path: Path, at_once: bool) -> None:
    lines = [b"%d" % number * 100 for number in range(5_000)]
    (tmp_path / "input").write_bytes(b"\n".join(lines))
    with open_descriptor(tmp_path / "input") as file:
        got = Deliveries(file, at_once)
        while not at_once and got.frames != lines:
            await got.next()
            await some_turns()
            assert os.lseek(file, 0, os.SEEK_CUR) <= got.count * CHUNK
            got.finish_delivery()
        await got.ended.wait()
        assert got.frames == lines
        assert got.count > len(b"\n".join(lines)) // CHUNK
        assert got.ends == 1
    assert "pigeon-reader" in got.threads


async def test_an_empty_file_is_just_an_end(tmp_path: Path) -> None:
    (tmp_path / "input").touch()
    with open_descriptor(tmp_path / "input") as file:
        got = Deliveries(file)
        await got.ended.wait()
        assert (got.frames, got.count) == ([], 1)


async def test_a_descriptor_that_cannot_be_read_is_an_end(tmp_path: Path) -> None:
    with open_descriptor(tmp_path / "input", os.O_WRONLY | os.O_CREAT) as file:
        got = Deliveries(file)
        await got.ended.wait()
        assert got.frames == []


@pytest.mark.leaves_running
@pytest.mark.parametrize("taken", [True, False])
def test_a_loop_that_is_gone_lets_the_thread_go(tmp_path: Path, taken: bool) -> None:
    (tmp_path / "input").write_bytes(b"x\n" * 100_000)
    with open_descriptor(tmp_path / "input") as file:

        async def briefly() -> None:
            got = Deliveries(file, at_once=False)
            await got.next()
            if taken:
                got.finish_delivery()

        asyncio.run(briefly())
        for thread in threading.enumerate():
            if thread.name == "pigeon-reader":
                thread.join(30)
                assert not thread.is_alive()


@contextmanager
def open_descriptor(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    descriptor = os.open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def some_turns() -> None:
    """Let the loop look at its descriptors a few times."""
    for _ in range(10):
        await asyncio.sleep(0)


def select_ready(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
