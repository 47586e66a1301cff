"""One event of an answer as a record: at full speed while the server keeps to its API, with patience when it does not.

Only JSON that is broken, or a value that carries what the model said and cannot be read, breaks the stream. Any other
field with a null or a value of a wrong kind counts as left out.
"""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from pigeon.providers.errors import malformed
from pigeon.wire import codec
from pigeon.wire.errors import BadRecord

_T = TypeVar("_T")
_NOTHING = object()


def decoded(decoder: msgspec.json.Decoder[_T], kind: Any, data: bytes, what: str | bytes) -> _T:
    """One event as a record; a record names in `needed` those of its fields that are never passed over in silence.

    `what` is how to call it in an error: words, or the name of the event as it came.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        reason = str(error)
    try:
        value: _T = _record(kind, codec.decode(data))
    except msgspec.ValidationError as error:
        raise malformed(_called(what), f"{error} in {data[:120]!r}") from None
    except (BadRecord, UnicodeError, RecursionError):
        raise malformed(_called(what), f"{reason} in {data[:120]!r}") from None
    return value


def _called(what: str | bytes) -> str:
    return what if isinstance(what, str) else f"The event {what.decode('utf-8', 'replace') or '(unnamed)'}"


def _record(kind: Any, value: Any) -> Any:
    """Field by field, so that one of them cannot spoil the others."""
    if not isinstance(value, dict):
        raise msgspec.ValidationError("Expected an object")
    given: dict[str, Any] = {}
    for name, key, type_, needed in _fields(kind):
        if key not in value:
            continue
        found = _salvaged(type_, value[key])
        if found is not _NOTHING:
            given[name] = found
        elif needed and value[key]:
            raise msgspec.ValidationError(f"`{key}` has a value of a wrong kind")
    return kind(**given)


@cache
def _fields(kind: Any) -> list[tuple[str, str, Any, bool]]:
    needed = getattr(kind, "needed", ())
    return [(one.name, one.encode_name, one.type, one.name in needed) for one in msgspec.structs.fields(kind)]


def _salvaged(kind: Any, value: Any) -> Any:
    """As much of a value as can be read."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        pass
    for option in get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,):
        if isinstance(value, dict) and isinstance(option, type) and issubclass(option, Struct):
            return _record(option, value)
        if isinstance(value, list) and get_origin(option) is list:
            items = (_salvaged(get_args(option)[0], one) for one in value)
            return [item for item in items if item is not _NOTHING]
    return _NOTHING
