"""No pattern of a schema holds up the process, and both engines agree on what a pattern matches."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema_rs import RegexOptions, ValidationError, validator_for

from pigeon.agent.arguments import validate_arguments
from pigeon.agent.output_schema import OutputSchema
from pigeon.agent.schema_patterns import CheckTooLong, PatternSearches
from pigeon.system.expressions import EcmaExpression
from pigeon.wire.errors import Refusal, ToolFailed

MOST_SECONDS = 5.0  # a busy machine counts several times the seconds of a quiet one; without a limit it is 10 and more
NASTY = [
    r"(?!.*foo)bar",
    r"(?=.*[A-Z])(?=.*\d).{8,}",
    r"(?=a+$)b",
    r"(?=(a|aa)+$)b",
    r"(?:(?=a)a)+b",
    r"(?<=a*)b|(?<!a+)c",
    r"(a+)+$",
    r"^(a|aa)+$",
    r"(a*)*\1c",
    r"(.*)\1\1z",
    r"(?:[ab]{1,500}|[ab]{500}a)+$Z",
    r"[ab]*a[ab]{900}c",
    r"(.{0,1000})c",
    r"((a{100}){100}){100}",
    r"(?=((a{0,99}){0,99}){0,99}$)b",
    "(?=x)" * 1_900,
    "a|b" * 3_000,
    "(" * 3_000 + ")" * 3_000,
    "(?=a)" + "b" * 20_000,
]
TEXTS = {
    "long": ["a" * 60_000],
    "longest": ["ab" * 250_000],
    "many": [f"{'a' * 60}{number}" for number in range(20_000)],
    "some": [f"{'a' * 600}{number}" for number in range(200)],
}
PLACES: dict[str, Any] = {
    "pattern": lambda pattern: {"x": {"items": {"pattern": pattern}}},
    "pattern in a union": lambda pattern: {"x": {"items": {"anyOf": [{"pattern": pattern}, {"pattern": "^c"}]}}},
    "pattern in not": lambda pattern: {"x": {"items": {"not": {"pattern": pattern}}}},
    "many patterns": lambda pattern: {"x": {"items": {"allOf": [{"pattern": f"{pattern}|{n}"} for n in range(10)]}}},
    "names": lambda pattern: {"y": {"patternProperties": {pattern: {"minimum": 1}}, "additionalProperties": False}},
    "other names": lambda pattern: {
        "y": {"allOf": [{"patternProperties": {pattern: True, "^c": True}}], "unevaluatedProperties": False}
    },
    "names that are checked": lambda pattern: {"y": {"propertyNames": {"pattern": pattern}}},
    "format": lambda _: {"x": {"items": {"anyOf": [{"format": name} for name in FORMATS]}}},
}
FORMATS = ["date", "time", "date-time", "email", "uri", "url", "ipv4", "ipv6", "uuid", "regex", "hostname"]
PIECES = [
    "a",
    "b",
    "[ab]",
    r"\w",
    ".",
    "(?:a|aa)",
    "(a*)",
    "(?=.*c)",
    "(?!a*c)",
    "(?<=a*)",
    r"\1",
    "(?=(a+)+$)",
    "^",
    "$",
]
QUANTIFIERS = ["", "*", "+", "?", "{2,}", "{0,40}", "{30}", "*?"]


def seconds_of(check: Callable[[], object]) -> float:
    """What a check takes of the processor; a refusal is one of its results."""
    began = time.process_time()
    with contextlib.suppress(Refusal, ToolFailed, CheckTooLong):
        check()
    return time.process_time() - began


def check_everywhere(properties: dict[str, Any], texts: list[str]) -> None:
    schema, value = {"properties": properties}, {"x": texts, "y": dict.fromkeys(texts, 1)}
    assert seconds_of(lambda: validate_arguments("t", schema, value)) < MOST_SECONDS
    assert seconds_of(lambda: OutputSchema(schema).validate_value(value)) < MOST_SECONDS


@pytest.mark.parametrize("pattern", NASTY)
def test_searches_for_a_pattern_end_in_a_moment(pattern: str) -> None:
    for texts in TEXTS.values():
        searches = PatternSearches()
        assert seconds_of(lambda searches=searches, texts=texts: [searches.is_match(pattern, t) for t in texts]) < 3


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("texts", ["long", "some"])
def test_no_place_of_a_pattern_holds_up_the_process(place: str, texts: str) -> None:
    for pattern in (r"(?=.*[A-Z])(?=.*\d).{8,}", r"(?:(?=a)a)+b", "(a+)+$", "(?:[ab]{1,500}|[ab]{500}a)+$Z"):
        check_everywhere(PLACES[place](pattern), TEXTS[texts])


@pytest.mark.parametrize("text", [":" * 200_000 + "x", "1" * 200_000, "a@" * 100_000, "a:" * 100_000])
def test_no_format_holds_up_the_process(text: str) -> None:
    for name in FORMATS:
        check_everywhere({"x": {"items": {"format": name}}}, [text])


@st.composite
def patterns(draw: st.DrawFn) -> str:
    def group_of(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        part = st.tuples(inner, st.sampled_from(QUANTIFIERS)).map(lambda pair: f"({pair[0]}){pair[1]}")
        return st.lists(part, min_size=1, max_size=3).map("".join) | st.lists(inner, min_size=2, max_size=3).map(
            "|".join
        )

    return draw(st.recursive(st.sampled_from(PIECES), group_of, max_leaves=8)) + draw(st.sampled_from(["", "$", "c"]))


@settings(max_examples=30, deadline=None)
@given(patterns(), st.sampled_from(["a" * 30_000, "ab" * 5_000, "a" * 300 + "c"]))
def test_no_combination_of_quantifiers_and_looks_around_holds_up_the_process(pattern: str, text: str) -> None:
    properties = {**PLACES["pattern"](pattern), **PLACES["names"](pattern)}
    check_everywhere(properties, [text, f"{text}b", text[1:]])


SIGNS = [
    "a", "-", "é", "٣", "_", " ", ".", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\x61", r"\u0061", r"\u{61}", r"\cJ",
    r"\p{L}", r"\P{L}", r"\p{Lu}", r"\n", r"\-", r"\.", r"\/", r"\]", r"\\",
]  # fmt: skip
SETS = st.tuples(st.sampled_from(["[", "[^"]), st.lists(st.sampled_from([*SIGNS, "a-f"]), min_size=1, max_size=4)).map(
    lambda pair: f"{pair[0]}{''.join(pair[1])}]"
)
ATOMS = st.sampled_from([*SIGNS, "^", "$", r"\b", r"\B", "(?:a|b)", "(?<n>a)", "(?i:A)"]) | SETS
PLAIN_PATTERNS = st.lists(st.tuples(ATOMS, st.sampled_from(["", "*", "+?", "{1,2}"])), max_size=4).map(
    lambda pairs: "".join(map("".join, pairs))
)
CHARS = st.text(st.sampled_from("aAbf-é٣_ .\n\r\t\x1c\x85\xa0\u2028\ufeff/]\\0"), max_size=4)


@settings(max_examples=500)
@given(PLAIN_PATTERNS, CHARS)
@example(r"[\w-.]", "-")
@example(r"[.-\w]", ",")
@example("^a$", "a\n")
@example(r"^\s$", "\ufeff")
@example(r"^\d$", "٣")
def test_both_engines_agree_on_what_a_pattern_matches(pattern: str, text: str) -> None:
    try:
        linear = validator_for({"pattern": pattern}, pattern_options=RegexOptions(), offline=True)
    except ValidationError:
        return
    assert (EcmaExpression(pattern).search(text) is not None) is linear.is_valid(text)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (r"^(?=.*[A-Z])(?=.*\d).{8,}$", "Passw0rds", "passw0rds"),
        (r"^(?!-)[\w-]+$", "a-b", "-ab"),
        (r"^(?<quote>['\"]).*\k<quote>$", "'a'", "'a\""),
        (r"^(.)\1$", "aa", "ab"),
        (r"(?<!\d)\d{2}$", "a12", "112"),
        (r"(?=\d)..", "1a", "٣a"),
        (r"(?!b)^[^]$", "\n", ""),
        (r"(?=.)^\uD83D\uDE00$", "😀", "x"),
        (r"(?=.)^\u{1F600}[\b]\0$", "😀\b\0", "😀"),
        (r"(?=a)a$", "ba", "a\n"),
        (r"^(?=.)\p{Lu}", "É", "é"),
    ],
)
def test_patterns_with_looks_around_and_references_have_the_syntax_of_ecma(
    pattern: str, matching: str, other: str
) -> None:
    searches = PatternSearches()
    assert searches.is_match(pattern, matching)
    assert not searches.is_match(pattern, other)
    searches.raise_if_slow()


@pytest.mark.parametrize(
    "pattern", ["(", r"(?=a)\a", r"(?=a)\m", "(?=a)(?R)", "(?=a)(?>b)", r"(?=a)\uD83D", "a\\", r"\k<no>"]
)
def test_what_is_no_pattern_of_ecma_refuses_nothing_as_an_argument_and_is_no_output_schema(pattern: str) -> None:
    assert validate_arguments("t", {"properties": {"x": {"pattern": pattern}}}, {"x": "z"}) == {"x": "z"}
    with pytest.raises(Refusal, match=r"outputSchema\.properties\.x\.pattern: not a valid JSON Schema"):
        OutputSchema({"properties": {"x": {"pattern": pattern}}})


@pytest.mark.parametrize("pattern", [r"^x-", r"^(?!y)x-", r"^(x)-\1?"])
def test_names_are_checked_by_patterns_of_all_kinds(pattern: str) -> None:
    schema = {
        "patternProperties": {pattern: {"type": "integer"}, "^z": {"type": "null"}},
        "properties": {"a": {}},
        "additionalProperties": False,
    }
    good = {"x-1": 1, "x-~/é%": 2, "a": "b"}
    assert validate_arguments("t", schema, good) == good
    assert OutputSchema(schema).validate_value(good) == good
    for bad, reason in ({"x-1": "s"}, "x-1: expected integer"), ({"x-1": 1, "y": 1}, "y: unknown field"):
        with pytest.raises(ToolFailed, match=reason):
            validate_arguments("t", schema, bad)
        with pytest.raises(ToolFailed, match=reason):
            OutputSchema(schema).validate_value(bad)


def test_a_reference_may_lead_to_what_names_of_a_pattern_have() -> None:
    schema = {
        "patternProperties": {"^x": {"type": "integer"}},
        "properties": {"a": {"$ref": "#/patternProperties/%5Ex"}},
    }
    for value in ({"a": 1}, {"a": 1, "x": 2}):
        assert OutputSchema(schema).validate_value(value) == value
    with pytest.raises(ToolFailed, match="a: expected integer, got string"):
        OutputSchema(schema).validate_value({"a": "s", "x": 1})


def test_patterns_that_could_not_be_searched_for_are_refused_with_the_schema() -> None:
    with pytest.raises(Refusal, match="takes too long"):
        OutputSchema({"pattern": "a" * 10_001})


def test_thousands_of_wrong_names_are_listed_in_a_moment() -> None:
    names = {f"n{number}": "x" * 100 for number in range(3_000)}
    began = time.process_time()
    with pytest.raises(ToolFailed, match="n2999: invalid property name"):
        validate_arguments("t", {"propertyNames": {"maxLength": 1}}, names)
    assert time.process_time() - began < MOST_SECONDS
