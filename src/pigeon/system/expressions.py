"""Regular expressions from rule files and from schemas of tools, searched with a limit on time.

The syntax is that of `re`, which checks it; the search is done by the `regex` package, which can be stopped. Additional
syntax of `regex` would change the meaning of some expressions, so these characters are escaped: `x{i}` is a text for
`re` and "nearly x" for `regex`, and `[[:a]` is a set with a bracket in it. `regex` also writes out every repetition
(`(a{1000}){1000}` takes a second, one more level all memory): expressions that grow too large are refused.

The time is that of the processor, not of the clock: a busy machine does not make an expression look slow.
"""

from __future__ import annotations

import re
from typing import Any

SECONDS = 0.05
LARGEST = 100_000
_TOKEN = (
    r"(?s)(?P<escape>\\N\{[^}]*\}|\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<group>[()])"
    r"|\{(?:(?P<least>\d+)(?:,\d*)?|,\d*)\}|(?P<brace>\{)|."
)
_IN_SET = r"(?s)(\\.)|\["


class Expression:
    """One expression; raises `ValueError` with a reason if it is invalid."""

    def __init__(self, text: str, multiline: bool = False) -> None:
        flags = re.MULTILINE if multiline else re.NOFLAG
        try:
            _compile_silently(re, text, flags)
            self._pattern: Any = _compile_expression(_escape_for_re(text), multiline)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(str(error)) from None

    def search(self, text: str, start: int = 0, seconds: float = SECONDS) -> tuple[int, int] | None:
        """The first match at or after `start`; raises `TimeoutError` if that takes too long to find out."""
        found = self._pattern.search(text, start, timeout=seconds)
        return None if found is None else found.span()


def _compile_expression(text: str, multiline: bool) -> Any:
    import regex

    try:
        return _compile_silently(regex, text, regex.VERSION0 | (regex.MULTILINE if multiline else 0))
    except regex.error as error:
        raise ValueError(str(error)) from None


def _compile_silently(module: Any, text: str, flags: int) -> Any:
    """Suppresses warnings of both packages about sets whose meaning may change: users cannot do anything about them."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return module.compile(text, flags)


def _escape_for_re(text: str) -> str:
    """The expression with characters escaped that only `regex` interprets; raises `ValueError` if it is too large."""
    parts: list[str] = []
    sizes = [0]  # of the open groups, with their repetitions written out
    last = 0
    for token in re.finditer(_TOKEN, text):
        sign, kind = token[0], token.lastgroup
        if kind == "set":
            sign = "[" + re.sub(_IN_SET, lambda found: found[1] or "\\[", sign[1:])
        elif kind == "brace":
            sign = "\\{"
        parts.append(sign)
        if sign == "(":
            sizes.append(0)
        elif sign == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        elif kind == "least":
            sizes[-1] += last * (int(token["least"]) - 1)
        elif kind != "group":
            last = 1
            sizes[-1] += 1
        if sizes[-1] > LARGEST:
            raise ValueError(f"its repetitions come to more than {LARGEST} characters")
    return "".join(parts)
