"""The log of events: numbered lines in files of bounded size, for one that appends and many that read."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.transport import event_log
from pigeon.transport.event_log import (
    EventLog,
    LogEnd,
    LogReader,
    lines_since,
    lock_log,
    lock_log_within,
    log_owner,
    segments_in,
)

BATCHES = st.lists(st.integers(1, 4), max_size=30)
LOCKING = """
import sys
from pigeon.transport.event_log import lock_log
lock_log(sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
"""


def line(number: int) -> bytes:
    return b'{"seq":%d,"text":"%s"}' % (number, b"x" * (number * 7 % 23))


def append(log: EventLog, count: int) -> LogEnd:
    first = log.next_number
    return log.append(b"".join(line(first + index) + b"\n" for index in range(count)), count)


def read_all(reader: LogReader, end: LogEnd, most: int = 40) -> list[bytes]:
    found: list[bytes] = []
    while lines := reader.read(end, most):
        found += lines
    return found


@contextmanager
def a_folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield folder


@given(BATCHES, st.integers(20, 200), st.integers(0, 130), st.integers(1, 100))
def test_a_reader_gets_every_line_behind_its_number_once_and_in_order(
    batches: list[int], segment_bytes: int, after: int, most: int
) -> None:
    with a_folder() as folder:
        log = EventLog(folder, segment_bytes, most_segments=1000)
        for count in batches:
            append(log, count)
        reader = LogReader(folder, after, log.end)
        last = log.next_number - 1
        assert reader.lost == (after > last)
        if not reader.lost:
            assert read_all(reader, log.end, most) == [line(number) for number in range(after + 1, last + 1)]
            assert reader.number == last
        reader.close()
        log.close()


@given(BATCHES, st.binary(max_size=30).filter(lambda half: b"\n" not in half), BATCHES)
def test_a_line_that_a_killed_process_has_half_written_is_cut_off(
    before: list[int], half: bytes, after: list[int]
) -> None:
    with a_folder() as folder:
        log = EventLog(folder, 100, 1000)
        for count in before:
            append(log, count)
        number = log.next_number
        log.close()
        with open(os.path.join(folder, f"{segments_in(folder)[-1]:020d}.jsonl"), "ab") as file:
            file.write(half)
        log = EventLog(folder, 100, 1000)
        assert log.next_number == number
        for count in after:
            append(log, count)
        reader = LogReader(folder, 0, log.end)
        assert read_all(reader, log.end) == [line(index) for index in range(1, log.next_number)]
        reader.close()
        log.close()


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=60), st.integers(1, 3))
def test_a_reader_that_is_overtaken_knows_that_it_has_lost_something(steps: list[tuple[int, bool]], kept: int) -> None:
    with a_folder() as folder:
        log = EventLog(folder, 60, kept)
        reader, expected = LogReader(folder, 0, log.end), 0
        for count, reads in steps:
            append(log, count)
            if not reads:
                continue
            while lines := reader.read(log.end, 50):
                first = reader.number - len(lines) + 1
                assert lines == [line(number) for number in range(first, reader.number + 1)]
                assert reader.lost or first == expected + 1
                expected = reader.number
            assert expected == log.next_number - 1
        reader.close()
        log.close()
        # A reader does not bring back a file that was removed.
        assert len(segments_in(folder)) <= kept


def test_a_number_that_is_too_old_or_was_never_there_is_lost(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path), 20, 2)
    for _ in range(10):
        append(log, 1)
    for after, lost in ((0, True), (3, True), (10, False), (11, True), (10**17, True)):
        reader = LogReader(str(tmp_path), after, log.end)
        assert reader.lost is lost, after
        reader.close()
    log.close()


def test_a_reader_stays_before_what_is_not_announced(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path), 50, 10)
    early = append(log, 1)
    reader = LogReader(str(tmp_path), 0, early)
    for _ in range(5):
        append(log, 2)
    assert reader.read(early) == [line(1)]
    assert reader.read(early) == []
    read_all(reader, log.end)
    # An end that lies behind the reader, in an earlier file.
    assert reader.read(early) == []
    reader.close()
    log.close()


def test_a_full_disk_leaves_no_half_lines_and_nothing_is_lost_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EventLog(str(tmp_path))
    append(log, 2)
    real, room = os.write, [5]

    def write(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken, room[0] = min(room[0], len(data)), 0
        return real(descriptor, bytes(data)[:taken])

    def no_cut(descriptor: int, length: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as failing:
        failing.setattr(event_log.os, "write", write)
        with pytest.raises(OSError, match="No space"):
            append(log, 3)
        # Not even what was half written can be taken away.
        failing.setattr(event_log.os, "ftruncate", no_cut)
        with pytest.raises(OSError, match="Input/output"):
            append(log, 3)
    assert log.next_number == 3
    append(log, 3)
    reader = LogReader(str(tmp_path), 0, log.end)
    assert read_all(reader, log.end) == [line(number) for number in range(1, 6)]
    reader.close()
    log.close()


def test_lines_since_a_mark_are_found_in_the_newest_file_that_has_it(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path), 10, 100)
    for text in (b"begin", b"a", b"settled 1", b"b", b"settled 2", b"c"):
        log.append(b"%-10s\n" % text, 1)
    assert lines_since(str(tmp_path), lambda line: line.startswith(b"settled"), log.end) == [
        (5, b"settled 2 "),
        (6, b"c         "),
    ]
    assert [number for number, _ in lines_since(str(tmp_path), lambda line: False, log.end)] == [1, 2, 3, 4, 5, 6]
    log.close()


def test_a_file_that_is_deleted_while_it_is_looked_for_ends_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EventLog(str(tmp_path), 10, 100)
    for text in (b"begin", b"a", b"b", b"c"):
        log.append(b"%-10s\n" % text, 1)
    segments = segments_in(str(tmp_path))
    assert len(segments) > 2
    monkeypatch.setattr(event_log, "segments_in", lambda folder: [*segments[:-2], segments[-2] + 1000, segments[-1]])
    end = LogEnd(segments[-1] + 2000, 0)
    found = lines_since(str(tmp_path), lambda line: False, end)
    assert [text for _, text in found] == [b"c         "], "what is older is gone, too"
    log.close()


def test_a_reader_whose_file_cannot_be_opened_is_an_error_and_holds_nothing(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path), 1000, 100)
    end = append(log, 2)
    log.close()
    (file,) = [path for path in tmp_path.iterdir() if path.stat().st_size]
    file.unlink()
    file.mkdir()
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="directory"):
        LogReader(str(tmp_path), 1, end).read(10)
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.leaves_open  # a lock belongs to its process
@pytest.mark.parametrize("ends", [True, False])
async def test_a_log_is_taken_over_from_a_process_that_ends_in_time(tmp_path: Path, ends: bool) -> None:
    folder = str(tmp_path)
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LOCKING, folder, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert other.stdout is not None
    assert await other.stdout.readline() == b"locked\n"
    if ends:
        asyncio.get_running_loop().call_later(0.1, other.kill)
        await lock_log_within(folder, 20)
    else:
        with pytest.raises(OSError, match="unavailable"):
            await lock_log_within(folder, 0.1)
        other.kill()
    await other.wait()


async def test_a_log_in_a_folder_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await asyncio.wait_for(lock_log_within(str(tmp_path / "gone"), 600), 10)


def test_one_process_alone_may_append_and_others_can_tell_which(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert log_owner(folder) is None
    other = subprocess.Popen(
        [sys.executable, "-c", LOCKING, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        assert log_owner(folder) == other.pid
        with pytest.raises(OSError, match="unavailable"):
            lock_log(folder)
        other.kill()
        other.wait()
    assert log_owner(folder) is None
