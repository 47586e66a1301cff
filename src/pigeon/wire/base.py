"""What every record shares: camelCase on the wire, and `ABSENT` for a key that is not there.

Absent and null are different things. An optional key defaults to `ABSENT` and is then left out; the few keys that the
documents show as null are typed with `None` explicitly.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin

from msgspec import UNSET, Struct, UnsetType

ABSENT = UNSET
Absent = UnsetType
Json = Any

_T = TypeVar("_T")


class Record(Struct, rename="camel"):
    """One JSON object of the protocol; of the fields in `member_features`, each is only shown to clients that have
    asked for its feature with `hello`. Those in `later_members` came after pi 0.73.1: not every dialect has them."""

    member_features: ClassVar[Mapping[str, str]] = MappingProxyType({})
    later_members: ClassVar[tuple[str, ...]] = ()


class Outgoing(Record):
    """Anything sent without a request. A session publishes all of it; the record declares which clients see it.

    `feature` is the feature of `hello` that shows it, `dialects` are those that have it: None for all. An `always_sent`
    record is never removed by an event filter.
    """

    feature: ClassVar[str | None] = None
    dialects: ClassVar[tuple[str, ...] | None] = None
    always_sent: ClassVar[bool] = True


class Intended:
    """Marks the type of a field whose accepted values differ from the intended ones, which are `hint`.

    Some fields accept anything, because their handlers word the refusal of invalid values. The schema and the pages
    show the intended type; decoding does not check it.
    """

    def __init__(self, hint: object) -> None:
        self.hint = hint


def intended_hint(hint: Any) -> tuple[Any, bool]:
    """The type that writers of a field should use, and whether it is intended rather than enforced."""
    if get_origin(hint) is not Annotated:
        return hint, False
    note = next((note for note in get_args(hint) if isinstance(note, Intended)), None)
    return (hint, False) if note is None else (note.hint, True)


def value_or_default(value: _T | UnsetType, default: _T) -> _T:
    """The value, or the default where the key is absent."""
    return default if isinstance(value, UnsetType) else value


def merge_objects(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """JSON objects merged key by key, at every depth; any other value of `over` replaces that of `base`."""
    out = dict(base)
    for key, value in over.items():
        below = out.get(key)
        out[key] = merge_objects(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return out
