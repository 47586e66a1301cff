"""The protocol page says what the records say, and everything it points to is there."""

from __future__ import annotations

import re
from typing import Literal

import pytest
from protocol_tables import TABLES, refreshed, type_text

from pigeon.wire import commands, events
from pigeon.wire.base import Absent
from support.source_tree import ROOT

PAGE = ROOT / "docs" / "protocol.md"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text("utf-8")


def test_the_tables_are_what_the_records_say(page: str) -> None:
    assert refreshed(page) == page, "run: make docs"


def test_every_table_has_its_place(page: str) -> None:
    assert sorted(re.findall(r"<!-- table: (\w+) -->", page)) == sorted(TABLES)


def test_every_command_and_event_is_named_once(page: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert {name for name in commands.BY_NAME if rows.count(name) < 1} == set()
    assert {str(kind.__struct_config__.tag) for kind in events.ALL} <= set(rows)


def test_every_link_within_the_page_leads_somewhere(page: str) -> None:
    headings = {title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.+)$", page, re.MULTILINE)}
    anchors = set(re.findall(r'<a id="([\w-]+)">', page))
    assert set(re.findall(r"\]\(#([\w-]+)\)", page)) <= headings | anchors


def test_a_page_with_an_unknown_table_is_refused() -> None:
    with pytest.raises(KeyError):
        refreshed("<!-- table: nonsense -->\n<!-- end -->")


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (str, "string"),
        (int | float, "number"),
        (list[int] | None, "list of integer \\| null"),
        (dict[str, bool] | Absent, "object of boolean"),
        (Literal["a", "b"], '`"a"` \\| `"b"`'),
        (events.StreamEvent, "[stream event](#stream-events)"),
    ],
)
def test_types_are_told_in_the_words_of_json(hint: object, text: str) -> None:
    assert type_text(hint) == text
