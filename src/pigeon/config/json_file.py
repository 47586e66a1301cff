"""Reading the JSON files of the user's and the project's folders, the one way for all of them.

Comments and trailing commas are accepted, a byte order mark is tolerated, a pipe or a device is refused instead of
waited for, and a file has a size that a person could have written. Before such a file is rewritten, `has_comments`
returns whether that would lose comments.
"""

from __future__ import annotations

import os
import re
from typing import Any

from pigeon.system.file_view import LOCAL_FILES, FileView
from pigeon.system.files import read_whole
from pigeon.wire import codec
from pigeon.wire.errors import BadRecord

LARGEST = 8 << 20
# Without backtracking, and an unclosed comment reaches to the end: so every text has one reading, and each byte is
# examined a few times at most.
_REMARK = rb"//[^\n\r]*+|(?>/\*.*?(?:\*/|\Z))"
_COMMENT = rb'(?s)"(?>(?:[^"\\]++|\\.)*)(?:"|\\?\Z)|%b|,(?=\s*+(?>(?:(?:%b)\s*+)*)[}\]])' % (_REMARK, _REMARK)
_BOM = b"\xef\xbb\xbf"


def read_json(path: str, *, may_be_blank: bool = False, view: FileView = LOCAL_FILES) -> Any:
    """The value in a file; raises `OSError` and `BadRecord`."""
    return decode_with_comments(view.read(path, LARGEST), may_be_blank=may_be_blank)


def decode_with_comments(data: bytes, *, may_be_blank: bool = False) -> Any:
    """A value from JSON with comments and trailing commas; an empty object from nothing, if that is allowed.

    Raises `BadRecord`.
    """
    data = data.removeprefix(_BOM)
    if not data.strip():
        if may_be_blank:
            return {}
        raise BadRecord("the file is empty")
    try:
        return codec.decode(data)
    except BadRecord as error:
        plain = _without_comments(data)
        if plain == data:
            raise BadRecord(f"not valid JSON: {_with_line(str(error), data)}") from None
    try:
        return codec.decode(plain)
    except BadRecord as error:
        raise BadRecord(f"not valid JSON: {_with_line(str(error), plain)}") from None


def _with_line(reason: str, data: bytes) -> str:
    """The parser's reason with the place as editors show it."""
    if reason == codec.ENDED_EARLY:
        place = len(data.rstrip())
    else:
        found = re.search(r" \((byte|char) (\d+)\)", reason)
        if found is None:
            return reason
        place = int(found[2])
        if found[1] == "char":
            place = len(data.decode("utf-8", "replace")[:place].encode())
        reason = reason[: found.start()].removeprefix("JSON is malformed: ")
        reason = re.sub(r": line \d+ column \d+\Z", "", reason)
    before = data[:place]
    column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
    line = before.count(b"\n") + 1
    return f"line {line}, column {column}: {reason}"


def has_comments(path: str) -> bool:
    """Whether a readable file contains more than JSON: comments, or trailing commas."""
    data = read_whole(path, LARGEST)
    return _without_comments(data) != data


def find_repeated_key(path: str) -> str | None:
    """A key that occurs twice in one object of a readable file: only its last value counts."""
    data = read_whole(path, LARGEST).removeprefix(_BOM)
    if not data.strip():
        return None
    try:
        value = codec.decode(data)
    except BadRecord:
        data = _without_comments(data)
        value = codec.decode(data)
    # A text before a colon is a key. If there are as many as there are keys afterwards, usually none occurs twice.
    if len(re.findall(rb'"(?:[^"\\]|\\.)*"\s*:', data)) == _count_keys(value):
        return None
    import json

    found: list[str] = []

    def note_repeated(pairs: list[tuple[str, Any]]) -> None:
        keys = [key for key, _ in pairs]
        found.extend(key for at, key in enumerate(keys) if key in keys[:at])

    json.loads(data.decode("utf-8", "replace"), object_pairs_hook=note_repeated)
    return found[0] if found else None


def _count_keys(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_count_keys, value.values()))
    return sum(map(_count_keys, value)) if isinstance(value, list) else 0


def is_dangling_link(path: str, view: FileView = LOCAL_FILES) -> bool:
    """Whether a path does not exist because of a dangling link, which means that the file is missing by mistake."""
    while not view.lexists(path):
        above = os.path.dirname(path)
        if above == path:
            return False
        path = above
    return not view.exists(path)


def _without_comments(data: bytes) -> bytes:
    """The data with blanks instead of comments and trailing commas, so that each byte keeps its place."""
    return re.sub(_COMMENT, lambda found: found[0] if found[0][:1] == b'"' else re.sub(rb"[^\n]", b" ", found[0]), data)
