"""What is offered for the word at the cursor."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from pigeon.frontends.terminal.screen.completion import ChatCompleter
from pigeon.system import project_files
from pigeon.system.project_files import ProjectFiles
from support.processes import eventually

NAMES = {"model": "choose the model", "compact": "make room", "skill:model-cards": "a skill"}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look is waited for, however busy the machine is."""
    monkeypatch.setattr(project_files, "FIRST_SECONDS", 20.0)


def completions_of(folder: Path, text: str) -> list[str]:
    completer = ChatCompleter(
        NAMES, ProjectFiles(lambda: str(folder), {}, str(folder)), {"model": ["demo/guide", "x/big"]}
    )
    return [one.text for one in completer.get_completions(Document(text), CompleteEvent())]


def test_files_that_git_ignores_are_not_offered_and_the_nearest_name_comes_first(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("built/\n")
    for name in ("src/parser.py", "src/old/parse_tree.py", "docs/sparse.md", "built/parser.js", "a b/parser notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert completions_of(tmp_path, "look at @parse") == [
        "src/parser.py",
        '"a b/parser notes.txt"',
        "src/old/parse_tree.py",
        "docs/sparse.md",
    ]
    assert completions_of(tmp_path, "@sp")[:1] == ["docs/sparse.md"]
    assert completions_of(tmp_path, "mail@parse") == []
    assert completions_of(tmp_path, '@"a b/par') == ['"a b/parser notes.txt"']


def test_what_a_command_takes_is_offered_behind_it(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_text("")
    assert completions_of(tmp_path, "/model ") == ["demo/guide", "x/big"]
    assert completions_of(tmp_path, "/model Gui") == ["demo/guide"]
    assert completions_of(tmp_path, "/image do") == ["dot.png"]
    assert completions_of(tmp_path, "/compact wh") == []


def test_commands_are_offered_at_the_beginning_only(tmp_path: Path) -> None:
    assert completions_of(tmp_path, "/mo") == ["model "]
    assert completions_of(tmp_path, "say /mo") == []
    assert completions_of(tmp_path, "/") == ["model ", "compact ", "skill:model-cards "]


class SlowDisk:
    """A folder called `slow` is not read until it may be; says which threads read folders."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.threads: set[int] = set()
        self._really = os.scandir

    def scandir(self, path: str) -> Any:
        self.threads.add(threading.get_ident())
        if path.endswith("slow"):
            assert self.may.wait(20)
        return self._really(path)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "late.txt").touch()
    (tmp_path / "soon.txt").touch()
    disk = SlowDisk()
    monkeypatch.setattr(os, "scandir", disk.scandir)
    monkeypatch.setattr(project_files, "FIRST_SECONDS", 0.0)
    yield disk
    disk.may.set()


async def found_by(completer: ChatCompleter, text: str) -> list[str]:
    return [one.text async for one in completer.get_completions_async(Document(text), CompleteEvent())]


async def test_a_slow_disk_holds_up_neither_the_event_loop_nor_what_was_found_by_then(
    tmp_path: Path, disk: SlowDisk
) -> None:
    completer = ChatCompleter(NAMES, ProjectFiles(lambda: str(tmp_path), {}, str(tmp_path)), {})
    await found_by(completer, "@")
    assert eventually(lambda: disk.threads != set())
    while "soon.txt" not in (found := await found_by(completer, "@")):
        pass
    assert found == ["soon.txt", "slow/"]
    disk.may.set()
    while "slow/late.txt" not in await found_by(completer, "@"):
        pass
    assert threading.get_ident() not in disk.threads


async def test_files_that_are_new_are_found_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    completer = ChatCompleter(NAMES, ProjectFiles(lambda: str(tmp_path), {}, str(tmp_path)), {})
    assert await found_by(completer, "@new") == []
    (tmp_path / "new.txt").touch()
    assert await found_by(completer, "@new") == []
    monkeypatch.setattr(project_files, "FRESH_SECONDS", -1.0)
    while await found_by(completer, "@new") != ["new.txt"]:
        pass


async def test_only_files_are_looked_for_in_a_thread(tmp_path: Path) -> None:
    completer = ChatCompleter(NAMES, ProjectFiles(lambda: str(tmp_path), {}, str(tmp_path)), {})
    at_once = {
        text: completer.can_complete_instantly(Document(text))
        for text in ("/mo", "/model x", "/image x", "see @x", "word")
    }
    assert at_once == {"/mo": True, "/model x": True, "/image x": False, "see @x": False, "word": True}
    await found_by(completer, "@")
    assert completer.can_complete_instantly(Document("see @x"))
