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
from pigeon.wire.errors import BadRecord
from pigeon.wire.messages import Message

_BLOCKS = ("text", "image", "thinking", "toolCall")
_BAD = (msgspec.MsgspecError, ValueError, RecursionError)


class _MessageHead(msgspec.Struct, gc=False):
    role: str = ""


class _Head(msgspec.Struct, rename="camel", gc=False):
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
        self.role = head.message.role if head.message else ""
        self._entry = entry
        self._tried = entry is not None

    @property
    def entry(self) -> Entry | None:
        """The record; none for a type or a shape that we do not know."""
        if not self._tried:
            self._tried = True
            try:
                self._entry = _entries().decode(self.raw)
            except _BAD:
                self._entry = _second_look(self.raw)
        return self._entry

    @property
    def message(self) -> Message | None:
        """The message of a message entry."""
        entry = self.entry if self.type == "message" else None
        return entry.message if isinstance(entry, MessageEntry) else None

    def shown(self) -> msgspec.Raw:
        """The entry for a host: as it stands in the file, but always valid UTF-8."""
        return msgspec.Raw(_clean(self.raw))

    def shown_message(self) -> msgspec.Raw:
        """The message of a message entry, for a host."""
        try:
            return _messages.decode(_clean(self.raw)).message
        except _BAD:
            return msgspec.Raw(codec.encode(self.plain()["message"]))

    def plain(self) -> Any:
        """The line as dicts and lists."""
        return codec.decode(self.raw)


def kept_from_line(raw: bytes) -> Kept | None:
    """A line of a file; none if it is no entry at all."""
    try:
        head = _heads.decode(raw)
    except _BAD:
        found = _head_of(raw)
        if found is None:
            return None
        head = found
    return None if head.type == "session" else Kept(raw, head)


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


def _clean(raw: bytes) -> bytes:
    return raw if raw.isascii() else raw.decode("utf-8", "replace").encode()


def _head_of(raw: bytes) -> _Head | None:
    """The head of an entry of a shape that we do not know: it has its place in the tree all the same."""
    try:
        plain = codec.decode(raw)
    except BadRecord:
        return None
    if not isinstance(plain, dict) or not isinstance(plain.get("type"), str):
        return None
    message = plain.get("message")
    role = message.get("role") if isinstance(message, dict) else None
    return _Head(
        type=plain["type"],
        id=_word(plain.get("id")),
        parent_id=_word(plain.get("parentId")) or None,
        timestamp=_word(plain.get("timestamp")),
        message=_MessageHead(role) if isinstance(role, str) else msgspec.UNSET,
    )


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _second_look(raw: bytes) -> Entry | None:
    """The record of a line that another program wrote a little differently: half a character, nothing for content."""
    try:
        plain = codec.decode(raw)
        message = plain.get("message")
        if isinstance(message, dict):
            content = message.get("content")
            if content is None and message.get("role") != "bashExecution":
                message["content"] = []
            elif isinstance(content, list):
                message["content"] = [block for block in content if _is_known(block)]
        entry: Entry = codec.convert(plain, Entry)  # type: ignore[arg-type]
    except (BadRecord, AttributeError):
        return None
    return entry


def _is_known(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in _BLOCKS
