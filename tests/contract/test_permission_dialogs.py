"""What a question about permission carries, and how the host learns its end, in the real program."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_folders import AgentFolders
from support.agent_process import Start
from support.contract import calls, proves, question, reply, results
from support.records import finished_messages, tool_texts

Record = dict[str, Any]
ASK = '{"ask": ["bash", "write", "edit", "deploy"]}'


@proves("permission.dialog")
def test_a_question_says_which_call_it_is_about(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    host = start("--permissions", ASK)
    begun = calls(host, server, Call("bash", {"command": "echo hi", "decoy": "x"}))
    request = question(host, begun)
    call = host.wait_event("tool_execution_start", begun)["toolCallId"]
    assert request == {
        "type": "extension_ui_request",
        "id": request["id"],
        "method": "select",
        "title": "Allow bash: echo hi",
        "options": ["Allow once", "Allow for this session", "Deny"],
        "timeout": 120_000,
        "toolCallId": call,
        "toolName": "bash",
        "args": {"command": "echo hi"},
    }
    reply(host, request, value="Deny")
    host.wait_end(begun)


@proves("permission.dialog_diff")
@pytest.mark.parametrize("tool", ["write", "edit"])
def test_a_question_about_a_file_shows_what_would_change(
    start: Start, folders: AgentFolders, server: ModelServer, tool: str
) -> None:
    (folders.work / "a").write_text("one\ntwo\n")
    made: Record = {"content": "one\n2\u202e\n"} if tool == "write" else {"oldText": "two", "newText": "2\u202e"}
    host = start("--permissions", ASK)
    begun = calls(host, server, Call(tool, {"path": "a", **made}))
    request = question(host, begun)
    assert request["diff"] == " 1 one\n-2 two\n+2 2\ufffd"
    assert request["args"]["path"] == "a"
    assert (folders.work / "a").read_text() == "one\ntwo\n"
    reply(host, request, value="Allow once")
    host.wait_end(begun)
    assert (folders.work / "a").read_text() == "one\n2\u202e\n"


@proves("permission.dialog_omp", dialects=("omp", "xcsh"))
@pytest.mark.parametrize("dialect", ["omp", "xcsh"])
@pytest.mark.parametrize("mode", ["rpc", "rpc-ui"])
@pytest.mark.parametrize(("answer", "ran"), [("Approve", True), ("Deny", False), ("approve", False), (True, False)])
def test_clients_of_oh_my_pi_read_the_question_and_answer_it(
    start: Start, folders: AgentFolders, server: ModelServer, dialect: str, mode: str, answer: Any, ran: bool
) -> None:
    host = start("--mode", mode, "--approval-mode", "always-ask", dialect=dialect)
    begun = calls(
        host, server, Call("bash", {"command": "echo a\necho b"}), Call("write", {"path": "a", "content": "x"})
    )
    command = question(host, begun)
    assert command["title"] == "Allow tool: bash\nCommand: echo a\necho b"
    assert command["options"] == ["Approve", "Deny"]
    after = host.mark()
    reply(host, command, value=answer)
    written = question(host, after)
    assert written["title"] == "Allow tool: write\nPath: a\nContent:\nx"
    assert written["options"] == ["Approve", "Deny"]
    reply(host, written, value=answer)
    assert [failed for failed, _ in results(host, begun)] == [not ran, not ran]
    assert (folders.work / "a").exists() is ran


@proves("permission.dialog_end")
def test_the_end_of_a_command_is_never_out_of_sight(start: Start, server: ModelServer) -> None:
    host = start("--permissions", ASK)
    command = "echo hi" + " " * 312 + "\n" * 90 + "\u200b" * 90 + "# " + "x" * 20_000 + "\r; rm -rf ~"
    begun = calls(host, server, Call("bash", {"command": command}))
    request = question(host, begun)
    title = request["title"]
    assert title.startswith("Allow bash: echo hi[312 spaces]\n[89 blank lines]\n[90 unprintable characters]# xxx")
    assert title.endswith("x\ufffd; rm -rf ~")
    assert request["args"]["command"] == command
    reply(host, request, value="Deny")
    host.wait_end(begun)


@proves("permission.resolved")
@pytest.mark.parametrize(
    ("answers", "outcome", "ran"),
    [
        ([{"value": "Allow once"}], "once", True),
        ([{"value": "Allow for this session"}], "session", True),
        ([{"value": "Deny"}], "denied", False),
        ([{"cancelled": True}], "denied", False),
        ([{"value": 7}], "denied", False),
        ([{"value": "Deny"}, {"value": "Allow once"}], "denied", False),
        ([{}, {"value": "Allow once"}], "denied", False),
        ([{"id": "another", "value": "Allow once"}, {"value": "Deny"}], "denied", False),
        ([{"id": None, "value": "Allow once"}, {"id": ["x"], "value": "Allow once"}, {"value": 1}], "denied", False),
        ([], "timeout", False),
    ],
)
def test_a_host_that_asks_for_it_learns_how_a_question_ended(
    start: Start, server: ModelServer, answers: list[Record], outcome: str, ran: bool
) -> None:
    host = start("--permissions", json.dumps({"ask": ["bash"], "timeoutMs": 120_000 if answers else 150}))
    assert host.ask("hello", features=["permissions"])["features"] == ["permissions"]
    begun = calls(host, server, Call("bash", {"command": "echo hi"}))
    request = question(host, begun)
    for answer in answers:
        reply(host, request, **answer)
    host.wait_end(begun)
    records = host.since(begun)
    told = [record for record in records if record["type"] == "permission_resolved"]
    wanted = {"id": request["id"], "toolCallId": request["toolCallId"], "outcome": outcome}
    assert told == [{"type": "permission_resolved", **wanted}]
    kinds = [record["type"] for record in records]
    assert kinds.index("permission_resolved") < kinds.index("tool_execution_end")
    assert [message["isError"] for message in finished_messages(records, "toolResult")] == [not ran]
    assert ("hi\n" in tool_texts(records)) is ran


@proves("permission.resolved_abort")
@pytest.mark.parametrize("outcome", ["aborted", "disconnected"])
def test_an_abort_or_the_end_of_input_ends_a_question(start: Start, server: ModelServer, outcome: str) -> None:
    host = start("--permissions", ASK)
    host.ask("hello", features=["permissions"])
    begun = calls(host, server, Call("bash", {"command": "echo hi"}))
    request = question(host, begun)
    if outcome == "aborted":
        host.ask("abort")
        reply(host, request, value="Allow once")
        host.wait_end(begun)
    else:
        host.close_stdin()
        assert host.wait_exit() == 0
    told = [(record["id"], record["outcome"]) for record in host.since(begun, "permission_resolved")]
    assert told == [(request["id"], outcome)]
    assert "hi\n" not in tool_texts(host.since(begun))


@proves("permission.resolved_unasked")
@pytest.mark.parametrize("dialect", ["pi", "omp", "xcsh", "companion"])
def test_a_host_that_does_not_ask_for_it_is_not_told(start: Start, server: ModelServer, dialect: str) -> None:
    host = start("--permissions", '{"ask": ["bash"], "timeoutMs": 50}', dialect=dialect)
    server.answers(Call("bash", {"command": "echo hi"}))
    server.answers("done")
    host.send({"type": "prompt", "message": "x"})
    host.wait_end()
    assert not host.since(0, "permission_resolved")


@proves("permission.dialog_host_tool")
def test_a_tool_of_the_host_is_asked_about_with_its_arguments(start: Start, server: ModelServer) -> None:
    host = start("--permissions", ASK)
    parameters = {"type": "object", "properties": {"stage": {"type": "string"}}}
    host.ask("set_host_tools", tools=[{"name": "deploy", "description": "x", "parameters": parameters}])
    begun = calls(host, server, Call("deploy", {"stage": "live"}))
    request = question(host, begun)
    assert (request["toolName"], request["args"], "diff" in request) == ("deploy", {"stage": "live"}, False)
    reply(host, request, value="Deny")
    host.wait_end(begun)
    assert not host.since(begun, "host_tool_call")
