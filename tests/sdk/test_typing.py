"""Programs that use the library are type checked as far as it goes: every answer, every event, every mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.source_tree import ROOT

PROGRAM = Path(__file__).with_name("typed_program.py")
MISTAKES = {
    "await agent.set_model(1, 'x')": 'incompatible type "int"',
    "await agent.set_thinking_level('much')": "incompatible type",
    "(await agent.get_state()).no_such": 'has no attribute "no_such"',
    "await agent.no_such()": 'has no attribute "no_such"',
    "agent.prompt(5)": 'incompatible type "int"',
    "(await agent.run('x')).text + 1": "Unsupported operand types",
    "pigeon.Agent(modle='demo')": 'Unexpected keyword argument "modle"',
    "await population(5)": 'incompatible type "int"',
    "pigeon.SyncAgent(modle='demo')": 'Unexpected keyword argument "modle"',
    "pigeon.SyncClient(timeout='much')": 'incompatible type "str"',
    "pigeon.run_sync('x', modle='demo')": "No overload variant",
    "(await agent.run('x', output=list[str])).output.upper()": '"list[str]" of "list[str] | None" has no attribute',
    "(await agent.run('x', output=list[str])).output.append('y')": 'Item "None" of "list[str] | None"',
}


# What mypy found out in an earlier run, apart from that of the project, whose options are others.
CACHE = ROOT / ".mypy_cache" / "typed_programs"


def run_mypy(path: Path) -> str:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--warn-unreachable",
        "--no-error-summary",
        "--config-file",
        "",
        "--cache-dir",
    ]
    return subprocess.run([*command, str(CACHE), str(path)], capture_output=True, text=True, check=False).stdout


# Without a cache it reads the whole source, which takes minutes on a busy machine.
pytestmark = pytest.mark.timeout(600)


def test_mypy_sees_the_type_of_every_answer_and_event() -> None:
    assert run_mypy(PROGRAM) == ""


def test_mypy_sees_every_mistake(tmp_path: Path) -> None:
    head = "import pigeon\n\n@pigeon.tool\nasync def population(city: str) -> int:\n    return 1\n\n"
    lines = "".join(f"    {mistake}\n" for mistake in MISTAKES)
    (tmp_path / "mistaken.py").write_text(f"{head}async def main(agent: pigeon.Agent) -> None:\n{lines}")
    found = run_mypy(tmp_path / "mistaken.py").splitlines()
    begin = head.count("\n") + 2
    for number, expected in enumerate(MISTAKES.values(), begin):
        assert any(f"mistaken.py:{number}:" in line and expected in line for line in found), (number, found)
