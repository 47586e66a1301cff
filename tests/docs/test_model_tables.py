"""The tables of providers and APIs in the page about models are what the declarations say."""

from __future__ import annotations

import re

from model_tables import TABLES
from protocol_tables import refreshed

from pigeon.providers.apis import APIS
from pigeon.providers.catalog.built_in import KNOWN
from support.source_tree import ROOT

PAGE = (ROOT / "docs" / "models.md").read_text("utf-8")


def test_the_tables_are_what_the_declarations_say() -> None:
    assert refreshed(PAGE, TABLES) == PAGE, "run: make docs"
    assert re.findall(r"<!-- table: (\w+) -->", PAGE) == list(TABLES)


def test_every_provider_and_every_api_of_a_server_has_a_row() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
    assert {*KNOWN, *(name for name, api in APIS.items() if api.adapter)} <= set(rows)
