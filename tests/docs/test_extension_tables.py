"""The tables of events in the guide to extensions are what the declarations say."""

from __future__ import annotations

import re

from extension_tables import TABLES
from protocol_tables import refreshed

from pigeon.extensions.public import events
from support.source_tree import ROOT

PAGE = (ROOT / "docs" / "extensions.md").read_text("utf-8")


def test_the_tables_are_what_the_declarations_say() -> None:
    assert refreshed(PAGE, TABLES) == PAGE, "run: make docs"
    assert re.findall(r"<!-- table: (\w+) -->", PAGE) == list(TABLES)


def test_an_event_that_is_asked_says_what_a_handler_may_return() -> None:
    for kind in events.ALL:
        when, *may = (kind.__doc__ or "").split("\n\n")
        assert when.strip().endswith("."), kind.name
        assert len(may) == (0 if kind.told else 1), f"{kind.name}: a second paragraph for what handlers may do"
        unnamed = [result.__name__ for result in kind.returns if f"`{result.__name__}(" not in may[0]]
        assert not unnamed, f"{kind.name} does not tell of {unnamed}"
