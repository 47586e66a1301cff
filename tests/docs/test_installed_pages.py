"""The pages are installed with the package: the system prompt tells the model where they are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from pigeon.resources import system_prompt

ROOT = Path(__file__).parents[2]


def test_the_package_has_the_pages_and_takes_them_along() -> None:
    assert (ROOT / "src" / "pigeon" / "docs").resolve() == ROOT / "docs"
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    taken = set(configured["tool"]["setuptools"]["package-data"]["pigeon"])
    told = [line for file in (ROOT / "src").rglob("*.py") for line in file.read_text("utf-8").splitlines()]
    shown = " ".join([system_prompt.DOCS, *(line for line in told if "DOCS_FOLDER, " in line)])
    named = {f"docs/{page}" for page in re.findall(r"[\w-]+\.md", shown)}
    assert len(named) > 5
    assert named <= taken
    assert all((ROOT / page).is_file() for page in named)
