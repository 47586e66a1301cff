"""From any text to HTML text: everything of a session passes through here or through `markdown`."""

from __future__ import annotations

import re

# Colours and cursor movements of terminals: CSI, OSC (ended by BEL or ST) and the short sequences.
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_SPECIAL = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
_MARKUP = re.compile("[&<>\"']")


def plain(text: str) -> str:
    """The text as it can be shown: line ends are LF, no terminal sequences, no control characters."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _UNPRINTABLE.sub("\ufffd", _TERMINAL.sub("", text))


def escaped(text: str) -> str:
    """The text for the inside of an element or of a quoted attribute."""
    return _MARKUP.sub(lambda found: _SPECIAL[found[0]], plain(text))
