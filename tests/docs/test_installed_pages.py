"""The pages are installed with the package: the system prompt tells the model where they are."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_package_has_the_pages_and_takes_them_along() -> None:
    assert (ROOT / "src" / "pigeon" / "docs").resolve() == ROOT / "docs"
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "docs/*.md" in configured["tool"]["setuptools"]["package-data"]["pigeon"]
