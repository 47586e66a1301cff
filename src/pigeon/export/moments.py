"""Points in time, as a session keeps them and as a reader wants them."""

from __future__ import annotations

from datetime import UTC, datetime

from pigeon.export.escaping import escaped


def moment_of(milliseconds: int) -> str:
    """ISO 8601 from epoch milliseconds; empty for a figure that is no time."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat() if milliseconds > 0 else ""
    except (ValueError, OverflowError, OSError):
        return ""


def moment_html(iso: str) -> str:
    """A time of day with its date, in UTC; nothing where there is none."""
    try:
        moment = datetime.fromisoformat(iso)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return f"<span>{escaped(iso)}</span>" if iso else ""
    return f'<time datetime="{escaped(moment.isoformat())}">{moment:%Y-%m-%d %H:%M:%S} UTC</time>'
