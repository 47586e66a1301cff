"""The YAML head of a Markdown file."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.resources.front_matter import read_front_matter, text_of_key


def parts_of(text: str) -> tuple[dict[str, Any], str]:
    parts = read_front_matter(text)
    return parts.head, parts.body


def test_head_and_body_are_told_apart() -> None:
    assert parts_of("---\nname: x\n---\nbody\n---\nmore") == ({"name": "x"}, "body\n---\nmore")
    assert parts_of("\ufeff---\r\nname: x\r\n---\r\nbody\r\n") == ({"name": "x"}, "body\n")
    assert parts_of("--- \nname: x\n---  ") == ({"name": "x"}, "")
    assert parts_of("---\n---\nbody") == ({}, "body")


@pytest.mark.parametrize(
    "text", ["", "body", "---", "---\nname: x", "----\nname: x\n---\n", " ---\nname: x\n---\n", "a\n---\nb\n---\n"]
)
def test_a_text_without_a_head_is_all_body(text: str) -> None:
    parts = read_front_matter(text)
    assert (parts.head, parts.body, parts.problem) == ({}, text, None)


@pytest.mark.parametrize("head", ["", "\n", "# a remark alone\n", "null\n"])
def test_a_head_without_a_key_is_no_problem(head: str) -> None:
    assert parts_of(f"---\n{head}---\nbody") == ({}, "body")
    assert read_front_matter(f"---\n{head}---\nbody").problem is None


def test_a_fence_inside_of_a_value_is_not_the_end() -> None:
    assert parts_of("---\nname: a---b\ntext: ---c\n---\nbody")[0] == {"name": "a---b", "text": "---c"}


def test_only_true_and_false_are_truth_values_and_numbers_and_dates_are_texts() -> None:
    head, _ = parts_of("---\na: yes\nb: no\nc: on\nd: true\ne: False\nf: 2026-01-01\ng: 1.10\nh: 007\ni: 7\nj:\n---\n")
    assert head == {
        "a": "yes", "b": "no", "c": "on", "d": True, "e": False, "f": "2026-01-01", "g": "1.10", "h": "007", "i": "7",
        "j": None,
    }  # fmt: skip


def test_only_a_text_is_read_where_text_is_wanted() -> None:
    head = {"a": " x ", "b": "7", "c": True, "d": ["x"], "e": None}
    assert [text_of_key(head, key) for key in "abcdef"] == ["x", "7", "", "", "", ""]


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ("description: use: this", "line 2: mapping values are not allowed"),
        ("- a\n- b", "keys and values"),
        ("just text", "keys and values"),
        ("a: 'open", "line 2"),
        ("a: !!python/object/apply:os.system [id]", "tag"),
        ("[a]: b: c", "not valid YAML"),
        ("? [a]\n: b", "not valid YAML"),
        ("a: \x01", "not valid YAML"),
        ("x: " + "y" * 70_000, "longer than"),
    ],
)
def test_a_head_that_makes_no_sense_is_a_problem_and_the_body_is_still_there(head: str, problem: str) -> None:
    parts = read_front_matter(f"---\n{head}\n---\nbody")
    assert parts.head == {}
    assert parts.body == "body"
    assert parts.problem is not None
    assert problem in parts.problem
    assert "\n" not in parts.problem


@pytest.mark.parametrize(
    "deep",
    ["[" * 30_000, "{a: " * 15_000, "- " * 30_000, "? " * 30_000, "[" * 1_000, "[\n" * 30_000, "{\n" * 30_000],
)
def test_nesting_without_end_does_not_end_the_process(deep: str) -> None:
    assert read_front_matter(f"---\n{deep}\n---\nbody").head == {}


KEYS = st.from_regex(r"[a-z][a-z-]{0,10}", fullmatch=True).filter(lambda key: key not in ("null", "true", "false", "n"))
VALUES = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1)


@given(st.dictionaries(KEYS, VALUES), st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"])))
def test_what_was_quoted_comes_back(values: dict[str, str], body: str) -> None:
    lines = [f"{key}: '{value.replace(chr(39), chr(39) * 2)}'" for key, value in values.items()]
    head = "".join(f"{line}\n" for line in lines)
    parts = read_front_matter(f"---\n{head}---\n{body}")
    assert parts.problem is None
    assert parts.head == values
    assert parts.body == body


@given(st.text())
def test_any_head_is_read_or_reported(head: str) -> None:
    parts = read_front_matter(f"---\n{head}\n---\nbody")
    assert isinstance(parts.head, dict)
    assert parts.body.endswith("body")


@given(st.lists(st.sampled_from(list("[]{}-?:&*!|>'\"%@`#, \n\tab1")), max_size=60).map("".join))
def test_any_mixture_of_signs_is_read_or_reported(head: str) -> None:
    assert isinstance(read_front_matter(f"---\n{head}\n---\nbody").head, dict)
