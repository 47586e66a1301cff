"""Editors for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.editor_client import EditorStarter
from support.agent_folders import AgentFolders


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    """Fresh folders of an agent."""
    folders = AgentFolders(tmp_path)
    folders.configure()
    return folders


@pytest.fixture
def scripted(folders: AgentFolders) -> Iterator[EditorStarter]:
    """Starts editors whose model gives prepared replies, and closes them behind the test."""
    starter = EditorStarter(folders)
    yield starter
    starter.close()
