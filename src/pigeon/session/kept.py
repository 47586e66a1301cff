"""An entry as it is kept: its line of JSON as it stands in the file, and the record behind it once somebody asks.

Opening a long session must not parse it. A line is looked at just enough to place it in the tree; what we do not know
is carried along byte for byte.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from pigeon.wire import codec
from pigeon.wire.entries import Entry, MessageEntry
from pigeon.wire.messages import Message


class _MessageHead(msgspec.Struct):
    role: str = ""


class _Head(msgspec.Struct, rename="camel"):
    type: str
    id: str = ""
    parent_id: str | None = None
    timestamp: str = ""
    message: _MessageHead | msgspec.UnsetType = msgspec.UNSET


class _MessageOnly(msgspec.Struct):
    message: msgspec.Raw


_heads = msgspec.json.Decoder(_Head)
_messages = msgspec.json.Decoder(_MessageOnly)


@cache
def _entries() -> msgspec.json.Decoder[Entry]:
    """Made when the first entry is read: a new session never needs it."""
    return msgspec.json.Decoder(Entry)


class Kept:
    """One line of a session."""

    __slots__ = ("_entry", "_tried", "id", "parent_id", "raw", "role", "timestamp", "type")

    def __init__(self, raw: bytes, head: _Head, entry: Entry | None = None) -> None:
        self.raw = raw
        self.type = head.type
        self.id = head.id
        self.parent_id = head.parent_id
        self.timestamp = head.timestamp
        self.role = "" if isinstance(head.message, msgspec.UnsetType) else head.message.role
        self._entry = entry
        self._tried = entry is not None

    @property
    def entry(self) -> Entry | None:
        """The record; none for a type or a shape that we do not know."""
        if not self._tried:
            self._tried = True
            try:
                self._entry = _entries().decode(self.raw)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                self._entry = None
        return self._entry

    @property
    def message(self) -> Message | None:
        """The message of a message entry."""
        entry = self.entry if self.type == "message" else None
        return entry.message if isinstance(entry, MessageEntry) else None

    def raw_message(self) -> msgspec.Raw:
        """The message as it stands in the file."""
        return _messages.decode(self.raw).message

    def plain(self) -> Any:
        """The line as dicts and lists."""
        return codec.decode(self.raw)


def kept_from_line(raw: bytes) -> Kept | None:
    """A line of a file; none if it is no entry at all."""
    try:
        return Kept(raw, _heads.decode(raw))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def kept_from_entry(entry: Entry) -> Kept:
    """A new entry, encoded once for file and host."""
    role = entry.message.__struct_config__.tag if isinstance(entry, MessageEntry) else ""
    head = _Head(
        type=str(entry.__struct_config__.tag),
        id=entry.id,
        parent_id=entry.parent_id,
        timestamp=entry.timestamp,
        message=_MessageHead(str(role)) if role else msgspec.UNSET,
    )
    return Kept(codec.encode(entry), head, entry)
