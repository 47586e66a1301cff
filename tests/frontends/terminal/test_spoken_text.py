"""Answers and changes in words, for the plain view and screen readers."""

from __future__ import annotations

import pytest

from pigeon.frontends.terminal.content.spoken import MOST_CHANGES, spoken_diff, spoken_markdown


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one\ntwo  \nthree", ["one two", "three"]),
        ("# Title", ["Heading: Title"]),
        ("- a\n- b\n  - c", ["- a", "- b", "- c"]),
        ("3. a\n4. b", ["3. a", "4. b"]),
        ("> said", ["Quote:", "said", "End of quote."]),
        ("```python\nx = 1\n\ny\n```", ["Code, python:", "x = 1", "", "y", "End of code."]),
        ("```\nx\n```", ["Code:", "x", "End of code."]),
        ("---", []),
        ("a `b` **c** [d](https://e.f) <https://g.h> ![i](j)", ["a b c d (https://e.f) https://g.h image i"]),
        ("<me@x.org> ![](j)", ["me@x.org image"]),
        ("| a | b | c |\n|-|-|-|\n| 1 | | 3 |", ["Table with 1 row:", "a: 1; c: 3", "End of table."]),
        ("| a | b |\n|-|-|\n| 1 | 2 |\n| 3 | |", ["Table with 2 rows:", "a: 1; b: 2", "a: 3", "End of table."]),
        ("| | b |\n|-|-|\n| 1 | 2 |", ["Table with 1 row:", "1: 2", "End of table."]),
        ("\x1b[31mred", ["red"]),
    ],
)
def test_markdown_is_read_in_words(text: str, lines: list[str]) -> None:
    assert spoken_markdown(text) == lines


def test_a_change_is_read_line_by_line_without_what_is_around_it() -> None:
    diff = " 1 same\n- 2 old\n+ 2 new\n+ 3\n     ..."
    assert spoken_diff(diff) == ["Removed line 2: old", "Added line 2: new", "Added line 3: blank"]


@pytest.mark.parametrize(("count", "rest"), [(MOST_CHANGES, []), (MOST_CHANGES + 1, ["And 1 more changed lines."])])
def test_of_a_long_change_the_rest_is_counted(count: int, rest: list[str]) -> None:
    lines = spoken_diff("\n".join(f"+ {number} x" for number in range(1, count + 1)))
    assert lines[MOST_CHANGES:] == rest
    assert lines[MOST_CHANGES - 1] == f"Added line {MOST_CHANGES}: x"
