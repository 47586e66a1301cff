"""The pages for people are true: every page is in the index, texts of the program are those it says, names exist."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from fakes.source_tree import ROOT
from pigeon.cli.args import option_names, option_rows
from pigeon.cli.commands.all import COMMANDS
from pigeon.extensions import Extension
from pigeon.extensions.public.session_objects import ConversationHandle
from pigeon.extensions.public.ui import Ui

DOCS = ROOT / "docs"
FROM_PI = (DOCS / "coming-from-pi.md").read_text("utf-8")
TROUBLE = (DOCS / "troubleshooting.md").read_text("utf-8")
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
SHOWN = re.compile(r"^ {4}(?:[^`\n]*\| )?(pigeon .+)$|`(?:[^`]*\| )?(pigeon [^`]+)`", re.MULTILINE)
# What a shell, Python and pip say.
OTHERS_SAY = (
    "pigeon: command not found",
    "error: externally-managed-environment",
    "ensurepip is not available",
    "ModuleNotFoundError: No module named 'pigeon'",
)
MISSPELT = ("sesions",)


def test_every_page_is_in_the_index() -> None:
    linked = set(re.findall(r"\]\(([\w./-]+)\)", (DOCS / "README.md").read_text("utf-8")))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page.parent.name != "decisions"}
    assert pages - {"README.md"} <= linked


@cache
def _source() -> str:
    """All texts of the program, with strings that go over several lines put together."""
    files = [*(ROOT / "src" / "pigeon").rglob("*.py"), ROOT / "Makefile"]
    text = "\n".join(file.read_text("utf-8") for file in files)
    return re.sub(r"[\"']\s*\n\s*f?[\"']", "", text)


@pytest.mark.parametrize("symptom", re.findall(r"^\| `([^`]{12,})`", TROUBLE, re.MULTILINE))
def test_a_text_that_is_looked_up_is_one_that_the_program_says(symptom: str) -> None:
    if symptom not in OTHERS_SAY:
        parts = [part.strip("'\". ?") for part in re.split(r"…|[:;]", symptom)]
        missing = [part for part in parts if len(part) > 5 and part not in _source()]
        assert not missing


def test_flags_and_names_of_the_page_for_users_of_pi_exist() -> None:
    assert set(re.findall(r"`(--[a-z-]+)", FROM_PI)) <= set(option_names(option_rows()))
    assert all(hasattr(Extension, name) for name in re.findall(r"`@?ext\.(\w+)", FROM_PI))
    assert all(hasattr(ConversationHandle, name) for name in re.findall(r"`ctx\.session\.(\w+)", FROM_PI))
    assert all(hasattr(Ui, name) for name in ("confirm", "select", "input", "editor", "notify"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_call_that_a_page_shows_can_be_typed(page: Path) -> None:
    options = set(option_names(option_rows()))
    for found in SHOWN.findall(page.read_text("utf-8")):
        call = re.split(r" [|>] ", "".join(found))[0]
        words = shlex.split(call.replace("…", "x"))[1:]
        command = COMMANDS.get(words[0]) if words else None
        known = options | ({"--help", "-h", *option_names(command.options)} if command else set())
        assert {word.strip("[]") for word in words if word.startswith("-") and word != "--"} <= known, call
        if command and len(command.actions) > 1 and len(words) > 1 and words[1].isalpha() and words[1].islower():
            assert words[1] in {action.name for action in command.actions}, call
        assert command or not re.fullmatch(r"[a-z]+", words[0]) or words[0] in MISSPELT, call


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_the_program_takes_the_place_of_pi_by_the_commands_of_the_page(tmp_path: Path) -> None:
    section = FROM_PI.split("To replace pi behind")[1].split("\n## ")[0]
    commands = "\n".join(re.findall(r"^ {4}(.+)$", section, re.MULTILINE))
    home = tmp_path / "home"
    home.mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", commands],
        env={"HOME": str(home), "PATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("1.5.0\n", "")
