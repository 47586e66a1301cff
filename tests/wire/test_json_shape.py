"""How deep and how large a structure may be that comes from outside, found out without decoding it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.wire import codec
from pigeon.wire.partial_json import GrowingJson, parse_arguments
from support.strategies import json_values, letters

values = json_values(letters('[]{}",:\\ab\n\u2028\ud83d', most=12), size=30)


def levels_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(levels_of, inner), default=0)


@given(values, st.integers(0, 6), st.booleans())
def test_a_text_is_refused_just_when_its_value_is_too_deep(value: Any, levels: int, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    assert (codec.shape_error(text, levels) is None) == (levels_of(value) <= levels)


@pytest.mark.parametrize("item", ["[]", "{}", "1", '""', '{"a":1}', "[1]"])
def test_a_text_of_very_many_values_is_refused(item: str) -> None:
    assert codec.shape_error(f"[{','.join([item] * 50)}]", values=200) is None
    assert codec.shape_error(f"[{','.join([item] * 500)}]", values=200) == "has more than 200 values"


def test_what_stands_in_strings_is_neither_depth_nor_number() -> None:
    assert codec.shape_error(json.dumps({"code": '[{",\\"' * 1000}), levels=3, values=10) is None


def test_arguments_too_deep_are_named_and_not_kept() -> None:
    assert parse_arguments('{"a":' * 199 + "[]" + "}" * 199)[1] is None
    arguments, problem = parse_arguments('{"a":' * 200 + "[]" + "}" * 200)
    assert arguments == {}
    assert (problem or "").startswith("The JSON of the tool arguments is nested more than 200 levels deep\n\nReceived ")


@pytest.mark.parametrize("unit", ["[", '{"a":', '[{"a":'])
def test_growing_arguments_stop_at_the_limit_of_levels(unit: str) -> None:
    growing = GrowingJson()
    growing.feed(unit * 500)
    shown = growing.to_closed_json()
    assert levels_of(codec.decode(shown)) <= codec.MOST_LEVELS
    growing.feed(unit * 500)
    assert growing.to_closed_json() == shown


def test_a_number_without_end_is_given_up() -> None:
    growing = GrowingJson()
    growing.feed('{"a":' + "1" * 500)
    growing.feed("}")
    assert not growing.is_complete
    assert parse_arguments('{"a":' + "1" * 500)[0] == {}
    assert parse_arguments('{"a":' + "1" * 500)[1]


@pytest.mark.parametrize("piece", ["\\n", "\\u0041", "\\ud83d\\ude00", " ", "\n", "x"])
@pytest.mark.parametrize("cut", [1, 3, 7, 1000])
def test_runs_of_anything_in_a_string_come_whole_wherever_they_are_cut(piece: str, cut: int) -> None:
    text = '{"a": "' + piece * 50 + '"}'
    growing = GrowingJson()
    for at in range(0, len(text), cut):
        growing.feed(text[at : at + cut])
    assert growing.is_complete
    assert codec.decode(growing.to_closed_json()) == json.loads(text, strict=False)


def test_so_many_lists_are_shown_while_they_arrive_and_no_more() -> None:
    growing = GrowingJson()
    growing.feed('{"a":[' + "{}," * 20_000)
    assert len(codec.decode(growing.to_closed_json())["a"]) < 10_000
    assert not growing.is_complete
