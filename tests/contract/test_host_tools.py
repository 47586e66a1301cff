"""Tools that the host runs, from the definition to the last frame."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fakes.model_server import Answer, Call, ModelServer, said_in
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import answers, finished_messages, text_of, tool_texts

Record = dict[str, Any]
SCHEMA = {
    "type": "object",
    "properties": {"message": {"type": "string"}},
    "required": ["message"],
    "additionalProperties": False,
}
ECHO = {"name": "echo_host", "label": "Echo Host", "description": "Echo a value from the host", "parameters": SCHEMA}
READER = {**ECHO, "name": "reader", "readOnly": True}


@pytest.fixture
def host(start: Start, dialect: str) -> RpcProcess:
    """The program in each dialect that has host tools, with one of them."""
    process = start(dialect=dialect)
    assert process.ask("set_host_tools", tools=[ECHO]) == {"toolNames": ["echo_host"]}
    return process


def says(*texts: str, **more: Any) -> Record:
    return {"content": [{"type": "text", "text": text} for text in texts], **more}


def called(host: RpcProcess, server: ModelServer, *calls: Call) -> list[Record]:
    """Prompt, let the model call, and give the frames that the host gets."""
    server.answers(*(calls or (Call("echo_host", {"message": "hello"}, id="toolu_1"),)))
    host.ask("prompt", message="x")
    return host.wait_count("host_tool_call", max(1, len(calls)))


def offered(answer: Answer) -> list[str]:
    return [tool["name"] for tool in answer.wait_arrived()["tools"]]


ALL = ("pi", "omp", "xcsh")


@proves("host.result_is_error")
def test_a_failure_inside_the_result_counts(host: RpcProcess, server: ModelServer) -> None:
    """As in results of MCP."""
    (call,) = called(host, server)
    later = server.answers("I see")
    host.send({"type": "host_tool_result", "id": call["id"], "result": says("no such city", isError=True)})
    host.wait_end()
    (result,) = finished_messages(host.records, "toolResult")
    assert (result["isError"], text_of(result)) == (True, "no such city")
    assert later.request["messages"][-1]["content"][0]["is_error"] is True


@scenario
def sets(stage: Stage) -> Seen:
    """A set of tools, another one, and an empty one; and what each of them offers to the model."""
    host = stage.start()
    answers, asked = [], []
    for tools in ([ECHO], [{**ECHO, "name": "b"}, {**ECHO, "name": "a"}], []):
        answers.append(host.ask("set_host_tools", tools=tools))
        asked.append(stage.server.answers("ok"))
        host.run("x")
    return Seen(answers=answers, offered=[offered(one) for one in asked], tools=asked[0].request["tools"])


@proves("xcsh/set_host_tools.response")
def test_a_set_of_tools_is_answered_with_their_names(sets: Seen) -> None:
    assert sets.answers[0] == {"toolNames": ["echo_host"]}


@proves("xcsh/set_host_tools.offered")
def test_the_tools_are_offered_to_the_model_at_its_next_call(sets: Seen) -> None:
    assert sets.offered[0][-1] == "echo_host"
    (tool,) = [tool for tool in sets.tools if tool["name"] == "echo_host"]
    assert tool["description"] == ECHO["description"]
    assert tool["input_schema"]["required"] == ["message"]


@proves("xcsh/set_host_tools.replaces")
def test_a_second_set_replaces_the_first(sets: Seen) -> None:
    assert sets.answers[1] == {"toolNames": ["b", "a"]}
    assert sets.offered[1][-2:] == ["b", "a"]
    assert "echo_host" not in sets.offered[1]


@proves("xcsh/set_host_tools.empty")
def test_an_empty_set_removes_the_tools(sets: Seen) -> None:
    assert sets.answers[2] == {"toolNames": []}
    assert not {"a", "b"} & set(sets.offered[2])


@scenario
def exchange(stage: Stage) -> Seen:
    """A call of a host tool, and its result."""
    host = stage.start()
    host.ask("set_host_tools", tools=[ECHO])
    (frame,) = called(host, stage.server)
    later = stage.server.answers("fine")
    host.send({"type": "host_tool_result", "id": frame["id"], "result": says("done", details={"n": 1})})
    host.wait_end()
    return Seen(
        frame=frame, end=host.wait_event("tool_execution_end"), said=said_in(later.request)[-1],
        result=finished_messages(host.records, "toolResult")[0],
        commands=[record["command"] for record in host.since(0, "response")],
    )  # fmt: skip


@proves("xcsh/host.call")
def test_a_call_goes_to_the_host_with_its_ids_and_arguments(exchange: Seen) -> None:
    frame = exchange.frame
    assert re.fullmatch("[0-9a-f]{16}", frame["id"])
    assert set(frame) == {"type", "id", "toolCallId", "toolName", "arguments"}
    assert (frame["toolCallId"], frame["toolName"]) == ("toolu_1", "echo_host")
    assert frame["arguments"] == {"message": "hello"}


@proves("xcsh/host.result")
def test_the_result_of_the_host_is_that_of_the_tool(exchange: Seen) -> None:
    end = exchange.end
    assert (end["toolCallId"], end["isError"]) == ("toolu_1", False)
    assert end["result"] == says("done", details={"n": 1})
    assert exchange.said == ("user", "done")
    assert exchange.result["details"] == {"n": 1}


@proves("xcsh/host.no_response")
def test_frames_of_the_host_get_no_response(exchange: Seen) -> None:
    assert exchange.commands == ["set_host_tools", "prompt"]


@proves("xcsh/host.update")
def test_updates_are_shown_as_progress_in_their_order(host: RpcProcess, server: ModelServer) -> None:
    (frame,) = called(host, server)
    server.answers("fine")
    host.send(
        {"type": "host_tool_update", "id": frame["id"], "partialResult": says("half")},
        {"type": "host_tool_update", "id": frame["id"], "partialResult": says("most", details={"p": 90})},
        {"type": "host_tool_result", "id": frame["id"], "result": says("all")},
    )
    host.wait_end()
    updates = host.since(0, "tool_execution_update")
    assert [update["partialResult"] for update in updates] == [says("half"), says("most", details={"p": 90})]
    assert {update["toolCallId"] for update in updates} == {"toolu_1"}
    assert tool_texts(host.records) == ["all"]


@proves("xcsh/host.error")
@pytest.mark.parametrize(
    ("content", "text"), [(["no", "such thing "], "no\nsuch thing"), ([], "Host tool execution failed")]
)
def test_an_error_is_a_tool_error_with_the_hosts_text(
    host: RpcProcess, server: ModelServer, content: list[str], text: str
) -> None:
    (frame,) = called(host, server)
    later = server.answers("a pity")
    result = {"type": "host_tool_result", "id": frame["id"], "result": says(*content, details=1), "isError": True}
    host.send(result)
    host.wait_end()
    end = host.wait_event("tool_execution_end")
    assert end["isError"] is True
    assert end["result"] == {"content": [{"type": "text", "text": text}], "details": 1}
    assert finished_messages(host.records, "toolResult")[0]["isError"] is True
    assert later.request["messages"][-1]["content"][0]["is_error"] is True


@proves("xcsh/host.cancel")
def test_abort_cancels_the_call_at_the_host(host: RpcProcess, server: ModelServer) -> None:
    (frame,) = called(host, server)
    host.ask("abort")
    cancel = host.wait_event("host_tool_cancel")
    assert set(cancel) == {"type", "id", "targetId"}
    assert cancel["targetId"] == frame["id"]
    assert cancel["id"] != frame["id"]
    assert tool_texts(host.records) == ['Host tool "echo_host" was aborted']
    assert finished_messages(host.records, "toolResult")[0]["isError"] is True
    assert len(host.since(0, "agent_end")) == 1
    host.send({"type": "host_tool_result", "id": frame["id"], "result": says("too late")})
    server.answers("fine")
    assert text_of(answers(host.run("y"))[-1]) == "fine"


@proves("xcsh/host.stale")
def test_reports_for_calls_that_are_not_open_are_ignored(host: RpcProcess, server: ModelServer) -> None:
    before = host.mark()
    host.send(
        {"type": "host_tool_update", "id": "nobody", "partialResult": says("x")},
        {"type": "host_tool_result", "id": "nobody", "result": says("x")},
        {"type": "host_tool_result", "id": "nobody", "result": says("x"), "isError": True},
    )
    assert host.ask("get_state")["isStreaming"] is False
    assert [record["command"] for record in host.since(before)] == ["get_state"]


@proves("host_tool_result.unknown_id")
@pytest.mark.parametrize("wrong", ["nobody", 7, None, {"a": 1}, ""])
def test_a_result_for_no_call_is_refused_while_one_is_waited_for(
    host: RpcProcess, server: ModelServer, wrong: Any
) -> None:
    (frame,) = called(host, server, Call("echo_host", {"message": "x"}))
    for kind, field in (("host_tool_update", "partialResult"), ("host_tool_result", "result")):
        start = host.mark()
        host.send({"type": kind, "id": wrong, field: says("x")})
        refused = host.wait_event("response", start, command=kind)
        assert refused["success"] is False
        assert refused["error"].endswith(f'. Open calls: "{frame["id"]}"')
        assert refused.get("id") == wrong
    server.answers("fine")
    host.send(*({"type": "host_tool_result", "id": frame["id"], "result": says(text)} for text in ("right", "twice")))
    host.wait_end()
    assert tool_texts(host.records) == ["right"]
    assert [one for one in host.since(0, "response") if one["command"].startswith("host_tool") and one["success"]] == []


@proves("host.several")
def test_tools_that_only_read_are_called_side_by_side_and_answered_in_any_order(
    start: Start, server: ModelServer
) -> None:
    host = start()
    host.ask("set_host_tools", tools=[READER])
    calls = [Call("reader", {"message": name}, id=name) for name in ("a", "b", "c")]
    frames = called(host, server, *calls)
    assert len({frame["id"] for frame in frames}) == 3
    server.answers("fine")
    for frame in reversed(frames):
        host.send({"type": "host_tool_result", "id": frame["id"], "result": says(frame["arguments"]["message"])})
    host.wait_end()
    assert [message["toolCallId"] for message in finished_messages(host.records, "toolResult")] == ["a", "b", "c"]
    assert tool_texts(host.records) == ["a", "b", "c"]


@proves("host.definitions")
def test_a_set_that_does_not_fit_is_refused_and_the_previous_one_stays(agent: RpcProcess, server: ModelServer) -> None:
    agent.ask("set_host_tools", tools=[{**ECHO, "name": "before"}])
    wrong: list[tuple[list[Record], str]] = [
        ([{**ECHO, "name": " "}], "Host tool at index 0 must provide a non-empty name"),
        ([ECHO, {"description": "d", "parameters": {}}], "Host tool at index 1 must provide a non-empty name"),
        ([{**ECHO, "description": ""}], 'Host tool "echo_host" must provide a non-empty description'),
        ([{**ECHO, "parameters": []}], 'Host tool "echo_host" must provide a JSON Schema object'),
        ([{"name": "x", "description": "d"}], 'Host tool "x" must provide a JSON Schema object'),
        ([ECHO, {**ECHO, "name": " echo_host"}], "RPC host tool names must be unique"),
        ([{**ECHO, "name": "bash"}], 'RPC host tool "bash" conflicts with an existing tool'),
    ]
    for tools, error in wrong:
        assert agent.expect_error("set_host_tools", tools=tools) == error
    for other in (None, 5, {}, ["x"]):
        assert "tools" in agent.expect_error("set_host_tools", tools=other)
    asked = server.answers("ok")
    agent.run("x")
    assert offered(asked)[-1] == "before"


@scenario
def hidden(stage: Stage) -> Seen:
    """Two tools, one of them hidden, and a new session."""
    agent = stage.start()
    names = agent.ask("set_host_tools", tools=[{**ECHO, "hidden": True}, READER])["toolNames"]
    agent.ask("new_session")
    asked = stage.server.answers("ok")
    agent.run("x")
    return Seen(names=names, offered=offered(asked))


@proves("host.hidden")
def test_a_hidden_tool_is_not_offered_to_the_model(hidden: Seen) -> None:
    assert hidden.names == ["echo_host", "reader"]
    assert "echo_host" not in hidden.offered


@proves("host.new_session")
def test_the_tools_of_the_host_survive_a_new_session(hidden: Seen) -> None:
    assert hidden.offered[-1] == "reader"


@proves("host.during_run")
def test_a_set_that_comes_during_a_run_is_there_for_its_next_model_call(agent: RpcProcess, server: ModelServer) -> None:
    agent.ask("set_host_tools", tools=[ECHO])
    (frame,) = called(agent, server)
    agent.ask("set_host_tools", tools=[READER])
    later = server.answers("fine")
    agent.send({"type": "host_tool_result", "id": frame["id"], "result": says("done")})
    agent.wait_end()
    assert tool_texts(agent.records) == ["done"]
    assert offered(later)[-1] == "reader"


@proves("host.invalid_arguments")
def test_arguments_that_do_not_fit_the_schema_never_reach_the_host(agent: RpcProcess, server: ModelServer) -> None:
    agent.ask("set_host_tools", tools=[ECHO])
    server.answers(Call("echo_host", {"wrong": 1}))
    server.answers("sorry")
    agent.run("x")
    assert agent.since(0, "host_tool_call") == []
    assert tool_texts(agent.records)[0].startswith('Validation failed for tool "echo_host"')


@proves("host.malformed")
def test_a_malformed_result_is_refused_and_the_call_stays_open(agent: RpcProcess, server: ModelServer) -> None:
    agent.ask("set_host_tools", tools=[ECHO])
    (frame,) = called(agent, server)
    for result in ({}, {"content": "x"}, 5, None):
        start = agent.mark()
        agent.send({"type": "host_tool_result", "id": frame["id"], "result": result})
        refusal = agent.wait_event("response", start, success=False)
        assert refusal["command"] == "host_tool_result"
        assert "result" in refusal["error"]
    server.answers("fine")
    agent.send({"type": "host_tool_result", "id": frame["id"], "result": says("done")})
    agent.wait_end()
    assert tool_texts(agent.records) == ["done"]


@proves("host.any_block")
def test_blocks_of_a_kind_we_do_not_know_reach_the_model_as_text(agent: RpcProcess, server: ModelServer) -> None:
    agent.ask("set_host_tools", tools=[ECHO])
    (frame,) = called(agent, server)
    picture = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    content = [{"type": "resource", "uri": "a:b"}, picture]
    server.answers("fine")
    agent.send({"type": "host_tool_result", "id": frame["id"], "result": {"content": content}})
    agent.wait_end()
    expected = [{"type": "text", "text": '{"type":"resource","uri":"a:b"}'}, picture]
    assert finished_messages(agent.records, "toolResult")[0]["content"] == expected


@proves("host.eof")
def test_the_end_of_input_fails_the_open_call_and_ends_the_process(agent: RpcProcess, server: ModelServer) -> None:
    agent.ask("set_host_tools", tools=[ECHO])
    called(agent, server)
    agent.close()
    assert tool_texts(agent.records) == ["RPC client disconnected before host tool execution completed"]


@proves("host.eof_drain")
def test_a_process_that_drains_does_not_wait_for_a_host_that_is_gone(start: Start, server: ModelServer) -> None:
    agent = start("--drain")
    agent.ask("set_host_tools", tools=[ECHO])
    called(agent, server)
    later = server.answers("without it, then")
    agent.close()
    assert said_in(later.request)[-1] == ("user", "RPC client disconnected before host tool execution completed")
    assert text_of(answers(agent.records)[-1]) == "without it, then"


@proves("host.pattern")
def test_a_pattern_that_takes_too_long_refuses_the_arguments(agent: RpcProcess, server: ModelServer) -> None:
    slow = {"type": "object", "properties": {"message": {"type": "string", "pattern": "(a|aa)+\\1$"}}}
    agent.ask("set_host_tools", tools=[{**ECHO, "parameters": slow}])
    server.answers(Call("echo_host", {"message": "a" * 5_000 + "b"}))
    server.answers("fine")
    agent.run("x")
    (text,) = tool_texts(agent.records)
    assert "could not be checked against its schema in time" in text
    assert not agent.since(0, "host_tool_call")
