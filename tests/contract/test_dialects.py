"""One conversation as each dialect tells it: the rows in which they differ, and what they share."""

from __future__ import annotations

from fakes.contract_manifest import DIALECTS, proves
from fakes.dialect_cases import in_each
from fakes.model_server import Call, Gate, Hang, ModelServer, said_in
from fakes.record_outline import answers, deltas, ended, outline, text_of
from fakes.rpc_process import RpcProcess

BUSY = "Agent is already processing."

LAST_WORDS = ("prompt_result", "session_settled")


@proves(
    "frame.json",
    "frame.type",
    "frame.command",
    "frame.success",
    "id.echo",
    "id.optional",
    "id.echo_failure",
    "prompt.ack",
    "prompt.async",
    "prompt.stream",
    "prompt.reaches_model",
    "event.order",
    "event.agent_start",
    "event.agent_end",
    "event.turn_start",
    "event.turn_end",
    "event.message_start",
    "event.message_update",
    "event.message_end",
    "event.agent_end_messages",
    "event.update_delta",
    "event.text_delta",
    "command.prompt",
    "command.get_state",
    "error.response",
    "error.parse",
    "error.parse_recovers",
    dialects=("omp", "xcsh"),
)
@proves("dialect.ready", dialects=("omp", "xcsh"))
@in_each("omp", "xcsh")
def test_a_plain_conversation_after_a_ready_line(spoken: RpcProcess, server: ModelServer) -> None:
    assert spoken.wait(lambda record: True)["type"] == "ready"
    server.answers("Hello there.")
    records = [record for record in spoken.run("Say hello") if record["type"] not in LAST_WORDS]
    assert [said_in(request) for request in server.requests] == [[("user", "Say hello")]]
    assert outline(records) == [
        "response:prompt",
        "agent_start",
        "turn_start",
        "message_start:user",
        "message_end:user",
        "message_start:assistant",
        "message_end:assistant",
        "turn_end",
        "agent_end",
    ]
    assert "".join(event["delta"] for event in deltas(records, "text_delta")) == "Hello there."
    assert text_of(deltas(records, "text_end")[0]["partial"]) == "Hello there."
    end = records[-1]
    assert [message["role"] for message in end["messages"]] == ["user", "assistant"]
    assert "willRetry" not in end
    spoken.send("{bad", {"type": "get_state"})
    failure, state = spoken.wait_count("response", 3)[1:]
    assert (failure["command"], failure["success"]) == ("parse", False)
    assert ("id" in failure, "id" in state) == (False, False)
    assert spoken.refused("set_model", provider="a", modelId="b") == "Model not found: a/b"


@proves("omp+xcsh/prompt.busy_refused", "omp+xcsh/prompt.busy_late", "prompt.busy_dropped", dialects=("omp", "xcsh"))
@in_each("omp", "xcsh")
def test_a_refused_prompt_is_acknowledged_and_then_fails(spoken: RpcProcess, server: ModelServer) -> None:
    gate = Gate()
    server.answers(gate, "one")
    spoken.ask("prompt", message="first")
    gate.wait_reached()
    spoken.send({"id": "late", "type": "prompt", "message": "second"})
    spoken.wait(lambda record: record.get("id") == "late" and record["success"] is False)
    found = [record for record in spoken.since(0, "response") if record.get("id") == "late"]
    assert [record["success"] for record in found] == [True, False]
    assert found[1]["error"].startswith(BUSY)
    gate.open()
    spoken.wait_end()
    assert len(server.requests) == 1


@proves("xcsh/id.unknown", "xcsh/id.parse", dialects=("xcsh",))
@proves("dialect.unknown_id", dialects=("xcsh",))
@in_each("xcsh")
def test_an_unknown_command_is_answered_without_id(spoken: RpcProcess) -> None:
    spoken.send({"id": "u", "type": "nope"}, "{bad")
    unknown, parse = spoken.wait_count("response", 2)
    assert unknown == {"type": "response", "command": "nope", "success": False, "error": "Unknown command: nope"}
    assert "id" not in parse


@proves("dialect.unknown_id_newest", dialects=("omp",))
@in_each("omp")
def test_an_unknown_command_is_answered_with_its_id_where_clients_wait_for_it(spoken: RpcProcess) -> None:
    spoken.send({"id": "u", "type": "nope"}, "{bad")
    unknown, parse = spoken.wait_count("response", 2)
    assert (unknown["id"], unknown["error"]) == ("u", "Unknown command: nope")
    assert "id" not in parse


@proves("dialect.prompt_result", dialects=("omp",))
@in_each("omp")
def test_every_accepted_prompt_has_one_result_and_then_the_session_is_settled(
    spoken: RpcProcess, server: ModelServer
) -> None:
    gate = Gate()
    server.answers(gate, "one")
    server.answers("two")
    spoken.send({"id": "a", "type": "prompt", "message": "first"})
    gate.wait_reached()
    spoken.send({"id": "b", "type": "prompt", "message": "second", "streamingBehavior": "followUp"})
    spoken.wait_event("response", id="b")
    gate.open()
    spoken.wait_event("session_settled")
    results = [(record["id"], record["status"]) for record in spoken.since(0, "prompt_result")]
    assert sorted(results) == [("a", "completed"), ("b", "completed")]
    (end,) = spoken.since(0, "agent_end")
    assert (end["isTerminal"], end["yielded"]) == (True, True)
    kinds = [record["type"] for record in spoken.records]
    assert kinds[-4:] == ["agent_end", "prompt_result", "prompt_result", "session_settled"]


