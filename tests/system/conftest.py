"""Tests of processes count those of their own."""

from __future__ import annotations

import pytest

from support.processes import note_others


@pytest.fixture(autouse=True)
def others() -> None:
    """Before each test: what runs already is not of this one."""
    note_others()
