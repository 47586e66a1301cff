"""Stopping: in the stream, in a tool, before the start, and what is left afterwards."""

from __future__ import annotations

import pytest

from fakes.contract_manifest import proves
from fakes.model_server import Call, Gate, Hang, ModelServer, Text, said_in
from fakes.record_outline import answers, ended, outline, text_of, tool_texts
from fakes.rpc_process import RpcProcess, Start
from fakes.stopwatch import within


@proves("abort.idle", "command.abort")
def test_abort_without_a_run_succeeds(agent: RpcProcess) -> None:
    response = agent.request("abort")
    assert (response["command"], response["success"]) == ("abort", True)
    assert "data" not in response


@proves("abort.response", "abort.stops", "abort.stream", "abort.state", "abort.order", "note/ops.abort", "stop.aborted")
def test_abort_in_the_stream_keeps_what_came_and_drops_the_connection(agent: RpcProcess, server: ModelServer) -> None:
    asked = server.answers(Text("half of", closes=False), Hang())
    agent.ask("prompt", message="x")
    agent.wait_delta("f")
    start = agent.mark()
    agent.send({"id": "stop", "type": "abort"})
    assert agent.response("stop")["success"] is True
    asked.wait_dropped()
    assert outline(agent.since(start), updates=True)[-6:] == [
        "text_end",
        "message_end:assistant",
        "turn_end",
        "agent_end",
        "agent_settled",
        "response:abort",
    ]
    aborted = answers(agent.records)[0]
    assert aborted["stopReason"] == "aborted"
    assert text_of(aborted)
    assert "half of".startswith(text_of(aborted))
    assert aborted["errorMessage"]
    assert aborted["responseId"]
    assert agent.ask("get_state")["isStreaming"] is False


@proves("abort.recovers")
def test_after_abort_the_next_prompt_runs_normally(agent: RpcProcess, server: ModelServer) -> None:
    server.answers("half", Hang())
    agent.ask("prompt", message="x")
    agent.wait_delta("f")
    agent.ask("abort")
    later = server.answers("fine")
    assert text_of(answers(agent.run("y"))[0]) == "fine"
    assert said_in(later.request)[-1] == ("user", "y")


@proves("abort.tool", "abort.balanced", "abort.no_extra_turn")
def test_abort_in_a_tool_ends_the_run_there_with_a_result_for_every_call(
    agent: RpcProcess, server: ModelServer
) -> None:
    server.answers(
        Call("bash", {"command": "echo begun; sleep 600"}, id="a"),
        Call("bash", {"command": "touch never"}, id="b"),
    )
    agent.ask("prompt", message="x")
    agent.wait_event("tool_execution_start", toolCallId="a")
    with within(3):
        agent.ask("abort")
    results = ended(agent.records, "toolResult")
    assert [message["toolCallId"] for message in results] == ["a", "b"]
    assert all(message["isError"] for message in results)
    assert "aborted" in tool_texts(agent.records)[0]
    words = outline(agent.records)
    assert words[-4:] == ["turn_end", "agent_end", "agent_settled", "response:abort"]
    assert words.count("turn_start") == words.count("turn_end") == 1
    assert len(server.requests) == 1
    assert not (agent.folders.work / "never").exists()


