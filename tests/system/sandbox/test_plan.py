"""What a command sees of the disk, and what a tool may open: the policy put against folders."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes.walled_runs import policy_for
from pigeon.system.sandbox.git_places import git_places
from pigeon.system.sandbox.plan import Mount, kept_places, plan_of
from pigeon.system.sandbox.policy import SandboxPolicy, Unprotectable, is_inside
from pigeon.system.sandbox.seatbelt import profile_of
from pigeon.system.sandbox.wall import bubblewrap_arguments, find_bubblewrap


@pytest.fixture
def policy(tmp_path: Path) -> SandboxPolicy:
    for name in ("home/.ssh", "work/.git/hooks", "agent"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home" / ".netrc").touch()
    (tmp_path / "work" / ".git" / "config").write_text("[core]\n\thooksPath = .husky\n")
    (tmp_path / "work" / ".husky").mkdir()
    return policy_for(tmp_path / "work", tmp_path / "home", tmp_path / "scratch")


def shown(policy: SandboxPolicy, kind: str) -> list[str]:
    base = os.path.dirname(policy.root) + "/"
    return [mount.path.removeprefix(base) for mount in plan_of(policy).mounts if mount.kind == kind]


def test_the_folder_is_written_and_what_others_take_orders_from_is_kept(policy: SandboxPolicy) -> None:
    assert shown(policy, "write") == ["work", "scratch/tmp"]
    assert shown(policy, "pin") == ["work/.git"]
    kept = [".husky", ".mcp.json", ".pi", ".pigeon"]
    of_git = [".git/commondir", ".git/config", ".git/config.worktree", ".git/hooks"]
    assert shown(policy, "keep") == [f"work/{name}" for name in (*kept, *of_git)]


def test_nothing_writable_is_mounted_over_or_in_what_is_kept(policy: SandboxPolicy) -> None:
    packages = os.path.join(policy.root, ".venv", "lib", "site-packages")
    os.makedirs(packages)
    policy = replace(policy, own=(os.path.join(policy.root, ".venv"), packages))
    assert shown(policy, "pin") == ["work/.git"]
    assert {"work/.venv", "work/.venv/lib/site-packages"} <= set(shown(policy, "keep"))


def test_the_way_from_a_root_to_another_one_and_to_a_secret_cannot_be_renamed(tmp_path: Path) -> None:
    inner, secret = tmp_path / "home/src/org/work", tmp_path / "home/.cache/huggingface/token"
    inner.mkdir(parents=True)
    secret.parent.mkdir(parents=True)
    secret.touch()
    outer = (str(tmp_path / "home" / "src"), str(tmp_path / "home" / ".cache"))
    policy = policy_for(inner, tmp_path / "home", tmp_path / "scratch", writable=outer)
    pins = [mount.path for mount in plan_of(policy).mounts if mount.kind == "pin"]
    assert pins == [str(secret.parent), str(inner.parent)]


def test_folders_that_are_no_repository_do_not_count_and_too_many_that_are_one_stop_everything(
    policy: SandboxPolicy,
) -> None:
    root = Path(policy.root)
    for number in range(300):
        (root / f"folder-{number}").mkdir()
    (root / "z" / ".git").mkdir(parents=True)
    assert "work/z/.git/hooks" in shown(policy, "keep")
    for number in range(200):
        (root / f"folder-{number}" / ".git").mkdir()
    with pytest.raises(Unprotectable, match="more than 200 repositories"):
        plan_of(policy)


def test_more_submodules_than_can_be_looked_after_stop_everything(policy: SandboxPolicy) -> None:
    modules = Path(policy.root) / ".git" / "modules"
    for number in range(501):
        (modules / str(number)).mkdir(parents=True)
    with pytest.raises(Unprotectable, match="more than 500 folders"):
        plan_of(policy)


def test_pigeon_is_not_rewritten_where_it_is_the_working_folder_itself(policy: SandboxPolicy) -> None:
    with pytest.raises(Unprotectable, match="Pigeon itself runs from"):
        plan_of(replace(policy, own=(policy.root,)))


def test_secrets_are_hidden_last_so_that_nothing_uncovers_them(policy: SandboxPolicy) -> None:
    kinds = [mount.kind.startswith("hide") for mount in plan_of(policy).mounts]
    assert kinds == sorted(kinds)
    assert "home/.ssh" in shown(policy, "hide folder")
    assert "home/.netrc" in shown(policy, "hide file")


def test_a_secret_behind_a_link_is_hidden_where_it_is(policy: SandboxPolicy, tmp_path: Path) -> None:
    (tmp_path / "vault").mkdir()
    os.symlink(tmp_path / "vault", tmp_path / "home" / ".aws")
    assert Mount("hide folder", str(tmp_path / "vault")) in plan_of(policy).mounts
    assert policy.refusal(str(tmp_path / "vault" / "credentials"), writes=False) is not None


def test_what_is_above_is_mounted_before_what_is_in_it(policy: SandboxPolicy) -> None:
    paths = [mount.path for mount in plan_of(policy).mounts if not mount.kind.startswith("hide")]
    for index, path in enumerate(paths):
        assert not any(is_inside(path, later) for later in paths[index + 1 :])


def test_bubblewrap_gets_everything_it_may_write_as_a_descriptor(policy: SandboxPolicy) -> None:
    words, held = bubblewrap_arguments(policy, plan_of(policy))
    assert "--bind" not in words
    assert words.count("--bind-fd") + words.count("--ro-bind-fd") == len(held)
    assert "--unshare-net" in words


def test_the_profile_of_macos_names_what_is_written_and_denies_after_it(policy: SandboxPolicy) -> None:
    profile = profile_of(policy, plan_of(policy))
    assert profile.index(f'(allow file-write* (subpath "{policy.root}"))') < profile.index(".git/hooks")
    assert '(deny file-read* file-write* (subpath "' in profile
    assert "(deny network*)" in profile


def test_a_program_that_commands_could_write_is_not_taken_for_bubblewrap(policy: SandboxPolicy) -> None:
    planted = Path(policy.root) / "bwrap"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    assert find_bubblewrap(f"{policy.root}:relative", policy) is None


@pytest.mark.parametrize(
    ("path", "writes", "allowed"),
    [
        ("work/file", True, True),
        ("work/.git/HEAD", True, True),
        ("work/.git/hooks/pre-commit", True, False),
        ("work/.GIT/HOOKS/pre-commit", True, False),
        ("work/.git/config", True, False),
        ("work/.git/commondir", True, False),
        ("work/.git/config.worktree", True, False),
        ("WORK/file", True, False),
        ("work/.git/config", False, True),
        ("work/.pigeon/settings.json", True, False),
        ("work/.mcp.json", True, False),
        ("work/.husky/pre-commit", True, False),
        ("home/file", True, False),
        ("home/file", False, True),
        ("home/.ssh/id_rsa", False, False),
        ("home/.npmrc", False, False),
        ("home/.pigeon/agent/auth.json", False, False),
        ("workshop/file", True, False),
        ("scratch/tmp/file", True, True),
        ("scratch/empty", True, False),
    ],
)
def test_a_tool_opens_what_a_command_could(policy: SandboxPolicy, path: str, writes: bool, allowed: bool) -> None:
    place = os.path.join(os.path.dirname(policy.root), path)
    assert (policy.refusal(place, writes, kept_places(policy)) is None) is allowed


def test_a_submodule_with_its_data_elsewhere_is_written_there_and_its_hooks_are_kept(tmp_path: Path) -> None:
    top, part = tmp_path / "top", tmp_path / "top" / "part"
    data = top / ".git" / "modules" / "part"
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    data.parent.mkdir()
    subprocess.run(["git", "init", "-q", f"--separate-git-dir={data}", str(part)], check=True)
    subprocess.run(["git", "-C", str(part), "config", "core.worktree", "../../../part"], check=True)
    found = git_places(str(part))
    assert found.written == (str(data),)
    assert {str(part / ".git"), str(data / "hooks"), str(data / "config")} <= set(found.kept)
    assert str(data / "hooks") in git_places(str(top)).kept


def test_a_folder_that_does_not_point_back_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "other")], check=True)
    (tmp_path / "work" / ".git").write_text("gitdir: ../other\n")
    assert git_places(str(tmp_path / "work")).written == ()
