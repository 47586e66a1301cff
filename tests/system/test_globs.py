from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.system.globs import matcher
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
        ("[", ["["], ["a"]),
        ("*a*b*c*", ["xaxbxcx", "abc"], ["acb"]),
    ],
)
def test_globs_match_what_they_say(pattern: str, matching: list[str], other: list[str]) -> None:
    matches = matcher(pattern)
    assert [path for path in matching if not matches(path)] == []
    assert [path for path in other if matches(path)] == []


def test_a_glob_made_to_hang_does_not() -> None:
    before = time.monotonic()
    for pattern in ("*a" * 400 + "b", "**/*a*/" * 100 + "b", "{a,b}" * 8, "[a-" * 300):
        matcher(pattern)("a/" * 2000 + "a" * 200)
    assert time.monotonic() - before < 5
    with pytest.raises(ToolFailed, match="alternatives"):
        matcher("{a,b}" * 20)
    with pytest.raises(ToolFailed, match="1000"):
        matcher("*" * 1001)


@given(st.text(alphabet="ab*?[]{},!\\/-", min_size=1, max_size=20), st.text(alphabet="ab/", max_size=12))
def test_no_glob_breaks_the_matcher(pattern: str, path: str) -> None:
    with contextlib.suppress(ToolFailed):
        matcher(pattern)(path)
