"""The official SDKs of the Agent Client Protocol as peers, unmodified: each drives a whole editing conversation.

Runs with `make interop`; see `support/installed_programs.py` for where the packages go.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fakes.editor_client import EditorStarter
from support.agent_folders import AgentFolders
from support.agent_process import command_line
from support.installed_programs import node, npm_package, only_on_request, python_with

pytestmark = only_on_request
TYPESCRIPT = ("@agentclientprotocol/sdk", "2.4.0")
PYTHON = "agent-client-protocol==0.12.1"
CLIENTS = Path(__file__).parent / "clients"
EDIT = {"path": "open.txt", "edits": [{"oldText": "text", "newText": "words"}]}
RULES = [
    {"when": {"user": "edit it", "toolResult": "made"}, "reply": "All done."},
    {"when": {"user": "edit it", "toolResult": "Successfully"}, "reply": {"toolCalls": [
        {"name": "bash", "arguments": {"command": "echo made"}}]}},
    {"when": {"user": "edit it", "toolResult": "Permission denied"}, "reply": {"text": "Again.", "toolCalls": [
        {"name": "edit", "arguments": EDIT}]}},
    {"when": {"user": "edit it", "toolResult": "text"}, "reply": {"toolCalls": [
        {"name": "edit", "arguments": EDIT}]}},
    {"when": {"user": "edit it"}, "reply": {"thinking": "Let me see.", "text": "I will look.", "toolCalls": [
        {"name": "read", "arguments": {"path": "open.txt"}}]}},
    {"when": {"user": "CHILD"}, "reply": "All is **well**."},
    {"when": {"user": "PLAN AND DO", "toolResult": "accepted"}, "reply": "Done."},
    {"when": {"user": "PLAN AND DO", "toolResult": "well"}, "reply": {"toolCalls": [
        {"name": "submit_plan", "arguments": {"plan": "1. Read it"}}]}},
    {"when": {"user": "PLAN AND DO"}, "reply": {"toolCalls": [
        {"name": "task", "arguments": {"prompt": "CHILD", "title": "Look around", "agent": "explore"}}]}},
    {"when": {"user": "run forever"}, "reply": {"toolCalls": [
        {"name": "bash", "arguments": {"command": "echo forever; sleep 600"}}]}},
]  # fmt: skip
WATCHED = ("user_message_chunk", "agent_thought_chunk", "agent_message_chunk", "tool_call", "tool_call_update")


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    """A project with a file, of which an editor has another text."""
    folders = AgentFolders(tmp_path)
    folders.configure()
    (folders.work / "open.txt").write_text("text on disk\n")
    (folders.temp / "script.json").write_text(json.dumps({"rules": RULES, "default": "ok"}))
    return folders


def run_conversation(folders: AgentFolders, *program: str) -> dict[str, Any]:
    """What a client says of its conversation."""
    agent = [*command_line(), "acp", "--model", f"scripted/{folders.temp / 'script.json'}"]
    ended = subprocess.run(
        [*program, str(folders.work), *agent],
        env=folders.environment({"PATH": os.environ["PATH"]}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    said: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return said


def test_the_typescript_sdk_sees_agents_and_accepts_a_plan(folders: AgentFolders) -> None:
    package = npm_package(*TYPESCRIPT)
    said = run_conversation(folders, node(), str(CLIENTS / "acp_agents.mjs"), str(package))
    assert "plan" in said["modes"]
    assert said["modeUpdates"] == ["plan", "yolo"]
    first = said["calls"][0]["toolCallId"]
    agent = [call for call in said["calls"] if call["toolCallId"] == first]
    assert [call["title"] for call in agent if call.get("title")][-1] == "Look around"
    assert agent[-1]["status"] == "completed"
    assert [piece["content"]["text"] for piece in agent[-1]["content"]] == ["All is **well**."]
    (question,) = said["questions"]
    assert [option["optionId"] for option in question["options"]] == ["Accept", "Change", "Refuse"]
    assert [piece["content"]["text"] for piece in question["call"]["content"]] == ["1. Read it"]
    assert said["ended"] == "end_turn"


def test_the_typescript_sdk_edits_in_version_1(folders: AgentFolders) -> None:
    package = npm_package(*TYPESCRIPT)
    said = run_conversation(folders, node(), str(CLIENTS / "acp_v1.mjs"), str(package))
    assert (said["version"], said["edited"], said["cancelled"], said["unknown"]) == (1, "end_turn", "cancelled", -32002)
    assert said["options"] == ["mode", "model", "thought_level"]
    assert said["listed"] == [True]
    assert said["buffers"] == {str(folders.work / "open.txt"): "unsaved words\n"}
    assert (folders.work / "open.txt").read_text() == "text on disk\n"
    assert said["permissions"][0]["options"] == ["allow_once", "allow_always", "reject_once"]
    assert len(said["permissions"]) == 4
    assert [args[-1] for args in said["terminals"]] == ["echo made", "echo forever; sleep 600"]
    assert said["deeds"].count("release") == 2
    assert {*WATCHED[1:], "usage_update", "session_info_update", "current_mode_update"} <= set(said["kinds"])
    assert {"diff", "terminal", "content"} <= set(said["contents"])
    assert set(WATCHED) <= set(said["replayed"])
    assert said["code"] == 0


def test_the_typescript_sdk_edits_in_the_draft_of_version_2(folders: AgentFolders) -> None:
    package = npm_package(*TYPESCRIPT)
    (folders.work / "open.txt").write_text("unsaved text\n")
    said = run_conversation(folders, node(), str(CLIENTS / "acp_v2.mjs"), str(package))
    assert (said["version"], said["unknown"], said["sameId"], said["listed"]) == (2, -32002, True, [True])
    assert said["options"] == ["mode", "model", "thought_level"]
    assert (folders.work / "open.txt").read_text() == "unsaved words\n"
    assert [one["subject"] for one in said["permissions"]] == ["tool_call"] * 4
    assert {"state_update", "user_message", "terminal_update", "terminal_output_chunk"} <= set(said["kinds"])
    assert {"diff", "terminal"} <= set(said["contents"])
    assert {"user_message", "agent_message_chunk", "tool_call_update"} <= set(said["replayed"])
    assert said["code"] == 0


def test_the_python_sdk_edits_in_version_1(folders: AgentFolders) -> None:
    said = run_conversation(folders, str(python_with(PYTHON)), str(CLIENTS / "acp_python.py"))
    assert (said["version"], said["edited"], said["cancelled"], said["unknown"]) == (1, "end_turn", "cancelled", -32002)
    assert said["buffers"] == {str(folders.work / "open.txt"): "unsaved words\n"}
    assert said["listed"] == [True]
    assert said["forked"] is True
    assert [args[-1] for args in said["terminals"]] == ["echo made", "echo forever; sleep 600"]
    assert len(said["released"]) == 2
    assert set(WATCHED) <= set(said["replayed"])


@pytest.mark.parametrize("version", [1, 2])
def test_every_message_is_as_the_schema_of_the_protocol_has_it(folders: AgentFolders, version: int) -> None:
    schema = json.loads((npm_package(*TYPESCRIPT) / "schema" / f"v{version}" / "schema.unstable.json").read_text())
    starter = EditorStarter(folders)
    client = {"session": {"compaction": {}, "notices": {}}} if version == 1 else {}
    editor = starter(
        script={"rules": RULES, "default": "ok"}, version=version, args=("--approval-mode", "write"), **client
    )
    editor.handlers["session/request_permission"] = lambda params: {
        "outcome": {"outcome": "selected", "optionId": "allow_once"}
    }
    session = editor.new()
    editor.prompt(session, "edit it")
    if version == 2:
        editor.wait_update(session, "state_update", state="idle", stopReason="end_turn")
    editor.call("session/set_config_option", sessionId=session, configId="mode", type="id", value="always-ask")
    editor.call("session/list")
    editor.call("session/fork", sessionId=session, cwd=str(folders.work), mcpServers=[])
    editor.call("session/close", sessionId=session)
    if version == 1:
        editor.call("session/load", sessionId=session, cwd=str(folders.work), mcpServers=[])
    editor.expect_error("session/prompt", sessionId="none", prompt=[{"type": "text", "text": "x"}])
    starter.close()
    kinds = {
        "session/update": "SessionNotification" if version == 1 else "UpdateSessionNotification",
        "session/request_permission": "RequestPermissionRequest",
    }
    checked = set()
    for message in editor.messages:
        method = message.get("method")
        name = "AgentResponse" if method is None else kinds.get(method)
        if name is None:
            continue
        value = message if method is None else message["params"]
        jsonschema.validate(value, {"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]})
        checked.add(name)
    assert len(checked) == 3
