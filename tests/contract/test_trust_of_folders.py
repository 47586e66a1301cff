"""Trust is decided for the folder that the conversation is in, before anything of it is used, and a host can decide."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import ModelServer
from support.agent_folders import AgentFolders
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.sessions import HEADER

LURE = "LURE"
EXTENSION = "from pigeon.extensions import *\next = Extension('p')\n\n@ext.command('{name}')\ndef c(args): pass\n"


def lay_out(project: Path, name: str) -> list[str]:
    """A project with everything that waits for trust, recognizable by this name; the paths that wait."""
    files = {
        ".pigeon/settings.json": json.dumps({"steeringMode": "all"}),
        ".pigeon/extensions/one.py": EXTENSION.format(name=f"command-{name}"),
        ".pigeon/skills/one/SKILL.md": f"---\nname: skill-{name}\ndescription: {LURE}\n---\ntext\n",
        f".pigeon/prompts/prompt-{name}.md": "text",
        ".pigeon/rules/one.md": f"---\ncondition: fine\n---\n{LURE} {name}\n",
        ".pigeon/APPEND_SYSTEM.md": f"{LURE} appended {name}",
    }
    for path, text in files.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text)
    own = ["settings.json", "extensions", "skills", "prompts", "rules", "APPEND_SYSTEM.md"]
    return [str(project / ".pigeon" / name) for name in own]


def session_in(folder: Path, at: Path) -> str:
    """A session file of a conversation in this folder."""
    at.write_text(json.dumps({**HEADER, "cwd": str(folder)}) + "\n")
    return str(at)


def used(host: RpcProcess, name: str) -> set[str]:
    """What is used of the project with this name."""
    commands = {command["name"] for command in host.ask("get_commands")["commands"]}
    found = {"command", "skill", "prompt"} & {
        kind for kind in ("command", "skill", "prompt") if commands & {f"{kind}-{name}", f"skill:{kind}-{name}"}
    }
    return found | ({"settings"} if host.ask("get_state")["steeringMode"] == "all" else set())


def trust(folders: AgentFolders, decisions: dict[Path, bool]) -> None:
    entries = {os.path.realpath(folder): trusted for folder, trusted in decisions.items()}
    (folders.agent / "trust.json").write_text(json.dumps(entries))


@pytest.fixture
def other(folders: AgentFolders) -> Path:
    """The folder of another project."""
    folder = folders.home / "other"
    folder.mkdir()
    return folder


ALL = {"command", "skill", "prompt", "settings"}


@proves("trust.conversation")
@pytest.mark.parametrize(("here", "there"), [(True, False), (False, True), (True, True), (False, False)])
@pytest.mark.parametrize("option", ["--session", "--resume"])
def test_a_conversation_of_another_folder_is_judged_by_that_folder(
    start: Start, folders: AgentFolders, other: Path, here: bool, there: bool, option: str
) -> None:
    lay_out(folders.work, "here")
    lay_out(other, "there")
    trust(folders, {folders.work: here, other: there})
    host = start(option, session_in(other, folders.temp / "s.jsonl"), keeps=True)
    assert host.ask("get_trust")["cwd"] == str(other)
    assert used(host, "there") == (ALL if there else set())
    assert used(host, "here") - {"settings"} == set()


@proves("trust.option_folder")
def test_an_option_trusts_the_folder_of_the_start_and_no_other(
    start: Start, folders: AgentFolders, other: Path
) -> None:
    lay_out(other, "there")
    host = start("--approve", "--session", session_in(other, folders.temp / "s.jsonl"), keeps=True)
    assert used(host, "there") == set()
    state = host.ask("get_trust")
    assert (state["trusted"], state["decidedBy"]) == (False, None)


@proves("trust.switched")
@pytest.mark.parametrize("there", [True, False])
def test_a_conversation_that_is_switched_to_is_judged_by_its_folder(
    start: Start, folders: AgentFolders, server: ModelServer, other: Path, there: bool
) -> None:
    lay_out(folders.work, "here")
    lay_out(other, "there")
    trust(folders, {folders.work: True, other: there})
    host = start(keeps=True)
    assert used(host, "here") == ALL
    host.ask("switch_session", sessionPath=session_in(other, folders.temp / "s.jsonl"))
    at_run_time = {"skill", "prompt"}
    assert used(host, "there") - {"settings"} == (at_run_time if there else set())
    assert not used(host, "here") & at_run_time
    asked = server.answers("hello")
    host.run("x")
    assert (LURE in json.dumps(asked.request)) is there
    host.ask("new_session")
    assert used(host, "there") - {"settings"} == (at_run_time if there else set())


@proves("trust.later")
@pytest.mark.parametrize("options", [[], ["--no-approve"]])
def test_what_appears_later_is_not_trusted_because_there_was_nothing(
    start: Start, folders: AgentFolders, server: ModelServer, options: list[str]
) -> None:
    (folders.work / "AGENTS.md").write_text("use tabs")
    host = start(*options, keeps=True)
    first = server.answers("hello")
    host.run("x")
    assert ('approved=\\"no\\"' in json.dumps(first.request)) is bool(options)
    waiting = lay_out(folders.work, "late")
    host.ask("new_session")
    asked = server.answers("all is fine")
    records = host.run("/prompt-late /skill:skill-late")
    assert LURE not in json.dumps([asked.request, records])
    assert used(host, "late") == set()
    assert host.ask("get_trust")["waiting"] == waiting
    assert not host.since(0, "trust_required")


@proves("trust.set")
def test_a_host_can_decide_and_learns_what_that_changes(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    waiting = lay_out(folders.work, "it")
    host = start(keeps=True)
    undecided = {"cwd": str(folders.work), "trusted": False, "decidedBy": None, "waiting": waiting}
    assert host.ask("get_trust") == undecided
    assert used(host, "it") == set()
    settings, extensions, *rest = waiting
    change = host.ask("set_trust", trusted=True)
    assert change == {
        "cwd": str(folders.work), "trusted": True, "decidedBy": "host", "waiting": [],
        "applied": rest, "needsRestart": [settings, extensions], "remembered": False,
    }  # fmt: skip
    assert used(host, "it") == {"skill", "prompt"}
    asked = server.answers("all is fine")
    server.answers("sorry")
    host.run("x")
    assert f"{LURE} appended it" in json.dumps(asked.request)
    assert host.since(0, "ttsr_triggered")
    assert not (folders.agent / "trust.json").exists()
    assert host.ask("set_trust", trusted=False)["waiting"] == waiting
    assert used(host, "it") == set()
    again = server.answers("all is fine")
    begun = host.mark()
    host.run("x")
    assert f"{LURE} appended it" not in json.dumps(again.request["system"])
    assert not host.since(begun, "ttsr_triggered")


@proves("trust.set_link")
def test_a_link_that_takes_the_place_of_a_trusted_folder_is_another_project(
    start: Start, folders: AgentFolders, server: ModelServer, other: Path
) -> None:
    lay_out(other, "other")
    host = start(keeps=True)
    host.ask("set_trust", trusted=True)
    host.wait_quiet()  # what is read ahead is that of the trusted folder
    folders.work.rename(folders.home / "moved")
    folders.work.symlink_to(other)
    asked = server.answers("fine")
    host.run("/prompt-other")
    assert used(host, "other") == set()
    assert LURE not in json.dumps(asked.request)
    assert host.ask("get_trust")["trusted"] is False


@proves("trust.set_remembered")
def test_a_decision_is_remembered_if_that_is_asked_for(start: Start, folders: AgentFolders) -> None:
    lay_out(folders.work, "it")
    assert start().ask("set_trust", trusted=True, remember=True)["remembered"] is True
    assert json.loads((folders.agent / "trust.json").read_text()) == {os.path.realpath(folders.work): True}
    assert used(start(), "it") == ALL
    (folders.agent / "trust.json").write_text("{} // mine")
    change = start().ask("set_trust", trusted=True, remember=True)
    assert (change["trusted"], change["remembered"]) == (True, False)
    assert "has comments" in change["problem"]
    assert (folders.agent / "trust.json").read_text() == "{} // mine"


@proves("trust.set_unclear")
@pytest.mark.parametrize("fields", [{}, {"trusted": "yes"}, {"trusted": 1}, {"trusted": None}])
def test_a_decision_that_is_not_clear_changes_nothing(
    start: Start, folders: AgentFolders, fields: dict[str, Any]
) -> None:
    lay_out(folders.work, "it")
    host = start()
    assert "trusted" in host.expect_error("set_trust", **fields)
    assert host.ask("get_trust")["decidedBy"] is None


@proves("trust.required")
def test_a_host_that_asked_is_told_of_what_waits(
    start: Start, folders: AgentFolders, server: ModelServer, other: Path
) -> None:
    host = start(keeps=True)
    assert host.ask("hello", features=["trust"])["features"] == ["trust"]
    waiting = lay_out(folders.work, "late")
    server.answers("hello")
    host.run("x")
    assert host.wait_event("trust_required") == {
        "type": "trust_required", "cwd": str(folders.work), "waiting": waiting
    }  # fmt: skip
    server.answers("hello")
    host.run("x")
    assert len(host.since(0, "trust_required")) == 1
    there = lay_out(other, "there")
    begun = host.mark()
    host.ask("switch_session", sessionPath=session_in(other, folders.temp / "s.jsonl"))
    assert host.wait_event("trust_required", begun)["waiting"] == there
    begun = host.mark()
    host.ask("set_trust", trusted=True)
    host.ask("hello")
    server.answers("hello")
    host.run("x")
    assert not host.since(begun, "trust_required")


@proves("trust.required_order")
def test_the_first_of_these_events_comes_after_the_answer_to_hello(start: Start, folders: AgentFolders) -> None:
    waiting = lay_out(folders.work, "it")
    host = start()
    host.ask("get_state")
    assert not host.since(0, "trust_required")
    host.ask("hello", features=["trust"])
    assert host.wait_event("trust_required")["waiting"] == waiting
    kinds = [record["type"] for record in host.records]
    assert kinds.index("trust_required") > max(at for at, kind in enumerate(kinds) if kind == "response")


@proves("trust.set_rules")
def test_the_permission_rules_of_a_project_come_and_go_with_trust(
    start: Start, folders: AgentFolders, other: Path
) -> None:
    (folders.work / ".pi").mkdir()
    (folders.work / ".pi" / "settings.json").write_text('{"permissions": {"deny": ["bash"], "allow": ["read"]}}')
    host = start(keeps=True)
    assert host.ask("get_permissions")["project"]["deny"] == []
    host.ask("set_trust", trusted=True)
    project = host.ask("get_permissions")["project"]
    assert (project["deny"], project["allow"]) == (["bash"], [])
    host.ask("switch_session", sessionPath=session_in(other, folders.temp / "s.jsonl"))
    assert host.ask("get_permissions")["project"]["deny"] == []
    (folders.work / ".pi" / "settings.json").write_text("{ broken")
    host.ask("switch_session", sessionPath=session_in(folders.work, folders.temp / "back.jsonl"))
    assert host.ask("get_permissions")["default"] == "ask"
    assert "settings.json" in host.wait_event("extension_ui_request", method="notify")["message"]
