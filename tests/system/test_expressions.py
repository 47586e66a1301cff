"""Expressions mean what they mean to `re`, and none takes long, whatever it is."""

from __future__ import annotations

import re
import time
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pigeon.system.expressions import Expression

SLOW = r"(a|aa)+\1b"


def span(text: str, subject: str) -> tuple[int, int] | None:
    return Expression(text).search(subject)


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("x{i}", "ax{i}"),
        ("x{i}", "ax"),
        ("foo(bar){e}", "foobar{e}"),
        ("foo(bar){e}", "fooba"),
        ("a{2x}", "aaa{2x}"),
        ("${i}", "$\n{i}"),
        ("a{,2}b", "aaab"),
        ("a{2,}b", "aaab"),
        ("a{}", "a{}"),
        ("[[:alpha:]]", "a]"),
        ("[[:alpha:]]", "z"),
        (r"[\[[{]+", "[{["),
        ("[]{]+", "]{"),
        (r"[^]\]]", "]x"),
        (r"\{e}", "{e}"),
        (r"\N{EM DASH}{2}", "\u2014\u2014"),
        ("(?i)straSSe", "STRASSE"),
        (r"(?P<q>['\"]).*?(?P=q)", "say 'it'"),
        ("(?x) a # {not\n b", "ab"),
        (r"(?<!b)a(?=c)", "ba ac"),
        ("a++b|a*+", "aab"),
    ],
)
def test_an_expression_matches_where_re_would_match(text: str, subject: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = re.search(text, subject)
    assert span(text, subject) == (wanted.span() if wanted else None)


@settings(max_examples=300)
@given(st.text(alphabet="ab{}[]()|*+?,1-^$.\\", max_size=10), st.text(alphabet="ab{}[]1,-", max_size=10))
def test_what_re_takes_is_taken_and_what_it_refuses_is_refused(text: str, subject: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wanted = re.search(text, subject)
        except re.error:
            with pytest.raises(ValueError, match=r".+"):
                Expression(text)
            return
    assert span(text, subject) == (wanted.span() if wanted else None)


def test_beginnings_of_lines_and_the_text_before_the_start_are_seen() -> None:
    lines = Expression("^b$", multiline=True)
    assert lines.search("a\nb\nc") == (2, 3)
    assert lines.search("ab", 1) is None
    assert Expression("^b").search("a\nb") is None
    assert Expression(r"(?<=a)b|\bc").search("abc", 1) == (1, 2)


def test_a_search_that_would_take_for_ever_is_stopped() -> None:
    began = time.process_time()
    with pytest.raises(TimeoutError):
        span(SLOW, "a" * 300)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("text", ["a{1000000000}", "((((a{100}){100}){100}){100})", "(ab){200000}", "[ab]{99999}c{9}"])
def test_an_expression_that_would_fill_the_memory_is_refused(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match="repetitions"):
        Expression(text)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("text", ["(", "a**", "[z-a]", "(?<=a+)b", r"\p{L}", r"(?R)", "(" * 5000 + ")" * 5000])
def test_what_is_no_expression_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Expression(text)
