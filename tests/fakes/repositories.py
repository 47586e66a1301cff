"""A repository for tests: journals on disk, a clock that stands still, and everything that was reported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pigeon.session.history.file_store import FileStore
from pigeon.session.history.journal import Journal
from pigeon.session.history.repository import SessionRepository
from pigeon.session.history.session_file import Namesake, Opener, SessionFile
from pigeon.system.append_file import AppendFile
from pigeon.wire.content import TextContent
from pigeon.wire.messages import UserMessage

RECORDED = Path(__file__).parents[1] / "session" / "recorded"
OLD = Path(__file__).parents[1] / "session" / "old_versions"
NOW = 1_793_527_200_000


class DiskRepository(SessionRepository):
    """A repository in a folder of the test."""

    def __init__(self, folder: Path, persistent: bool = True, opener: Opener = AppendFile) -> None:
        self.reports: list[str] = []
        self.opener = opener
        store = FileStore(str(folder.parent))
        super().__init__(str(folder), store, persistent, lambda: NOW, self.reports.append, os.path.abspath)

    def _session_file(self, path: str, namesake: Namesake | None = None) -> SessionFile:
        return SessionFile(path, self.reports.append, self.opener, namesake)


def user(text: str) -> UserMessage:
    """A message of the user."""
    return UserMessage(content=[TextContent(text=text)], timestamp=NOW)


def recorded() -> list[Any]:
    """The names of the recorded sessions."""
    return sorted(path.name for path in RECORDED.glob("*.jsonl"))


def raws(journal: Journal) -> list[bytes]:
    """The entries as they are kept."""
    return [line.raw for line in journal.lines]
