"""Workspaces: fresh, whole, and none of the original's business."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from pigeon.frontends.batch.places.workspaces import (
    WorkspaceError,
    Workspaces,
    copy_folder,
    make_patch,
    remove_folder,
)
from pigeon.frontends.batch.records import Workspace
from pigeon.system.git import Git, GitError
from pigeon.system.process.start import ProcessOwner
from support.batch import commit, git, make_repository
from support.sandboxed_runs import policy_for, wall_of


@pytest.fixture
def workspaces(tmp_path: Path, processes: ProcessOwner) -> Workspaces:
    return Workspaces(str(tmp_path / "cache"), "batch-1", Git(processes, os.environ))


async def test_a_copy_of_a_folder_has_links_modes_and_hidden_files_and_the_original_stays(
    workspaces: Workspaces, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "locked").mkdir(parents=True)
    (source / "locked" / "kept.txt").write_text("kept")
    (source / ".hidden").write_text("h")
    (source / "to-kept").symlink_to("locked/kept.txt")
    (source / "nowhere").symlink_to("/does/not/exist")
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o555)
    os.mkfifo(source / "pipe")
    (source / "locked").chmod(0o555)
    out = source / "out"
    out.mkdir()
    path = tmp_path / "copy"
    assert await workspaces.create_workspace(Workspace(folder=str(source)), str(path), str(out)) is None
    assert (path / "to-kept").read_text() == "kept"
    assert os.readlink(path / "nowhere") == "/does/not/exist"
    assert os.access(path / "run.sh", os.X_OK)
    assert not (path / "pipe").exists()
    assert not (path / "out").exists(), "the results are not part of the work"
    (path / ".hidden").write_text("changed")
    assert (source / ".hidden").read_text() == "h"
    remove_folder(str(path))
    assert not path.exists()


def test_a_folder_that_cannot_be_copied_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="missing"):
        copy_folder(str(tmp_path / "missing"), str(tmp_path / "copy"), "/nowhere")
    (tmp_path / "source").mkdir()
    (tmp_path / "there").mkdir()
    with pytest.raises(WorkspaceError, match=f"^{tmp_path}/there cannot be copied: File exists$"):
        copy_folder(str(tmp_path / "source"), str(tmp_path / "there"), "/nowhere")


async def test_a_checkout_is_of_the_revision_and_changes_of_it_are_a_patch(
    workspaces: Workspaces, tmp_path: Path, processes: ProcessOwner
) -> None:
    repository = tmp_path / "repo"
    first = make_repository(repository, {"a.txt": "one\n", "sub/b.txt": "b\n"})
    git(repository, "tag", "v1")
    second = commit(repository, {"a.txt": "two\n"})
    for revision, expected in (("v1", first), (None, second), ("main", second), (first, first)):
        path = tmp_path / f"work-{revision}"
        found = await workspaces.create_workspace(
            Workspace(git=str(repository), revision=revision), str(path), "/nowhere"
        )
        assert found == expected
        assert (path / "a.txt").read_text() == ("one\n" if expected == first else "two\n")
        assert git(path, "remote", "get-url", "origin") == str(repository)
    (path / "new file.txt").write_text("new\n")
    (path / "a.txt").unlink()
    patch = (await make_patch(Git(processes, os.environ), str(path), first, str(tmp_path))).decode()
    assert "+new" in patch
    assert "-one" in patch
    git(repository, "checkout", "-q", first)
    (tmp_path / "patch").write_text(patch)
    git(repository, "apply", str(tmp_path / "patch"))
    assert (repository / "new file.txt").read_text() == "new\n"


async def test_a_branch_that_moves_stays_the_same_commit_for_a_batch(
    workspaces: Workspaces, tmp_path: Path, processes: ProcessOwner
) -> None:
    repository = tmp_path / "repo"
    first = make_repository(repository, {"a": "1"})
    wanted = Workspace(git=str(repository), revision="main")
    assert await workspaces.create_workspace(wanted, str(tmp_path / "w1"), "/nowhere") == first
    second = commit(repository, {"a": "2"})
    assert await workspaces.create_workspace(wanted, str(tmp_path / "w2"), "/nowhere") == first
    later = Workspaces(str(tmp_path / "cache"), "batch-2", Git(processes, os.environ))
    assert await later.create_workspace(wanted, str(tmp_path / "w3"), "/nowhere") == second


async def test_many_tasks_of_one_repository_clone_it_once(workspaces: Workspaces, tmp_path: Path) -> None:
    repository = tmp_path / "repo"
    make_repository(repository, {"a": "1"})
    made = await asyncio.gather(
        *(
            workspaces.create_workspace(Workspace(git=str(repository)), str(tmp_path / f"w{n}"), "/nowhere")
            for n in range(5)
        )
    )
    assert len(set(made)) == 1
    assert len([one for one in (tmp_path / "cache").iterdir() if one.suffix == ".git"]) == 1
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700, "it may hold private repositories"


async def test_submodules_are_there(workspaces: Workspaces, tmp_path: Path) -> None:
    make_repository(tmp_path / "inner", {"i.txt": "inner\n"})
    make_repository(tmp_path / "outer", {"o.txt": "outer\n"})
    git(tmp_path / "outer", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../inner", "lib")
    commit(tmp_path / "outer", {})
    await workspaces.create_workspace(Workspace(git=str(tmp_path / "outer")), str(tmp_path / "w"), "/nowhere")
    assert (tmp_path / "w" / "lib" / "i.txt").read_text() == "inner\n"


async def test_a_repository_or_revision_that_does_not_exist_is_named(workspaces: Workspaces, tmp_path: Path) -> None:
    make_repository(tmp_path / "repo", {"a": "1"})
    with pytest.raises(WorkspaceError, match='has no revision "v9"'):
        await workspaces.create_workspace(
            Workspace(git=str(tmp_path / "repo"), revision="v9"), str(tmp_path / "w"), "/nowhere"
        )
    with pytest.raises(GitError, match="missing"):
        await workspaces.create_workspace(Workspace(git=str(tmp_path / "missing")), str(tmp_path / "w2"), "/nowhere")


async def test_what_git_and_the_server_say_of_a_failure_is_told(tmp_path: Path, processes: ProcessOwner) -> None:
    make_repository(tmp_path / "repo", {"a": "1"})
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho 'me@server: Permission denied (publickey).' >&2\nexit 255\n")
    ssh.chmod(0o755)
    git = Git(processes, {**os.environ, "GIT_SSH": str(ssh), "GIT_SSH_VARIANT": "simple"})
    with pytest.raises(GitError) as refused:
        await git.run("ls-remote", "ssh://me@server.invalid/repo")
    assert str(refused.value).startswith("git: me@server: Permission denied (publickey). Could not read from remote")
    with pytest.raises(GitError, match=r"^git: Needed a single revision$"):
        await git.run("rev-parse", "--verify", "v9", cwd=str(tmp_path / "repo"))
    with pytest.raises(GitError, match=r"^git: git: 'no-such' is not a git command"):
        await git.run("no-such")
    (tmp_path / "repo" / "a").write_text("2")
    with pytest.raises(GitError, match=r"^git: it failed without a message$"):
        await git.run("diff", "--quiet", cwd=str(tmp_path / "repo"))


async def test_no_file_of_a_checkout_is_one_of_the_original_or_of_the_cache(
    workspaces: Workspaces, tmp_path: Path
) -> None:
    make_repository(tmp_path / "repo", {"a.txt": "one\n"})
    path = tmp_path / "work"
    await workspaces.create_workspace(Workspace(git=str(tmp_path / "repo")), str(path), "/nowhere")
    files = [file for folder in (path, tmp_path / "cache") for file in folder.rglob("*") if file.is_file()]
    assert [str(file) for file in files if file.stat().st_nlink > 1] == []


@pytest.mark.skipif(sys.platform != "linux", reason="the walls of Linux")
async def test_a_patch_is_made_behind_the_wall_and_without_entering_nested_repositories(
    workspaces: Workspaces, tmp_path: Path
) -> None:
    make_repository(tmp_path / "repo", {"a.txt": "one\n"})
    path, ran = tmp_path / "work", tmp_path / "ran-outside"
    first = await workspaces.create_workspace(Workspace(git=str(tmp_path / "repo")), str(path), "/nowhere")
    assert first is not None
    make_repository(path / "sub", {"b.txt": "b\n"})
    git(path / "sub", "config", "core.fsmonitor", f"touch {ran} ran-inside; false")
    git(path, "add", "sub")
    ran.unlink(missing_ok=True)
    policy = policy_for(path, tmp_path / "home", tmp_path / "scratch")
    owner = ProcessOwner(wall_of("landlock", policy))
    try:
        patch = (await make_patch(Git(owner, os.environ), str(path), first, owner.temporary_folder or "")).decode()
    finally:
        await owner.kill_everything()
    assert "Subproject commit" in patch
    assert not (path / "sub" / "ran-inside").exists()
    assert not ran.exists()
