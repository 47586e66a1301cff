"""The programs of the tutorial run as they are shown, one after the other, and print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pigeon
from support.doc_programs import ProgramFolder, programs_of
from support.source_tree import ROOT

PAGE = ROOT / "docs" / "tutorial.md"
NAMES = ["first.py", "result.py", "population.py", "permit.py", "review.py", "night.py", "test_population.py"]


def test_every_program_prints_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ProgramFolder(tmp_path, monkeypatch)
    [prepare] = re.findall(r"^```sh\n(.+?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    subprocess.run(["sh", "-c", prepare], cwd=folder.path, check=True)
    programs = programs_of(PAGE)
    assert [program.name for program in programs] == NAMES
    for program in programs:
        if program.name.startswith("test_"):
            (folder.path / program.name).write_text(program.code)
            # The plugins of this suite are no business of the reader's.
            monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", program.name]
            done = subprocess.run(command, cwd=folder.path, capture_output=True, text=True, timeout=50, check=False)
            printed = done.stdout + done.stderr
        else:
            folder.run(program)
            printed = capsys.readouterr().out
        assert program.printed is not None
        assert program.prints(printed), f"{program.name} prints:\n{printed}"


def test_every_name_of_the_page_is_there() -> None:
    named = set(re.findall(r"\bpigeon\.([A-Za-z]\w*)", PAGE.read_text("utf-8"))) - {"md", "testing"}
    assert not [name for name in named if not hasattr(pigeon, name)]
