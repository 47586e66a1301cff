"""Regular expressions from rule files and from schemas of tools, searched with a limit on time.

The syntax is that of `re`, which checks it; the search is done by the `regex` package, which can be stopped. Additional
syntax of `regex` would change the meaning of some expressions, so these characters are escaped: `x{i}` is a text for
`re` and "nearly x" for `regex`, and `[[:a]` is a set with a bracket in it. `regex` also writes out every repetition
(`(a{1000}){1000}` takes a second, one more level all memory): expressions that grow too large are refused.

The time is that of the processor, not of the clock: a busy machine does not make an expression look slow.

Patterns of JSON Schema have the syntax of ECMA-262 instead; they are rewritten for `regex` sign by sign.
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
_ECMA_TOKEN = (
    r"(?s)\\u(?P<high>[dD][89abAB][\da-fA-F]{2})\\u(?P<low>[dD][c-fC-F][\da-fA-F]{2})"
    r"|\\(?:u\{(?P<long>[\da-fA-F]{1,6})\}|[ux](?P<code>(?<=u)[\da-fA-F]{4}|(?<=x)[\da-fA-F]{2}))"
    r"|\\c(?P<control>[A-Za-z])|\\(?P<class>[dDwWsS]|[pP](?:[A-Z]|\{[\w=]+\}))|\\k(?P<name><\w+>)"
    r"|\\(?P<escaped>.)|(?P<set>\[(?:\^?\])?)|(?P<dash>-(?=\\[dDwWsSpP]))"
    r"|\(\?(?:[:=!]|<[=!]|P?<(?=\w)|i[:)])|(?P<unknown>\(\?|\\)|."
)
_ECMA_SPACES = "\t-\r\x20\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_ECMA_NO_SPACES = (
    "\0-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff"
    "\u3001-\ufefe\uff00-\U0010ffff"
)
_ECMA_CLASSES = {
    "d": "0-9", "D": "\0-/:-\U0010ffff", "w": "0-9A-Z_a-z", "W": "\0-/:-@\\[-\\^`{-\U0010ffff",
    "s": _ECMA_SPACES, "S": _ECMA_NO_SPACES,
}  # fmt: skip


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


class EcmaExpression(Expression):
    """One expression in the syntax of ECMA-262; raises `ValueError` with a reason if it is none."""

    def __init__(self, text: str) -> None:
        try:
            self._pattern = _compile_expression(_escape_for_re(_to_regex_syntax(text)), multiline=False)
        except (OverflowError, RecursionError) as error:
            raise ValueError(str(error)) from None


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


def _to_regex_syntax(text: str) -> str:
    """An expression of ECMA-262 as `regex` writes it; raises `ValueError` for what the standard does not know."""
    parts: list[str] = []
    is_in_set = is_after_class = False
    start, has_negated_class = 0, False  # of the set that is read
    for token in re.finditer(_ECMA_TOKEN, text):
        sign, kind = token[0], token.lastgroup
        if kind == "unknown" and not is_in_set:
            raise ValueError(f"unknown sign {sign}")
        if sign[0] == "\\":
            has_negated_class |= kind == "class" and token[kind][0].isupper()
            sign = _escape_to_regex_syntax(token, is_in_set)
        elif is_in_set:
            is_in_set = sign[-1] != "]"
            if not is_in_set and has_negated_class and parts[start + 1] == "^":
                # `regex` takes a set like [^\s\S] for any character.
                parts[start : start + 2], sign = ["(?:(?!["], "])(?s:.))"
            else:
                sign = "\\" + sign if sign[0] == "[" or kind == "dash" or (sign == "-" and is_after_class) else sign
        elif kind == "set":
            sign = {"[]": "(?!)", "[^]": "(?s:.)"}.get(sign, sign)
            is_in_set = sign == "["
            start, has_negated_class = len(parts), False
        elif sign == "$":
            sign = r"\Z"
        is_after_class = kind == "class"
        parts.append(sign)
    return "".join(parts)


def _escape_to_regex_syntax(token: re.Match[str], is_in_set: bool) -> str:
    kind = token.lastgroup or ""
    sign = token[kind]
    if kind in ("long", "code", "low", "control"):
        code = ord(sign.upper()) - ord("@") if kind == "control" else int(sign, 16)
        if kind == "low":
            code += (int(token["high"], 16) << 10) - (0xD800 << 10) - 0xDC00 + 0x10000
        if code in range(0xD800, 0xE000) or code > 0x10FFFF:
            raise ValueError(f"no character {token[0]}")
        return f"\\U{code:08x}"
    if kind == "class":
        signs = _ECMA_CLASSES.get(sign, token[0])
        return signs if is_in_set else f"[{signs}]"
    if kind == "name":
        return f"(?P={sign[1:-1]})"
    if sign == "0" or (sign == "b" and is_in_set):
        return "\\x00" if sign == "0" else "\\x08"
    if sign in "tnvfr" or (not is_in_set and (sign in "bB" or sign.isdecimal())):
        return token[0]
    if sign.isalnum():
        raise ValueError(f"unknown escape {token[0]}")
    return re.escape(sign)
