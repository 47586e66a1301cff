"""The events of extensions as the two tables of docs/extensions.md, from their declarations.

The first paragraph of an event's docstring says when it comes, the second what a handler may do. `make docs` runs this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from protocol_tables import refreshed, table

from pigeon.extensions.public import events
from pigeon.extensions.public.events import Event

PAGE = Path(__file__).resolve().parent.parent / "docs" / "extensions.md"


def asked_table() -> str:
    """Events that the agent waits for."""
    rows = [
        (_name(kind), _call(kind), _paragraph(kind, 0), _paragraph(kind, 1)) for kind in events.ALL if not kind.told
    ]
    return table(("event", "class", "when", "a handler may return, or do"), rows)


def told_table() -> str:
    """Events that the agent does not wait for."""
    rows = [(_name(kind), _call(kind), _paragraph(kind, 0)) for kind in events.ALL if kind.told]
    return table(("event", "class", "when"), rows)


TABLES: dict[str, Callable[[], str]] = {"asked": asked_table, "told": told_table}


def _name(kind: type[Event]) -> str:
    aliases = "".join(f" (also `{alias}`)" for alias in kind.aliases)
    return f"`{kind.name}`{aliases}"


def _call(kind: type[Event]) -> str:
    return f"`{kind.__name__}({', '.join(field.name for field in fields(kind))})`"


def _paragraph(kind: type[Event], number: int) -> str:
    return " ".join((kind.__doc__ or "").split("\n\n")[number].split())


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text("utf-8"), TABLES), "utf-8")
