"""The guide says what is true: its code loads, and it names every capability and every trusted resource."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fakes.extension_port import Stage
from pigeon.extensions.public.api import CAPABILITIES
from pigeon.extensions.runtime.discovery import Source
from pigeon.permissions.rules import build_layers
from pigeon.trust.decision import RESOURCES
from support.source_tree import ROOT

GUIDE = (ROOT / "docs" / "extensions.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
async def test_the_code_of_the_guide_loads(stage: Stage, tmp_path: Path, block: str) -> None:
    path = tmp_path / "guide.py"
    path.write_text(block)
    await stage.runner.load([Source(str(path), "user", "auto")])
    stage.bind()
    stage.runner.contributions.list_tools()
    stage.runner.contributions.list_providers()
    assert stage.errors() == []


def test_the_guide_names_every_capability_and_every_trusted_resource() -> None:
    assert [name for name in CAPABILITIES if f"`{name}`" not in GUIDE] == []
    assert [name for name in RESOURCES if f"`{name}`" not in GUIDE] == []


def test_the_rules_of_the_permissions_page_are_understood() -> None:
    page = (ROOT / "docs" / "permissions.md").read_text("utf-8")
    (block,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    problems: list[str] = []
    rules = build_layers(json.loads(block)["permissions"], None, "yolo", problems.append)
    assert problems == []
    assert rules is not None
