from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pigeon.app.sessions import journal_of, repository_of
from pigeon.cli.args import parse
from pigeon.config.settings import Settings
from pigeon.session.history.journal import Journal
from pigeon.session.history.repository import SessionRepository, default_folder
from pigeon.wire.errors import StartupError


class Project:
    """A project and its sessions."""

    def __init__(self, root: Path) -> None:
        self.agent = root / "agent"
        self.cwd = root / "work"
        self.cwd.mkdir(parents=True)
        self.opened: list[Journal] = []

    def repository(self, *arguments: str, settings: Settings | None = None, **environment: str) -> SessionRepository:
        return repository_of(
            parse(list(arguments)), settings or Settings(), str(self.agent), str(self.cwd), environment, print
        )

    def journal(self, *arguments: str) -> Journal:
        options = parse(list(arguments))
        self.opened.append(journal_of(options, self.repository(*arguments), str(self.cwd)))
        return self.opened[-1]

    def refusal(self, *arguments: str) -> str:
        with pytest.raises(StartupError) as caught:
            self.journal(*arguments)
        return str(caught.value)

    def session(self, session_id: str, age: int = 0, cwd: Path | None = None) -> Path:
        where = str(cwd or self.cwd)
        folder = Path(default_folder(str(self.agent), where))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"2026-01-01T00-00-00-000Z_{session_id}.jsonl"
        message = {"role": "user", "content": "hi", "timestamp": 1}
        entry: dict[str, Any] = {"type": "message", "id": "e1", "parentId": None, "message": message}
        header = {
            "type": "session",
            "version": 3,
            "id": session_id,
            "cwd": where,
            "timestamp": "2026-01-01T00:00:00.000Z",
        }
        path.write_text(
            "".join(json.dumps(line) + "\n" for line in (header, {**entry, "timestamp": header["timestamp"]}))
        )
        os.utime(path, (1000 - age, 1000 - age))
        return path


@pytest.fixture
def project(tmp_path: Path) -> Any:
    made = Project(tmp_path)
    yield made
    for journal in made.opened:
        journal.close()


@pytest.mark.parametrize("other", [["--session", "x"], ["--continue"], ["--resume", "x"], ["--no-session"]])
def test_a_fork_is_not_combined_with_another_beginning(project: Project, other: list[str]) -> None:
    assert project.refusal("--fork", "y", *other) == f"--fork cannot be combined with {other[0]}"


@pytest.mark.parametrize("other", [["--session", "x"], ["--continue"], ["--resume", "x"]])
def test_an_id_is_not_combined_with_another_session(project: Project, other: list[str]) -> None:
    text = project.refusal("--session-id", "mine", *other)
    assert text == "--session-id cannot be combined with --session, --continue or --resume"


@pytest.mark.parametrize("name", ["-a", "a-", ".a", "a/b", "../a", "a b", "ä", "a\n", "_"])
def test_an_id_that_is_no_file_name_is_refused(project: Project, name: str) -> None:
    assert project.refusal(f"--session-id={name}").startswith(f'Invalid session id "{name}": use letters')


@pytest.mark.parametrize("name", ["a", "A1", "my.session_2-x", "0"])
def test_an_id_that_is_free_becomes_a_new_session(project: Project, name: str) -> None:
    assert project.journal("--session-id", name).session_id == name


def test_to_choose_needs_a_terminal(project: Project) -> None:
    assert "--session PATH|ID or --continue" in project.refusal("--resume")


@pytest.mark.parametrize("option", ["--session", "--fork", "--resume"])
def test_a_session_that_does_not_exist_is_named(project: Project, option: str) -> None:
    assert project.refusal(option, "nowhere") == "No session found matching 'nowhere'"


def test_a_fork_of_a_missing_file_is_refused(project: Project, tmp_path: Path) -> None:
    assert str(tmp_path / "gone.jsonl") in project.refusal("--fork", str(tmp_path / "gone.jsonl"))


def test_a_session_of_another_project_is_refused_and_says_what_to_do(project: Project, tmp_path: Path) -> None:
    path = project.session("abcdef", cwd=tmp_path / "elsewhere")
    text = project.refusal("--session", "abc")
    assert str(path) in text
    assert "--fork PATH" in text


def test_a_session_is_found_by_the_beginning_of_its_id(project: Project) -> None:
    project.session("other")
    path = project.session("abcdef")
    assert project.journal("--session", "abc").file == str(path)


def test_an_id_is_only_found_whole(project: Project) -> None:
    path = project.session("abcdef")
    assert project.journal("--session-id", "abc").file != str(path)
    assert project.journal("--session-id", "abcdef").file == str(path)


def test_to_continue_opens_the_newest_session_or_begins_one(project: Project) -> None:
    first = project.journal("--continue")
    assert (first.file is None) is False
    project.session("old", age=10)
    newest = project.session("new", age=5)
    assert project.journal("--continue").file == str(newest)


def test_keeping_nothing_wins_over_continuing(project: Project) -> None:
    project.session("new")
    assert project.journal("--continue", "--no-session").file is None


def test_a_fork_is_a_copy_under_its_own_id(project: Project) -> None:
    path = project.session("abcdef")
    before = path.read_bytes()
    copy = project.journal("--fork", "abc", "--session-id", "mine")
    assert copy.session_id == "mine"
    assert copy.file != str(path)
    assert path.read_bytes() == before


def test_the_place_of_sessions_is_the_option_then_the_environment_then_the_settings(project: Project) -> None:
    settings = Settings(session_dir="/s")
    env = {"PI_CODING_AGENT_SESSION_DIR": "/e"}
    assert project.repository("--session-dir", "/o", settings=settings, **env).folder == "/o"
    assert project.repository(settings=settings, **env).folder == "/e"
    assert project.repository(settings=settings).folder == "/s"
    assert project.repository().folder == default_folder(str(project.agent), str(project.cwd))
    assert project.repository("--session-dir", "~/s").folder == os.path.expanduser("~/s")
