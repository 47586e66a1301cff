"""Running one test for several dialects: `in_each` names them, the fixtures `dialect` and `spoken` bring them in."""

from __future__ import annotations

import pytest


def in_each(*names: str) -> pytest.MarkDecorator:
    """Run the test once for each of these dialects."""
    return pytest.mark.parametrize("dialect", names, indirect=True)
