"""The approval modes as the table of docs/permissions.md, from what tools declare. `make docs` runs this."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from protocol_tables import refreshed, table

from pigeon.permissions.rules import PermissionRules
from pigeon.tools.catalog import all_facts
from pigeon.wire.choices import APPROVAL_MODES, ApprovalMode

PAGE = Path(__file__).resolve().parent.parent / "docs" / "permissions.md"


def modes_table() -> str:
    """Each mode with the tools that it asks about where no rule decides; a tool of others has no kind that it knows."""
    return table(("mode", "does not ask before", "asks before"), [_row_of(mode) for mode in APPROVAL_MODES])


def _row_of(mode: ApprovalMode) -> tuple[str, str, str]:
    rules = PermissionRules(mode=mode)
    asked = [name for name in all_facts() if rules.default_verdict(name) == "ask"]
    if not asked:
        return f"`{mode}` (the default)", "everything", "nothing, beyond the rules"
    others = ", ".join(f"`{name}`" for name in all_facts() if name not in asked)
    shown = ", ".join(f"`{name}`" for name in asked)
    return f"`{mode}`", others, f"{shown}, and tools of extensions, the host and [servers](mcp.md)"


TABLES: dict[str, Callable[[], str]] = {"approval modes": modes_table}


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text("utf-8"), TABLES), "utf-8")
