"""JSON that is still arriving: tool arguments, character by character, in linear time, to a limited depth.

`GrowingJson` keeps the longest prefix that can be closed into valid JSON together with its closing text, so that a
snapshot (`dialects/snapshots.py`) costs no parsing. `parse_arguments` reads the finished text, repairing common
mistakes of models; `agent/answer.py` uses it.
"""

from __future__ import annotations

import re
from typing import Any

from pigeon.wire import codec
from pigeon.wire.errors import BadRecord

# Whole escapes belong to a run of plain text; atomic and of limited length, since backtracking would cost memory.
_PLAIN = re.compile(
    r'(?>(?:[^"\\\x00-\x1f\u2028\u2029]++|\\["\\/bfnrt]'
    r"|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}){1,1000})"
)
_RAW = re.compile(r"[\x00-\x1f\u2028\u2029]+")
_SPACE = " \t\r\n"
_SPACES = re.compile(r"[ \t\r\n]+")
_LITERAL = re.compile(r"[-+.0-9A-Za-z]+")
_VALID_LITERAL = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")
_HIGH_SURROGATE = re.compile(r"\\u[dD][89abAB]")
_CLOSERS = {"{": b"}", "[": b"]"}
_HEX = set("0123456789abcdefABCDEF")
_ESCAPES = set('"\\/bfnrt')
MOST_OPENED = 10_000  # lists and objects that are shown while they arrive
LONGEST_LITERAL = 400  # a number with a value is shorter


# The states of the automaton, one method `_in_<state>` each. "Done" is `comma` inside a container, `end` outside.
#
#   state    on                             next
#   value    { or [                         key or value, one level deeper
#            "                              string
#            letter, digit or sign          literal (only inside a container)
#            ] right behind its [           done, one level up
#   key      "                              string, which is a key
#            } with nothing pending         done, one level up
#   colon    :                              value
#   comma    ,                              key or value, by the container
#            } or ]                         done, one level up
#   string   anything but " and \           string
#            \                              escape
#            "                              colon behind a key, else done
#   escape   its last character             string
#            \u without four digits         string, as text
#   literal  a character that ends it       done, if it is a valid literal
#   end      white space                    end
#
# Any other character makes the text `broken`, and so does a level or a list too many, or a literal that does not end:
# the prefix stays as it is. What has been read goes to `pending` first and becomes part of the prefix (`_commit`) only
# at places where the prefix can be closed: a key without its value, a literal that may grow and half a surrogate pair
# wait there.


