"""Programs of pages and cells of notebooks, run as a reader runs them.

A program of a page is a `python` block behind a line that ends with its name (`first.py`), under which it is saved; all
are in one folder. The `text` block behind "prints:" is what it prints; in that, `…` stands for anything. The cells of a
notebook run in order in one namespace, as in a kernel: in a thread whose event loop is running.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import runpy
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.agent_folders import AgentFolders

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


def code_cells(notebook: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(notebook.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]


def run_cells(cells: list[dict[str, Any]]) -> list[str]:
    """Run them; returns what each of them printed."""
    # Types of a cell are looked up in the module that they name.
    module = types.ModuleType("__main__")
    before, sys.modules["__main__"] = sys.modules["__main__"], module
    printed = []
    try:
        for number, cell in enumerate(cells):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile("".join(cell["source"]), f"cell {number}", "exec"), vars(module))
            printed.append(out.getvalue())
    finally:
        sys.modules["__main__"] = before
    return printed


def output_of(cell: dict[str, Any]) -> str:
    """The text that the notebook has as the output of a cell."""
    return "".join(text for output in cell["outputs"] for text in output["text"])
