"""Decisions about projects on disk, and when those about a folder count for the folders in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pigeon.sandbox.written_folders import WRITTEN, filter_programs_path, record_written_folders, written_folders
from pigeon.trust.trust_file import DOUBTED, record_trusted_contents, save_decision, saved_decision


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, Path]:
    project = tmp_path / "code" / "app"
    (project / "sub" / "deep").mkdir(parents=True)
    return str(tmp_path / "agent"), project


def test_trust_in_a_folder_counts_for_those_in_it(folders: tuple[str, Path]) -> None:
    agent, project = folders
    assert save_decision(agent, str(project.parent), True) is None
    assert saved_decision(agent, str(project / "sub")) == (True, None)


def test_it_does_not_count_where_commands_behind_a_sandbox_could_write(folders: tuple[str, Path]) -> None:
    agent, project = folders
    save_decision(agent, str(project.parent), True)
    record_written_folders(agent, [str(project)])
    assert saved_decision(agent, str(project)) == (True, None), "its own files were kept from those commands"
    assert saved_decision(agent, str(project / "sub")) == (None, None)
    assert saved_decision(agent, str(project.parent / "other")) == (True, None)
    save_decision(agent, str(project / "sub"), True)
    assert saved_decision(agent, str(project / "sub")) == (True, None), "it was decided about this very folder"
    assert saved_decision(agent, str(project / "sub" / "deep")) == (None, None)


@pytest.mark.parametrize("had", [True, False])
def test_trust_in_a_folder_does_not_count_for_what_commands_above_it_may_have_made_there(
    folders: tuple[str, Path], had: bool
) -> None:
    agent, project = folders
    save_decision(agent, str(project), True)
    if had:
        (project / ".pi").mkdir()
    record_trusted_contents(agent, [str(project.parent)])
    assert saved_decision(agent, str(project)) == (True, None), "nothing has come yet"
    (project / ".pigeon").mkdir()
    assert saved_decision(agent, str(project)) == (None, None)
    record_trusted_contents(agent, [str(project.parent)])
    assert saved_decision(agent, str(project)) == (None, None), "a later session changes nothing about that"
    save_decision(agent, str(project), True)
    assert saved_decision(agent, str(project)) == (True, None), "it was decided about what is there now"
    record_trusted_contents(agent, [str(project)])
    (project / ".mcp.json").touch()
    assert saved_decision(agent, str(project)) == (True, None), "at the top of the working folder none can be made"


@pytest.mark.parametrize(("name", "content", "trusted"), [(DOUBTED, '["folder"]\n', "."), (WRITTEN, "{broken\n", "..")])
def test_with_a_list_that_cannot_be_used_trust_does_not_count(
    folders: tuple[str, Path], name: str, content: str, trusted: str
) -> None:
    agent, project = folders
    save_decision(agent, str(project / trusted), True)
    (Path(agent) / name).write_text(content)
    decision, problem = saved_decision(agent, str(project))
    assert decision is None
    assert problem is not None
    assert name in problem


def test_a_no_counts_for_everything_below_in_any_case(folders: tuple[str, Path]) -> None:
    agent, project = folders
    save_decision(agent, str(project), False)
    record_written_folders(agent, [str(project)])
    assert saved_decision(agent, str(project / "sub")) == (False, None)


def test_a_folder_is_noted_once_and_not_below_one_that_is_noted(folders: tuple[str, Path]) -> None:
    agent, project = folders
    for path in (project, project, project / "sub"):
        record_written_folders(agent, [str(path)])
    assert written_folders(agent) == [str(project)]


def test_folders_that_are_gone_leave_a_long_list(folders: tuple[str, Path]) -> None:
    agent, project = folders
    for number in range(3):
        record_written_folders(agent, [f"/gone/{number * 400 + one}" for one in range(400)])
    record_written_folders(agent, [str(project)])
    assert written_folders(agent) == [str(project)]


def test_programs_are_looked_for_in_the_systems_folders_alone_if_it_is_not_known_where_commands_could_write(
    tmp_path: Path,
) -> None:
    assert filter_programs_path(str(tmp_path), "bin:/opt/bin:/usr/bin") == "/opt/bin:/usr/bin"
    (tmp_path / "sandbox-folders.jsonl").write_text("what is this\n")
    assert filter_programs_path(str(tmp_path), "/opt/bin:/usr/bin") == os.defpath
