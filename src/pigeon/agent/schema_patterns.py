"""Searches for the patterns of JSON Schemas: one check of a value gets a limit of time for all of them together.

The linear engine of `jsonschema-rs` cannot be interrupted and takes microseconds for each character if the pattern is
large; its engine for look-around is quadratic. So a search goes to the linear engine if the size of the pattern times
the length of the text allows no more than about 30 ms, and otherwise to `system/expressions`, which can be stopped.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import cache, lru_cache

from pigeon.system.expressions import EcmaExpression

SECONDS = 0.1
SECONDS_PER_SPELT = 2e-6  # for each character of names that the library gets in place of a pattern
LONGEST_PATTERN = 10_000
LONGEST_REASON = 200
LONGEST_KNOWN = 256
LONGEST_TEXT = 500_000  # a search is stopped after hundreds of looks ahead, each of which may read all of the text
MOST_WORK = 10**8  # bytes of the compiled pattern times characters of the text
LARGEST_LINEAR = 10**5
LARGEST_SPELT = 1 << 24


class CheckTooLong(Exception):
    """The value cannot be checked in the time that a check may take; the text says why."""


class PatternSearches:
    """What all searches of one check have found, and how much time is left for more."""

    def __init__(self) -> None:
        self._left = SECONDS
        self._known: dict[tuple[str, str], bool] = {}
        self._slow: str | None = None

    def raise_if_slow(self) -> None:
        """Raises `CheckTooLong` if a search did not come to its end."""
        if self._slow is not None:
            raise CheckTooLong(f"the pattern {self._slow[:LONGEST_REASON]} takes too long")

    def is_match(self, pattern: str, text: str) -> bool:
        """Whether a text matches; one that is no pattern matches all. `raise_if_slow` tells whether it is certain."""
        if len(text) > LONGEST_KNOWN:
            return self._search(pattern, text)
        if (pattern, text) not in self._known:
            self._known[pattern, text] = self._search(pattern, text)
        return self._known[pattern, text]

    def is_readable(self, pattern: str) -> bool:
        """Whether a text is a pattern that can be searched for."""
        if self._is_slow(pattern):
            return True
        _import_engines()
        began = time.thread_time()
        known = _linear_search(pattern, LARGEST_LINEAR) or _expression_of(pattern)
        self._spend(pattern, time.thread_time() - began)
        return known is not None

    def spell_out(self, pattern: str, names: set[str], number: int) -> str:
        """A pattern for the library that matches the same of the names; different for each number."""
        matching = [name for name in names if self.is_match(pattern, name)] if self.is_readable(pattern) else []
        if len(matching) in (0, len(names)):
            return f"(?<p{number}>)" if matching else f"$(?<p{number}>.)"
        self._spend(pattern, SECONDS_PER_SPELT * sum(map(len, matching)))
        if self._slow is not None:
            return f"(?<p{number}>)"
        spelt = "|".join(re.sub(r"\W", lambda sign: f"\\u{{{ord(sign[0]):x}}}", name) for name in matching)
        return f"^(?<p{number}>{spelt})$"

    def _search(self, pattern: str, text: str) -> bool:
        if self._is_slow(pattern):
            return False
        _import_engines()
        began = time.thread_time()
        try:
            return _search(pattern, text, self._left)
        except TimeoutError:
            self._slow = pattern
            return False
        finally:
            self._spend(pattern, time.thread_time() - began)

    def _is_slow(self, pattern: str) -> bool:
        if len(pattern) > LONGEST_PATTERN and self._slow is None:
            self._slow = pattern
        return self._slow is not None

    def _spend(self, pattern: str, seconds: float) -> None:
        self._left -= seconds
        if self._left <= 0 and self._slow is None:
            self._slow = pattern


def _search(pattern: str, text: str, seconds: float) -> bool:
    """Whether a text matches; raises `TimeoutError`."""
    size = min(MOST_WORK // 10 ** len(str(len(text))), LARGEST_LINEAR)
    search = _linear_search(pattern, size)
    if search is not None:
        return search(text)
    expression = _expression_of(pattern)
    if expression is not None and len(text) <= LONGEST_TEXT:
        return expression.search(text, seconds=seconds) is not None
    if expression is not None or _linear_search(pattern, LARGEST_LINEAR) is not None:
        raise TimeoutError
    return True


@cache
def _import_engines() -> None:
    """Import both engines, which on a busy machine takes longer than a check may take."""
    import jsonschema_rs  # noqa: F401
    import regex  # noqa: F401


@lru_cache(maxsize=64)
def _linear_search(pattern: str, size: int) -> Callable[[str], bool] | None:
    """The search for a pattern that the linear engine knows and that is not larger; None for others."""
    from jsonschema_rs import RegexOptions, ValidationError, validator_for

    try:
        return validator_for({"pattern": pattern}, pattern_options=RegexOptions(size, size), offline=True).is_valid
    except (ValidationError, ValueError):
        return None


@lru_cache(maxsize=64)
def _expression_of(pattern: str) -> EcmaExpression | None:
    try:
        return EcmaExpression(pattern)
    except ValueError:
        return None
