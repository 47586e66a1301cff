"""From any text, and from points in time, to HTML text.

Everything that a session holds reaches the page through `escape_html`, `moment_html` or `markdown_html`, and only
through them: the tests with hostile sessions rely on it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from pigeon.system.shell.terminal_text import remove_sequences

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

# Characters that change the direction of surrounding text, and invisible ones. Prose needs some of the latter (to join
# letters and emoji); in names they are kept between letters of scripts that use them.
_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0e\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e01ef]"
    r"|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)


def to_plain_text(text: str) -> str:
    """The text as it can be shown: line ends are LF, without terminal sequences, control characters, and characters
    that reverse the order of others: `exe.txt` must not appear as `txt.exe`."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _TURNING.sub(_code_point_label, _UNPRINTABLE.sub("\ufffd", remove_sequences(text)))


def name_html(text: str) -> str:
    """A name, a path or a command, escaped, with every invisible character shown by its number."""
    return escape_html(_UNSEEN.sub(_code_point_label, text))


def _code_point_label(found: re.Match[str]) -> str:
    return f"[U+{ord(found[0]):04X}]"


def escape_html(text: str) -> str:
    """The text for the inside of an element or of a quoted attribute."""
    text = to_plain_text(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;").replace("'", "&#39;")


def to_iso_time(milliseconds: int) -> str:
    """ISO 8601 from epoch milliseconds; empty for an invalid time."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat() if milliseconds > 0 else ""
    except (ValueError, OverflowError, OSError):
        return ""


def moment_html(iso: str, short: bool = False) -> str:
    """A time of day with its date, in UTC; empty if there is none. The `short` form moves the date to a tooltip."""
    try:
        moment = datetime.fromisoformat(iso)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return f"<span>{escape_html(iso)}</span>" if iso else ""
    shown = f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    if short:
        return f'<time datetime="{moment.isoformat()}" title="{shown}">{moment:%H:%M}</time>'
    return f'<time datetime="{moment.isoformat()}">{shown}</time>'
