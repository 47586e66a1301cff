"""What the README and the page of clients show works as it stands there: every command, every example."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pigeon.config.models_file import parse_models_file
from support.source_tree import ROOT

README = (ROOT / "README.md").read_text("utf-8")
CLIENTS = (ROOT / "docs" / "clients.md").read_text("utf-8")
BIN = Path(sys.executable).parent
SECONDS = 30


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A user who has nothing but Pigeon in PATH."""
    home = tmp_path / "home"
    home.mkdir()
    return {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "HOME": str(home)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    (work / "notes.txt").write_text("hello\n")
    return work


def test_the_quick_start_has_exactly_two_commands_and_both_are_targets() -> None:
    section = README.split("## Quick start")[1].split("\n## ")[0]
    shown = re.findall(r"^ {4}(.+)$", section, re.MULTILINE)
    assert shown == ["make demo", "make test"]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert {"demo", "test"} <= set(targets)


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_the_demo_is_read_by_a_person_and_its_lines_by_a_program(tmp_path: Path, environment: dict[str, str]) -> None:
    ready = tmp_path / "ready"
    ready.touch()
    make = ["make", "-s", f"BIN={BIN}", f"READY={ready}"]
    told = _run([*make, "demo"], ROOT, environment)
    for line in ("> list the files", "  * bash ls -A .", '    +2     return f"Hello, {name}!"', "    Hello, world!"):
        assert line in told.splitlines()
    assert "\x1b" not in told
    kinds = [json.loads(line)["type"] for line in _run([*make, "demo-raw"], ROOT, environment).splitlines()]
    assert kinds[:2] == ["response", "agent_start"]
    assert "tool_execution_end" in kinds
    assert kinds[-1] == "agent_settled"


def test_the_first_conversation_goes_as_it_is_shown(folder: Path, environment: dict[str, str]) -> None:
    section = README.split("## The protocol")[1].split("\n## ")[0]
    command, *shown = re.findall(r"^ {4}(.+)$", section, re.MULTILINE)
    told = iter(_run(["sh", "-c", command], folder, environment).splitlines())
    for line in shown:
        pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
        assert line == "…" or any(pattern.fullmatch(real) for real in told), f"not seen, or not in this order: {line}"


def test_a_stranger_reads_it_in_one_go() -> None:
    assert len(README.splitlines()) <= 150
    assert len([line for line in _block("python", README).splitlines() if line]) <= 11


def test_the_agent_from_python_works(folder: Path, environment: dict[str, str]) -> None:
    program = folder.parent / "agent.py"
    program.write_text(_block("python", README))
    told = _run([sys.executable, str(program)], folder, environment)
    assert told.endswith("- notes.txt\n['notes.txt'] done 0\n")


def test_the_client_in_python_works(folder: Path, environment: dict[str, str]) -> None:
    program = folder.parent / "client.py"
    program.write_text(_block("python", CLIENTS))
    _has_listed(_run([sys.executable, str(program)], folder, environment))


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node")
def test_the_client_in_javascript_works(folder: Path, environment: dict[str, str]) -> None:
    program = folder.parent / "client.mjs"
    program.write_text(_block("js", CLIENTS))
    _has_listed(_run(["node", str(program)], folder, environment))


def test_a_key_and_a_name_are_enough_for_a_model(folder: Path, environment: dict[str, str]) -> None:
    section = README.split("## A real model")[1].split("\n## ")[0]
    [listing, serving] = re.findall(r"^ {4}(pigeon .+)$", section, re.MULTILINE)
    environment["ANTHROPIC_API_KEY"] = "not-a-key"
    table = _run(["sh", "-c", listing], folder, environment)
    model, _, level = serving.split("--model ")[1].partition(":")
    assert model.split("/")[1] in table
    asked = f'echo \'{{"type":"get_state"}}\' | {serving} --mode rpc'
    state = json.loads(_run(["sh", "-c", asked], folder, environment))
    assert f"{state['data']['model']['provider']}/{state['data']['model']['id']}" == model
    assert state["data"]["thinkingLevel"] == level


def test_the_models_file_is_one() -> None:
    shown = re.search(r"^ {4}\{\"providers.+?\n\n", README, re.MULTILINE | re.DOTALL)
    assert shown is not None
    file = parse_models_file(shown[0].encode())
    assert file.problem is None
    assert list(file.providers) == ["local"]


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, timeout=SECONDS, check=False, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def _block(language: str, page: str) -> str:
    found = re.search(rf"^```{language}\n(.+?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def _has_listed(output: str) -> None:
    assert "[bash]" in output
    assert output.rstrip().endswith("- notes.txt")
