"""From any text, and from points in time, to HTML text.

Everything that a session holds reaches the page through `escaped`, `moment_html` or `markdown_html`, and only through
them: the tests with hostile sessions rely on it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from pigeon.system.shell.terminal_text import without_sequences

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def plain(text: str) -> str:
    """The text as it can be shown: line ends are LF, no terminal sequences, no control characters."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _UNPRINTABLE.sub("\ufffd", without_sequences(text))


def escaped(text: str) -> str:
    """The text for the inside of an element or of a quoted attribute."""
    text = plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;").replace("'", "&#39;")


def moment_of(milliseconds: int) -> str:
    """ISO 8601 from epoch milliseconds; empty for a figure that is no time."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat() if milliseconds > 0 else ""
    except (ValueError, OverflowError, OSError):
        return ""


def moment_html(iso: str, short: bool = False) -> str:
    """A time of day with its date, in UTC; nothing where there is none. The `short` form keeps the date for a tip."""
    try:
        moment = datetime.fromisoformat(iso)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return f"<span>{escaped(iso)}</span>" if iso else ""
    shown = f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    if short:
        return f'<time datetime="{moment.isoformat()}" title="{shown}">{moment:%H:%M}</time>'
    return f'<time datetime="{moment.isoformat()}">{shown}</time>'
