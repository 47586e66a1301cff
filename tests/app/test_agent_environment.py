from __future__ import annotations

import os
from pathlib import Path

import pytest

from pigeon.app.environment import environment_of_process
from pigeon.system.environment import Environment, refuse_to_choose_session
from pigeon.wire.errors import StartupError


def an_environment(**variables: str) -> Environment:
    return Environment(variables=variables, home="/home/me", cwd="/work")


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({}, "/tmp"),
        ({"TMPDIR": ""}, "/tmp"),
        ({"TMP": "/c"}, "/c"),
        ({"TEMP": "/b", "TMP": "/c"}, "/b"),
        ({"TMPDIR": "/a", "TEMP": "/b", "TMP": "/c"}, "/a"),
    ],
)
def test_temporary_files_go_where_the_variables_say(variables: dict[str, str], folder: str) -> None:
    assert an_environment(**variables).temporary_folder == folder


def test_paths_are_meant_from_the_given_folder_and_home() -> None:
    environment = an_environment(HOME="/elsewhere")
    assert [environment.absolute_path(path) for path in ("a", "~/a", "/a", "")] == [
        "/work/a",
        "/home/me/a",
        "/a",
        "/work",
    ]


def test_the_process_lends_its_variables_its_home_and_its_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    environment = environment_of_process()
    assert (environment.home, environment.cwd) == (str(tmp_path / "home"), str(tmp_path))
    monkeypatch.setenv("SET_LATER", "yes")
    assert environment.variables["SET_LATER"] == "yes"
    assert environment.pick_session is refuse_to_choose_session


def test_a_folder_that_was_removed_is_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    os.rmdir(gone)
    assert environment_of_process().cwd == ""


def test_without_a_terminal_there_is_no_choice() -> None:
    with pytest.raises(StartupError, match=r"^--resume needs a terminal to choose in; here use --session PATH\|ID or"):
        refuse_to_choose_session("/sessions")
