"""Twelve rules that real clients insist on; each of them has broken somebody when it was violated."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fakes.clock import within
from fakes.model_server import Call, Gate, Hang, ModelServer, Thinking
from support.agent_folders import AgentFolders, providers
from support.agent_process import RpcProcess, Start, command_line, command_line_named
from support.contract import in_each, proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import answers, deltas, text_of

Record = dict[str, Any]
SETTINGS = {"retry": {"baseDelayMs": 1}, "compaction": {"keepRecentTokens": 50, "reserveTokens": 1000}}
LONG = "lorem ipsum dolor sit amet " * 40
NULLS = {"data.text", "data", "data.model", "data.leafId", "result", "data.contextUsage.tokens",
         "data.contextUsage.percent"}  # fmt: skip
ROLES = {"user", "assistant", "toolResult", "bashExecution", "custom", "branchSummary", "compactionSummary"}
OF_THE_NEWEST = {"system"}  # clients of `pi-latest` know it; that no other dialect has it is a row of its table
COMMANDS: dict[str, Record] = {
    "get_state": {}, "get_messages": {}, "get_last_assistant_text": {}, "get_session_stats": {}, "get_commands": {},
    "get_available_models": {}, "get_available_thinking_levels": {}, "get_fork_messages": {}, "get_entries": {},
    "get_tree": {}, "list_sessions": {}, "abort": {}, "abort_bash": {}, "abort_retry": {}, "clear_queue": {},
    "cycle_model": {}, "cycle_thinking_level": {}, "set_model": {"provider": "fake", "modelId": "fake-1"},
    "set_thinking_level": {"level": "low"}, "set_steering_mode": {"mode": "all"}, "set_follow_up_mode": {"mode": "all"},
    "set_interrupt_mode": {"mode": "wait"}, "set_auto_compaction": {"enabled": True},
    "set_auto_retry": {"enabled": True}, "set_session_name": {"name": "n"}, "set_todos": {"phases": []},
    "set_host_tools": {"tools": []}, "bash": {"command": "true"}, "compact": {}, "export_html": {},
    "fork": {"entryId": "x"}, "switch_session": {"sessionPath": 5}, "new_session": {}, "prompt": {"message": 5},
    "steer": {}, "follow_up": {"message": None}, "abort_and_prompt": {}, "hello": {"dialect": "x"}, "clone": {},
    "no_such_command": {}, "host_tool_result": {"result": 5},
}  # fmt: skip


def nulls(value: Any, path: str = "") -> list[str]:
    """Where there are nulls; what tools say is their own, and entries are as the session file has them."""
    if isinstance(value, dict):
        free = ("args", "arguments", "details", "entry", "entries", "tree")
        own = {key: item for key, item in value.items() if key not in free}
        return [found for key, item in own.items() for found in nulls(item, f"{path}.{key}".lstrip("."))]
    if isinstance(value, list):
        return [found for item in value for found in nulls(item, path)]
    return [path] if value is None else []


def a_long_life(agent: RpcProcess, server: ModelServer) -> None:
    """A bit of everything: thinking, tools, a retry, an abort, a compaction, another session."""
    server.answers(Thinking("hm"), "Looking.", Call("bash", {"command": "echo hi"}))
    server.answers("Done.")
    agent.run(LONG)
    server.fails(503, "not now")
    server.answers(LONG)
    agent.ask("prompt", message="again")
    agent.wait_event("auto_retry_end")
    agent.wait_event("agent_settled", agent.records.index(agent.wait_event("auto_retry_end")))
    server.answers("half", Hang())
    start = agent.mark()
    agent.ask("prompt", message="and again")
    agent.wait_delta("f", start)
    agent.ask("steer", message="wait")
    agent.ask("abort")
    agent.ask("clear_queue")
    for _ in range(2):
        server.answers("THE SUMMARY")
    agent.ask("compact")
    agent.ask("bash", command="echo hi; exit 3")
    for command in ("get_state", "get_messages", "get_entries", "get_tree", "get_session_stats", "list_sessions"):
        agent.ask(command)
    agent.ask("set_session_name", name="a life")
    assert agent.ask("new_session")["cancelled"] is False
    agent.ask("get_last_assistant_text")


@scenario
def life(stage: Stage) -> Seen:
    """A process that has seen something."""
    agent = stage.start(settings=SETTINGS, keeps=True)
    a_long_life(agent, stage.server)
    agent.close()
    events = [record for record in agent.records if record["type"] != "response"]
    return Seen(stderr=agent.stderr, records=agent.records, events=events, responses=agent.since(0, "response"),
                faults=agent.faults)  # fmt: skip


@proves("rule.json_only")
def test_2_a_whole_life_is_json_and_silence_on_stderr(life: Seen) -> None:
    assert life.stderr == ""
    assert life.faults == []


@proves("rule.absent_not_null")
def test_3_what_there_is_not_is_absent(life: Seen) -> None:
    assert {path for record in life.records for path in nulls(record)} <= NULLS
    (named,) = [event for event in life.events if event["type"] == "session_info_changed"]
    assert named["name"] == "a life"


@proves("rule.no_id_on_events")
def test_9_no_event_has_the_id_of_a_request(life: Seen) -> None:
    assert not [event for event in life.events if "id" in event and event["type"] != "bash_execution_update"]
    assert all(isinstance(record["id"], str) for record in life.responses)


@proves("rule.roles")
def test_9_no_message_has_a_role_that_clients_do_not_know(life: Seen) -> None:
    roles = {event["message"]["role"] for event in life.events if event["type"] == "message_end"}
    assert roles <= ROLES | OF_THE_NEWEST


@proves("rule.id_always", dialects=("pi", "pi-latest"))
@in_each("pi", "pi-latest")
def test_1_every_response_carries_the_id_of_its_command(spoken: RpcProcess) -> None:
    for name, arguments in COMMANDS.items():
        spoken.send({"id": f"id of {name}", "type": name, **arguments})
        assert spoken.response(f"id of {name}")["command"] == name


@proves("rule.exit")
@pytest.mark.by_exec
def test_4_the_end_is_clean_quick_and_the_version_a_version(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    start().close(expect=0)
    server.answers("half", Hang())
    agent = start()
    agent.ask("prompt", message="x")
    agent.wait_delta("h")
    with within(1):
        agent.signal(signal.SIGTERM)
        agent.wait_exit()
    for name in ("pi", "omp"):
        done = subprocess.run(
            [*command_line_named(folders, name), "--version"], env=folders.environment(), capture_output=True,
            text=True, timeout=20, check=True,
        )  # fmt: skip
        assert re.fullmatch(r"\d+\.\d+\.\d+\n", done.stdout)


@proves("rule.session_files")
def test_6_session_files_are_where_and_what_windows_expect(start: Start, server: ModelServer) -> None:
    agent = start(keeps=True)
    server.answers("well")
    agent.run("hello")
    agent.ask("set_session_name", name="greeting")
    state = agent.ask("get_state")
    file = Path(state["sessionFile"])
    folder = "--" + str(agent.folders.work).strip("/").replace("/", "-") + "--"
    assert file.parent == agent.folders.agent / "sessions" / folder
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{{3}}Z_{state['sessionId']}\.jsonl", file.name)
    header, *entries = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert (header["type"], header["id"], header["cwd"]) == ("session", state["sessionId"], str(agent.folders.work))
    assert all({"type", "id", "parentId", "timestamp"} <= set(entry) for entry in entries)
    said = [entry["message"]["role"] for entry in entries if entry["type"] == "message"]
    assert said == ["system", "user", "assistant"]
    assert [entry["name"] for entry in entries if entry["type"] == "session_info"] == ["greeting"]


@proves("rule.harmless")
def test_7_12_abort_answers_to_nobody_and_unknown_fields_do_no_harm(agent: RpcProcess, server: ModelServer) -> None:
    assert agent.request("abort")["success"] is True
    agent.send({"type": "extension_ui_response", "id": "nobody", "cancelled": True})
    asked = server.answers("well")
    agent.send({"id": 1, "type": "prompt", "message": "x", "mood": "good", "nested": {"deep": [None]}})
    agent.wait_end()
    assert agent.response(1)["success"] is True
    assert asked.arrived.is_set()
    assert [record["command"] for record in agent.since(0, "response")] == ["abort", "prompt"]


@proves("rule.file_untouched")
def test_8_a_file_is_not_touched_before_its_tool_is_announced(agent: RpcProcess, server: ModelServer) -> None:
    file = agent.folders.work / "a.txt"
    file.write_text("one\ntwo\n")
    gate = Gate()
    change = {"path": "a.txt", "edits": [{"oldText": "two", "newText": "three"}]}
    server.answers("Let me.", Call("edit", change, id="e"), Call("write", {"path": "b.txt", "content": "new\n"}), gate)
    server.answers("Done.")
    agent.ask("prompt", message="x")
    gate.wait_reached()
    agent.wait(lambda record: record.get("assistantMessageEvent", {}).get("type") == "toolcall_end")
    assert not agent.since(0, "tool_execution_start")
    assert file.read_text() == "one\ntwo\n"
    gate.open()
    agent.wait_end()
    assert file.read_text() == "one\nthree\n"
    begun = agent.wait_event("tool_execution_start", toolCallId="e")
    assert (begun["args"]["path"], begun["args"]["edits"]) == ("a.txt", change["edits"])
    diff = agent.wait_event("tool_execution_end", toolCallId="e")["result"]["details"]["diff"]
    assert "three" in diff
    assert "two" in diff


@proves("rule.settled_apart")
def test_10_agent_settled_is_written_after_agent_end(folders: AgentFolders, server: ModelServer) -> None:
    folders.configure(providers(server.url))
    server.answers("well")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        agent = subprocess.Popen(
            [*command_line(), "--mode", "rpc", "--no-session", "--model", "fake/fake-1"],
            stdin=subprocess.PIPE, stdout=theirs, env=folders.environment(), cwd=folders.work,
        )  # fmt: skip
        assert agent.stdin is not None
        agent.stdin.write(b'{"type":"prompt","message":"x"}\n')
        agent.stdin.flush()
        ours.settimeout(20)
        writes: list[bytes] = []
        while not writes or b"agent_settled" not in writes[-1]:
            writes.append(ours.recv(1 << 20))
        agent.stdin.close()
        assert agent.wait(20) == 0
    assert writes[-1].startswith(b'{"type":"agent_settled"')
    assert b'{"type":"agent_end"' in writes[-2]
    assert writes[-2].endswith(b"}\n")


@proves("rule.superset")
def test_11_the_default_says_what_every_client_reads(agent: RpcProcess, server: ModelServer) -> None:
    server.answers("Looking.", Call("bash", {"command": "echo hi"}, id="c"))
    server.answers("Done.")
    records = agent.run("x")
    for record in records:
        if record["type"] == "message_update":
            assert record["message"] == record["assistantMessageEvent"]["partial"]
            assert {"input", "output", "cost"} <= set(record["usage"])
    begun = deltas(records, "toolcall_start")[0]
    assert (begun["id"], begun["toolName"]) == ("c", "bash")
    starts = [record["message"] for record in records if record["type"] == "message_start"]
    assert {message["role"] for message in starts} == {"user", "assistant", "toolResult"}
    assert {message["stopReason"] for message in starts if message["role"] == "assistant"} == {"stop"}
    assert [record["type"] for record in records[-2:]] == ["agent_end", "agent_settled"]
    assert records[-2]["willRetry"] is False
    for message in answers(records):
        assert all(isinstance(message[key], str) for key in ("api", "provider", "model", "stopReason"))
        assert isinstance(message["timestamp"], int)
        assert text_of(message)
