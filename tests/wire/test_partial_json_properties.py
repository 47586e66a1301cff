from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.wire.partial_json import GrowingJson, parse_arguments
from support.strategies import json_objects, letters

OBJECTS = json_objects(letters('"\\/\u2028\b\f\n\r\t😀', most=12), size=20)
Style = tuple[int | None, bool]
STYLES = st.sampled_from([(None, True), (None, False), (2, True), (1, False)])


def write_json(value: Any, style: Style) -> str:
    indent, ascii_only = style
    return json.dumps(value, indent=indent, ensure_ascii=ascii_only)


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    return [text[start:end] for start, end in itertools.pairwise(places)]


@given(OBJECTS, STYLES, st.lists(st.integers(0, 10_000), max_size=40))
def test_every_step_can_be_closed_and_the_end_is_the_value(
    value: dict[str, Any], style: Style, cuts: list[int]
) -> None:
    growing = GrowingJson()
    for piece in pieces(write_json(value, style), cuts):
        growing.feed(piece)
        assert isinstance(json.loads(growing.to_closed_json()), dict)
    assert json.loads(growing.to_closed_json()) == value


@given(OBJECTS, STYLES)
def test_pieces_of_one_character_give_the_same_as_the_whole(value: dict[str, Any], style: Style) -> None:
    text = write_json(value, style)
    whole, single = GrowingJson(), GrowingJson()
    whole.feed(text)
    for char in text:
        single.feed(char)
    assert single.to_closed_json() == whole.to_closed_json()


@given(OBJECTS, STYLES, st.integers(0, 10_000))
def test_the_final_bytes_only_grow(value: dict[str, Any], style: Style, cut: int) -> None:
    text = write_json(value, style)
    at = cut % (len(text) + 1)
    growing = GrowingJson()
    growing.feed(text[:at])
    before = bytes(growing.prefix)
    assert before + growing.suffix == growing.to_closed_json()
    growing.feed(text[at:])
    assert bytes(growing.prefix).startswith(before)


@given(st.text())
def test_text_that_is_no_json_still_closes_and_never_raises(text: str) -> None:
    growing = GrowingJson()
    growing.feed(text)
    json.loads(growing.to_closed_json())
    assert isinstance(parse_arguments(text)[0], dict)


@given(OBJECTS, STYLES)
def test_finished_arguments_are_the_value(value: dict[str, Any], style: Style) -> None:
    assert parse_arguments(write_json(value, style)) == (value, None)


@given(OBJECTS, STYLES, st.integers(0, 10_000))
def test_cut_off_arguments_keep_what_was_complete(value: dict[str, Any], style: Style, cut: int) -> None:
    text = write_json(value, style)
    saved, problem = parse_arguments(text[: cut % (len(text) + 1)], cut_off=True)
    assert set(saved) <= set(value)
    assert problem is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        ("  ", {}),
        ("[1]", {}),
        ('{"a":"line\nbreak"}', {"a": "line\nbreak"}),
        ('{"a":"\\x"}', {"a": "\\x"}),
        ('{"path":"a.txt","content":"half', {"path": "a.txt", "content": "half"}),
        ('{"a":1,"b":', {"a": 1}),
        ('{"a":tru', {}),
        ('{"a":"\\ud83d\\ude00"}', {"a": "😀"}),
        ('{"a":"x\\ud83d', {"a": "x"}),
        (r'{"a":"C:\users\x"}', {"a": r"C:\users\x"}),
        (r'{"a":"\usepackage{b}","c":"\u12"}', {"a": r"\usepackage{b}", "c": r"\u12"}),
        (r'{"a":"\u00e9\uZ\n"}', {"a": "é\\uZ\n"}),
        (r'{"\user":"\u\u0041"}', {r"\user": r"\uA"}),
    ],
)
def test_what_models_get_wrong_is_repaired(text: str, value: dict[str, Any]) -> None:
    assert parse_arguments(text, cut_off=True)[0] == value


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ('{"a":1}', True),
        ('{"a":"line\nbreak"} ', True),
        ('{"a":1', False),
        ('{"a":"half', False),
        ('{"a":1}}', False),
        ("[1]", False),
        ("{]", False),
    ],
)
def test_arguments_are_complete_only_if_the_text_is_one_whole_object(text: str, complete: bool) -> None:
    assert (parse_arguments(text)[1] is None) is complete


def test_a_long_argument_costs_linear_time() -> None:
    growing = GrowingJson()
    growing.feed('{"content":"')
    for _ in range(200_000):
        growing.feed("x")
    growing.feed('"}')
    assert len(growing.to_closed_json()) == 200_000 + len('{"content":""}')
