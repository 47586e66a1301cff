"""A crash may end a file at any byte: it always opens, has every whole entry, and can be written on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pigeon.session.history.journal import INTERRUPTED
from pigeon.session.history.reading import has_unfinished_header, load_session
from pigeon.wire import codec
from support.sessions import NOW, RECORDED, DiskRepository, raw_entries, recorded_session_names, user


def whole_lines(raw: bytes) -> list[bytes]:
    """The lines that are complete: all that a program could have been told about, and a last one that only lacks LF."""
    *lines, last = raw.split(b"\n")
    try:
        codec.decode(last)
        lines.append(last)
    except codec.BadRecord:
        pass
    return lines


@pytest.mark.parametrize("name", recorded_session_names())
def test_a_file_cut_at_any_byte_loads_with_every_whole_entry(name: str, tmp_path: Path) -> None:
    raw = (RECORDED / name).read_bytes()
    path = tmp_path / name
    path.write_bytes(raw)
    for size in range(len(raw), -1, -1):
        os.truncate(path, size)
        whole = whole_lines(raw[:size])
        loaded = load_session(str(path))
        if not whole:
            assert loaded is None
            continue
        assert loaded is not None
        assert loaded.header_line == whole[0]
        assert [line.raw for line in loaded.lines] == whole[1:]
        assert loaded.needs_newline is (raw[size - 1 : size] != b"\n")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", recorded_session_names())
def test_a_file_cut_anywhere_is_written_on_and_stays_readable(name: str, tmp_path: Path) -> None:
    raw = (RECORDED / name).read_bytes()
    ends = [at for at, byte in enumerate(raw) if byte == 10]
    places = {place for end in ends for place in (end - 1, end, end + 1, end + 9)} | set(range(0, len(raw), 13))
    if os.environ.get("PIGEON_THOROUGH"):
        places = set(range(len(raw)))
    for size in sorted(places | set(range(ends[-3], len(raw)))):
        _cut_and_go_on(raw[:size], tmp_path / f"{size}.jsonl")


def test_a_file_cut_in_its_first_line_begins_anew(tmp_path: Path) -> None:
    header = (RECORDED / "pigeon.jsonl").read_bytes().split(b"\n")[0]
    for size in range(len(header)):
        _cut_and_go_on(header[:size], tmp_path / f"{size}.jsonl")


def _cut_and_go_on(raw: bytes, path: Path) -> None:
    path.write_bytes(raw)
    repository = DiskRepository(path.parent)
    whole = whole_lines(raw)
    journal = repository.open(str(path), "/")
    assert raw_entries(journal)[: len(whole) - 1] == whole[1:]
    repaired = [codec.decode(line) for line in raw_entries(journal)[len(whole[1:]) :]]
    assert all(entry["message"]["content"][0]["text"] == INTERRUPTED for entry in repaired)
    leaf = journal.leaf_id
    appended = journal.append_message(user("on we go"))
    assert appended.parent_id == leaf
    kept = raw_entries(journal)
    journal.close()
    for line in path.read_bytes().splitlines():
        if line not in raw:
            json.loads(line)
    again = repository.open(str(path), "/")
    assert raw_entries(again) == kept
    assert (again.leaf_id, again.session_id) == (appended.id, journal.session_id)
    again.close()
    assert repository.reports == []
    path.unlink()


def test_what_a_crash_left_of_a_first_line_is_told_from_another_kind_of_file() -> None:
    assert has_unfinished_header(b"")
    assert has_unfinished_header(b" \n\n")
    assert has_unfinished_header(b'{"type":"sess')
    assert has_unfinished_header(b'{"type":"session","version":3,"id":"01')
    assert not has_unfinished_header(b'{"type":"session","version":3}')
    assert not has_unfinished_header(b'{"type":"sess\n')
    assert not has_unfinished_header(b"# a page")
    assert not has_unfinished_header(b'{"type":"message"')


def test_a_call_that_a_crash_left_open_is_answered_on_record_and_once(tmp_path: Path) -> None:
    lines = (RECORDED / "pigeon.jsonl").read_bytes().split(b"\n")
    at = next(index for index, line in enumerate(lines) if b"toolu_a" in line)
    path = tmp_path / "cut.jsonl"
    for cut in (at + 1, at + 2):
        path.write_bytes(b"\n".join(lines[:cut]) + b"\n")
        for _ in range(2):
            journal = DiskRepository(tmp_path).open(str(path), "/")
            results = [line.message for line in journal.branch if line.role == "toolResult"]
            assert [result.tool_call_id for result in results] == ["toolu_a", "toolu_b"]
            assert results[-1].is_error
            assert results[-1].timestamp == NOW
            journal.close()
        assert path.read_bytes().count(INTERRUPTED.encode()) == 2 - (cut - at - 1)
