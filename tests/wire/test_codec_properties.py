from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pigeon.wire import codec
from pigeon.wire.errors import BadRecord, Refusal
from support.strategies import json_objects, json_values, letters, words

SPECIAL = '"\\\u2028\u2029\u0000\u0085\ufeff/'
VALUES = json_values(letters(SPECIAL), size=20)
ANY_VALUES = json_values(letters(SPECIAL + "\ud800\udfff", surrogates=True), size=20)
COMMANDS = json_objects(letters(SPECIAL), words("type", "id", "message"), size=20)


def decoded_or_reason(data: bytes) -> Any:
    try:
        return codec.decode(data)
    except BadRecord as error:
        return error


@given(VALUES)
def test_what_is_encoded_decodes_to_itself(value: Any) -> None:
    assert codec.decode(codec.encode(value)) == value


@given(ANY_VALUES)
@example("\ud800")
@example({"\udfff": "\u2028"})
@example("\U0001f600\ud83d")
def test_lone_surrogates_survive_both_ways(value: Any) -> None:
    raw = codec.encode(value)
    assert json.loads(raw) == value
    assert codec.decode(raw) == value


@given(ANY_VALUES)
def test_a_record_is_one_line_for_every_kind_of_reader(value: Any) -> None:
    raw = codec.encode(value)
    text = raw.decode("utf-8")
    assert "\n" not in text
    assert "\u2028" not in text
    assert "\u2029" not in text


@given(ANY_VALUES, st.booleans())
def test_standard_json_is_understood(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    data = text.encode("utf-8", "replace") if ascii_only else text.encode("utf-8", "surrogatepass")
    if ascii_only:
        assert codec.decode(data) == value
    else:
        codec.decode(data)


@given(st.binary())
@example(b"\xff\xfe")
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
@example(b"[1e999]")
@example(b"[NaN]")
@example(b"-Infinity")
@example(b'"\\ud800"')
@example(b"[" + b"9" * 5_000 + b"]")
@example(b"\xef\xbb\xbf{}")
def test_bytes_give_a_value_or_a_bad_record_and_nothing_else(data: bytes) -> None:
    found = decoded_or_reason(data)
    if not isinstance(found, BadRecord):
        codec.encode(found)


@given(st.one_of(ANY_VALUES, COMMANDS))
def test_any_value_is_a_command_or_a_refusal(value: Any) -> None:
    with suppress(Refusal):
        codec.command_of(value)


@pytest.mark.parametrize("digits", [19, 20, 40, 400, 4_000])
def test_huge_integers_are_read_or_refused_by_name(digits: int) -> None:
    data = b'{"id":' + b"7" * digits + b',"type":"get_state"}'
    found = decoded_or_reason(data)
    if not isinstance(found, BadRecord):
        assert codec.decode(codec.encode(found)) == found


@pytest.mark.parametrize("depth", [10, 500, 5_000, 200_000])
def test_deep_nesting_is_read_or_refused(depth: int) -> None:
    found = decoded_or_reason(b"[" * depth + b"]" * depth)
    assert isinstance(found, list) or "nested" in str(found)


@pytest.mark.parametrize("text", ["1.0", "-0.0", "1e3", "1E+2", "100.000"])
def test_integral_numbers_leave_without_a_fraction(text: str) -> None:
    raw = codec.encode(codec.decode(text))
    assert b"." not in raw
    assert float(raw) == float(text)
