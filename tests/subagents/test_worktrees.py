"""Worktrees: an agent works in a copy of the repository; nothing in it names a program that git runs."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import pigeon
from pigeon.subagents.worktrees import Note, take_note, write_note
from support.agent_process import RpcProcess
from support.agent_trees import AgentTree, calls, events_of, results_of, task, text_of_result
from support.processes import eventually
from support.sdk_agents import call


def git(folder: Path, *arguments: str) -> str:
    options = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    return subprocess.run(
        ["git", *options, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> AgentTree:
    made = AgentTree(tmp_path)
    git(made.work, "init", "-q")
    (made.work / "a.txt").write_text("one\n")
    (made.work / "sub").mkdir()
    (made.work / "sub" / "b.txt").write_text("two\n")
    git(made.work, "add", "-A")
    git(made.work, "commit", "-qm", "first")
    return made


def work_apart(tree: AgentTree, *replies: Any, count: int = 1) -> None:
    tree.says("ROOT", calls(*[task("CHILD", isolation="worktree")] * count), "Done.")
    tree.says("CHILD", *replies, "It is done.")


async def test_the_result_names_the_branch_and_the_changes(tree: AgentTree) -> None:
    work_apart(tree, call("bash", command="echo changed > sub/b.txt; echo new > c.txt; rm a.txt; chmod +x c.txt"))
    async with tree.start() as agent:
        [end] = results_of(await events_of(agent, "ROOT"))
    branch = end.result.details["branch"]
    assert branch in text_of_result(end)
    assert end.result.details["changedFiles"] == ["a.txt", "c.txt", "sub/b.txt"]
    assert git(tree.work, "show", f"{branch}:sub/b.txt") == "changed"
    assert git(tree.work, "ls-tree", branch, "c.txt").startswith("100755")
    assert git(tree.work, "status", "--porcelain") == ""
    assert (tree.work / "a.txt").read_text() == "one\n"
    assert git(tree.work, "worktree", "list").count("\n") == 0


async def test_an_agent_that_changes_nothing_leaves_no_branch(tree: AgentTree) -> None:
    work_apart(tree, call("bash", command="pwd; git status --short"))
    async with tree.start() as agent:
        [end] = results_of(await events_of(agent, "ROOT"))
    assert "branch" not in end.result.details
    assert git(tree.work, "branch", "--list").split() == ["*", "main"]


async def test_merging_brings_the_changes_into_the_folder(tree: AgentTree) -> None:
    work_apart(tree, call("bash", command="echo changed > sub/b.txt; echo new > c.txt; rm a.txt"))
    async with tree.start() as agent:
        [end] = results_of(await events_of(agent, "ROOT"))
        (tree.work / "other.txt").write_text("of the user\n")
        merged = await agent.merge_agent(end.result.details["agentId"])
        again = await agent.merge_agent(end.result.details["agentId"])
    assert (merged.merged, merged.files) == (True, ["a.txt", "c.txt", "sub/b.txt"])
    assert (again.merged, again.files) == (True, [])
    assert (tree.work / "c.txt").read_text() == "new\n"
    assert not (tree.work / "a.txt").exists()
    assert git(tree.work, "status", "--porcelain") == "?? other.txt"


async def test_work_of_both_sides_is_merged(tree: AgentTree) -> None:
    work_apart(tree, call("bash", command="echo changed > sub/b.txt"))
    async with tree.start() as agent:
        [end] = results_of(await events_of(agent, "ROOT"))
        (tree.work / "a.txt").write_text("by the user\n")
        git(tree.work, "commit", "-qam", "second")
        merged = await agent.merge_agent(end.result.details["agentId"])
    assert merged.merged is True
    assert (tree.work / "a.txt").read_text() == "by the user\n"
    assert (tree.work / "sub" / "b.txt").read_text() == "changed\n"
    assert git(tree.work, "status", "--porcelain") == ""
    assert len(git(tree.work, "log", "--format=%P", "-1").split()) == 2


@pytest.mark.parametrize("how", ["committed", "unsaved", "staged", "untracked"])
async def test_with_a_conflict_folder_and_index_stay_as_they_were(tree: AgentTree, how: str) -> None:
    work_apart(tree, call("bash", command="echo theirs > a.txt; echo theirs > new.txt; echo theirs > sub/b.txt"))
    name = "new.txt" if how == "untracked" else "a.txt"
    async with tree.start() as agent:
        [end] = results_of(await events_of(agent, "ROOT"))
        (tree.work / name).write_text("ours\n")
        if how in ("committed", "staged"):
            git(tree.work, "add", "-A")
        if how == "committed":
            git(tree.work, "commit", "-qm", "ours")
        before = git(tree.work, "status", "--porcelain"), git(tree.work, "rev-parse", "HEAD")
        merged = await agent.merge_agent(end.result.details["agentId"])
    assert (merged.merged, merged.conflicts) == (False, [name])
    assert (git(tree.work, "status", "--porcelain"), git(tree.work, "rev-parse", "HEAD")) == before
    assert (tree.work / name).read_text() == "ours\n"
    assert (tree.work / "sub" / "b.txt").read_text() == "two\n"


async def test_two_agents_work_apart_from_each_other(tree: AgentTree) -> None:
    work_apart(tree, call("bash", command="test ! -e c.txt && echo mine > c.txt"), count=2)
    tree.says("CHILD", call("bash", command="test ! -e c.txt && echo mine > c.txt"))
    async with tree.start() as agent:
        ends = results_of(await events_of(agent, "ROOT"))
    branches = {end.result.details.get("branch") for end in ends}
    assert len(branches) == 2


async def test_an_agent_continues_in_its_copy(tree: AgentTree) -> None:
    work_apart(tree, call("bash", command="echo mine > c.txt"))
    tree.says("MORE", call("bash", command="cat c.txt > d.txt"), "More is done.")
    async with tree.start() as agent:
        [end] = results_of(await events_of(agent, "ROOT"))
        known = end.result.details["agentId"]
        again = await agent.spawn("MORE", resume=known).result()
        assert again.text == "More is done."
        branch = end.result.details["branch"]
        assert git(tree.work, "show", f"{branch}:d.txt") == "mine"
        assert not (tree.work / "c.txt").exists()


async def test_nothing_in_the_repository_is_run(tree: AgentTree, tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    for name in (
        "post-checkout",
        "reference-transaction",
        "post-index-change",
        "pre-commit",
        "post-commit",
        "post-merge",
    ):
        hook = tree.work / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\necho {name} >> {trace}\n")
        hook.chmod(0o755)
    for key in (
        "filter.x.clean",
        "filter.x.smudge",
        "filter.x.process",
        "core.fsmonitor",
        "diff.external",
        "merge.x.driver",
    ):
        git(tree.work, "config", key, f"echo {key} >> {trace}")
    git(tree.work, "config", "core.sshCommand", f"echo ssh >> {trace}")
    with (tree.work / ".git" / "config").open("a") as configuration:  # git runs these since 2.54
        for event in ("post-checkout", "reference-transaction", "post-index-change"):
            configuration.write(f'[hook "a={event} b.c"]\n\tevent = {event}\n\tcommand = "echo hook >> {trace}"\n')
    (tree.work / ".git" / "info" / "attributes").write_text("* filter=x merge=x diff=x\n")
    work_apart(tree, call("write", path="sub/b.txt", content="changed\n"))
    async with tree.start() as agent:
        [end] = results_of(await events_of(agent, "ROOT"))
        merged = await agent.merge_agent(end.result.details["agentId"])
    assert merged.merged is True
    assert not trace.exists(), trace.read_text()
    assert (tree.work / "sub" / "b.txt").read_text() == "changed\n"


async def test_a_copy_whose_repository_was_replaced_runs_nothing(tree: AgentTree, tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    plant = (
        f"rm .git; git init -q .; git config core.fsmonitor 'touch {trace}'; "
        f"git config filter.x.clean 'touch {trace}'; "
        "echo '* filter=x' > .gitattributes; mkdir nested; cd nested; git init -q; "
        f"git config core.fsmonitor 'touch {trace}'; echo x > y; cd ..; echo mine > c.txt"
    )
    work_apart(tree, call("bash", command=plant))
    async with tree.start() as agent:
        [end] = results_of(await events_of(agent, "ROOT"))
    assert not trace.exists()
    assert "c.txt" in end.result.details["changedFiles"]


async def test_what_a_killed_run_left_behind_is_kept_on_its_branch_and_removed(tree: AgentTree) -> None:
    tree.start()
    script = Path(tree.folders.temp) / "kill.json"
    rules = [
        {"when": {"user": "ROOT"}, "reply": calls(task("CHILD", isolation="worktree"))},
        {"when": {"user": "CHILD"}, "reply": call("bash", command="echo mine > c.txt; touch ../written; sleep 60")},
    ]
    script.write_text(json.dumps({"rules": rules}))
    worktrees = tree.folders.home / ".cache" / "pigeon" / "worktrees"
    with RpcProcess(tree.folders, "--model", f"scripted/{script}", "--tools", "+task") as killed:
        killed.send({"id": "p", "type": "prompt", "message": "ROOT"})
        await asyncio.to_thread(eventually, (worktrees / "written").exists)
        killed.kill()
    (worktrees / "written").unlink()
    async with tree.start() as agent:
        async for event in agent.events():
            if isinstance(event, pigeon.NotifyRequest) and "has died" in event.message:
                break
        notice = event.message
    [branch] = [line.strip() for line in git(tree.work, "branch", "--list", "pigeon/*").splitlines()]
    assert branch in notice
    assert git(tree.work, "show", f"{branch}:c.txt") == "mine"
    assert list(worktrees.iterdir()) == []


async def test_outside_a_repository_it_is_a_clear_error(tmp_path: Path) -> None:
    tree = AgentTree(tmp_path)
    work_apart(tree)
    async with tree.start() as agent:
        [end] = results_of(await events_of(agent, "ROOT"))
    assert end.is_error
    assert "needs a git repository" in text_of_result(end)
    assert isinstance(end, pigeon.ToolExecutionEnd)


def test_a_note_that_replaces_a_longer_one_can_be_read(tmp_path: Path) -> None:
    path = str(tmp_path / "copy.json")
    os.close(write_note(path, Note("/a" * 100, "pigeon/long", "1234", "general")))
    short = Note("/a", "b", "c", "d")
    os.close(write_note(path, short))
    taken = take_note(path)
    assert taken is not None
    os.close(taken[1])
    assert taken[0] == short
