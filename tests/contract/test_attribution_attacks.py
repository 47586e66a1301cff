"""Hostile use of ids: bad values, the same id in every state of its message, queue items and tool calls that are just
ending."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.model_server import Call, Gate, ModelServer
from support.agent_folders import AgentFolders, extension
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import finished_messages, text_of

ASKS = """
@ext.on(Input)
async def look(event, ctx):
    if event.text == "edited":
        await ctx.ui.confirm("Well?", "It waits.")
"""
HOST_TOOL = {"name": "slow", "description": "d", "parameters": {"type": "object", "properties": {}}}


def attributed(start: Start, *args: str, **more: Any) -> RpcProcess:
    agent = start(*args, **more)
    agent.ask("hello", features=["attribution"])
    return agent


def busy(agent: RpcProcess, server: ModelServer) -> Gate:
    """Begin a run that stands still in its first answer."""
    gate = Gate()
    server.answers("first", gate)
    agent.ask("prompt", message="start")
    gate.wait_reached()
    return gate


@scenario
def bad_ids(stage: Stage) -> Seen:
    """Ids of messages and calls that cannot be, while a run waits."""
    agent = stage.start()
    gate = busy(agent, stage.server)
    of_messages, of_queued, of_calls = [], [], []
    for bad in (5, True, [], {}, "", "x" * 1_000_000):
        for kind in ("prompt", "steer", "follow_up", "abort_and_prompt"):
            of_messages.append(agent.expect_error(kind, message="x", clientMessageId=bad))
        for kind in ("remove_queued", "edit_queued", "promote_queued"):
            of_queued.append(agent.expect_error(kind, message="x", queuedId=bad))
        of_calls.append(agent.expect_error("abort", toolCallId=bad))
    longest = max(len(str(record)) for record in agent.records if record["type"] == "response")
    gate.open()
    settled = agent.wait_event("agent_settled")
    return Seen(of_messages=of_messages, of_queued=of_queued, of_calls=of_calls, longest=longest,
                reason=settled["reason"], users=len(finished_messages(agent.records, "user")))  # fmt: skip


@proves("client_message.bad")
def test_ids_of_messages_that_cannot_be_are_refused_and_change_nothing(bad_ids: Seen) -> None:
    assert all("clientMessageId" in error for error in bad_ids.of_messages)
    assert all(bad_ids.of_queued)
    assert bad_ids.longest < 5000
    assert bad_ids.users == 1


@proves("abort.bad_call")
def test_ids_of_calls_that_cannot_be_are_refused_and_stop_nothing(bad_ids: Seen) -> None:
    assert all(bad_ids.of_calls)
    assert bad_ids.reason == "done"


@proves("client_message.every_state")
def test_an_id_is_used_once_whatever_became_of_its_message(start: Start, server: ModelServer) -> None:
    agent = attributed(start)
    gate = Gate()
    server.answers("first", gate)
    line = {"message": "x", "clientMessageId": "m"}
    first = agent.ask("prompt", **line)
    gate.wait_reached()
    assert agent.ask("prompt", **line) == first
    later = {"message": "later", "clientMessageId": "f"}
    waiting = agent.ask("follow_up", **later)
    agent.ask("edit_queued", queuedId=waiting["queuedId"], message="edited")
    assert agent.ask("follow_up", **later) == waiting
    agent.ask("remove_queued", queuedId=waiting["queuedId"])
    assert agent.ask("follow_up", **later) == waiting
    agent.ask("abort")
    gate.open()
    assert agent.ask("prompt", **line) == first
    assert agent.ask("follow_up", **later) == waiting
    for kind in ("prompt", "follow_up", "steer", "abort_and_prompt"):
        assert agent.request(kind, message="y", clientMessageId="m")["code"] == "conflict"
    assert not agent.ask("get_state")["isStreaming"]
    assert len(server.requests) == 1


@proves("queue.delivered_meanwhile")
def test_a_message_that_is_delivered_while_it_is_edited_stays_what_it_was(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    agent = attributed(start, *extension(folders, ASKS))
    gate = busy(agent, server)
    item = agent.ask("follow_up", message="original")["queuedId"]
    agent.send({"id": "e", "type": "edit_queued", "queuedId": item, "message": "edited"})
    question = agent.wait_event("extension_ui_request")
    server.answers("second")
    gate.open()
    agent.wait_end()
    agent.send({"type": "extension_ui_response", "id": question["id"], "confirmed": True})
    assert agent.response("e")["code"] == "not_found"
    assert [text_of(message) for message in finished_messages(agent.records, "user")] == ["start", "original"]
    assert agent.since(0, "queue_update")[-1]["items"] == []


@proves("queue.delivered_at_once")
@pytest.mark.parametrize("kind", ["remove_queued", "edit_queued", "promote_queued"])
def test_what_is_done_to_an_item_at_its_delivery_happens_or_is_refused(
    start: Start, server: ModelServer, kind: str
) -> None:
    agent = attributed(start)
    gate = busy(agent, server)
    items = [agent.ask("follow_up", message=f"m{number}")["queuedId"] for number in range(6)]
    for number in range(6):
        server.answers(f"a{number}")
    gate.open()
    lines = [{"id": f"q{n}", "type": kind, "queuedId": id, "message": f"e{n}"} for n, id in enumerate(items)]
    agent.send(*lines)
    done = {n for n in range(6) if agent.response(f"q{n}")["success"]}
    agent.wait_end()
    said = [text_of(message) for message in finished_messages(agent.records, "user")][1:]
    if kind == "promote_queued":
        assert sorted(said) == [f"m{n}" for n in range(6)]
    else:
        kept = [f"m{n}" if n not in done else f"e{n}" for n in range(6) if n not in done or kind == "edit_queued"]
        assert said == kept
    assert agent.since(0, "queue_update")[-1]["items"] == []


@proves("abort.one_of_many")
def test_one_of_several_calls_that_run_side_by_side_is_stopped(start: Start, server: ModelServer) -> None:
    agent = start(settings={"toolExecution": "parallel"})
    agent.ask("set_host_tools", tools=[HOST_TOOL])
    server.answers(Call("slow", {}, id="a"), Call("slow", {}, id="b"), Call("slow", {}, id="c"))
    server.answers("Fine.")
    agent.ask("prompt", message="x")
    calls = {id: agent.wait_event("host_tool_call", toolCallId=id)["id"] for id in "abc"}
    result = {"content": [{"type": "text", "text": "ok"}]}
    agent.send(
        {"type": "host_tool_result", "id": calls["c"], "result": result},
        {"id": "c", "type": "abort", "toolCallId": "c"},
        {"id": "b", "type": "abort", "toolCallId": "b"},
        {"id": "b2", "type": "abort", "toolCallId": "b"},
        {"type": "host_tool_result", "id": calls["a"], "result": result},
    )
    assert agent.wait_event("agent_settled")["reason"] == "done"
    assert agent.response("b")["success"]
    for id in ("b2", "c"):  # the call was ending: either it was still there, or it is known no more
        assert agent.response(id)["success"] or agent.response(id)["code"] == "not_found"
    results = {message["toolCallId"]: message["isError"] for message in finished_messages(agent.records, "toolResult")}
    assert (results["a"], results["b"], set(results)) == (False, True, set("abc"))
    assert len(agent.since(0, "tool_execution_end")) == 3
