"""What stores derive from the lines of a session: its folder, its name, and the words by which it is found.

All stores take words from here, so that a search finds the same everywhere: a word of a search is the beginning of a
word of a message, whatever its case.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from pigeon.wire import codec
from pigeon.wire.content import shorten_file_blocks
from pigeon.wire.errors import BadRecord, Refusal

LONGEST_WORD = 100
MOST_WORDS = 20_000
PREVIEW = 200
# A sign of a script that has no spaces between words is a word of its own.
_SIGN = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORDS = re.compile(rf"[{_SIGN}]|[^\W_{_SIGN}]+")
_SPEAKERS = ("user", "assistant")


class HeaderFacts(Struct, frozen=True):
    """What a store has to know of a header."""

    cwd: str
    created: str
    parent_session: str


class EntryFacts(Struct, frozen=True):
    """What a store has to know of an entry: `name` if it names the session, `prompt` if a user said it, `custom_type`
    if an extension, or a part of the agent, keeps its state in it, `action` if the audit log tells of it."""

    text: str = ""
    name: str | None = None
    prompt: str = ""
    custom_type: str = ""
    action: str = ""


NOTHING = EntryFacts()


def read_header_facts(header: bytes) -> HeaderFacts:
    """Raises `Refusal` for a line that is no header."""
    try:
        plain = codec.decode_stored(header)
    except BadRecord:
        plain = None
    if not isinstance(plain, dict) or plain.get("type") != "session":
        raise Refusal("The header of a session is a JSON object with the type session")
    return HeaderFacts(*(_text_of_member(plain, name) for name in ("cwd", "timestamp", "parentSession")))


def read_entry_facts(line: bytes) -> EntryFacts:
    """The facts of an entry; none for a line that is no entry."""
    try:
        plain = codec.decode_stored(line)
    except BadRecord:
        return NOTHING
    if not isinstance(plain, dict):
        return NOTHING
    kind = plain.get("type")
    if kind == "session_info":
        name = _text_of_member(plain, "name")
        return EntryFacts(text=name, name=name)
    if kind == "custom":
        return EntryFacts(custom_type=_text_of_member(plain, "customType"))
    if kind in ("compaction", "branch_summary"):
        return EntryFacts(text=_text_of_member(plain, "summary"))
    message = plain.get("message")
    if kind != "message" or not isinstance(message, dict) or message.get("role") not in _SPEAKERS:
        return NOTHING
    text = _text_of_content(message.get("content"))
    prompt = shorten_file_blocks(text.strip())[:PREVIEW] if message["role"] == "user" else ""
    return EntryFacts(text=text, prompt=prompt, action="prompt" if message["role"] == "user" else "")


def check_line(line: bytes) -> None:
    """Raise `Refusal` for bytes that cannot be one line."""
    if b"\n" in line or not line:
        raise Refusal("An entry is one line of bytes, without its end")


def split_words(text: str) -> list[str]:
    """The different words of a text, in lower case; long ones are cut."""
    found: dict[str, None] = {}
    for match in _WORDS.finditer(text.casefold()):
        found[match[0][:LONGEST_WORD]] = None
        if len(found) >= MOST_WORDS:
            break
    return list(found)


def has_all_words(text: str, wanted: list[str]) -> bool:
    """Whether each wanted word is the beginning of a word of the text."""
    words = split_words(text)
    return all(any(word.startswith(one) for word in words) for one in wanted)


def _text_of_member(plain: dict[str, Any], name: str) -> str:
    value = plain.get(name)
    return _to_storable(value) if isinstance(value, str) else ""


def _text_of_content(content: Any) -> str:
    if isinstance(content, str):
        return _to_storable(content)
    blocks = content if isinstance(content, list) else []
    texts = [block["text"] for block in blocks if isinstance(block, dict) and isinstance(block.get("text"), str)]
    return _to_storable("\n".join(texts))


def _to_storable(text: str) -> str:
    """Text without what a database refuses: NUL, and halves of characters."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()
