"""Git in folders whose configuration, attributes and hooks name programs: none of them runs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from pigeon.frontends.batch.places.workspaces import Workspaces, make_patch
from pigeon.frontends.batch.records import Workspace
from pigeon.system.git import Git, GitError
from pigeon.system.process.start import ProcessOwner
from support.batch import git, make_repository
from support.hostile_repository import PROGRAM_KEYS, make_hostile

KEY = "sk-canary-0123456789"
# What the names of keys of programs end in; the value of each is a program, unless it is listed below.
PROGRAMS = re.compile(
    r"(cmd|command|program|helper|editor|pager|external|textconv|clean|smudge|process|driver|fsmonitor|gitproxy|askpass"
    r"|\.tool|\.guitool|browser|httpd|receivepack|uploadpack|vcs|hook|diffFilter|tunnel|smtpServer|<tool>\.path)$",
    re.IGNORECASE,
)
NO_PROGRAMS = {"gitcvs.dbDriver", "color.pager", "column.clean", "diff.<driver>.cachetextconv"}


def test_the_canaries_are_in_all_places_that_this_git_knows() -> None:
    listed = subprocess.run(["git", "help", "--config"], check=True, capture_output=True, text=True).stdout.split()
    known = {re.sub(r"\*", "<>", key).lower() for key in PROGRAM_KEYS}
    programs = {key for key in listed if PROGRAMS.search(key) and not key.startswith("advice.")}
    assert {key for key in programs - NO_PROGRAMS if re.sub(r"<[^>]*>|\*", "<>", key).lower() not in known} == set()


@pytest.fixture
def users(tmp_path: Path) -> dict[str, str]:
    """The variables of a user with keys."""
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "OPENAI_API_KEY": KEY, "MY_PASSWORD": KEY}


def test_the_canaries_would_run(tmp_path: Path) -> None:
    make_repository(tmp_path / "repo", {"a.txt": "one\n"})
    make_hostile(tmp_path / "repo", tmp_path / "log")
    subprocess.run(["git", "add", "--all"], cwd=tmp_path / "repo", check=False, capture_output=True)
    subprocess.run(["git", "cat-file", "-e", "0123456789" * 4], cwd=tmp_path / "repo", check=False, capture_output=True)
    ran = set(re.findall(r"^RAN (.*)$", (tmp_path / "log").read_text(), re.MULTILINE))
    assert {"core.fsmonitor", "filter.*.process", "remote-url"} <= ran


async def test_a_patch_of_what_an_agent_left_runs_none_of_it(
    tmp_path: Path, processes: ProcessOwner, users: dict[str, str]
) -> None:
    commit = make_repository(tmp_path / "repo", {"a.txt": "one\n", "b.txt": "b\n", "run.sh": "#!/bin/sh\n"})
    make_hostile(tmp_path / "repo", tmp_path / "log")
    (tmp_path / "repo" / "a.txt").write_text("two\n")
    (tmp_path / "repo" / "b.txt").unlink()
    (tmp_path / "repo" / "run.sh").chmod(0o755)
    (tmp_path / "repo" / "odd\nname").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "repo" / "pipe")
    (tmp_path / "tmp").mkdir()
    patch = (await make_patch(Git(processes, users), str(tmp_path / "repo"), commit, str(tmp_path / "tmp"))).decode()
    assert not (tmp_path / "log").exists(), (tmp_path / "log").read_text()
    assert "-one\n+two\n" in patch
    assert "deleted file mode 100644" in patch
    assert "new mode 100755" in patch
    assert "+/etc/passwd" in patch
    assert "+Subproject commit" in patch, "a nested repository is named, and not entered"
    assert list((tmp_path / "tmp").iterdir()) == []


async def test_a_nested_repository_without_a_commit_does_not_spoil_the_patch(
    tmp_path: Path, processes: ProcessOwner, users: dict[str, str]
) -> None:
    commit = make_repository(tmp_path / "repo", {"a.txt": "one\n"})
    git(tmp_path / "repo", "init", "-q", "empty")
    (tmp_path / "repo" / "a.txt").write_text("two\n")
    patch = await make_patch(Git(processes, users), str(tmp_path / "repo"), commit, str(tmp_path))
    assert b"-one\n+two\n" in patch


async def test_the_users_own_conversions_and_ignored_files_count(
    tmp_path: Path, processes: ProcessOwner, users: dict[str, str]
) -> None:
    (tmp_path / "ignored").write_text("*.mine\n")
    (tmp_path / ".gitconfig").write_text(
        f"[core]\n\tautocrlf = true\n\texcludesFile = {tmp_path}/ignored\n\tfsmonitor = {tmp_path}/none\n"
        '[filter "upper"]\n\tclean = tr a-z A-Z\n\tsmudge = tr A-Z a-z\n'
    )
    commit = make_repository(
        tmp_path / "repo", {".gitattributes": "*.up filter=upper\n", "a.txt": "1\n", "b.up": "B\n"}
    )
    (tmp_path / "repo" / "a.txt").write_bytes(b"1\r\n2\r\n")
    (tmp_path / "repo" / "b.up").write_text("b\n")
    (tmp_path / "repo" / "c.mine").write_text("of the user alone\n")
    patch = (await make_patch(Git(processes, users), str(tmp_path / "repo"), commit, str(tmp_path))).decode()
    assert [line for line in patch.splitlines() if line.startswith("diff ")] == ["diff --git a/a.txt b/a.txt"]
    assert " 1\n+2\n" in patch


async def test_files_that_are_tracked_and_ignored_are_not_taken_for_deleted(
    tmp_path: Path, processes: ProcessOwner, users: dict[str, str]
) -> None:
    make_repository(tmp_path / "repo", {"a.txt": "one\n", "built.log": "kept all the same\n"})
    commit = make_repository(tmp_path / "repo", {".gitignore": "*.log\n"})
    (tmp_path / "repo" / "a.txt").write_text("two\n")
    patch = (await make_patch(Git(processes, users), str(tmp_path / "repo"), commit, str(tmp_path))).decode()
    assert [line for line in patch.splitlines() if line.startswith("diff ")] == ["diff --git a/a.txt b/a.txt"]


async def test_a_local_repository_that_an_agent_wrote_is_copied_and_runs_nothing(
    tmp_path: Path, processes: ProcessOwner, users: dict[str, str]
) -> None:
    commit = make_repository(tmp_path / "repo", {"a.txt": "one\n"})
    make_hostile(tmp_path / "repo", tmp_path / "log")
    reader = Git(processes, users)
    workspaces = Workspaces(str(tmp_path / "cache"), "batch", reader)
    for folder in (tmp_path / "repo", tmp_path / "repo" / ".git"):
        assert await workspaces.resolve_local_commit(str(folder), str(folder), None) == commit
        # An object that is missing would be fetched from where the repository says.
        with pytest.raises(GitError):
            await workspaces.resolve_local_commit(str(folder), str(folder), "0123456789" * 4)
    found = await workspaces.create_workspace(Workspace(git=str(tmp_path / "repo")), str(tmp_path / "w"), "/nowhere")
    assert (found, (tmp_path / "w" / "a.txt").read_text()) == (commit, "one\n")
    assert not (tmp_path / "log").exists(), (tmp_path / "log").read_text()


async def test_hooks_that_the_configuration_names_are_turned_off(
    tmp_path: Path, processes: ProcessOwner, users: dict[str, str]
) -> None:
    """Git runs them since 2.54; whether they are turned off can be asked of any."""
    make_repository(tmp_path / "repo", {"a.txt": "one\n"})
    make_hostile(tmp_path / "repo", tmp_path / "log")
    odd = "with=sign and.dot"
    with (tmp_path / "repo" / ".git" / "included").open("a") as included:
        included.write(f'[hook "{odd}"]\n\tevent = post-checkout\n\tcommand = true\n\tenabled = true\n')
    reader = Git(processes, users)
    for name in ("evil", odd):
        asked = ("config", "--get", "--bool", f"hook.{name}.enabled")
        assert await reader.change_repository(str(tmp_path / "repo"), *asked) == "false"
        assert await reader.copy_from_repository(f"--git-dir={tmp_path}/repo/.git", *asked) == "false"
    assert not (tmp_path / "log").exists(), (tmp_path / "log").read_text()


async def test_servers_are_asked_without_keys_of_models(
    tmp_path: Path, processes: ProcessOwner, users: dict[str, str]
) -> None:
    program = tmp_path / "git-remote-note"
    program.write_text(f"#!/bin/sh\nenv > {tmp_path}/seen\nexit 1\n")
    program.chmod(0o755)
    users = {**users, "PATH": f"{tmp_path}:{users['PATH']}", "MY_MODEL_KEY": KEY, "GITHUB_TOKEN": "of-git"}
    with pytest.raises(GitError):
        await Git(processes, users, ["OPENAI_API_KEY", "MY_MODEL_KEY"]).run(
            "-c", "protocol.note.allow=always", "ls-remote", "note::x"
        )
    seen = (tmp_path / "seen").read_text()
    assert "GITHUB_TOKEN=of-git\n" in seen
    assert "OPENAI_API_KEY" not in seen
    assert "MY_MODEL_KEY" not in seen
