"""What belongs to what, for hosts that ask: ids of runs, of messages and of queued messages; stopping one tool call."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.model_server import Call, Gate, ModelServer
from support.agent_folders import AgentFolders, extension
from support.agent_process import RpcProcess, Start
from support.contract import in_each, proves
from support.contract_scenes import Seen, Stage, scenario
from support.processes import Fifo
from support.records import finished_messages, text_of, tool_texts

Record = dict[str, Any]
SLOW_INPUT = """
@ext.on(Input)
async def look(event, ctx):
    await asyncio.sleep(0)
    with open({seen!r}, "a") as seen:
        seen.write(event.text)
"""


def attributed(start: Start, *args: str, **more: Any) -> RpcProcess:
    agent = start(*args, **more)
    assert "attribution" in agent.ask("hello", features=["attribution"])["features"]
    return agent


def busy(agent: RpcProcess, server: ModelServer) -> Gate:
    """Begin a run that stands still in its first answer."""
    gate = Gate()
    server.answers("first", gate)
    agent.ask("prompt", message="start")
    gate.wait_reached()
    return gate


def queued(agent: RpcProcess) -> list[tuple[str, str]]:
    """The queue as it was told last: kind and text of each item."""
    return [(item["queue"], item["text"]) for item in agent.since(0, "queue_update")[-1]["items"]]


@proves("attribution.run_id", dialects=("pi", "pi-latest", "omp", "xcsh", "companion"))
@in_each("pi", "pi-latest", "omp", "xcsh", "companion")
def test_every_event_of_a_run_names_the_run(start: Start, server: ModelServer, dialect: str) -> None:
    agent = attributed(start, dialect=dialect)
    for _ in range(2):
        server.answers("Looking.", Call("bash", {"command": "echo hi"}))
        server.answers("Done.")
    runs = []
    for _ in range(2):
        begin = agent.mark()
        agent.send({"type": "prompt", "message": "x", "id": f"p{begin}"})
        agent.wait_end(begin)
        events = [record for record in agent.since(begin) if record["type"] != "response"]
        (run,) = {event["runId"] for event in events}
        runs.append(run)
        if dialect != "companion":
            assert agent.response(f"p{begin}")["data"]["runId"] == run
    assert runs[0] != runs[1]


@proves("attribution.unasked")
def test_a_host_that_does_not_ask_sees_no_ids(start: Start, server: ModelServer) -> None:
    agent = start()
    gate = busy(agent, server)
    assert agent.ask("steer", message="now") == {"disposition": "queued"}
    server.answers("second")
    gate.open()
    agent.wait_end()
    assert not [record for record in agent.records if "runId" in record or "items" in record]
    agent.ask("hello", features=["attribution"])
    assert agent.ask("hello", features=[])["features"] == []
    server.answers("third")
    assert not [record for record in agent.run("again") if "runId" in record]


@proves("attribution.dialogs")
def test_a_question_about_permission_names_the_run(start: Start, server: ModelServer) -> None:
    agent = attributed(start, "--permissions", '{"ask": ["bash"]}')
    server.answers(Call("bash", {"command": "echo hi"}))
    server.answers("Done.")
    run = agent.ask("prompt", message="x")["runId"]
    question = agent.wait_event("extension_ui_request")
    assert question["runId"] == run
    agent.send({"type": "extension_ui_response", "id": question["id"], "value": "Allow once"})
    agent.wait_end()
    assert "hi" in tool_texts(agent.records)[0]


@proves("attribution.of_no_run")
def test_what_happens_outside_of_runs_names_none(start: Start, server: ModelServer) -> None:
    agent = attributed(start)
    agent.ask("follow_up", message="wait")
    agent.ask("bash", command="echo hi")
    agent.ask("set_session_name", name="n")
    assert agent.since(0, "queue_update")
    assert not [record for record in agent.records if "runId" in record]


@proves("client_message.echoed")
def test_the_hosts_own_id_stands_in_the_answer_and_on_the_message(agent: RpcProcess, server: ModelServer) -> None:
    server.answers("hi")
    records = agent.run("x", clientMessageId="mine-1")
    assert [
        record["message"]["clientMessageId"]
        for record in records
        if record["type"] in ("message_start", "message_end") and record["message"]["role"] == "user"
    ] == ["mine-1", "mine-1"]
    again = agent.ask("prompt", message="x", clientMessageId="mine-1")
    assert again == {"disposition": "started", "clientMessageId": "mine-1"}
    assert agent.ask("get_state")["isStreaming"] is False
    assert len(server.requests) == 1


@proves("client_message.conflict")
@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("prompt", {"message": "other"}),
        ("prompt", {"message": "x", "images": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]}),
        ("steer", {"message": "x"}),
    ],
)
def test_another_message_under_the_same_id_is_refused(
    agent: RpcProcess, server: ModelServer, kind: str, fields: Record
) -> None:
    server.answers("hi")
    agent.run("x", clientMessageId="mine-1")
    response = agent.request(kind, clientMessageId="mine-1", **fields)
    assert (response["success"], response["code"]) == (False, "conflict")
    assert "mine-1" in response["error"]
    assert len(server.requests) == 1


@proves("client_message.queued_once")
def test_a_queued_message_is_queued_once(start: Start, server: ModelServer) -> None:
    agent = attributed(start)
    gate = busy(agent, server)
    first = agent.ask("follow_up", message="later", clientMessageId="f")
    assert agent.ask("follow_up", message="later", clientMessageId="f") == first
    assert queued(agent) == [("followUp", "later")]
    assert agent.since(0, "queue_update")[-1]["items"][0]["clientMessageId"] == "f"
    server.answers("second")
    gate.open()
    agent.wait_end()
    assert agent.ask("follow_up", message="later", clientMessageId="f") == first
    assert [text_of(message) for message in finished_messages(agent.records, "user")] == ["start", "later"]


@proves("client_message.after_restart")
def test_a_message_that_is_in_the_session_is_known_after_the_process_was_killed(
    start: Start, server: ModelServer
) -> None:
    agent = attributed(start, keeps=True)
    gate = Gate()
    server.answers("first", gate)
    first = agent.ask("prompt", message="x", clientMessageId="mine-1")
    gate.wait_reached()
    file = agent.ask("get_state")["sessionFile"]
    agent.kill()
    gate.open()
    agent = attributed(start, "--session", file, keeps=True)
    assert agent.ask("prompt", message="x", clientMessageId="mine-1") == first
    assert agent.request("prompt", message="y", clientMessageId="mine-1")["code"] == "conflict"
    assert agent.ask("get_state")["isStreaming"] is False
    assert len(server.requests) == 1
    agent.ask("new_session")
    server.answers("hello")
    assert agent.ask("prompt", message="x", clientMessageId="mine-1")["runId"] != first["runId"]
    agent.wait_end()


@proves("client_message.both_at_once")
def test_a_message_that_comes_again_while_an_extension_looks_at_it_is_answered_alike(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    seen = folders.work / "seen"
    agent = start(*extension(folders, SLOW_INPUT.format(seen=str(seen))))
    server.answers("hi")
    line = {"type": "prompt", "message": "x", "clientMessageId": "m"}
    agent.send({"id": "a", **line}, {"id": "b", **line}, {"id": "c", **line, "message": "y"})
    agent.wait_end()
    first, second, third = (agent.response(id) for id in ("a", "b", "c"))
    assert first["data"] == second["data"] == {"disposition": "started", "clientMessageId": "m"}
    assert third["code"] == "conflict"
    assert seen.read_text() == "x"


@proves("client_message.refused_again")
def test_a_message_that_was_refused_may_come_again(agent: RpcProcess, server: ModelServer) -> None:
    gate = busy(agent, server)
    assert not agent.request("prompt", message="x", clientMessageId="m")["success"]
    gate.open()
    agent.wait_end()
    server.answers("second")
    begin = agent.mark()
    assert agent.ask("prompt", message="x", clientMessageId="m")["disposition"] == "started"
    agent.wait_end(begin)
    for bad in ("", "x" * 257):
        assert "clientMessageId" in agent.expect_error("prompt", message="x", clientMessageId=bad)


@scenario
def waiting(stage: Stage) -> Seen:
    """Four messages wait; one is removed, one edited, one promoted; then all are delivered."""
    agent, server = attributed(stage.start), stage.server
    gate = busy(agent, server)
    one, two, three = (agent.ask("follow_up", message=text)["queuedId"] for text in ("one", "two", "three"))
    four = agent.ask("steer", message="four")["queuedId"]
    removed = agent.ask("remove_queued", queuedId=one)
    edited = agent.ask("edit_queued", queuedId=two, message="zwei")
    promoted = agent.ask("promote_queued", queuedId=three)
    items, steering = queued(agent), agent.since(0, "queue_update")[-1]["steering"]
    for text in ("a", "b", "c"):
        server.answers(text)
    gate.open()
    agent.wait_end()
    refused = {
        kind: [agent.request(kind, queuedId=gone, **more) for gone in (one, four, "never")]
        for kind, more in (("remove_queued", {}), ("edit_queued", {"message": "x"}), ("promote_queued", {}))
    }
    return Seen(
        ids=(one, two, three), removed=removed, edited=edited, promoted=promoted, items=items, steering=steering,
        said=[text_of(message) for message in finished_messages(agent.records, "user")],
        codes={kind: {(one["success"], one["code"]) for one in found} for kind, found in refused.items()},
    )  # fmt: skip


@proves("queue.items")
def test_the_queue_is_told_with_the_items_that_wait(waiting: Seen) -> None:
    assert waiting.items == [("steering", "three"), ("followUp", "zwei"), ("steering", "four")]
    assert waiting.steering == ["three", "four"]


@proves("queue.remove")
def test_a_message_that_waits_is_removed_by_its_id(waiting: Seen) -> None:
    assert waiting.removed == {"id": waiting.ids[0], "queue": "followUp", "text": "one"}
    assert "one" not in waiting.said
    assert waiting.codes["remove_queued"] == {(False, "not_found")}


@proves("queue.edit")
def test_a_message_that_waits_is_edited_by_its_id(waiting: Seen) -> None:
    assert waiting.edited == {"id": waiting.ids[1], "queue": "followUp", "text": "zwei"}
    assert waiting.said[-1] == "zwei"
    assert waiting.codes["edit_queued"] == {(False, "not_found")}


@proves("queue.promote")
def test_a_message_that_waits_is_promoted_by_its_id(waiting: Seen) -> None:
    assert waiting.promoted == {"id": waiting.ids[2], "queue": "steering", "text": "three"}
    assert waiting.said == ["start", "three", "four", "zwei"]
    assert waiting.codes["promote_queued"] == {(False, "not_found")}


@proves("queue.remove_prompt", dialects=("omp",))
@in_each("omp")
def test_a_prompt_that_is_removed_from_the_queue_ends_there(start: Start, server: ModelServer, dialect: str) -> None:
    agent = attributed(start, dialect=dialect)
    gate = busy(agent, server)
    agent.send({"id": "later", "type": "prompt", "message": "later", "streamingBehavior": "followUp"})
    agent.ask("remove_queued", queuedId=agent.response("later")["data"]["queuedId"])
    result = agent.wait_event("prompt_result", id="later")
    assert (result["status"], result["agentInvoked"]) == ("aborted", False)
    gate.open()
    agent.wait_end()


@proves("abort.one_tool")
def test_one_tool_call_is_stopped_and_the_turn_goes_on(agent: RpcProcess, server: ModelServer) -> None:
    go = Fifo(agent.folders.work)
    server.answers(
        Call("bash", {"command": f"{go.waits}; echo finished"}, id="a"), Call("bash", {"command": "echo b"}, id="b")
    )
    second = server.answers("I see.")
    agent.ask("prompt", message="start")
    agent.wait_event("tool_execution_start", toolCallId="a")
    assert agent.request("abort", toolCallId="nonsense")["code"] == "not_found"
    agent.ask("abort", toolCallId="a")
    assert agent.since(0, "tool_execution_end")[0]["isError"] is True
    settled = agent.wait_event("agent_settled")
    assert (settled["aborted"], settled["reason"]) == (False, "done")
    assert [message["isError"] for message in finished_messages(agent.records, "toolResult")] == [True, False]
    assert "finished" not in tool_texts(agent.records)[0]
    assert "abort" in str(second.request).lower() or "stopped" in str(second.request)
    assert agent.request("abort", toolCallId="a")["code"] == "not_found"


@proves("abort.one_question")
def test_a_call_that_waits_for_permission_can_be_stopped(start: Start, server: ModelServer) -> None:
    agent = start("--permissions", '{"ask": ["bash"]}')
    server.answers(Call("bash", {"command": "touch ran"}, id="a"))
    server.answers("Fine.")
    agent.ask("prompt", message="x")
    agent.wait_event("extension_ui_request")
    agent.ask("abort", toolCallId="a")
    agent.wait_end()
    assert tool_texts(agent.records) == ["The user stopped this tool call before it had ended."]
    assert not list(agent.folders.work.iterdir())


@proves("abort.one_host_tool")
def test_a_call_of_a_host_tool_can_be_stopped(agent: RpcProcess, server: ModelServer) -> None:
    tool = {"name": "slow", "description": "d", "parameters": {"type": "object", "properties": {}}}
    agent.ask("set_host_tools", tools=[tool])
    server.answers(Call("slow", {}, id="a"))
    server.answers("Fine.")
    agent.ask("prompt", message="x")
    call = agent.wait_event("host_tool_call", toolCallId="a")
    agent.ask("abort", toolCallId="a")
    assert agent.wait_event("host_tool_cancel")["targetId"] == call["id"]
    assert agent.wait_event("agent_settled")["reason"] == "done"
    assert [message["isError"] for message in finished_messages(agent.records, "toolResult")] == [True]
