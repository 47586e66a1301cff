"""YAML as oh-my-pi reads it: the values were recorded from Bun 1.4, whose parser it uses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.config import yaml_reading
from pigeon.config.yaml_reading import YamlError, decode_yaml
from pigeon.wire import codec
from pigeon.wire.errors import BadRecord


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1\na: 2", {"a": 2}),
        ("a: yes\nb: 012\nc: 1e3\nd: 0x10\ne: 0o14", {"a": "yes", "b": 12, "c": 1000, "d": 16, "e": 12}),
        ("e: 2001-01-01\nf: 1_000\nj: 12:30", {"e": "2001-01-01", "f": "1_000", "j": "12:30"}),
        ("g: .5\nh: ~\ni:", {"g": 0.5, "h": None, "i": None}),
        ("<<: {a: 1}\nb: 2", {"a": 1, "b": 2}),
        ("x: &a {p: 1}\ny: {<<: *a, q: 2}", {"x": {"p": 1}, "y": {"p": 1, "q": 2}}),
        ("", None),
        ("# nothing", None),
        ("- 1", [1]),
        ("1: x\n2.5: y\nnull: z", {"1": "x", "2.5": "y", "null": "z"}),
        ("\ufeffa: ü", {"a": "ü"}),
    ],
)  # fmt: skip
def test_words_and_numbers_are_what_they_are_there(text: str, value: Any) -> None:
    assert decode_yaml(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"a: 1\nb: [1,\n", 3),
        (b"a: 1\nb: c: d\n", 2),
        (b"a: 1\n\tb: 2\n", 2),
        (b"a: !foo 3\n", 1),
        (b"a: 1\n---\nb: 2\n", 2),
        (b"a: 1\nb: \xff\n", 2),
    ],
)
def test_an_error_says_where_it_is(text: bytes, line: int) -> None:
    with pytest.raises(YamlError, match=f"not valid YAML in line {line}: ") as raised:
        decode_yaml(text)
    assert raised.value.line == line


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]",
        "a: " + "[" * 5000,
        "\n".join(" " * depth + f"a{depth}:" for depth in range(3000)),
        "a: 1e999",
        "a: " + "9" * 5000,
        "a0: &a0 [1, 1]\n" + "\n".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)),
    ],
)
def test_what_would_take_all_memory_or_the_stack_is_refused(text: str) -> None:
    with pytest.raises(BadRecord, match="not valid YAML"):
        decode_yaml(text.encode())


@given(
    st.one_of(st.binary(max_size=80), st.text(alphabet="ab:-[]{}&*<!?|>#'\" \n\t019.~", max_size=60).map(str.encode))
)
def test_any_bytes_are_a_value_of_json_or_refused(data: bytes) -> None:
    try:
        value = decode_yaml(data)
    except BadRecord:
        return
    codec.encode(value)


def test_texts_with_long_lines_are_read_by_the_parser_that_has_a_guard() -> None:
    assert not yaml_reading._is_shallow_enough("a" * 2001)
    assert decode_yaml(("a: " + "b" * 3000).encode()) == {"a": "b" * 3000}
