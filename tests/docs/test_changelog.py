"""The changelog is readable: an entry is one line, grouped by release, and every past release has a date."""

from __future__ import annotations

import re

from support.source_tree import ROOT

LINES = (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines()
GROUPS = {"### Added", "### Changed", "### Deprecated", "### Removed", "### Fixed", "### Security"}


def test_every_entry_is_one_line_of_at_most_200_characters() -> None:
    body = LINES[next(number for number, line in enumerate(LINES) if line.startswith("## ")) :]
    wrong = [line for line in body if line and not line.startswith(("* ", "## ")) and line not in GROUPS]
    assert wrong == []
    assert [line for line in body if len(line) > 200] == []


def test_every_release_has_a_date() -> None:
    heads = [line for line in LINES if line.startswith("## ")]
    assert heads[0] == "## [Unreleased]"
    assert all(re.fullmatch(r"## \[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", head) for head in heads[1:])
