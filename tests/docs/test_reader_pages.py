"""The pages for people are true: every page is in the index, texts of the program are those it says, names exist."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from pigeon.cli.args import list_option_rows, option_names
from pigeon.cli.commands.all import COMMANDS
from pigeon.extensions import Extension
from pigeon.extensions.public.session_objects import ConversationHandle
from pigeon.extensions.public.ui import Ui
from support.source_tree import ROOT

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
    assert set(re.findall(r"`(--[a-z-]+)", FROM_PI)) <= set(option_names(list_option_rows()))
    assert all(hasattr(Extension, name) for name in re.findall(r"`@?ext\.(\w+)", FROM_PI))
    assert all(hasattr(ConversationHandle, name) for name in re.findall(r"`ctx\.session\.(\w+)", FROM_PI))
    assert all(hasattr(Ui, name) for name in ("confirm", "select", "input", "editor", "notify"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_call_that_a_page_shows_can_be_typed(page: Path) -> None:
    options = set(option_names(list_option_rows()))
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
def test_a_user_of_pi_finds_everything_again_by_the_commands_of_the_page(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    _files_of_pi(home / ".pi" / "agent", work)
    before = (home / ".pi" / "agent" / "settings.json").read_bytes()
    section = FROM_PI.split("To replace pi behind")[1].split("\n## ")[0]
    commands = "\n".join(re.findall(r"^ {4}(.+)$", section, re.MULTILINE))
    asked = "\n".join(f'{{"id":"{name}","type":"{name}"}}' for name in ("get_state", "get_commands", "get_messages"))
    done = subprocess.run(
        ["bash", "-ec", f"{commands}\nexec pi --mode rpc --continue"],
        env={"HOME": str(home), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        cwd=work,
        input=f"{asked}\n",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    version, *lines = done.stdout.splitlines()
    assert (version, done.stderr) == ("1.5.0", "")
    told = {line.get("id"): line.get("data") for line in map(json.loads, lines) if line["type"] == "response"}
    assert told["get_state"]["model"]["id"] == "tiny"
    assert {one["name"] for one in told["get_commands"]["commands"]} == {"review", "skill:hello"}
    assert told["get_messages"]["messages"][0]["content"][0]["text"] == "hello pi"
    [notice] = [line for line in map(json.loads, lines) if line.get("method") == "notify"]
    assert "x.ts, npm:something" in notice["message"]
    assert (home / ".pi" / "agent" / "settings.json").read_bytes() == before


def _files_of_pi(folder: Path, work: Path) -> None:
    """The folder of somebody who has used pi in `work`."""
    name = f"--{str(work).strip('/').replace('/', '-')}--/2026-01-31T09-30-00-000Z_0190aaaa-0000-7000-8000-000000000001"
    header = {"type": "session", "version": 3, "id": "0190aaaa-0000-7000-8000-000000000001", "cwd": str(work)}
    said = {"role": "user", "content": [{"type": "text", "text": "hello pi"}], "timestamp": 1769851801000}
    entry = {"type": "message", "id": "e4970873", "parentId": None, "message": said}
    stamp = {"timestamp": "2026-01-31T09:30:00.000Z"}
    local = {"baseUrl": "http://localhost:9/v1", "api": "openai-completions", "apiKey": "none"}
    settings = {"defaultProvider": "local", "defaultModel": "tiny", "theme": "dark", "packages": ["npm:something"]}
    files = {
        "settings.json": json.dumps(settings),
        "models.json": json.dumps({"providers": {"local": {**local, "models": [{"id": "tiny"}]}}}),
        "auth.json": json.dumps({"anthropic": {"type": "api_key", "key": "sk-ant-for-a-test"}}),
        "skills/hello/SKILL.md": "---\nname: hello\ndescription: Says hello\n---\nSay hello.\n",
        "prompts/review.md": "Review $1\n",
        "extensions/x.ts": "export default function (pi) {}\n",
        f"sessions/{name}.jsonl": "".join(f"{json.dumps({**line, **stamp})}\n" for line in (header, entry)),
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
