"""Which tools a conversation has: by options and settings when it begins, by its file when it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import ModelServer
from support.agent_process import RpcProcess, Start
from support.contract import proves

DEFAULT = ["read", "bash", "edit", "write"]
# The tools that another program of the family declares: one that is here, and one that is not.
FOREIGN = [
    {"role": "system", "content": "", "sections": {"cwd": "x"}, "timestamp": 1, "toolsAdded": [
        {"name": name, "description": "", "parameters": {}} for name in ("ls", "codemode", "bash")]},
    {"role": "system", "content": "", "timestamp": 2, "toolsRemoved": [{"name": "bash"}], "toolsAdded": [
        {"name": "grep", "description": "", "parameters": {}, "constrainedSampling": {"type": "json_schema"}}]},
]  # fmt: skip


def offered(agent: RpcProcess, server: ModelServer) -> list[str]:
    """The tools in the request of a prompt."""
    answer = server.answers("ok")
    agent.run("hello")
    return [tool["name"] for tool in answer.wait_arrived().get("tools", [])]


def declared(file: str) -> list[tuple[list[str], list[str]]]:
    """What each system message of a session file adds and takes away."""
    messages = [json.loads(line).get("message", {}) for line in Path(file).read_text("utf-8").splitlines()]
    return [
        tuple([tool["name"] for tool in message.get(key, [])] for key in ("toolsAdded", "toolsRemoved"))  # type: ignore[misc]
        for message in messages
        if message.get("role") == "system"
    ]


@proves("tools.selected")
@pytest.mark.parametrize(
    ("args", "settings", "tools"),
    [
        (["--tools", "+ls,-bash"], {}, ["read", "edit", "write", "ls"]),
        (["-t", "-bash"], {}, ["read", "edit", "write"]),
        (["--tools", "read,gr*"], {}, ["read", "grep"]),
        (["--tools", ""], {}, []),
        (["--no-tools", "--tools", "+ls"], {}, ["ls"]),
        (["-xt", "b*,e*"], {}, ["read", "write"]),
        (["--tools", "+ls", "-xt", "ls"], {}, DEFAULT),
        ([], {"defaultTools": ["+codemode"]}, DEFAULT),
        ([], {"defaultTools": ["-bash", "+ls"]}, ["read", "edit", "write", "ls"]),
        ([], {"defaultTools": "read"}, []),
        (["--tools", "+ls"], {"defaultTools": ["read"]}, ["read", "ls"]),
    ],
)
def test_tools_are_named_matched_added_and_dropped(
    start: Start, server: ModelServer, args: list[str], settings: dict[str, Any], tools: list[str]
) -> None:
    assert offered(start(*args, settings=settings), server) == tools


@proves("tools.selected_bad")
@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["--tools", "read,+ls"], "Error: --tools: tool names cannot be mixed with +name or -name entries\n"),
        (["-t", "-g*"], "Error: -t: +name and -name entries take exact tool names, not patterns: -g*\n"),
    ],
)
def test_a_list_without_sense_ends_the_start(start: Start, args: list[str], error: str) -> None:
    agent = start(*args)
    assert agent.wait_exit() == 2
    assert agent.stderr == error


@proves("tools.selected_unknown")
def test_a_tool_of_the_settings_that_does_not_exist_is_reported(start: Start) -> None:
    agent = start(settings={"defaultTools": ["+codemode"]})
    agent.ask("get_state")
    agent.close()
    assert 'defaultTools: there is no tool "+codemode"' in agent.stderr


@proves("tools.restored")
def test_a_conversation_goes_on_with_its_tools(start: Start, server: ModelServer) -> None:
    def go_on(*args: str, **more: Any) -> list[str]:
        agent = start(*args, keeps=True, **more)
        tools = offered(agent, server)
        agent.close()
        return tools

    assert go_on("--tools", "read,ls") == ["read", "ls"]
    assert go_on("--continue") == ["read", "ls"]
    assert go_on("--continue", settings={"defaultTools": ["write"]}) == ["read", "ls"]
    assert go_on("--continue", "--tools", "+grep,-ls") == ["read", "grep"]
    assert go_on("--continue") == ["read", "grep"]
    assert go_on("--continue", "--no-tools") == []
    assert go_on("--continue") == []
    assert go_on("--continue", "--tools", "+ls") == ["ls"]
    assert go_on("--continue", "--tools", "read,write") == ["read", "write"]
    assert go_on("--continue", "-xt", "r*") == ["write"]
    assert go_on() == DEFAULT


@proves("tools.on_record")
def test_what_changed_is_on_record_once_and_no_host_sees_it(start: Start, server: ModelServer) -> None:
    agent = start("--tools", "read,ls", keeps=True)
    file = agent.ask("get_state")["sessionFile"]
    assert not Path(file).exists()
    offered(agent, server)
    offered(agent, server)
    agent.close()
    assert declared(file) == [(["read", "ls"], [])]
    agent = start("--continue", "--tools", "+grep,-ls", keeps=True)
    offered(agent, server)
    assert declared(file) == [(["read", "ls"], []), (["grep"], ["ls"])]
    assert not [record for record in agent.records if '"system"' in json.dumps(record)]
    assert agent.ask("get_session_stats")["totalMessages"] == 6
    assert agent.ask("get_state")["messageCount"] == 6


@proves("tools.switched")
def test_another_session_brings_its_tools_and_a_new_one_the_default(start: Start, server: ModelServer) -> None:
    first = start("--tools", "read,ls", keeps=True)
    offered(first, server)
    file = first.ask("get_state")["sessionFile"]
    first.close()
    agent = start("--tools", "+grep", keeps=True)
    assert offered(agent, server) == [*DEFAULT, "grep"]
    agent.ask("switch_session", sessionPath=file)
    assert offered(agent, server) == ["read", "ls", "grep"]
    agent.ask("clone")
    assert offered(agent, server) == ["read", "ls", "grep"]
    agent.ask("new_session")
    assert offered(agent, server) == [*DEFAULT, "grep"]


@proves("tools.declared_elsewhere")
def test_tools_that_another_program_declared_are_taken_and_foreign_ones_stay_declared(
    start: Start, server: ModelServer, tmp_path: Path
) -> None:
    file = tmp_path / "theirs.jsonl"
    lines: list[dict[str, Any]] = [{"type": "session", "version": 3, "id": "x1", "timestamp": "", "cwd": str(tmp_path)}]
    for at, message in enumerate(FOREIGN):
        parent = f"e{at - 1}" if at else None
        lines.append({"type": "message", "id": f"e{at}", "parentId": parent, "timestamp": "", "message": message})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    agent = start("--session", str(file), keeps=True)
    assert offered(agent, server) == ["ls", "grep"]
    agent.close()
    assert declared(str(file)) == [(["ls", "codemode", "bash"], []), (["grep"], ["bash"])]
    assert offered(start("--session", str(file), "--tools", "-ls", keeps=True), server) == ["grep"]
    assert declared(str(file))[2:] == [([], ["ls"])]


@proves("tools.declared", dialects=("pi-latest",))
def test_the_newest_dialect_shows_which_tools_a_run_has(start: Start, server: ModelServer) -> None:
    agent = start("--tools", "ls", dialect="pi-latest")
    server.answers("ok")
    records = agent.run("hello")
    kinds = [(record["type"], record.get("message", {}).get("role")) for record in records]
    at = kinds.index(("message_start", "system"))
    assert kinds[at - 1 : at + 3] == [
        ("turn_start", None), ("message_start", "system"), ("message_end", "system"), ("message_start", "user"),
    ]  # fmt: skip
    shown = records[at]["message"]
    assert [tool["name"] for tool in shown["toolsAdded"]] == ["ls"]
    assert next(record for record in records if record["type"] == "agent_end")["messages"][0] == shown
    server.answers("ok")
    assert '"system"' not in json.dumps(agent.run("again"))
