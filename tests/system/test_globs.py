from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fakes.clock import within
from pigeon.system import globs
from pigeon.system.globs import (
    Matcher,
    compile_any_text_glob,
    compile_find_glob,
    compile_grep_glob,
    compile_model_glob,
    compile_rule_glob,
    compile_text_glob,
)
from pigeon.wire.errors import ToolFailed


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*.py", ["a.py", "x/y/a.py"], ["a.pyc", "py"]),
        ("readme*", ["README.md", "readme"], ["xreadme"]),
        ("README*", ["README.md"], ["readme.md"]),
        ("a?c", ["abc", "x/abc"], ["ac", "abbc"]),
        ("[a-c]x", ["ax", "bx"], ["dx", "a/x"]),
        ("[!a-c]x", ["dx"], ["ax", "x"]),
        ("[]a]x", ["]x", "ax"], ["bx"]),
        ("*.{ts,tsx}", ["a.ts", "a.tsx"], ["a.t", "a.{ts,tsx}"]),
        ("{a,b{c,d}}.x", ["a.x", "bc.x", "bd.x"], ["b.x", "c.x"]),
        ("src/**/test_*.py", ["src/test_a.py", "src/x/y/test_b.py", "lib/src/test_c.py"], ["src/a.py", "test_a.py"]),
        ("src/*", ["src/a", "x/src/b"], ["src/a/b"]),
        ("**/x/**/y", ["x/y", "a/x/b/c/y"], ["x", "ax/y"]),
        ("a\\*b", ["a*b"], ["axb"]),
        ("a.b", ["a.b"], ["axb"]),
        ("\\[", ["["], ["a"]),
        ("x/[a/b]", ["x/[a/b]"], ["x/a", "x/b"]),
        ("*a*b*c*", ["xaxbxcx", "abc"], ["acb"]),
    ],
)
def test_globs_match_what_they_say(pattern: str, matching: list[str], other: list[str]) -> None:
    matches = compile_find_glob(pattern)
    assert [path for path in matching if not matches(path)] == []
    assert [path for path in other if matches(path)] == []


def test_a_glob_made_to_hang_does_not() -> None:
    with within(5):
        for pattern in ("*a" * 400 + "b", "**/*a*/" * 100 + "b", "{a,b}" * 8, "[-a" * 300 + "]"):
            compile_find_glob(pattern)("a/" * 2000 + "a" * 200)
    with pytest.raises(ToolFailed, match="alternatives"):
        compile_find_glob("{a,b}" * 20)
    with pytest.raises(ToolFailed, match="1000"):
        compile_find_glob("*" * 1001)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("[a", r"the \[ at character 1 has no \]"),
        ("src/*.[ch", r"the \[ at character 7 has no \]"),
        ("[!", r"has no \]"),
        ("[]", r"has no \]"),
        ("*.{py", "the { at character 3 has no }"),
        ("{a,{b}", "the { at character 1 has no }"),
        ("a}b", "the } at character 2 has no {"),
        ("[z-a]", "the range z-a runs backwards"),
        ("[!b-a]", "the range b-a runs backwards"),
        ("x\\", "nothing follows the backslash"),
    ],
)
def test_a_glob_that_makes_no_sense_is_an_error_that_says_why(pattern: str, reason: str) -> None:
    for matcher in (compile_find_glob, compile_grep_glob):
        with pytest.raises(ToolFailed, match=reason):
            matcher(pattern)


@example("[?-{-}]", "")
@example("[?-{a/,-}]", "")
@given(st.text(alphabet="ab*?[]{},!\\/-", min_size=1, max_size=20), st.text(alphabet="ab/", max_size=12))
def test_no_glob_breaks_the_matcher(pattern: str, path: str) -> None:
    with contextlib.suppress(ToolFailed):
        compile_find_glob(pattern)(path)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("src/*.py", ["src/a.py"], ["lib/src/a.py", "src/x/a.py", "SRC/a.py"]),
        ("/src/*.py", ["src/a.py"], ["x/src/a.py"]),
        ("./src/", ["src/a", "src/x/y"], ["src", "x/src/a"]),
        ("*.{py,ts}", ["a.py", "x/a.ts"], ["a.pyc"]),
        ("a/**/b", ["a/b", "a/x/y/b"], ["b", "x/a/b"]),
    ],
)
def test_globs_of_grep_begin_at_the_searched_directory(pattern: str, matching: list[str], other: list[str]) -> None:
    matches = compile_grep_glob(pattern)
    assert [path for path in matching if not matches(path)] == []
    assert [path for path in other if matches(path)] == []


