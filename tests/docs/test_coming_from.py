"""The programs of Pigeon on the page for users of another library run as they are shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pigeon
from support.doc_programs import PageProgram, ProgramFolder, programs_of
from support.source_tree import ROOT

PAGE = ROOT / "docs" / "coming-from-claude-agent-sdk.md"
PRINTS = {
    "once.py": "- once.py\ndone 0",
    "talk.py": "[read]",
    "tools.py": "It has 340000 people.",
    "permissions.py": "I could not write setup.py:",
    "hooks.py": "pushing is for people",
    "output.py": "City(name='Bonn')",
    "sessions.py": "True False",
    "interrupt.py": "aborted",
    "limits.py": "limit",
}


def test_every_program_has_its_line_here() -> None:
    assert [program.name for program in programs_of(PAGE)] == list(PRINTS)


@pytest.mark.parametrize("program", programs_of(PAGE), ids=lambda program: program.name)
def test_a_program_of_the_page_runs(
    program: PageProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ProgramFolder(tmp_path, monkeypatch)
    (folder.path / "notes.txt").write_text("one line\n")
    folder.run(program)
    assert PRINTS[program.name] in capsys.readouterr().out


def test_every_name_of_the_page_is_there() -> None:
    named = set(re.findall(r"\bpigeon\.([A-Za-z]\w*)", PAGE.read_text("utf-8"))) - {"testing", "extensions"}
    assert not [name for name in named if not hasattr(pigeon, name)]
