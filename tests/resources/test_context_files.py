"""Context files: which ones, in which order, how much of them."""

from __future__ import annotations

import os

import pytest

from pigeon.resources.context_files import LARGEST_FILE, NAMES, read_context_files
from pigeon.system.held_paths import HeldPath, resolve_and_hold
from support.agent_folders import ODD


@pytest.fixture
def found(folders):
    def find(cwd=None) -> list[str]:
        files = read_context_files(str(folders.agent), str(cwd or folders.project), folders.reported.append)
        root = str(folders.home.parent)
        return [f"{os.path.relpath(file.path, root)}={file.text}" for file in files if file.path.startswith(root)]

    return find


def test_the_users_file_comes_first_then_the_folders_from_the_root_down(folders, found) -> None:
    folders.put(folders.project / "AGENTS.md", "here")
    folders.put(folders.project.parent / "CLAUDE.md", "above")
    folders.put(folders.agent / "AGENTS.md", "mine")
    assert found() == ["home/.pigeon/agent/AGENTS.md=mine", "work/CLAUDE.md=above", "work/project/AGENTS.md=here"]


def test_of_one_folder_the_first_name_counts(folders, found) -> None:
    for name in reversed(NAMES):
        folders.put(folders.project / name, name)
        assert found()[-1].endswith(name)


def test_a_byte_order_mark_is_not_part_of_the_text_and_an_empty_file_says_nothing(folders, found) -> None:
    folders.put(folders.project / "AGENTS.md", "\ufeffhello")
    folders.put(folders.project.parent / "AGENTS.md", " \n")
    assert found() == ["work/project/AGENTS.md=hello"]


def test_a_large_file_is_shortened_and_that_is_said(folders, found) -> None:
    path = folders.put(folders.project / "AGENTS.md", "é" * LARGEST_FILE)
    [text] = found()
    assert "shortened" in text
    assert "\ufffd" not in text
    assert len(text.encode()) < LARGEST_FILE + 300
    assert path in folders.reported[0]


def test_where_room_is_short_the_nearest_files_get_it(folders, found, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pigeon.resources.context_files.LARGEST_ALL", 12)
    folders.put(folders.project / "AGENTS.md", "x" * 12)
    folders.put(folders.project.parent / "AGENTS.md", "y" * 12)
    assert found() == ["work/project/AGENTS.md=" + "x" * 12]
    assert "left out" in folders.reported[0]


def test_a_file_that_cannot_be_read_is_reported(folders, found, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folders.put(folders.project / "AGENTS.md", "x")
    folders.put(folders.project.parent / "AGENTS.md", "above")

    def refuse_path(asked: HeldPath) -> int:
        if asked.place == os.path.realpath(path):
            raise PermissionError(13, "Permission denied", asked.place)
        return asked.open(os.O_RDONLY)

    monkeypatch.setattr("pigeon.system.files.open_regular", refuse_path)
    assert found() == ["work/AGENTS.md=above"]
    assert folders.reported == [f"context file not loaded: EACCES: permission denied, read '{path}'"]


def test_a_folder_or_a_pipe_of_that_name_is_no_context_file(folders, found) -> None:
    (folders.project / "AGENTS.md").mkdir()
    os.mkfifo(folders.project / "CLAUDE.md")
    assert found() == []
    assert [str(folders.project / name) in said for name, said in zip(NAMES[1::2], folders.reported, strict=True)]


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("place", ["agent", "project"])
def test_what_is_no_file_is_reported_and_the_next_name_counts(folders, found, kind: str, place: str) -> None:
    folder = getattr(folders, place)
    ODD[kind](folder / "AGENTS.md")
    folders.put(folder / "CLAUDE.md", "text")
    if kind == "huge":  # a beginning is read of any file
        assert len(found()) == 1
    else:
        assert found() == [f"{os.path.relpath(folder, folders.home.parent)}/CLAUDE.md=text"]
    assert str(folder / "AGENTS.md") in folders.reported[0]


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "/proc/self/environ", "/proc/self/cmdline", "/dev/null", "/sys/kernel/notes", "SECRET"]
)
@pytest.mark.parametrize("name", NAMES)
def test_a_link_out_of_the_repository_is_not_read(folders, found, name: str, target: str) -> None:
    (folders.project / ".git").mkdir()
    secret = folders.put(folders.project.parent / "id_rsa", "secret")
    (folders.project / name).symlink_to(target.replace("SECRET", secret))
    assert found() == []
    assert str(folders.project / name) in folders.reported[0]