@proves("abort.tool_context")
def test_the_conversation_is_whole_after_an_abort_in_a_tool(agent: RpcProcess, server: ModelServer) -> None:
    server.answers(Call("bash", {"command": "sleep 600"}, id="a"))
    agent.ask("prompt", message="x")
    agent.wait_event("tool_execution_start")
    agent.ask("abort")
    later = server.answers("fine")
    agent.run("y")
    results = [
        block["tool_use_id"]
        for message in later.request["messages"]
        if message["role"] == "user" and isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    assert results == ["a"]


@proves("abort.keeps_queue")
def test_abort_keeps_what_waits_for_the_next_prompt(agent: RpcProcess, server: ModelServer) -> None:
    server.answers("half", Hang())
    agent.ask("prompt", message="x")
    agent.wait_delta("f")
    agent.ask("steer", message="s")
    agent.ask("follow_up", message="f")
    agent.ask("abort")
    assert agent.ask("get_state")["pendingMessageCount"] == 2
    assert len(server.requests) == 1
    server.answers("one")
    server.answers("two")
    records = agent.run("y")
    assert [text_of(message) for message in ended(records, "user")] == ["y", "s", "f"]


@proves("abort.preflight")
def test_abort_in_the_same_write_reaches_a_prompt_that_has_not_started(agent: RpcProcess, server: ModelServer) -> None:
    server.answers("never", Hang())
    agent.send({"id": 1, "type": "prompt", "message": "x"}, {"id": 2, "type": "abort"})
    assert agent.response(2)["success"] is True
    agent.response(1)
    assert agent.ask("get_state")["isStreaming"] is False
    for message in answers(agent.records):
        assert message["stopReason"] == "aborted"


@proves("abort.silent_provider")
def test_abort_does_not_wait_for_a_provider_that_says_nothing(agent: RpcProcess, server: ModelServer) -> None:
    asked = server.answers(Hang())
    agent.ask("prompt", message="x")
    asked.wait_arrived()
    with within(2):
        agent.ask("abort")
    assert answers(agent.records)[0]["stopReason"] == "aborted"
    asked.wait_dropped()


@proves("abort.twice")
def test_two_aborts_are_both_answered(agent: RpcProcess, server: ModelServer) -> None:
    server.answers("half", Hang())
    agent.ask("prompt", message="x")
    agent.wait_delta("f")
    agent.send({"id": 1, "type": "abort"}, {"id": 2, "type": "abort"})
    assert agent.response(1)["success"]
    assert agent.response(2)["success"]
    assert len(agent.since(0, "agent_end")) == 1


@proves("abort_and_prompt.flow", "abort_and_prompt.response", "abort_and_prompt.end", "command.abort_and_prompt")
def test_abort_and_prompt_ends_one_run_and_begins_the_next(agent: RpcProcess, server: ModelServer) -> None:
    server.answers("half", Hang())
    agent.ask("prompt", message="x")
    agent.wait_delta("f")
    start = agent.mark()
    later = server.answers("new")
    agent.ask("abort_and_prompt", message="instead")
    agent.wait(lambda record: record["type"] == "agent_end" and text_of(record["messages"][-1]) == "new", start)
    words = outline(agent.since(start))
    assert words.index("agent_end") < words.index("response:abort_and_prompt") < words.index("agent_start")
    assert said_in(later.request)[-1] == ("user", "instead")


@proves("abort_and_prompt.idle", "abort_and_prompt.images")
def test_abort_and_prompt_without_a_run_is_a_plain_prompt(agent: RpcProcess, server: ModelServer) -> None:
    asked = server.answers("ok")
    agent.ask(
        "abort_and_prompt", message="x", images=[{"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}]
    )
    agent.wait_end()
    assert [block["type"] for block in asked.request["messages"][-1]["content"]] == ["text", "image"]


@proves("abort.while_unread")
def test_abort_is_obeyed_while_nobody_reads(start: Start, server: ModelServer) -> None:
    agent = start(reads=False)
    asked = server.answers(Text("0123456789" * 2_000, piece=20), Hang())
    agent.send({"id": "p", "type": "prompt", "message": "x"})
    asked.wait_arrived()
    agent.wait_quiet()
    agent.send({"id": "stop", "type": "abort"})
    asked.wait_dropped()
    agent.start_reading()
    assert agent.response("stop")["success"] is True
    assert answers(agent.records)[0]["stopReason"] == "aborted"


@proves("transport.backpressure")
def test_a_host_that_does_not_read_pauses_the_agent_with_flat_memory(start: Start, server: ModelServer) -> None:
    agent = start(reads=False, by_exec=True)
    gate = Gate()
    text = "0123456789" * 2_000
    asked = server.answers("warm", gate, Text(text, piece=20))
    agent.send({"id": "p", "type": "prompt", "message": "x"})
    asked.wait_arrived()
    gate.wait_reached()
    before = agent.resident()
    gate.open()
    agent.wait_quiet()
    assert agent.resident() - before <= 32 * 1024 * 1024
    agent.start_reading()
    agent.wait_end(deadline=50)
    assert text_of(answers(agent.records)[0]) == "warm" + text
    assert agent.resident() - before <= 64 * 1024 * 1024


@proves("abort.finished_run")
@pytest.mark.parametrize("commands", [["abort"], ["abort", "abort"]])
def test_abort_after_the_end_changes_nothing(agent: RpcProcess, server: ModelServer, commands: list[str]) -> None:
    server.answers("ok")
    agent.run("x")
    for command in commands:
        agent.ask(command)
    assert [message["role"] for message in agent.ask("get_messages")["messages"]] == ["user", "assistant"]
