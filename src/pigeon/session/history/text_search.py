"""Searching session files for the words of a message."""

from __future__ import annotations

from pigeon.store.lines import has_all_words, read_entry_facts
from pigeon.system.files import open_regular


def read_file_lines(path: str) -> list[bytes]:
    """The lines of a session file, the header first; raises `OSError`."""
    with open(open_regular(path), "rb") as file:
        return [line for line in file.read().split(b"\n") if line]


def has_message_with(path: str, words: list[str]) -> bool:
    """Whether one message of a file has all words; lines are parsed only if they may."""
    try:
        lines = read_file_lines(path)[1:]
    except OSError:
        return False
    plain = [word.encode() for word in words if word.isascii()]
    for line in lines:
        lower = line.lower()
        if all(word in lower for word in plain) and has_all_words(read_entry_facts(line).text, words):
            return True
    return False
