"""Reading the JSON files of the user's and the project's folders, the one way for all of them.

A byte order mark is tolerated, a pipe or a device is refused instead of waited for, and a file has a size that a person
could have written. `settings.json` and `trust.json` are plain JSON; `models.json` and `auth.json` may have comments and
trailing commas, because pi's may.
"""

from __future__ import annotations

import re
from typing import Any

from pigeon.system.files import read_whole
from pigeon.wire import codec
from pigeon.wire.errors import BadRecord

LARGEST = 64 << 20
# Nothing that was matched is given back, so that no row of comments can be read in more than one way.
_REMARK = rb"//[^\n\r]*+|(?>/\*.*?\*/)"
_COMMENT = rb'(?s)"(?:[^"\\]|\\.)*+"|%b|,(?=\s*+(?:(?:%b)\s*+)*+[}\]])' % (_REMARK, _REMARK)
_BOM = b"\xef\xbb\xbf"


def read_json(path: str) -> Any:
    """The value in a file; raises `OSError` and `BadRecord`."""
    return codec.decode(read_whole(path, LARGEST).removeprefix(_BOM))


def read_json_with_comments(path: str) -> Any:
    """The same for JSON that people write by hand; a file with nothing in it is an empty object."""
    return decode_with_comments(read_whole(path, LARGEST))


def decode_with_comments(data: bytes) -> Any:
    """A value from JSON with comments and trailing commas; raises `BadRecord`."""
    data = data.removeprefix(_BOM)
    if not data.strip():
        return {}
    try:
        return codec.decode(data)
    except BadRecord as error:
        plain = re.sub(_COMMENT, lambda found: found[0] if found[0][:1] == b'"' else b" ", data)
        if plain == data:
            raise BadRecord(f"not valid JSON: {error}") from None
    try:
        return codec.decode(plain)
    except BadRecord as error:
        raise BadRecord(f"not valid JSON: {error}") from None