class GrowingJson:
    """The closable prefix of a growing JSON text."""

    def __init__(self) -> None:
        self._safe = bytearray()
        self._in_open_string = False
        self._opened = 0
        self._pending: list[str] = []
        self._stack: list[str] = []
        self._expect = "value"
        self._token = ""
        self._string_is_key = False
        self._broken = False

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text) and not self._broken:
            at = getattr(self, f"_in_{self._expect}")(text, at)

    def to_closed_json(self) -> bytes:
        """Valid JSON for everything that can be shown so far; `{}` before anything can."""
        if not self._safe:
            return b"{}"
        return bytes(self._safe) + self.suffix

    @property
    def is_complete(self) -> bool:
        """True if the text is one whole value, after repairs."""
        return self._expect == "end" and not self._broken

    @property
    def is_unfinished(self) -> bool:
        """True if more text could make it one whole value."""
        return self._expect != "end" and not self._broken

    @property
    def prefix(self) -> bytearray:
        """The final bytes; do not change them."""
        return self._safe

    @property
    def suffix(self) -> bytes:
        """The bytes that make the prefix valid JSON; `{}` while the prefix is empty."""
        if not self._safe:
            return b"{}"
        closers = b"".join(_CLOSERS[opener] for opener in reversed(self._stack))
        return b'"' + closers if self._in_open_string else closers

    # Each `_in_x` consumes text from `at` and returns where it stopped.

    def _in_value(self, text: str, at: int) -> int:
        char = text[at]
        if char in _SPACE:
            return _end_of_spaces(text, at)
        if char in "{[":
            self._opened += 1
            if len(self._stack) >= codec.MOST_LEVELS or self._opened > MOST_OPENED:
                self._broken = True
                return at + 1
            self._stack.append(char)
            self._pending.append(char)
            self._expect = "key" if char == "{" else "value"
            self._commit()
        elif char == "]" and self._stack and self._stack[-1] == "[" and self._has_just_opened():
            self._close_container(char)
        elif char == '"':
            self._pending.append(char)
            self._string_is_key = False
            self._expect = "string"
            self._commit()
        elif _LITERAL.match(char) and self._stack:
            self._token = ""
            self._expect = "literal"
            return at
        else:
            self._broken = True
        return at + 1

    def _has_just_opened(self) -> bool:
        return not self._pending and self._safe.endswith(b"[")

    def _in_key(self, text: str, at: int) -> int:
        char = text[at]
        if char in _SPACE:
            return _end_of_spaces(text, at)
        if char == '"':
            self._pending.append(char)
            self._string_is_key = True
            self._expect = "string"
        elif char == "}" and not self._pending:
            self._close_container(char)
        else:
            self._broken = True
        return at + 1

    def _in_colon(self, text: str, at: int) -> int:
        char = text[at]
        if char == ":":
            self._pending.append(char)
            self._expect = "value"
        elif char in _SPACE:
            return _end_of_spaces(text, at)
        else:
            self._broken = True
        return at + 1

    def _in_comma(self, text: str, at: int) -> int:
        char = text[at]
        if char in _SPACE:
            return _end_of_spaces(text, at)
        if char == "," and self._stack:
            self._pending.append(char)
            self._expect = "key" if self._stack[-1] == "{" else "value"
        elif self._stack and char == _CLOSERS[self._stack[-1]].decode():
            self._close_container(char)
        else:
            self._broken = True
        return at + 1

    def _in_string(self, text: str, at: int) -> int:
        run = _PLAIN.match(text, at)
        if run:
            self._append_text(run[0])
            return run.end()
        char = text[at]
        if char == '"':
            self._pending.append(char)
            if self._string_is_key:
                self._expect = "colon"
            else:
                self._end_value()
        elif char == "\\":
            self._token = char
            self._expect = "escape"
        else:
            raw = _RAW.match(text, at)
            assert raw is not None
            self._append_text("".join(f"\\u{ord(one):04x}" for one in raw[0]))
            return raw.end()
        return at + 1

    def _in_escape(self, text: str, at: int) -> int:
        if len(self._token) > 1 and text[at] not in _HEX:
            # A backslash that was not doubled, as in C:\users, is text, and so is what follows.
            self._token = "\\" + self._token
            self._end_escape()
            return at
        self._token += text[at]
        if len(self._token) == 2 and self._token[1] != "u":
            if self._token[1] not in _ESCAPES:
                self._token = "\\" + self._token
            self._end_escape()
        elif len(self._token) == 6:
            self._end_escape()
        return at + 1

    def _end_escape(self) -> None:
        self._expect = "string"
        if _HIGH_SURROGATE.match(self._token):
            self._pending.append(self._token)
        else:
            self._append_text(self._token)

    def _in_literal(self, text: str, at: int) -> int:
        run = _LITERAL.match(text, at)
        if run:
            self._token += run[0]
            self._broken = len(self._token) > LONGEST_LITERAL
            return run.end()
        if _VALID_LITERAL.fullmatch(self._token):
            self._pending.append(self._token)
            self._end_value()
        else:
            self._broken = True
        return at

    def _append_text(self, piece: str) -> None:
        self._pending.append(piece)
        if not self._string_is_key:
            self._commit()

    def _close_container(self, char: str) -> None:
        self._pending.append(char)
        self._stack.pop()
        self._end_value()

    def _end_value(self) -> None:
        self._expect = "comma" if self._stack else "end"
        self._commit()

    def _in_end(self, text: str, at: int) -> int:
        if text[at] in _SPACE:
            return _end_of_spaces(text, at)
        self._broken = True
        return at + 1

    def _commit(self) -> None:
        self._safe += "".join(self._pending).encode("utf-8", "replace")
        self._pending.clear()
        # The stack changes only where the prefix grows, so what closes the prefix can be made when it is asked for.
        self._in_open_string = self._expect == "string"


def _end_of_spaces(text: str, at: int) -> int:
    found = _SPACES.match(text, at)
    return at if found is None else found.end()


INCOMPLETE = "Tool arguments are not complete JSON, so part of them may be missing"
NO_OBJECT = "Tool arguments must be a JSON object"
LONGEST_SHOWN = 20_000


def parse_arguments(text: str, *, cut_off: bool = False) -> tuple[dict[str, Any], str | None]:
    """The arguments of a tool call, or `{}` and a description of the error, with the original text.

    If a call was cut off with its answer, and so is never run, the arguments are as complete as possible.
    """
    if not text.strip():
        return {}, None
    problem = codec.shape_error(text)
    if problem is not None:
        return {}, _describe_problem(f"The JSON of the tool arguments {problem}", text)
    try:
        value = codec.decode(text)
    except BadRecord as error:
        growing = GrowingJson()
        growing.feed(text)
        if not (growing.is_complete or cut_off):
            return {}, _describe_problem(f"{INCOMPLETE}: {error}" if growing.is_unfinished else str(error), text)
        try:
            value = codec.decode(growing.to_closed_json())
        except BadRecord:
            return {}, _describe_problem(str(error), text)
    if not isinstance(value, dict):
        return {}, _describe_problem(NO_OBJECT, text)
    return value, None


def _describe_problem(problem: str, text: str) -> str:
    """The error, and the text that was sent, so that the model can see its mistake."""
    left_out = len(text) - LONGEST_SHOWN
    shown = f"{text[:LONGEST_SHOWN]}\n[{left_out} more characters]" if left_out > 0 else text
    return f"{problem}\n\nReceived arguments:\n{shown}"
