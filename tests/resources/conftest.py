"""A home, an agent folder and a project, all fresh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pigeon.resources.resources import ResourceOptions, Resources


class ResourceFolders:
    """The folders that resources come from, and what was reported about them."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.agent = self.home / ".pigeon" / "agent"
        self.project = root / "work" / "project"
        self.agent.mkdir(parents=True)
        self.project.mkdir(parents=True)
        self.reported: list[str] = []
        self.failed: list[tuple[str, str]] = []

    def put(self, path: Path, text: str) -> str:
        """Write a file with the folders it needs; gives back its path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return str(path)

    def skill(self, folder: Path, description: str = "does things", body: str = "Do it.", **head: Any) -> str:
        """A skill in this folder; gives back the path of its file."""
        lines = [f"{key.replace('_', '-')}: {value}" for key, value in {"description": description, **head}.items()]
        return self.put(folder / "SKILL.md", "---\n" + "\n".join(lines) + f"\n---\n{body}\n")

    def resources(self, trusted: bool = True, **options: Any) -> Resources:
        """The resources of a process in the project."""
        return Resources(
            str(self.agent),
            str(self.project),
            trusted,
            ResourceOptions(**options),
            home=str(self.home),
            base=str(self.home),
            report=self.reported.append,
            expansion_failed=lambda path, reason: self.failed.append((path, reason)),
        )


@pytest.fixture
def folders(tmp_path: Path) -> ResourceFolders:
    return ResourceFolders(tmp_path)
