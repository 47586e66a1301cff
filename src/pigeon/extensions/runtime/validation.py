"""What comes from an extension, made sure of before anybody else sees it: right types, plain JSON, no cycles."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct

from pigeon.wire import codec
from pigeon.wire.errors import BadRecord

_R = TypeVar("_R", bound=Struct)


def plain(value: Any, what: str) -> Any:
    """A copy of the value as plain JSON; raises `TypeError` that names it."""
    try:
        return codec.decode(codec.encode(value))
    except (TypeError, ValueError, RecursionError, BadRecord) as error:
        raise TypeError(f"{what} cannot be written as JSON: {error}") from None


def checked(record: _R) -> _R:
    """The record again, with every field of the type that it should have; raises `TypeError` that names the field."""
    kind = type(record)
    what = kind.__name__
    try:
        return codec.convert(plain(record, what), kind)
    except BadRecord as error:
        raise TypeError(f"{what}: {error}") from None