def naive(pattern: str) -> re.Pattern[str]:
    """What a rule means, written down without a thought about time."""
    signs = {"/**": "(?:/.*)?", "**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(/\*\*\Z|(?:(?<=/)|(?<![^/]))\*\*/|\*\*+|\*|\?)", pattern)
    return re.compile("".join(signs.get(re.sub(r"\*\*+", "**", part), re.escape(part)) for part in parts), re.DOTALL)


names = st.lists(st.text(alphabet="ab[\n", min_size=1, max_size=3), min_size=1, max_size=5).map("/".join)


@settings(max_examples=500)
@given(st.lists(st.sampled_from(["a", "b", "/", "*", "?", "**", "/**/", "["]), min_size=1, max_size=8), names)
def test_rules_mean_what_they_say(signs: list[str], path: str) -> None:
    pattern = re.sub("/+", "/", "".join(signs))
    if pattern not in ("/", "/**") and not re.search(r"\*\*\*|[^/]\*\*/", pattern):
        assert compile_rule_glob(pattern)(path) is (naive(pattern).fullmatch(path) is not None)


@given(st.text(alphabet="ab*?[]!-/", max_size=10), st.text(alphabet="ab[]/\n", max_size=10))
def test_globs_of_texts_cross_slashes_and_know_classes_only_where_that_is_wanted(pattern: str, text: str) -> None:
    assert compile_text_glob(pattern)(text) is fnmatchcase(text, pattern)
    plain = "".join({"*": ".*", "?": "."}.get(sign, re.escape(sign)) for sign in pattern)
    assert compile_text_glob(pattern, classes=False)(text) is (re.fullmatch(plain, text, re.DOTALL) is not None)


@pytest.mark.parametrize(
    "make", [compile_find_glob, compile_grep_glob, compile_rule_glob, compile_model_glob, compile_text_glob]
)
@pytest.mark.parametrize("pattern", ["*a" * 9 + "b", "**a*a*b**a*c**a", "a**" * 9 + "b", "**/*a*/" * 9 + "b", "**a/**"])
def test_no_pattern_takes_more_time_than_the_text_is_long(make: Callable[[str], Matcher], pattern: str) -> None:
    began = time.process_time()
    for text in ("a" * 21_000, "a/" * 10_000 + "c", "ab/" * 7_000 + "a" * 3_000):
        make(pattern)(text)
    assert time.process_time() - began < 2


def test_braces_in_a_class_are_characters_of_it() -> None:
    matches = compile_find_glob("[{,}]x")
    assert [text for text in ("{x", ",x", "}x", "x", "[]x") if matches(text)] == ["{x", ",x", "}x"]


@pytest.mark.parametrize("compile_glob", [compile_rule_glob, compile_text_glob, compile_any_text_glob])
def test_the_patterns_of_a_thousand_rules_are_compiled_once(compile_glob: Any) -> None:
    def use_all() -> int:
        for number in range(1000):
            compile_glob(f"program{number} -* argument")
        return int(compile_glob.cache_info().misses)

    assert use_all() == use_all()


def test_a_text_pattern_whose_words_are_missing_needs_no_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    really_compile = globs._compile_any_text
    monkeypatch.setattr(globs, "_compile_any_text", lambda pattern: made.append(pattern) or really_compile(pattern))
    matches = compile_any_text_glob("never-compiled git push *")
    assert not matches("\0git pull\0\0make\0")
    assert made == []
    assert matches("\0make\0\0never-compiled git push --force\0")
    assert not matches("\0x never-compiled git push --force\0")
    assert made == ["never-compiled git push *"]
