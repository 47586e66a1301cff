"""An entry of a session as its line of JSON; the record is decoded when it is read for the first time.

Opening a long session must not parse it: a line is decoded just far enough to place it in the tree (`type`, `id`,
`parentId`, the role of a message). Entries of unknown types or shapes are carried along byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import msgspec

from pigeon.wire import codec
from pigeon.wire.entries import Entry, MessageEntry
from pigeon.wire.errors import BadRecord
from pigeon.wire.messages import Message

_BLOCKS = ("text", "image", "thinking", "toolCall")
_NAMES = {
    "parent_id": "parentId",
    "head": "message",
    **{name: f" {name}" for name in ("raw", "role", "known", "tried")},
}
_BAD = (msgspec.MsgspecError, ValueError, RecursionError)


class _MessageHead(msgspec.Struct, gc=False):
    role: str = ""


class _MessageOnly(msgspec.Struct):
    message: msgspec.Raw


_messages = msgspec.json.Decoder(_MessageOnly)


@cache
def _entry_decoder() -> msgspec.json.Decoder[Entry]:
    """Created with the first entry that is read: building this decoder is slow, and a new session never needs it."""
    codec.prepare_type(Entry)
    return msgspec.json.Decoder(Entry)


class EntryLine(msgspec.Struct, gc=False, eq=False, rename=_NAMES.get):
    """One line of a session, decoded from JSON into this class directly: a file may have tens of thousands of them.

    The fields with a space in their name (`_NAMES`) are never in a file; they hold what is filled in afterwards.
    """

    type: str
    id: str = ""
    parent_id: str | None = None
    timestamp: str = ""
    head: _MessageHead | msgspec.UnsetType = msgspec.UNSET
    raw: bytes = b""
    role: str = ""
    known: Any = None
    tried: bool = False

    @property
    def entry(self) -> Entry | None:
        """The record, or None for an unknown type or shape."""
        if not self.tried:
            self.known, self.tried = self.parse_uncached(), True
        return cast("Entry | None", self.known)

    def parse_uncached(self) -> Entry | None:
        """The record, without keeping it: for callers that look at each entry once."""
        if self.tried:
            return cast("Entry | None", self.known)
        try:
            return _entry_decoder().decode(self.raw)
        except _BAD:
            return _parse_leniently(self.raw)

    @property
    def message(self) -> Message | None:
        """The message of a message entry."""
        entry = self.entry if self.type == "message" else None
        return entry.message if isinstance(entry, MessageEntry) else None

    def to_host_json(self) -> msgspec.Raw:
        """The entry as it is in the file, but always valid UTF-8."""
        return msgspec.Raw(_to_valid_utf8(self.raw))

    def message_to_host_json(self) -> msgspec.Raw:
        """The message of a message entry, for a host."""
        try:
            return _messages.decode(_to_valid_utf8(self.raw)).message
        except _BAD:
            return msgspec.Raw(codec.encode(self.to_plain()["message"]))

    def to_plain(self) -> Any:
        """The line as dicts and lists."""
        return codec.decode_stored(self.raw)


_lines = msgspec.json.Decoder(EntryLine)


def line_from_bytes(raw: bytes) -> EntryLine | None:
    """A line of a file, or None if it is not an entry at all."""
    try:
        line = _lines.decode(raw)
    except _BAD:
        found = _parse_outline(raw)
        if found is None:
            return None
        line = found
    line.raw = raw
    if line.head and line.type == "message":
        line.role = line.head.role
    return None if line.type == "session" else line


def line_from_entry(entry: Entry, mask: Callable[[bytes], bytes]) -> EntryLine:
    """A new entry, encoded once for file and host; `mask` masks the keys in it."""
    role = entry.message.__struct_config__.tag if isinstance(entry, MessageEntry) else ""
    return EntryLine(
        type=str(entry.__struct_config__.tag),
        id=entry.id,
        parent_id=entry.parent_id,
        timestamp=entry.timestamp,
        raw=mask(codec.encode(entry)),
        role=str(role),
        known=entry,
        tried=True,
    )


def _to_valid_utf8(raw: bytes) -> bytes:
    return raw if raw.isascii() else raw.decode("utf-8", "replace").encode()


def _parse_outline(raw: bytes) -> EntryLine | None:
    """An entry of an unknown shape, which still has its place in the tree."""
    try:
        plain = codec.decode_stored(raw)
    except BadRecord:
        return None
    if not isinstance(plain, dict) or not isinstance(plain.get("type"), str):
        return None
    message = plain.get("message")
    role = message.get("role") if isinstance(message, dict) else None
    return EntryLine(
        type=plain["type"],
        id=_text_or_empty(plain.get("id")),
        parent_id=_text_or_empty(plain.get("parentId")) or None,
        timestamp=_text_or_empty(plain.get("timestamp")),
        role=_text_or_empty(role) if plain["type"] == "message" else "",
    )


def _text_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _parse_leniently(raw: bytes) -> Entry | None:
    """The record of a line that another program wrote slightly differently: a lone surrogate, null for content, a
    number that is too large."""
    try:
        plain = codec.decode_stored(raw)
        message = plain.get("message")
        if isinstance(message, dict):
            content = message.get("content")
            if content is None and message.get("role") != "bashExecution":
                message["content"] = []
            elif isinstance(content, list):
                message["content"] = [block for block in content if _is_known_block(block)]
        entry: Entry = codec.convert(plain, Entry)  # type: ignore[arg-type]
    except (BadRecord, AttributeError):
        return None
    return entry


def _is_known_block(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in _BLOCKS
