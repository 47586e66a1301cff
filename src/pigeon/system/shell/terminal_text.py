"""Terminal output of programs as the text that a person would see: for the chat and for exported pages."""

from __future__ import annotations

import re

# Colours, movements, titles: CSI, OSC (ended by BEL or ST), the other strings, and the short sequences.
_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)


def remove_sequences(text: str) -> str:
    """The text without escape sequences; an escape character that begins no sequence stays."""
    return _SEQUENCE.sub("", text) if "\x1b" in text else text


def apply_overwrites(text: str) -> str:
    """The last state of each line that a program overwrites, as progress bars do."""
    text = text.replace("\r\n", "\n")
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
