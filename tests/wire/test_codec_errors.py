"""A line that is no command is refused with a sentence that names the field, the place and what would fit."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from pigeon.wire import codec, commands
from pigeon.wire.base import ABSENT
from pigeon.wire.errors import BadRecord, UnknownCommand
from pigeon.wire.open_work import EventHead, head_of


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, 'expected a JSON object with a "type", got null'),
        (True, 'expected a JSON object with a "type", got a boolean'),
        (1, 'expected a JSON object with a "type", got a number'),
        (1.5, 'expected a JSON object with a "type", got a number'),
        ("x", 'expected a JSON object with a "type", got a string'),
        ([], 'expected a JSON object with a "type", got an array'),
        ({}, 'the object has no "type"'),
        ({"type": {}}, '"type" must be a string, got an object'),
    ],
)
def test_what_is_no_command_at_all_is_named_by_its_kind(value: Any, reason: str) -> None:
    with pytest.raises(BadRecord) as refused:
        codec.command_of(value)
    assert str(refused.value) == reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, 'Missing or invalid field "message": it is required'),
        ({"message": 5}, 'Missing or invalid field "message": expected a string, got an integer'),
        (
            {"message": "x", "streamingBehavior": "later"},
            'Missing or invalid field "streamingBehavior": invalid enum value \'later\' (allowed: "followUp", "steer")',
        ),
        (
            {"message": "x", "images": [{}, {"type": "video"}]},
            'Missing or invalid field "images[1].type": invalid enum value \'video\' (allowed: "image")',
        ),
        ({"message": "x", "images": {}}, 'Missing or invalid field "images": expected array, got object'),
    ],
)
def test_a_field_that_does_not_fit_is_named_with_its_place(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRecord) as refused:
        codec.command_of({"type": "prompt", **fields})
    assert str(refused.value) == reason


def test_a_required_field_of_an_inner_record_is_named_with_its_place() -> None:
    with pytest.raises(BadRecord, match=r'"phases\[0\].name": it is required'):
        codec.command_of({"type": "set_todos", "phases": [{"tasks": []}]})


@pytest.mark.parametrize("given", ["true", 1, "yes"])
def test_no_value_is_converted_to_the_type_that_a_field_wants(given: Any) -> None:
    with pytest.raises(BadRecord, match='"enabled": expected true or false'):
        codec.command_of({"type": "set_auto_retry", "enabled": given})


def test_null_is_as_good_as_absent_and_unknown_keys_are_ignored() -> None:
    command = codec.command_of({"type": "prompt", "message": "x", "locale": None, "images": None, "colour": "red"})
    assert command == commands.Prompt(message="x")
    assert codec.command_of({"type": "get_state", "id": None}).id is ABSENT


@pytest.mark.parametrize(
    ("old", "kind"), [("reset", commands.NewSession), ("set_queue_mode", commands.SetSteeringMode)]
)
def test_older_names_of_commands_are_understood(old: str, kind: type[commands.Command]) -> None:
    assert isinstance(codec.command_of({"type": old, "mode": "all"}), kind)


def test_a_command_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownCommand, match="Unknown command: fly"):
        codec.command_of({"type": "fly"})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"type":', "Unexpected end of JSON input"),
        (b"{not json", "JSON is malformed: object keys must be strings (byte 1)"),
        (b"[NaN]", "JSON is malformed: invalid character (byte 1)"),
        (b'["\\ud800", NaN]', "NaN is not JSON"),
    ],
)
def test_what_is_wrong_with_json_is_said_in_words(data: bytes, reason: str) -> None:
    with pytest.raises(BadRecord) as refused:
        codec.decode(data)
    assert str(refused.value) == reason


def test_bytes_that_are_not_utf8_are_kept_as_replacement_characters() -> None:
    assert codec.decode(b'"a\xffb"') == "a\ufffdb"


def test_floats_become_integers_only_where_no_digit_is_invented() -> None:
    assert codec.encode(codec.decode("9007199254740991.0")) == b"9007199254740991"
    assert isinstance(codec.decode("9007199254740992.0"), float)


def test_numbers_that_json_does_not_have_are_null_with_and_without_lone_surrogates() -> None:
    numbers = [float("nan"), float("inf"), {"x": float("-inf")}, (1.5,)]
    assert codec.encode(numbers) == b'[null,null,{"x":null},[1.5]]'
    assert codec.encode(["\ud800", *numbers]) == b'["\\ud800",null,null,{"x":null},[1.5]]'


@pytest.mark.parametrize(
    "line",
    [
        r'{"type":"set_permissions","permissions":"\ud800"}',
        r'{"type":"set_auto_retry","enabled":"\ud800"}',
        r'{"type":"set_steering_mode","mode":"\ud800"}',
        r'{"type":"get_state","\ud800":1}',
    ],
)
def test_half_of_a_surrogate_pair_where_no_text_can_be_is_refused(line: str) -> None:
    with pytest.raises(BadRecord, match="half of a surrogate pair"):
        codec.command_of(codec.decode(line.encode()))


def test_a_type_that_cannot_be_remembered_is_prepared_each_time() -> None:
    odd = Annotated[list[int], []]
    for _ in range(2):
        codec.prepare_type(odd)
        assert codec.convert([1], odd) == [1]
    with pytest.raises(BadRecord):
        codec.convert(["x"], odd)


def test_what_is_nested_without_end_or_has_half_of_a_pair_as_a_key_is_no_record() -> None:
    value: Any = "x"
    for _ in range(200_000):
        value = [value]
    with pytest.raises(BadRecord):
        codec.convert({"type": "prompt", "message": value}, commands.Prompt)
    with pytest.raises(BadRecord):
        codec.convert({"type": "prompt", "message": "x", "\ud800": 1, "images": "\ud800"}, commands.Prompt)


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"7", b'{"type":7}', b'{"type":"\xff"}', b"\xff\xfe"])
def test_a_line_that_is_no_event_has_an_empty_head(line: bytes) -> None:
    assert head_of(line) == EventHead()