def test_a_link_by_way_of_a_folder_leads_out_as_well(folders, found) -> None:
    (folders.project / ".git").mkdir()
    folders.put(folders.project.parent / "outside" / "AGENTS.md", "secret")
    (folders.project / "docs").symlink_to(folders.project.parent / "outside")
    (folders.project / "AGENTS.md").symlink_to("docs/AGENTS.md")
    assert found() == []


def test_links_within_a_repository_are_followed(folders, found) -> None:
    (folders.project.parent / ".git").mkdir()
    folders.put(folders.project.parent / "docs" / "agents.md", "how")
    (folders.project / "AGENTS.md").symlink_to("../docs/agents.md")
    folders.put(folders.project.parent / "CLAUDE.md", "top")
    (folders.project.parent / "AGENTS.md").symlink_to("CLAUDE.md")
    assert found() == ["work/AGENTS.md=top", "work/project/AGENTS.md=how"]
    assert folders.reported == []


def test_a_repository_behind_a_link_is_still_one(folders, found, tmp_path) -> None:
    (folders.project / ".git").mkdir()
    folders.put(folders.project / "AGENTS.md", "text")
    (tmp_path / "link").symlink_to(folders.project)
    assert [file.text for file in read_context_files(str(folders.agent), str(tmp_path / "link"), print)] == ["text"]


def test_the_users_own_file_may_be_a_link(folders, found) -> None:
    mine = folders.put(folders.project.parent / "dotfiles", "mine")
    (folders.agent / "AGENTS.md").symlink_to(mine)
    assert found() == ["home/.pigeon/agent/AGENTS.md=mine"]


def test_a_file_that_is_swapped_for_a_link_is_not_read(folders, found, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folders.put(folders.project / "AGENTS.md", "text")
    secret = folders.put(folders.project.parent / "id_rsa", "secret")

    def swap_for_link(asked: str, names: tuple[str, ...]) -> HeldPath:
        os.unlink(path)
        os.symlink(secret, path)
        return resolve_and_hold(asked, names)

    monkeypatch.setattr("pigeon.system.file_view.resolve_and_hold", swap_for_link)
    assert found() == []
    assert "leads out of" in folders.reported[0]


def test_a_file_that_two_folders_share_is_told_once(folders, found) -> None:
    folders.put(folders.agent / "AGENTS.md", "mine")
    (folders.project / "AGENTS.md").symlink_to(folders.agent / "AGENTS.md")
    assert found() == ["home/.pigeon/agent/AGENTS.md=mine"]


def worktree(folders, text: str):
    tree = folders.project / "trees" / "one"
    tree.mkdir(parents=True)
    (folders.project / ".git" / "worktrees" / "one").mkdir(parents=True)
    folders.put(tree / ".git", text)
    folders.put(folders.project / "AGENTS.md", "main")
    folders.put(folders.project / "trees" / "AGENTS.md", "between")
    return tree


def test_in_a_worktree_inside_its_repository_the_worktrees_file_stands_for_the_repositorys(folders, found) -> None:
    tree = worktree(folders, f"gitdir: {folders.project}/.git/worktrees/one\n")
    assert found(tree) == ["work/project/AGENTS.md=main", "work/project/trees/AGENTS.md=between"]
    folders.put(tree / "AGENTS.md", "tree")
    (tree / "deep").mkdir()
    assert found(tree / "deep") == ["work/project/trees/AGENTS.md=between", "work/project/trees/one/AGENTS.md=tree"]


@pytest.mark.parametrize("mark", ["gitdir: ../../.git/modules/one\n", "nonsense", ""])
def test_a_submodule_is_no_worktree(folders, found, mark: str) -> None:
    tree = worktree(folders, mark)
    folders.put(tree / "AGENTS.md", "sub")
    assert len(found(tree)) == 3