@proves(
    "omp+xcsh/get_state.queuedMessageCount",
    "omp+xcsh/get_state.interruptMode",
    "omp+xcsh/command.set_interrupt_mode",
    "omp+xcsh/set_interrupt_mode.response",
    "omp+xcsh/set_interrupt_mode.state",
    dialects=("omp", "xcsh"),
)
@proves("omp/get_state.interrupt_default", dialects=("omp",))
@proves(
    "xcsh/get_state.interrupt_default", "xcsh/get_state.todoPhases", "xcsh/get_state.todo_default", dialects=("xcsh",)
)
@in_each("omp", "xcsh")
def test_the_state_has_the_members_of_the_forks(spoken: RpcProcess) -> None:
    state = spoken.ask("get_state")
    expected = "wait" if "xcsh" in spoken.arguments else "immediate"
    assert (state["interruptMode"], state["queuedMessageCount"], state["todoPhases"]) == (expected, 0, [])
    for mode in ("immediate", "wait"):
        assert spoken.ask("set_interrupt_mode", mode=mode) is None
        assert spoken.ask("get_state")["interruptMode"] == mode


@proves("omp/get_last_assistant_text.null", dialects=("omp",))
@in_each("omp")
def test_no_answer_yet_is_a_null_text(spoken: RpcProcess) -> None:
    assert spoken.ask("get_last_assistant_text") == {"text": None}


@proves("xcsh/start.eof", dialects=("xcsh",))
@proves("dialect.exit", dialects=DIALECTS)
@in_each("pi", "pi-latest", "omp", "xcsh", "companion")
def test_every_dialect_ends_cleanly_with_its_input(spoken: RpcProcess) -> None:
    spoken.close(expect=0)


@proves(
    "xcsh/abort_and_prompt.flow",
    "xcsh/abort_and_prompt.response",
    "xcsh/abort_and_prompt.end",
    "xcsh/command.abort_and_prompt",
    dialects=("xcsh",),
)
@in_each("xcsh")
def test_abort_and_prompt_in_xcsh(spoken: RpcProcess, server: ModelServer) -> None:
    server.answers("half", Hang())
    spoken.ask("prompt", message="x")
    spoken.wait_delta("f")
    start = spoken.mark()
    later = server.answers("new")
    spoken.ask("abort_and_prompt", message="instead")
    spoken.wait(lambda record: record["type"] == "agent_end" and text_of(record["messages"][-1]) == "new", start)
    words = outline(spoken.since(start))
    assert words.index("agent_end") < words.index("response:abort_and_prompt") < words.index("agent_start")
    assert said_in(later.request)[-1] == ("user", "instead")


@proves("dialect.delta_only", "dialect.pending", dialects=("pi-latest",))
@in_each("pi-latest")
def test_the_newest_dialect_carries_deltas_only(spoken: RpcProcess, server: ModelServer) -> None:
    server.answers("Looking.", Call("bash", {"command": "true"}, id="c1"))
    server.answers("Done.")
    records = spoken.run("x")
    updates = [record for record in records if record["type"] == "message_update"]
    assert all(set(record) == {"type", "usage", "assistantMessageEvent"} for record in updates)
    assert all("partial" not in record["assistantMessageEvent"] for record in updates)
    begun = deltas(records, "toolcall_start")[0]
    assert (begun["id"], begun["toolName"]) == ("c1", "bash")
    first = next(r["message"] for r in records if r["type"] == "message_start" and r["message"]["role"] == "assistant")
    assert (first["stopReason"], first["content"]) == ("pending", [])
    assert outline(records)[-2:] == ["agent_end", "agent_settled"]
    assert spoken.ask("get_state")["interruptMode"] == "wait"


