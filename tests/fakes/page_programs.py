"""The programs of a page, run as a reader runs them: each saved under the name that the page gives it, in one folder.

A program is a `python` block behind a line that ends with its name (`first.py`). The `text` block behind "prints:" is
what it prints; in that, `…` stands for anything.
"""

from __future__ import annotations

import re
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakes.agent_folders import AgentFolders

_PROGRAM = re.compile(
    r"^[^\n]*`(?P<name>\w+\.py)`[^\n]*:\n\n```python\n(?P<code>.+?)^```\n(?:\n[^\n]*prints:\n\n```text\n(?P<printed>.+?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class PageProgram:
    """One program, and what the page says that it prints; none if it says nothing."""

    name: str
    code: str
    printed: str | None

    def prints(self, text: str) -> bool:
        """Whether this is what the page shows."""
        shown = ".*".join(re.escape(part.strip()) for part in (self.printed or "…").split("…"))
        return re.fullmatch(shown, text.strip(), re.DOTALL) is not None


def programs_of(page: Path) -> list[PageProgram]:
    """All programs of a page, in order; raises where a block has no name."""
    text = page.read_text("utf-8")
    found = [PageProgram(*match.group("name", "code", "printed")) for match in _PROGRAM.finditer(text)]
    assert len(found) == text.count("```python\n"), f"a program of {page.name} has no name before it"
    return found


class ProgramFolder:
    """An empty folder of a user without settings, in which programs are saved and run in this process."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folders = AgentFolders(root)
        self.path = self.folders.work
        self._monkeypatch = monkeypatch
        for name, value in self.folders.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(self.path)
        monkeypatch.syspath_prepend(str(self.path))

    def run(self, program: PageProgram) -> None:
        """Save it, and run it as the main program; what it prints is printed."""
        file = self.path / program.name
        file.write_text(program.code)
        main = sys.modules["__main__"]
        try:
            runpy.run_path(str(file), run_name="__main__")
        finally:
            self._monkeypatch.setitem(sys.modules, "__main__", main)
