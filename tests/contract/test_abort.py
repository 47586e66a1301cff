"""Stopping: in the stream, in a tool, before the start, and what is left afterwards."""

from __future__ import annotations

import pytest

from fakes.clock import within
from fakes.model_server import Call, Gate, Hang, ModelServer, Text
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.records import answers, finished_messages, text_of


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
    assert [text_of(message) for message in finished_messages(records, "user")] == ["y", "s", "f"]


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


@proves("transport.every_delta")
def test_a_slow_host_that_asks_gets_every_delta_by_itself(start: Start, server: ModelServer) -> None:
    agent = start(reads=False, dialect="pi-latest")
    text = "0123456789" * 2_000
    server.answers(Text(text, piece=1))
    agent.send({"id": "h", "type": "hello", "features": ["every_delta"]})
    agent.send({"id": "p", "type": "prompt", "message": "x"})
    agent.wait_quiet()
    agent.start_reading()
    agent.wait_end()
    events = [update["assistantMessageEvent"] for update in agent.since(0, "message_update")]
    assert [event["delta"] for event in events if event["type"] == "text_delta"] == list(text)


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
