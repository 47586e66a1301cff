from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pigeon.app.options import AgentOptions
from pigeon.app.sessions import make_repository, open_journal
from pigeon.config.settings import Settings
from pigeon.session.history.journal import Journal
from pigeon.session.history.repository import SessionRepository
from pigeon.session.history.session_folders import SessionFolders
from pigeon.system.environment import Environment
from pigeon.wire.errors import StartupError


class Project:
    """A project and its sessions."""

    def __init__(self, root: Path) -> None:
        self.agent = root / "agent"
        self.cwd = root / "work"
        self.cwd.mkdir(parents=True)
        self.opened: list[Journal] = []

    def environment(self, **variables: str) -> Environment:
        return Environment(variables=variables, home="/home/me", cwd=str(self.cwd))

    def repository(
        self, settings: Settings | None = None, variables: dict[str, str] | None = None, **options: Any
    ) -> SessionRepository:
        return make_repository(
            AgentOptions(**options),
            self.environment(**(variables or {})),
            settings or Settings(),
            str(self.agent),
            str(self.cwd),
            print,
            bytes,
        )

    def journal(self, environment: Environment | None = None, **options: Any) -> Journal:
        made = open_journal(
            AgentOptions(**options), environment or self.environment(), self.repository(**options), str(self.cwd)
        )
        self.opened.append(made)
        return made

    def refusal(self, **options: Any) -> str:
        with pytest.raises(StartupError) as caught:
            self.journal(**options)
        return str(caught.value)

    def session(self, session_id: str, age: int = 0, cwd: Path | None = None) -> Path:
        where = str(cwd or self.cwd)
        folder = Path(SessionFolders.from_agent_dir(str(self.agent)).folder_of(where))
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


@pytest.mark.parametrize(
    ("other", "flag"),
    [
        ({"session": "x"}, "--session"),
        ({"continue_newest": True}, "--continue"),
        ({"resume": "x"}, "--resume"),
        ({"no_session": True}, "--no-session"),
    ],
)
def test_a_fork_is_not_combined_with_another_beginning(project: Project, other: dict[str, Any], flag: str) -> None:
    assert project.refusal(fork="y", **other) == f"--fork cannot be combined with {flag}"


@pytest.mark.parametrize("other", [{"session": "x"}, {"continue_newest": True}, {"resume": "x"}])
def test_an_id_is_not_combined_with_another_session(project: Project, other: dict[str, Any]) -> None:
    text = project.refusal(session_id="mine", **other)
    assert text == "--session-id cannot be combined with --session, --continue or --resume"


@pytest.mark.parametrize("name", ["-a", "a-", ".a", "a/b", "../a", "a b", "ä", "a\n", "_"])
def test_an_id_that_is_no_file_name_is_refused(project: Project, name: str) -> None:
    assert project.refusal(session_id=name).startswith(f'Invalid session id "{name}": use letters')


@pytest.mark.parametrize("name", ["a", "A1", "my.session_2-x", "0"])
def test_an_id_that_is_free_becomes_a_new_session(project: Project, name: str) -> None:
    assert project.journal(session_id=name).session_id == name


def test_to_choose_needs_a_terminal(project: Project) -> None:
    assert "--session PATH|ID or --continue" in project.refusal(resume="")


def test_a_person_may_choose_among_the_sessions_of_the_folder(project: Project) -> None:
    asked: list[str] = []
    path = project.session("abcdef")

    def pick(folder: str) -> str:
        asked.append(folder)
        return str(path)

    environment = Environment(variables={}, home="/", cwd="/", pick_session=pick)
    assert project.journal(environment, resume="").file == str(path)
    assert asked == [str(path.parent)]


@pytest.mark.parametrize("option", ["session", "fork", "resume"])
def test_a_session_that_does_not_exist_is_named(project: Project, option: str) -> None:
    assert project.refusal(**{option: "nowhere"}) == "No session found matching 'nowhere'"


def test_a_fork_of_a_missing_file_is_refused(project: Project, tmp_path: Path) -> None:
    assert str(tmp_path / "gone.jsonl") in project.refusal(fork=str(tmp_path / "gone.jsonl"))


def test_a_session_of_another_project_is_refused_and_says_what_to_do(project: Project, tmp_path: Path) -> None:
    path = project.session("abcdef", cwd=tmp_path / "elsewhere")
    text = project.refusal(session="abc")
    assert str(path) in text
    assert "--fork PATH" in text


def test_a_session_is_found_by_the_beginning_of_its_id(project: Project) -> None:
    project.session("other")
    path = project.session("abcdef")
    assert project.journal(session="abc").file == str(path)


@pytest.mark.parametrize("reference", ["new.jsonl", "./new", "sub/new.jsonl", "odd\\name"])
def test_what_looks_like_a_path_is_one(project: Project, reference: str) -> None:
    project.session("new")
    assert project.journal(session=reference).file == os.path.normpath(project.cwd / reference)


def test_an_id_is_only_found_whole(project: Project) -> None:
    path = project.session("abcdef")
    assert project.journal(session_id="abc").file != str(path)
    assert project.journal(session_id="abcdef").file == str(path)


def test_to_continue_opens_the_newest_session_or_begins_one(project: Project) -> None:
    first = project.journal(continue_newest=True)
    assert (first.file is None) is False
    project.session("old", age=10)
    newest = project.session("new", age=5)
    assert project.journal(continue_newest=True).file == str(newest)


def test_keeping_nothing_wins_over_continuing(project: Project) -> None:
    project.session("new")
    assert project.journal(continue_newest=True, no_session=True).file is None


def test_a_fork_is_a_copy_under_its_own_id(project: Project) -> None:
    path = project.session("abcdef")
    before = path.read_bytes()
    copy = project.journal(fork="abc", session_id="mine")
    assert copy.session_id == "mine"
    assert copy.file != str(path)
    assert path.read_bytes() == before


def test_the_place_of_sessions_is_the_option_then_the_environment_then_the_settings(project: Project) -> None:
    settings = Settings(session_dir="/s")
    env = {"PI_CODING_AGENT_SESSION_DIR": "/e"}
    assert project.repository(settings, env, session_dir="/o").folder == "/o"
    assert project.repository(settings, env).folder == "/e"
    assert project.repository(settings).folder == "/s"
    assert project.repository().folder == SessionFolders.from_agent_dir(str(project.agent)).folder_of(str(project.cwd))


def test_the_place_of_sessions_is_meant_from_the_home_and_the_folder_of_the_environment(project: Project) -> None:
    assert project.repository(session_dir="~/s").folder == "/home/me/s"
    assert project.repository(session_dir="s").folder == str(project.cwd / "s")
    assert project.journal(session_dir="s", session="new/file.jsonl").file == str(project.cwd / "new" / "file.jsonl")


def test_a_fork_by_a_relative_path_is_meant_from_the_folder_of_the_environment(project: Project) -> None:
    path = project.session("abcdef")
    copy = project.journal(fork=os.path.relpath(path, project.cwd))
    assert copy.file is not None
    assert copy.file != str(path)
    assert len(copy.lines) == 1
