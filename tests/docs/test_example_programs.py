"""The examples of the library, run from end to end as the programs that they are, on the demo model and on scripts."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import IO

import pytest

from pigeon.testing import call, scripted, value
from support.agent_folders import AgentFolders
from support.doc_programs import code_cells, output_of, run_cells
from support.source_tree import ROOT

EXAMPLES = ROOT / "examples"
SECONDS = 30
CHECK = "from calc import add\nassert add(2, 3) == 5, add(2, 3)\nprint('fine')\n"


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.stem)
def test_an_example_imports_only_what_is_public(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        of_pigeon = {name for name in names if name.split(".")[0] == "pigeon"}
        assert of_pigeon <= {"pigeon", "pigeon.extensions", "pigeon.testing", "pigeon.workspaces"}
        if isinstance(node, ast.ImportFrom) and of_pigeon:
            missing = {one.name for one in node.names} - set(import_module(node.module or "").__all__)
            assert not missing


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    return AgentFolders(tmp_path)


def command(name: str, *options: str) -> list[str]:
    return [sys.executable, "-W", "error", str(EXAMPLES / name), *options]


@pytest.fixture
def bot(folders: AgentFolders) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command("bot.py"),
        cwd=folders.work,
        env=folders.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def until(output: IO[str] | None, text: str) -> str:
    """What is printed up to a line with this text."""
    assert output is not None
    lines = ""
    for line in output:
        lines += line
        if text in line:
            return lines
    raise AssertionError(f"{text!r} was not printed, but:\n{lines}")


def test_the_bot_keeps_users_apart_and_asks_before_it_changes_a_file(
    bot: subprocess.Popen[str], folders: AgentFolders
) -> None:
    assert bot.stdin is not None

    def send_line(line: str) -> None:
        assert bot.stdin is not None
        bot.stdin.write(f"{line}\n")
        bot.stdin.flush()

    send_line("nonsense")
    until(bot.stdout, "(write `name: message`)")
    send_line("ann: write hello to notes.txt")
    asked = until(bot.stdout, "+1 hello")
    assert "to ann: May I use write?" in asked
    send_line("bob: write other to other.txt")
    until(bot.stdout, "+1 other")
    send_line("bob: no")
    until(bot.stdout, "to bob: I could not write other.txt")
    send_line("ann: yes")
    until(bot.stdout, "to ann: Done: I wrote notes.txt")
    bot.stdin.close()
    assert bot.wait(SECONDS) == 0
    assert [path.name for path in folders.work.iterdir()] == ["notes.txt"]
    assert len(list(folders.agent.rglob("*chat-*.jsonl"))) == 2


def run_fix(folders: AgentFolders, model: str, *options: str) -> tuple[int, dict[str, object]]:
    (folders.work / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (folders.work / "check.py").write_text(CHECK)
    check = [sys.executable, "-B", "check.py"]
    done = subprocess.run(
        command("ci_fixer.py", "--model", model, *options, *check),
        cwd=folders.work,
        env=folders.environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


REPORT = {"cause": "a sign", "changed_files": ["calc.py"], "confident": True}
MEND = call("edit", path="calc.py", edits=[{"oldText": "a - b", "newText": "a + b"}])


def test_the_fixer_mends_what_the_check_finds_and_reports_it(folders: AgentFolders) -> None:
    with scripted(MEND, value(REPORT), default=value(REPORT)) as model:
        code, report = run_fix(folders, model)
    assert (code, report["status"], report["ended"], report["report"]) == (0, "fixed", "done", REPORT)


def test_the_fixer_without_a_check_says_what_is_missing(folders: AgentFolders) -> None:
    done = subprocess.run(
        command("ci_fixer.py"), cwd=folders.work, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 2
    assert "name the check to run" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_fixer_believes_the_check_and_not_the_model(folders: AgentFolders) -> None:
    with scripted(default=value(REPORT)) as model:
        code, report = run_fix(folders, model)
    assert (code, report["status"], report["ended"]) == (1, "not fixed", "done")


@pytest.fixture
def address(folders: AgentFolders) -> Iterator[tuple[str, int]]:
    replies = ({"text": "and so on", "hang": True}, "That was quick.")
    with (
        scripted(*replies) as model,
        subprocess.Popen(
            command("web_backend.py", "--port", "0", "--model", model),
            cwd=folders.work,
            env=folders.environment(),
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        found = re.search(r"http://([\d.]+):(\d+)/chat", until(process.stdout, "/chat"))
        assert found is not None
        yield found[1], int(found[2])
        process.terminate()


def test_the_back_end_streams_and_a_reader_who_leaves_ends_the_run(address: tuple[str, int]) -> None:
    conversation = "00000000-0000-0000-0000-000000000001"
    body = json.dumps({"message": "go on", "conversation": conversation}).encode()
    request = b"POST /chat HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with socket.create_connection(address, SECONDS) as reader, reader.makefile("r") as lines:
        reader.sendall(request)
        until(lines, "delta")
        with socket.create_connection(address, SECONDS) as second, second.makefile("r") as refused:
            second.sendall(request)
            assert "409" in until(refused, "HTTP/1.1")
    # The first run never ends by itself, and the conversation is free all the same.
    text = ""
    while '"done"' not in text:
        with socket.create_connection(address, SECONDS) as third, third.makefile("r") as lines:
            third.sendall(request)
            text = lines.read()
    assert "event: text" in text
    assert conversation in text
    with socket.create_connection(address, SECONDS) as wrong, wrong.makefile("r") as lines:
        wrong.sendall(b"POST /chat HTTP/1.1\r\nContent-Length: 2\r\n\r\n[]")
        assert "400" in lines.readline()


async def test_the_cells_of_the_notebook_print_what_it_shows(
    folders: AgentFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asyncio.get_running_loop().is_running()
    for name, text in folders.environment().items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr("tempfile.tempdir", str(folders.temp))
    monkeypatch.chdir(folders.work)
    cells = code_cells(EXAMPLES / "notebook.ipynb")
    assert run_cells(cells) == [output_of(cell) for cell in cells]


def test_the_notebook_is_one() -> None:
    notebook = json.loads((EXAMPLES / "notebook.ipynb").read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    for cell in notebook["cells"]:
        assert set(cell) >= {"id", "cell_type", "metadata", "source"}
        assert (cell["cell_type"] == "code") == ("outputs" in cell) == ("execution_count" in cell)


def test_every_example_is_listed() -> None:
    page = (EXAMPLES / "README.md").read_text("utf-8")
    files = [path.relative_to(EXAMPLES) for pattern in ("**/*.py", "*.ipynb") for path in EXAMPLES.glob(pattern)]
    assert files
    assert not [str(file) for file in files if f"]({file})" not in page]
