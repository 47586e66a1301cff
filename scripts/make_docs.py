"""Writes the tables of the protocol page anew from the records.

python scripts/make_docs.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from pigeon.wire.tables import refreshed  # noqa: E402

PAGE = ROOT / "docs" / "protocol.md"


def main() -> None:
    """Refresh the page in place."""
    PAGE.write_text(refreshed(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
