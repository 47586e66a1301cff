"""What the supervisor of `pigeon serve` reads from its workers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.rpc.worker_records import Alive, Logged, Needed, WorkerAnswer, decode_notice
from pigeon.wire import codec

KINDS = (Logged, Needed, Alive, WorkerAnswer)


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b'{"type":"of another release"}', b'{"type":"logged"}', b'{"type":"\xff"}', b"\xff\xfe"]
)
def test_what_is_no_notice_of_this_release_is_passed_over(line: bytes) -> None:
    assert decode_notice(line) is None


@given(st.binary(max_size=60), st.integers(0, 60))
def test_a_notice_that_was_damaged_on_its_way_is_another_or_none(noise: bytes, at: int) -> None:
    line = codec.encode(Needed())
    found = decode_notice(line[:at] + noise + line[at:])
    assert found is None or isinstance(found, KINDS)


def test_a_notice_comes_as_it_was_sent() -> None:
    assert decode_notice(codec.encode(Needed())) == Needed()
