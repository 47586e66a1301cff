"""Context files: which ones, in which order, how much of them."""

from __future__ import annotations

import os

import pytest

from pigeon.resources.context_files import LARGEST_FILE, NAMES, context_files


@pytest.fixture
def found(town):
    def find(cwd=None) -> list[str]:
        files = context_files(str(town.agent), str(cwd or town.project), town.reported.append)
        root = str(town.home.parent)
        return [f"{os.path.relpath(file.path, root)}={file.text}" for file in files if file.path.startswith(root)]

    return find


def test_the_users_file_comes_first_then_the_folders_from_the_root_down(town, found) -> None:
    town.put(town.project / "AGENTS.md", "here")
    town.put(town.project.parent / "CLAUDE.md", "above")
    town.put(town.agent / "AGENTS.md", "mine")
    assert found() == ["home/.pigeon/agent/AGENTS.md=mine", "work/CLAUDE.md=above", "work/project/AGENTS.md=here"]


def test_of_one_folder_the_first_name_counts(town, found) -> None:
    for name in reversed(NAMES):
        town.put(town.project / name, name)
        assert found()[-1].endswith(name)


def test_a_byte_order_mark_is_not_part_of_the_text_and_an_empty_file_says_nothing(town, found) -> None:
    town.put(town.project / "AGENTS.md", "\ufeffhello")
    town.put(town.project.parent / "AGENTS.md", " \n")
    assert found() == ["work/project/AGENTS.md=hello"]


def test_a_large_file_is_shortened_and_that_is_said(town, found) -> None:
    path = town.put(town.project / "AGENTS.md", "é" * LARGEST_FILE)
    [text] = found()
    assert "shortened" in text
    assert "\ufffd" not in text
    assert len(text.encode()) < LARGEST_FILE + 300
    assert path in town.reported[0]


def test_where_room_is_short_the_nearest_files_get_it(town, found, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pigeon.resources.context_files.LARGEST_ALL", 12)
    town.put(town.project / "AGENTS.md", "x" * 12)
    town.put(town.project.parent / "AGENTS.md", "y" * 12)
    assert found() == ["work/project/AGENTS.md=" + "x" * 12]
    assert "left out" in town.reported[0]


def test_a_file_that_cannot_be_read_is_reported(town, found, monkeypatch: pytest.MonkeyPatch) -> None:
    path = town.put(town.project / "AGENTS.md", "x")
    town.put(town.project.parent / "AGENTS.md", "above")

    def locked(asked: str) -> int:
        if asked == path:
            raise PermissionError(13, "Permission denied", asked)
        return os.open(asked, os.O_RDONLY)

    monkeypatch.setattr("pigeon.system.files.open_regular", locked)
    assert found() == ["work/AGENTS.md=above"]
    assert town.reported == [f"context file not loaded: EACCES: permission denied, read '{path}'"]


def test_a_folder_or_a_pipe_of_that_name_is_no_context_file(town, found) -> None:
    (town.project / "AGENTS.md").mkdir()
    os.mkfifo(town.project / "CLAUDE.md")
    assert found() == []


def test_a_file_that_two_folders_share_is_told_once(town, found) -> None:
    town.put(town.agent / "AGENTS.md", "mine")
    (town.project / "AGENTS.md").symlink_to(town.agent / "AGENTS.md")
    assert found() == ["home/.pigeon/agent/AGENTS.md=mine"]


def worktree(town, text: str):
    tree = town.project / "trees" / "one"
    tree.mkdir(parents=True)
    (town.project / ".git" / "worktrees" / "one").mkdir(parents=True)
    town.put(tree / ".git", text)
    town.put(town.project / "AGENTS.md", "main")
    town.put(town.project / "trees" / "AGENTS.md", "between")
    return tree


def test_in_a_worktree_inside_its_repository_the_worktrees_file_stands_for_the_repositorys(town, found) -> None:
    tree = worktree(town, f"gitdir: {town.project}/.git/worktrees/one\n")
    assert found(tree) == ["work/project/AGENTS.md=main", "work/project/trees/AGENTS.md=between"]
    town.put(tree / "AGENTS.md", "tree")
    (tree / "deep").mkdir()
    assert found(tree / "deep") == ["work/project/trees/AGENTS.md=between", "work/project/trees/one/AGENTS.md=tree"]


@pytest.mark.parametrize("mark", ["gitdir: ../../.git/modules/one\n", "nonsense", ""])
def test_a_submodule_is_no_worktree(town, found, mark: str) -> None:
    tree = worktree(town, mark)
    town.put(tree / "AGENTS.md", "sub")
    assert len(found(tree)) == 3
