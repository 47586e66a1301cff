"""docs/permissions.md: its table of approval modes says what the tools declare."""

from __future__ import annotations

from permission_tables import PAGE, TABLES
from protocol_tables import refreshed


def test_the_table_of_approval_modes_is_that_of_the_tools() -> None:
    page = PAGE.read_text("utf-8")
    assert "<!-- table: approval modes -->" in page
    assert refreshed(page, TABLES) == page, "run `make docs`"
