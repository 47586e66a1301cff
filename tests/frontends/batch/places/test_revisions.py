"""Revisions: one commit each, found before anything starts, whatever happens to the branch afterwards."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from pigeon.frontends.batch.places.revisions import MissingRevision, Revisions, hide_credentials, host_of
from pigeon.frontends.batch.places.workspaces import Workspaces
from pigeon.frontends.batch.records import TaskSpec, Workspace, hash_of
from pigeon.system.git import Git
from pigeon.system.process.start import ProcessOwner
from support.batch import commit, git, make_repository

Make = Callable[..., Revisions]


@pytest.fixture
def make(tmp_path: Path, processes: ProcessOwner) -> Make:
    def make_revisions(known: Iterable[TaskSpec] = (), is_elsewhere: bool = False, seconds: float = 20.0) -> Revisions:
        workspaces = Workspaces(str(tmp_path / "cache"), "", Git(processes, os.environ))
        return Revisions(Git(processes, os.environ), workspaces, known, is_elsewhere, seconds)

    return make_revisions


async def find_revisions(revisions: Revisions, *wanted: Workspace) -> tuple[list[str | None], list[MissingRevision]]:
    for number, one in enumerate(wanted, 1):
        revisions.add_workspace(one, f"line {number}")
    missing = await revisions.resolve_commits()
    specs = [TaskSpec(id=str(number), prompt="x", workspace=one) for number, one in enumerate(wanted)]
    return [revisions.pin_commit(spec).commit for spec in specs], missing


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, str, str]:
    """A repository with two commits: `v1` and `old` are the first, `main` the second."""
    folder = tmp_path / "repo"
    first = make_repository(folder, {"a.txt": "one\n"})
    git(folder, "tag", "-a", "v1", "-m", "A text of its own")
    git(folder, "tag", "light")
    git(folder, "branch", "topic/old")
    return folder, first, commit(folder, {"a.txt": "two\n"})


@pytest.mark.parametrize("address", ["{}", "file://{}"])
async def test_every_way_to_name_a_revision_leads_to_its_commit(
    make: Make, repository: tuple[Path, str, str], address: str
) -> None:
    folder, first, second = repository
    named = {
        **dict.fromkeys(("v1", "light", "topic/old", "refs/tags/v1", "tags/v1", first, first[:9], "main~1"), first),
        **dict.fromkeys((None, "HEAD", "main", "refs/heads/main", second, second[:12]), second),
    }
    where = address.format(folder)
    commits, missing = await find_revisions(make(), *(Workspace(git=where, revision=one) for one in named))
    assert missing == []
    assert dict(zip(named, commits, strict=True)) == named


async def test_all_that_cannot_be_found_is_told_at_once_with_its_lines(
    make: Make, repository: tuple[Path, str, str], tmp_path: Path
) -> None:
    remote, absent = f"file://{repository[0]}", f"file://{tmp_path}/nowhere"
    (tmp_path / "plain").mkdir()
    wanted = [
        *(Workspace(git=remote, revision="v9"), Workspace(git=remote, revision="v9")),
        *(Workspace(git=remote, revision="0" * 40), Workspace(git=absent), Workspace(git=remote)),
        *(Workspace(git=str(tmp_path / "plain")), Workspace(git=str(tmp_path / "gone"))),
    ]
    _, missing = await find_revisions(make(), *wanted)
    told = {tuple(one.places): one.reason for one in missing}
    assert f'"workspace.revision": {remote} has no revision "v9"' in told["line 1", "line 2"]
    assert "has no revision" in told["line 3",]
    assert told["line 4",].startswith(f'"workspace.git": {absent} cannot be read: git: ')
    assert f"Try: git ls-remote {absent}" in told["line 4",]
    assert "not a git repository" in told["line 6",]
    assert "is not a folder" in told["line 7",]
    assert len(told) == 5


async def test_of_a_revision_that_many_tasks_want_the_first_places_are_told_and_their_number(
    make: Make, repository: tuple[Path, str, str]
) -> None:
    wanted = [Workspace(git=f"file://{repository[0]}", revision="v9")] * 25
    _, (missing,) = await find_revisions(make(), *wanted)
    assert missing.places == [f"line {number}" for number in range(1, 21)]
    assert missing.count == 25


async def test_a_batch_that_is_gone_on_with_keeps_its_commits_and_older_ones_stay_without(
    make: Make, repository: tuple[Path, str, str]
) -> None:
    folder, first, second = repository
    main, old, new = (Workspace(git=f"file://{folder}", revision=one) for one in ("main", "topic/old", None))
    known = [
        TaskSpec(id="a", prompt="x", workspace=main, commit=first),
        TaskSpec(id="b", prompt="x", workspace=old),
    ]
    commits, missing = await find_revisions(make(known), main, old, new)
    assert (commits, missing) == ([first, None, second], [])
    assert hash_of(known[0]) != hash_of(TaskSpec(id="a", prompt="x", workspace=main, commit=second))


async def test_a_server_that_does_not_answer_is_asked_once_and_named(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"git://127.0.0.1:{silent.getsockname()[1]}"
        wanted = [Workspace(git=f"{address}/{number}") for number in range(40)]
        _, missing = await find_revisions(make(seconds=0.3), *wanted)
    assert len(missing) == 40
    assert sum("did not answer within 0.3 s" in one.reason for one in missing) <= 16
    assert all("Try again when it does" in one.reason for one in missing)


async def test_it_is_told_how_many_have_been_looked_up(make: Make, repository: tuple[Path, str, str]) -> None:
    revisions, told = make(), []
    revisions.add_workspace(Workspace(git=f"file://{repository[0]}", revision="main"), "line 1")
    assert await revisions.resolve_commits(lambda ended, total: told.append((ended, total))) == []
    assert told[0] == (0, 1)


async def test_on_a_cluster_a_whole_commit_needs_no_connection_from_here(make: Make) -> None:
    wanted = Workspace(git="git://127.0.0.1:1/only-reached-from-there", revision="a" * 40)
    assert await find_revisions(make(is_elsewhere=True), wanted) == (["a" * 40], [])


async def test_a_commit_that_was_decided_on_is_checked_out_although_its_branch_was_rewritten_or_the_server_is_gone(
    repository: tuple[Path, str, str], tmp_path: Path, processes: ProcessOwner
) -> None:
    folder, first, second = repository
    remote = Workspace(git=f"file://{folder}", revision="main")
    git(folder, "reset", "-q", "--hard", first)
    third = commit(folder, {"a.txt": "three\n"})
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")

    def workspaces(batch: str) -> Workspaces:
        return Workspaces(str(tmp_path / "cache"), batch, Git(processes, os.environ))

    assert await workspaces("1").create_workspace(remote, str(tmp_path / "w1"), "/nowhere", second) == second
    assert (tmp_path / "w1" / "a.txt").read_text() == "two\n"
    assert await workspaces("2").create_workspace(remote, str(tmp_path / "w2"), "/nowhere") == third
    mirror = next((tmp_path / "cache").glob("*.git"))
    git(mirror, "gc", "--quiet", "--prune=now")
    shutil.rmtree(folder)
    assert await workspaces("3").create_workspace(remote, str(tmp_path / "w3"), "/nowhere", second) == second


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://user:word@git.example.org:8443/a/b.git", "git.example.org"),
        ("git@git.example.org:a/b.git", "git.example.org"),
        ("ssh://git@git.example.org/a", "git.example.org"),
    ],
)
def test_the_machine_of_an_address_is_found_and_its_password_is_not_shown(address: str, host: str) -> None:
    assert host_of(address) == host
    assert "word" not in hide_credentials(address)
