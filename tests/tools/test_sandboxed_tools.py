"""The tools for files behind a sandbox: they read and write what a command could, and say why not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from fakes.tool_run import FakeRun, tool_parts, workplace
from pigeon.agent.interfaces import CommandSubject
from pigeon.sandbox.explaining import describe_policy, failure_hint
from pigeon.sandbox.policy import SandboxPolicy
from pigeon.system.process.start import ProcessOwner
from pigeon.tools.base import BaseTool
from pigeon.tools.catalog import built_in_tools
from pigeon.wire.content import text_of
from pigeon.wire.errors import ToolFailed
from support.sandboxed_runs import policy_for


class Tools:
    """The built-in tools of a working folder behind a sandbox."""

    def __init__(self, folder: Path, processes: ProcessOwner, **more: Any) -> None:
        self.home, self.work = folder / "home", folder / "work"
        (self.home / ".ssh").mkdir(parents=True)
        (self.home / ".ssh" / "id_rsa").write_text("PRIVATE")
        (self.home / "notes").write_text("PRIVATE but not a secret")
        (self.work / ".git").mkdir(parents=True)
        self.policy: SandboxPolicy = policy_for(self.work, self.home, folder / "scratch", **more)
        self.all: dict[str, BaseTool] = built_in_tools(
            tool_parts(workplace(self.work, processes), str(self.home), sandbox=lambda: self.policy)
        )

    async def call(self, name: str, **arguments: Any) -> str:
        tool, run = self.all[name], FakeRun()
        subject = tool.resolve_subject(arguments)
        run.subject = subject if isinstance(subject, CommandSubject) else await subject  # type: ignore[misc]
        try:
            return text_of((await tool.execute(arguments, run)).content)
        finally:
            run.subject.close()


@pytest.fixture
def tools(tmp_path: Path, processes: ProcessOwner) -> Tools:
    return Tools(tmp_path, processes)


async def test_files_are_written_in_the_folder_and_nowhere_else(tools: Tools) -> None:
    await tools.call("write", path="new", content="x")
    await tools.call("write", path=str(tools.policy.temporary_folder) + "/new", content="x")
    for path in ("~/new", "../new", ".git/hooks/pre-commit", ".git/config", ".pigeon/settings.json", ".mcp.json"):
        with pytest.raises(ToolFailed, match="the sandbox"):
            await tools.call("write", path=path, content="x")
    assert sorted(os.listdir(tools.work)) == [".git", "new"]
    assert os.listdir(tools.work / ".git") == []


async def test_a_link_that_leads_out_is_not_written_through(tools: Tools) -> None:
    os.symlink(tools.home, tools.work / "link")
    with pytest.raises(ToolFailed, match="lets only"):
        await tools.call("write", path="link/new", content="x")
    with pytest.raises(ToolFailed, match="lets only"):
        await tools.call("edit", path="link/notes", edits=[{"oldText": "a", "newText": "b"}])


async def test_secrets_are_not_read_by_any_name(tools: Tools) -> None:
    os.symlink(tools.home / ".ssh", tools.work / "keys")
    for path in ("~/.ssh/id_rsa", "keys/id_rsa", "../home/.ssh/../.ssh/id_rsa"):
        with pytest.raises(ToolFailed, match="hides"):
            await tools.call("read", path=path)
    with pytest.raises(ToolFailed, match="hides"):
        await tools.call("ls", path="~/.ssh")
    assert "not a secret" in await tools.call("read", path="~/notes")


async def test_of_the_agents_folder_only_folders_are_seen(tools: Tools) -> None:
    agent = tools.home / ".pigeon" / "agent"
    (agent / "skills").mkdir(parents=True)
    (agent / "skills" / "SKILL.md").write_text("how to")
    (agent / "auth.json").write_text("PRIVATE")
    (agent / "settings.json").write_text("PRIVATE")
    assert await tools.call("read", path=str(agent / "skills" / "SKILL.md")) == "how to"
    for name in ("auth.json", "settings.json", "auth.json.new"):
        with pytest.raises(ToolFailed, match="hides"):
            await tools.call("read", path=str(agent / name))
    assert await tools.call("ls", path=str(agent)) == "skills/"
    assert "PRIVATE" not in await tools.call("grep", pattern="PRIVATE", path=str(agent))


async def test_searches_around_a_secret_do_not_show_it(tools: Tools) -> None:
    assert await tools.call("ls", path="~") == "notes"
    assert ".ssh" not in await tools.call("find", pattern="**/*", path="~")
    found = await tools.call("grep", pattern="PRIVATE", path="~")
    assert "notes" in found
    assert "id_rsa" not in found


async def test_nothing_is_written_where_everything_is_read_only(tmp_path: Path, processes: ProcessOwner) -> None:
    tools = Tools(tmp_path, processes, mode="read-only")
    with pytest.raises(ToolFailed, match="no folder but the temporary one"):
        await tools.call("write", path="new", content="x")


def test_the_model_is_told_what_commands_can_do_and_how_to_ask(tools: Tools) -> None:
    spec = tools.all["bash"].spec
    assert describe_policy(tools.policy) in spec.description
    assert "unsandboxed: true" in spec.description
    assert {"unsandboxed", "reason"} <= set(spec.parameters["properties"])


@pytest.mark.parametrize(
    ("output", "rule"),
    [
        ("touch: cannot touch '/x': Read-only file system", "lets only"),
        ("error: could not write config file .git/config: Device or resource busy", ".git/config"),
        ("curl: (6) Could not resolve host: example.com", "no network"),
        ("connect: Network is unreachable", "no network"),
        ("socket: Operation not permitted", "Unix sockets"),
        ("1 test failed", None),
        ("error: expected ';' before '}' token", None),
    ],
)
def test_a_failure_that_looks_like_the_sandbox_is_explained(tools: Tools, output: str, rule: str | None) -> None:
    hint = failure_hint(tools.policy, output)
    assert (hint is None) is (rule is None)
    assert rule is None or (rule in str(hint) and "may be why" in str(hint) and "unsandboxed" in str(hint))


def test_with_the_network_a_failure_there_is_not_laid_at_the_wall(tools: Tools) -> None:
    open_policy = structs.replace(tools.policy, network=True)
    assert failure_hint(open_policy, "Could not resolve host: example.com") is None
