"""Files that are no recordings, or broken ones: each is refused with its name and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pigeon.providers.recording.reader import BadRecording, Recording

HEADER = {"kind": "recording", "version": 1, "seed": "00"}
AGENT = {"kind": "agent", "provider": "p", "model": "m", "models": []}
REQUEST = {"kind": "request", "exchange": 1, "url": "http://here/v1", "body": {"a": 1}}


def write_recording(path: Path, *lines: Any, end: str = "\n") -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + end)
    return path


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([""], "is not a recording: it is empty"),
        (['{"type":"session","id":"x"}'], "it is a session; `pigeon replay` plays those"),
        (['{"at":"2026","kind":"in"}'], "it is a trace"),
        (["hello there"], 'it begins with "hello there"'),
        ([{**HEADER, "version": 99, "pigeon": "9.0"}], "was recorded by a newer Pigeon (9.0)"),
        ([HEADER], "ends before its agent was put together"),
        ([HEADER, AGENT, "{nonsense"], ", line 3 cannot be read"),
        ([HEADER, AGENT, {"kind": "strange"}], ", line 3 cannot be read: Invalid value 'strange'"),
        ([HEADER, AGENT, {"kind": "request", "exchange": 1}], ", line 3 cannot be read: Object missing required field"),
        ([HEADER, AGENT, REQUEST, REQUEST], ", line 4 is a second request of exchange 1"),
        ([HEADER, AGENT, {"kind": "end", "exchange": 7}], ", line 3 belongs to exchange 7, whose request is missing"),
        ([HEADER, AGENT, REQUEST, {"kind": "received", "exchange": 1, "base64": "!!"}], ", line 4 cannot be read"),
        ([HEADER, AGENT, HEADER], ", line 3 begins another recording"),
    ],
)
def test_what_is_no_recording_is_refused_with_the_line(lines: list[Any], problem: str, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "some.recording", *lines)
    with pytest.raises(BadRecording) as refused:
        Recording(str(path))
    assert str(path) in str(refused.value)
    assert problem in str(refused.value)


def test_a_file_that_is_not_there_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRecording, match=r"gone cannot be read: No such file"):
        Recording(str(tmp_path / "gone"))
    with pytest.raises(BadRecording, match="cannot be read: illegal operation on a directory"):
        Recording(str(tmp_path))


def test_half_a_line_at_the_end_is_left_out(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "cut", HEADER, AGENT, REQUEST, '{"kind":"respon', end="")
    recording = Recording(str(path))
    assert [exchange.number for exchange in recording.exchanges] == [1]
    assert recording.exchanges[0].head is None
    recording.close()


def test_the_clock_goes_on_behind_its_last_reading(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "clock", HEADER, {"kind": "clock", "readings": [5, 9]}, AGENT)
    recording = Recording(str(path))
    assert [recording.next_clock_reading() for _ in range(4)] == [5, 9, 10, 11]
    recording.close()
