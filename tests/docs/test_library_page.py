"""Every program on the page about the library runs as it is shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pigeon
from support.agent_folders import AgentFolders
from support.source_tree import ROOT

PAGE = (ROOT / "docs" / "library.md").read_text("utf-8")
PROGRAMS = dict(re.findall(r"^## ([^\n]+)\n\n```python\n(.+?)^```$", PAGE, re.MULTILINE | re.DOTALL))
SAYS = {
    "A first agent": "one file",
    "A value instead of a text": "Finding(file='a.py', lines=[3])",
    "A tool": "its name in English",
    "Permissions and dialogs": "done",
    "An agent in another process": "notes.txt",
    "Without an event loop": "notes.txt",
}


@pytest.mark.parametrize("title", SAYS)
def test_a_program_of_the_page_runs(title: str, tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    (folders.work / "notes.txt").write_text("one file\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAMS[title]],
        cwd=folders.work,
        env=folders.environment(),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert SAYS[title] in done.stdout


def test_every_program_of_the_page_is_run() -> None:
    assert set(PROGRAMS) == set(SAYS)
    assert PAGE.count("```python") == len(SAYS)


def test_every_name_of_the_page_is_there() -> None:
    named = set(re.findall(r"\bpigeon\.(\w+)", PAGE)) - {"md"}
    assert not [name for name in named if not hasattr(pigeon, name)]


def test_every_exception_is_listed() -> None:
    listed = set(re.findall(r"^\| `pigeon\.(\w+)` \|", PAGE, re.MULTILINE))
    found = [getattr(pigeon, name) for name in pigeon.__all__]
    errors = {one.__name__ for one in found if isinstance(one, type) and issubclass(one, pigeon.PigeonError)}
    assert listed == errors - {"PigeonError"}
