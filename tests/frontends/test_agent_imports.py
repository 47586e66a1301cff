from __future__ import annotations

from pigeon.frontends.agent_imports import NOT_OF_AGENTS, packages_of_agents
from support.source_tree import TREE


def test_every_package_is_imported_ahead_or_left_out_on_purpose() -> None:
    root = TREE.source / "pigeon"
    folders = {path.parent.name for path in root.glob("*/__init__.py")}
    assert set(packages_of_agents()) == folders - set(NOT_OF_AGENTS)
    assert set(NOT_OF_AGENTS) < folders
