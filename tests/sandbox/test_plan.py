"""What a command sees of the disk, and what a tool may open: the policy put against folders."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from pigeon.sandbox.git_places import find_git_places
from pigeon.sandbox.plan import Mount, kept_places, plan_of
from pigeon.sandbox.policy import SandboxPolicy, Unprotectable, is_inside
from pigeon.sandbox.survey import FolderSurvey, shared_git_files, survey_folder
from pigeon.sandbox.wall import bubblewrap_arguments, find_bubblewrap
from support.sandboxed_runs import policy_for


@pytest.fixture
def policy(tmp_path: Path) -> SandboxPolicy:
    for name in ("home/.ssh", "work/.git/hooks", "agent"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home" / ".netrc").touch()
    (tmp_path / "work" / ".git" / "config").write_text("[core]\n\thooksPath = .husky\n")
    (tmp_path / "work" / ".husky").mkdir()
    return policy_for(tmp_path / "work", tmp_path / "home", tmp_path / "scratch")


def mounts_of(policy: SandboxPolicy, kind: str) -> list[str]:
    base = os.path.dirname(policy.root) + "/"
    return [mount.path.removeprefix(base) for mount in plan_of(policy).mounts if mount.kind == kind]


def test_the_folder_is_written_and_what_others_take_orders_from_is_kept(policy: SandboxPolicy) -> None:
    assert mounts_of(policy, "write") == ["work", "scratch/tmp"]
    assert mounts_of(policy, "pin") == ["work/.git"]
    kept = [".agents", ".husky", ".mcp.json", ".omp", ".pi", ".pigeon", "commondir", "refs"]
    of_git = [".git/commondir", ".git/config", ".git/config.worktree", ".git/hooks"]
    assert mounts_of(policy, "keep") == [f"work/{name}" for name in (*kept, *of_git)]


def test_nothing_writable_is_mounted_over_or_in_what_is_kept(policy: SandboxPolicy) -> None:
    packages = os.path.join(policy.root, ".venv", "lib", "site-packages")
    os.makedirs(packages)
    policy = replace(policy, own=(os.path.join(policy.root, ".venv"), packages))
    assert mounts_of(policy, "pin") == ["work/.git"]
    assert {"work/.venv", "work/.venv/lib/site-packages"} <= set(mounts_of(policy, "keep"))


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
    (root / "x" / "y" / "z" / ".git").mkdir(parents=True)
    assert "work/x/y/z/.git/hooks" in mounts_of(policy, "keep")
    assert {"work/x", "work/x/y", "work/x/y/z", "work/x/y/z/.git"} <= set(mounts_of(policy, "pin"))
    for number in range(200):
        (root / f"folder-{number}" / ".git").mkdir()
    with pytest.raises(Unprotectable, match="more than 200 repositories"):
        plan_of(replace(policy, survey=FolderSurvey()))


def test_more_folders_than_can_be_walked_through_stop_everything(
    policy: SandboxPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pigeon.sandbox.survey.MOST_FOLDERS", 3)
    (Path(policy.root) / "a" / "b" / "c").mkdir(parents=True)
    with pytest.raises(Unprotectable, match=r"more than 3 folders.*Work in the folder of one project"):
        plan_of(policy)


def test_exactly_as_much_as_is_allowed_is_protected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name / ".git").mkdir(parents=True)
    monkeypatch.setattr("pigeon.sandbox.survey.MOST_FINDINGS", 2)
    monkeypatch.setattr("pigeon.sandbox.survey.MOST_FOLDERS", 3)
    assert sorted(survey_folder(str(tmp_path)).repositories) == [str(tmp_path / "a"), str(tmp_path / "b")]
    (tmp_path / "a" / ".pi").mkdir()
    with pytest.raises(Unprotectable, match="more than 2 repositories"):
        survey_folder(str(tmp_path))
    (tmp_path / "c").mkdir()
    monkeypatch.setattr("pigeon.sandbox.survey.MOST_FINDINGS", 3)
    with pytest.raises(Unprotectable, match="more than 3 folders"):
        survey_folder(str(tmp_path))


def test_what_commands_make_is_theirs_and_what_was_there_before_is_kept_though_it_comes_back(
    policy: SandboxPolicy,
) -> None:
    root = Path(policy.root)
    (root / "old" / ".git").mkdir(parents=True)
    assert "work/old/.git/hooks" in mounts_of(policy, "keep")
    shutil.rmtree(root / "old")
    (root / "new" / ".git").mkdir(parents=True)
    assert not {name for name in mounts_of(policy, "keep") if name.startswith(("work/old", "work/new"))}
    (root / "old" / ".git").mkdir(parents=True)
    assert "work/old/.git/hooks" in mounts_of(policy, "keep")


def test_files_of_agents_are_kept_at_any_depth(policy: SandboxPolicy) -> None:
    (Path(policy.root) / "packages" / "one" / ".pigeon" / "extensions").mkdir(parents=True)
    (Path(policy.root) / "packages" / "two").mkdir()
    (Path(policy.root) / "packages" / "two" / ".mcp.json").write_text("{}")
    assert {"work/packages/one/.pigeon", "work/packages/two/.mcp.json"} <= set(mounts_of(policy, "keep"))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("[core] hooksPath = tools/hooks", "tools/hooks"),
        ('[core]\n  HOOKSPATH = "tools/hooks" # remark', "tools/hooks"),
        ("[core]\n  hooksPath = tools/\\\n  ; not a remark\nhooksPath = tools\\\n/hooks", "tools/hooks"),
        ("[core]\r\n\thooksPath = ./tools/../tools/hooks\r\n", "tools/hooks"),
        ("[include] path = ../.gitconfig", ".gitconfig"),
        ("[include]\n path = ../local", "local"),
        ('[includeIf "onbranch:other"]\n path = ../there', "hooks-by-include"),
        ('[filter "x"]\n clean = python3 tools/filter.py --fast %f', "tools/filter.py"),
        ("[alias]\n go = !tools/filter.py", "tools/filter.py"),
        ("[core]\n fsmonitor = tools/filter.py", "tools/filter.py"),
        ('[diff "x"] textconv = "tools/filter.py"', "tools/filter.py"),
        ('[alias]\n go = "!f() { ./tools/filter.py; }; f"', "tools/filter.py"),
        ('[alias]\n go = "!sh -c \'tools/filter.py \\"$@\\"\' -"', "tools/filter.py"),
        ('[alias]\n go = "!cd tools && ./filter.py"', "tools/filter.py"),
        ('[alias]\n go = "!$PWD/tools/filter.py"', "tools/filter.py"),
        ('[alias]\n go = "!\\"$(git rev-parse --show-toplevel)\\"/tools/filter.py"', "tools/filter.py"),
        ("[alias]\n go = !~/../work/tools/filter.py", "tools/filter.py"),
        ('[core]\n pager = "less|tools/filter.py"', "tools/filter.py"),
        ('[core]\n sshCommand = "X=1 tools/filter.py"', "tools/filter.py"),
        ("[core]\n hooksPath = ~/to-work/tools/hooks", "tools/hooks"),
        ("[include]\n path = ~/to-work/local", "local"),
        ("[core]\n fsmonitor = ~/to-work/tools/filter.py", "tools/filter.py"),
    ],
)
def test_what_the_configuration_of_git_names_is_kept_however_it_is_written(
    policy: SandboxPolicy, text: str, kept: str
) -> None:
    root = Path(policy.root)
    os.symlink(root, root.parent / "home" / "to-work")
    (root / ".git" / "config").write_text(text)
    (root / "there").write_text("[core] hooksPath = hooks-by-include")
    (root / "tools").mkdir()
    (root / "tools" / "filter.py").touch()
    plan = plan_of(policy)
    missing = [path for path in plan.stand_ins if (root / kept).is_relative_to(path)]
    assert f"work/{kept}" in mounts_of(policy, "keep") or missing
    assert policy.refusal_reason(str(root / kept), True, kept_places(policy)) is not None


def test_hooks_that_the_users_own_configuration_names_are_kept_in_every_repository(
    policy: SandboxPolicy, tmp_path: Path
) -> None:
    (tmp_path / "home" / ".gitconfig").write_text("[include]\n path = ~/more\n")
    aliases = f"[alias]\n x = !{policy.root}/script now\n y = !./script2\n z = !tool\n"
    (tmp_path / "home" / "more").write_text(f"[core] hooksPath = githooks\n{aliases}")
    for name in ("script", "script2", "tool"):
        (Path(policy.root) / name).touch()
    (Path(policy.root) / "a" / "b" / ".git").mkdir(parents=True)
    kept = set(mounts_of(policy, "keep"))
    assert {"work/githooks", "work/a/b/githooks", "work/script", "work/script2"} <= kept
    assert "work/tool" not in kept


def test_the_users_own_configuration_is_kept_where_it_is_a_link_into_the_folder(
    policy: SandboxPolicy, tmp_path: Path
) -> None:
    (Path(policy.root) / "gitconfig").touch()
    os.symlink(os.path.join(policy.root, "gitconfig"), tmp_path / "home" / ".gitconfig")
    assert "work/gitconfig" in mounts_of(policy, "keep")


def test_a_configuration_of_the_user_that_variables_lead_into_the_folder_is_not_made_there(
    policy: SandboxPolicy, tmp_path: Path
) -> None:
    files = shared_git_files([str(tmp_path / "home")], {"XDG_CONFIG_HOME": f"{policy.root}/.config"})
    led = replace(policy, survey=FolderSurvey([str(tmp_path / "home")], files))
    assert "work/.config" in mounts_of(led, "keep")
    (Path(policy.root) / ".config" / "git").mkdir(parents=True)
    assert "work/.config/git/config" in mounts_of(led, "keep")
    assert plan_of(led).stand_ins[f"{policy.root}/.config/git/config"] == b""


@pytest.mark.parametrize(("there", "kept"), [([], "refs"), (["refs/x"], "objects"), (["refs/x", "objects/x"], None)])
def test_the_folder_of_a_repository_cannot_become_a_repository_itself(
    policy: SandboxPolicy, there: list[str], kept: str | None
) -> None:
    root = Path(policy.root)
    for name in there:
        (root / name).mkdir(parents=True)
    found = {path.removeprefix("work/") for path in mounts_of(policy, "keep")} & {
        "refs",
        "objects",
        "commondir",
        "HEAD",
    }
    assert found == {"commondir", kept} - {None}
    assert find_git_places(str(root), policy.survey).never_made.get(str(root / "commondir"), b"") is None


def test_a_configuration_that_cannot_be_read_stops_everything(policy: SandboxPolicy) -> None:
    (Path(policy.root) / ".git" / "config").unlink()
    (Path(policy.root) / ".git" / "config").mkdir()
    with pytest.raises(Unprotectable, match=r"\.git/config cannot be read"):
        plan_of(policy)


def test_data_that_a_file_of_git_leads_to_inside_the_folder_is_kept(tmp_path: Path) -> None:
    work = tmp_path / "work"
    subprocess.run(["git", "init", "-q", "--bare", str(work / ".bare")], check=True)
    (work / ".git").write_text("gitdir: ./.bare\n")
    policy = policy_for(work, tmp_path / "home", tmp_path / "scratch")
    assert {"work/.git", "work/.bare/hooks", "work/.bare/config", "work/.bare/commondir"} <= set(
        mounts_of(policy, "keep")
    )


def test_a_working_folder_that_is_a_bare_repository_keeps_its_hooks_and_configuration(tmp_path: Path) -> None:
    work = tmp_path / "work"
    subprocess.run(["git", "init", "-q", "--bare", str(work)], check=True)
    policy = policy_for(work, tmp_path / "home", tmp_path / "scratch")
    assert {"work/hooks", "work/config", "work/commondir", "work/config.worktree"} <= set(mounts_of(policy, "keep"))


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
    assert "home/.ssh" in mounts_of(policy, "hide folder")
    assert "home/.netrc" in mounts_of(policy, "hide file")


def test_a_secret_behind_a_link_is_hidden_where_it_is(policy: SandboxPolicy, tmp_path: Path) -> None:
    (tmp_path / "vault").mkdir()
    os.symlink(tmp_path / "vault", tmp_path / "home" / ".aws")
    assert Mount("hide folder", str(tmp_path / "vault")) in plan_of(policy).mounts
    assert policy.refusal_reason(str(tmp_path / "vault" / "credentials"), writes=False) is not None


def test_what_is_above_is_mounted_before_what_is_in_it(policy: SandboxPolicy) -> None:
    paths = [mount.path for mount in plan_of(policy).mounts if not mount.kind.startswith("hide")]
    for index, path in enumerate(paths):
        assert not any(is_inside(path, later) for later in paths[index + 1 :])


def test_bubblewrap_gets_everything_it_may_write_as_a_descriptor(policy: SandboxPolicy) -> None:
    words, held = bubblewrap_arguments(policy, plan_of(policy))
    assert "--bind" not in words
    assert words.count("--bind-fd") + words.count("--ro-bind-fd") == len(held)
    assert "--unshare-net" in words


def test_a_program_that_commands_could_write_is_not_taken_for_bubblewrap(policy: SandboxPolicy) -> None:
    planted = Path(policy.root) / "bwrap"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    assert find_bubblewrap(f"{policy.root}:relative", policy.roots) is None
    assert find_bubblewrap(f"{policy.root}:relative", ["/elsewhere"]) == str(planted)


@pytest.mark.parametrize("leads_to", [".ssh", "."])
def test_a_link_in_the_folder_of_an_agent_does_not_show_what_is_hidden(
    policy: SandboxPolicy, tmp_path: Path, leads_to: str
) -> None:
    agent = tmp_path / "home" / ".pi" / "agent"
    (agent / "skills").mkdir(parents=True)
    (tmp_path / "harmless").mkdir()
    os.symlink(tmp_path / "home" / leads_to, agent / "link")
    os.symlink(tmp_path / "harmless", agent / "prompts")
    private = replace(policy, private=(str(agent),))
    assert mounts_of(private, "show") == ["home/.pi/agent/prompts", "home/.pi/agent/skills"]


@pytest.mark.parametrize(
    ("path", "writes", "allowed"),
    [
        ("/dev/shm/of-others", False, False),
        ("/proc/1/status", False, False),
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
    assert (policy.refusal_reason(place, writes, kept_places(policy)) is None) is allowed


def test_a_submodule_with_its_data_elsewhere_is_written_there_and_its_hooks_are_kept(tmp_path: Path) -> None:
    top, part = tmp_path / "top", tmp_path / "top" / "part"
    data = top / ".git" / "modules" / "part"
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    data.parent.mkdir()
    subprocess.run(["git", "init", "-q", f"--separate-git-dir={data}", str(part)], check=True)
    subprocess.run(["git", "-C", str(part), "config", "core.worktree", "../../../part"], check=True)
    found = find_git_places(str(part), FolderSurvey())
    assert found.written == (str(data),)
    assert {str(part / ".git"), str(data / "hooks"), str(data / "config")} <= set(found.kept)
    assert str(data / "hooks") in find_git_places(str(top), FolderSurvey()).kept


def test_a_folder_that_does_not_point_back_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "other")], check=True)
    (tmp_path / "work" / ".git").write_text("gitdir: ../other\n")
    assert find_git_places(str(tmp_path / "work"), FolderSurvey()).written == ()


def test_a_path_can_be_steered_where_any_part_of_it_may_be_written(policy: SandboxPolicy, tmp_path: Path) -> None:
    (tmp_path / "home" / "code").symlink_to(policy.root)
    (tmp_path / "work" / "out").symlink_to(tmp_path / "agent")
    steered = ("work", "work/a/b", "home/code/a", "work/out/x", policy.temporary_folder + "/x")
    assert all(policy.can_commands_redirect(str(tmp_path / path)) for path in steered)
    assert not any(policy.can_commands_redirect(str(tmp_path / path)) for path in ("agent/x", "home/a", "workshop"))
    assert not replace(policy, mode="read-only").can_commands_redirect(str(tmp_path / "work" / "a"))