@proves(
    "companion/in.prompt",
    "companion/in.prompt_text",
    "companion/in.prompt_again",
    "companion/out.lines",
    "companion/out.types",
    "companion/out.no_responses",
    "companion/event.order",
    "companion/event.turns",
    "companion/event.turn_end_shape",
    "companion/event.turn_end_matches",
    "companion/event.turn_count",
    "companion/event.message_roles",
    "companion/event.message_pairs",
    "companion/event.user",
    "companion/event.start_empty",
    "companion/event.end_complete",
    "companion/event.update",
    "companion/event.agent_end_messages",
    "companion/delta.text_delta",
    "companion/delta.text_fold",
    "companion/tool.start",
    "companion/tool.output",
    "companion/tool.flow",
    "companion/tool.ids",
    "companion/tool.result_message",
    "companion/stop.tool_use",
    "companion/stop.stop",
    dialects=("companion",),
)
@in_each("companion")
def test_the_early_protocol_is_events_only(spoken: RpcProcess, server: ModelServer) -> None:
    server.answers("Looking.", Call("bash", {"command": "echo one"}, id="c1"))
    server.answers("It says one.")
    spoken.send({"type": "prompt", "message": "x"})
    end = spoken.wait_end()
    words = [word for word in outline(spoken.records) if word != "tool_execution_update"]
    assert words == [
        "agent_start", "turn_start", "message_start:user", "message_end:user", "message_start:assistant",
        "message_end:assistant", "tool_execution_start", "tool_execution_end", "message_start:toolResult",
        "message_end:toolResult", "turn_end", "turn_start", "message_start:assistant", "message_end:assistant",
        "turn_end", "agent_end",
    ]  # fmt: skip
    (user,) = ended(spoken.records, "user")
    assert text_of(user) == "x"
    assert isinstance(user["timestamp"], int)
    begun = next(r["message"] for r in spoken.since(0, "message_start") if r["message"]["role"] == "assistant")
    assert begun["content"] == []
    assert {"usage", "stopReason"} <= set(begun)
    assert [message["stopReason"] for message in answers(spoken.records)] == ["toolUse", "stop"]
    assert [message["role"] for message in end["messages"]] == ["user", "assistant", "toolResult", "assistant"]
    finish = spoken.since(0, "tool_execution_end")[0]
    assert (finish["toolCallId"], finish["isError"]) == ("c1", False)
    assert "one" in text_of(finish["result"])
    turns = spoken.since(0, "turn_end")
    assert [[result["toolCallId"] for result in turn["toolResults"]] for turn in turns] == [["c1"], []]
    told = [
        r["assistantMessageEvent"]["delta"]
        for r in spoken.since(0, "message_update")
        if "delta" in r["assistantMessageEvent"]
    ]
    assert "It says one." in "".join(told)
    assert all({"message", "assistantMessageEvent"} <= set(record) for record in spoken.since(0, "message_update"))
    again = server.answers("ok")
    start = spoken.mark()
    spoken.send({"type": "prompt", "message": "y"})
    spoken.wait_end(start)
    assert said_in(again.request)[-1] == ("user", "y")


@proves(
    "companion/event.error",
    "companion/event.error_recovers",
    "companion/out.no_responses_errors",
    dialects=("companion",),
)
@in_each("companion")
def test_in_the_early_protocol_a_failure_is_an_error_event(spoken: RpcProcess, server: ModelServer) -> None:
    server.answers("ok")
    spoken.send("{bad", {"type": "prompt"}, {"type": "prompt", "message": "x"})
    spoken.wait_end()
    errors = spoken.since(0, "error")
    assert len(errors) == 2
    assert all(set(record) == {"type", "error"} for record in errors)
    assert not spoken.since(0, "response")


@proves(
    "companion/in.abort",
    "companion/in.abort_end",
    "companion/in.abort_stream",
    "companion/in.abort_recovers",
    dialects=("companion",),
)
@in_each("companion")
def test_abort_in_the_early_protocol(spoken: RpcProcess, server: ModelServer) -> None:
    asked = server.answers("half", Hang())
    spoken.send({"type": "prompt", "message": "x"})
    spoken.wait_delta("f")
    spoken.send({"type": "abort"})
    spoken.wait_end()
    asked.wait_dropped()
    assert answers(spoken.records)[0]["stopReason"] == "aborted"
    server.answers("fine")
    start = spoken.mark()
    spoken.send({"type": "prompt", "message": "y"})
    spoken.wait_end(start)
    assert text_of(answers(spoken.since(start))[0]) == "fine"


@proves(
    "companion/attach.image",
    "companion/attach.document",
    "companion/attach.document_name",
    "companion/attach.kept",
    "companion/attach.empty",
    dialects=("companion",),
)
@in_each("companion")
def test_attachments_reach_the_model(spoken: RpcProcess, server: ModelServer) -> None:
    asked = server.answers("ok")
    image = {
        "id": "1",
        "type": "image",
        "fileName": "a.png",
        "mimeType": "image/png",
        "size": 8,
        "content": "iVBORw0KGgo=",
        "extractedText": None,
        "preview": None,
    }
    paper = {
        "id": "2",
        "type": "document",
        "fileName": "b.pdf",
        "mimeType": "application/pdf",
        "size": 3,
        "content": "AAAA",
        "extractedText": "the text of the paper",
    }
    spoken.send({"type": "prompt", "message": "look", "attachments": [image, paper]})
    spoken.wait_end()
    content = asked.request["messages"][-1]["content"]
    assert "image" in [block["type"] for block in content]
    said = "".join(block.get("text", "") for block in content)
    assert "the text of the paper" in said
    assert "b.pdf" in said
    (user,) = ended(spoken.records, "user")
    assert [one["fileName"] for one in user["attachments"]] == ["a.png", "b.pdf"]
    assert set(user["attachments"][0]) == {"id", "type", "fileName", "mimeType", "size", "content"}
    server.answers("ok")
    start = spoken.mark()
    spoken.send({"type": "prompt", "message": "plain", "attachments": []})
    spoken.wait_end(start)
    assert text_of(ended(spoken.since(start), "user")[0]) == "plain"
