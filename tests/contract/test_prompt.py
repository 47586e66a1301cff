"""A prompt from its acknowledgement to the end of the run, with text, thinking and tools."""

from __future__ import annotations

import json

import pytest

from fakes.contract_manifest import proves
from fakes.model_server import Call, Cut, Gate, ModelServer, Text, Thinking, said_in
from fakes.record_outline import answers, deltas, ended, outline, text_of, tool_texts
from fakes.rpc_process import RpcProcess, Start

PLAIN = [
    "response:prompt",
    "agent_start",
    "turn_start",
    "message_start:user",
    "message_end:user",
    "message_start:assistant",
    "message_end:assistant",
    "turn_end",
    "agent_end",
    "agent_settled",
]


@proves(
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
    "event.message_end",
    "event.agent_end_messages",
    "command.prompt",
    "note/prompt.ack",
    "note/prompt.complete",
    "note/out.lines",
    "note/out.kinds",
)
def test_a_plain_answer_is_told_in_the_documented_order(agent: RpcProcess, server: ModelServer) -> None:
    asked = server.answers("Hello there.")
    records = agent.run("Say hello")
    assert outline(records) == PLAIN
    assert said_in(asked.request) == [("user", "Say hello")]
    end = next(record for record in records if record["type"] == "agent_end")
    assert [message["role"] for message in end["messages"]] == ["user", "assistant"]
    assert text_of(end["messages"][1]) == "Hello there."
    assert end["willRetry"] is False


@proves("id.optional_prompt")
def test_a_prompt_without_id_is_acknowledged_without_id(agent: RpcProcess, server: ModelServer) -> None:
    server.answers("ok")
    agent.send({"type": "prompt", "message": "x"})
    started = {"disposition": "started"}
    assert agent.wait_event("response") == {"type": "response", "command": "prompt", "success": True, "data": started}
    agent.wait_end()


@proves("prompt.ack_is_not_done", "get_state.streaming", "get_state.not_streaming", "prompt.snapshot_start")
def test_accepted_is_not_finished(agent: RpcProcess, server: ModelServer) -> None:
    gate = Gate()
    server.answers("one", gate, "two")
    agent.ask("prompt", message="x")
    gate.wait_reached()
    assert agent.ask("get_state")["isStreaming"] is True
    assert not agent.since(0, "agent_end")
    gate.open()
    agent.wait_end()
    assert agent.ask("get_state")["isStreaming"] is False
    first = next(r["message"] for r in agent.since(0, "message_start") if r["message"]["role"] == "assistant")
    assert (first["content"], first["stopReason"]) == ([], "stop")


@proves(
    "event.message_update",
    "event.update_delta",
    "event.text_delta",
    "event.text_start",
    "event.text_end",
    "event.text_fold",
    "event.partial",
    "events.no_id",
    "note/prompt.deltas",
    "note/events.message_update",
)
def test_text_arrives_as_deltas_that_add_up(agent: RpcProcess, server: ModelServer) -> None:
    server.answers(Text("The quick 😀 brown\u2028fox.", piece=4))
    records = agent.run("x")
    updates = [record for record in records if record["type"] == "message_update"]
    kinds = [record["assistantMessageEvent"]["type"] for record in updates]
    assert kinds == ["text_start", *["text_delta"] * (len(kinds) - 2), "text_end"]
    so_far = ""
    for record in updates:
        event = record["assistantMessageEvent"]
        so_far += event.get("delta", "") if event["type"] == "text_delta" else ""
        assert event["contentIndex"] == 0
        assert text_of(record["message"]) == so_far
        assert text_of(event["partial"]) == so_far
        assert "id" not in record
    assert updates[-1]["assistantMessageEvent"]["content"] == so_far == text_of(answers(records)[0])


@proves("event.thinking_delta", "event.thinking_start", "event.thinking_end", "event.thinking_fold")
def test_thinking_is_a_block_of_its_own(agent: RpcProcess, server: ModelServer) -> None:
    server.answers(Thinking("Let me think.", signature="s1"), "Done.")
    records = agent.run("x")
    thought = "".join(event["delta"] for event in deltas(records, "thinking_delta"))
    assert deltas(records, "thinking_end")[0]["content"] == thought == "Let me think."
    assert answers(records)[0]["content"] == [
        {"type": "thinking", "thinking": "Let me think.", "thinkingSignature": "s1"},
        {"type": "text", "text": "Done."},
    ]


@proves("type.assistant")
def test_messages_have_their_documented_fields(agent: RpcProcess, server: ModelServer) -> None:
    usage = {
        "input_tokens": 1000,
        "output_tokens": 500,
        "cache_read_input_tokens": 200,
        "cache_creation_input_tokens": 100,
    }
    server.answers("ok", usage=usage)
    records = agent.run("x")
    user, answer = ended(records, "user")[0], answers(records)[0]
    assert list(user) == ["role", "content", "timestamp"]
    assert user["content"] == [{"type": "text", "text": "x"}]
    assert isinstance(user["timestamp"], int)
    assert (answer["api"], answer["provider"], answer["model"]) == ("anthropic-messages", "fake", "fake-1")
    assert answer["stopReason"] == "stop"
    counts = {key: answer["usage"][key] for key in ("input", "output", "cacheRead", "cacheWrite", "totalTokens")}
    assert counts == {"input": 1000, "output": 500, "cacheRead": 200, "cacheWrite": 100, "totalTokens": 1800}
    assert answer["usage"]["cost"]["total"] == pytest.approx(0.001 + 0.001 + 0.00002 + 0.000125)
    assert "errorMessage" not in answer


@proves(
    "event.tool_execution_start",
    "event.tool_execution_end",
    "event.tool_start",
    "event.tool_end",
    "event.tool_ids",
    "event.tool_order",
    "event.toolcall_delta",
    "event.toolcall_start",
    "event.toolcall_end",
    "event.toolcall_fold",
    "event.update_toolcall",
    "event.turns",
    "event.turn_end_shape",
    "event.turn_count",
    "event.messages_pair",
    "event.message_end_assistant",
    "event.message_end_tool",
    "stop.tool_use",
    "note/prompt.tools",
    "note/events.all",
    "note/events.pairs",
)
def test_a_tool_call_runs_and_its_result_goes_back_to_the_model(agent: RpcProcess, server: ModelServer) -> None:
    server.answers("Looking.", Call("bash", {"command": "echo one"}, id="c1"))
    second = server.answers("It says one.")
    records = agent.run("x")
    assert outline(records)[5:] == [
        "message_start:assistant",
        "message_end:assistant",
        "tool_execution_start",
        *["tool_execution_update"] * sum(record["type"] == "tool_execution_update" for record in records),
        "tool_execution_end",
        "message_start:toolResult",
        "message_end:toolResult",
        "turn_end",
        "turn_start",
        "message_start:assistant",
        "message_end:assistant",
        "turn_end",
        "agent_end",
        "agent_settled",
    ]
    call = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "echo one"}}
    assert answers(records)[0]["content"][1] == call
    assert answers(records)[0]["stopReason"] == "toolUse"
    assert deltas(records, "toolcall_end")[0]["toolCall"] == call
    assert json.loads("".join(event["delta"] for event in deltas(records, "toolcall_delta"))) == call["arguments"]
    begin = next(record for record in records if record["type"] == "tool_execution_start")
    assert {key: begin[key] for key in begin if key != "type"} == {
        "toolCallId": "c1",
        "toolName": "bash",
        "args": {"command": "echo one"},
    }
    finish = next(record for record in records if record["type"] == "tool_execution_end")
    assert (finish["toolCallId"], finish["toolName"], finish["isError"]) == ("c1", "bash", False)
    result = ended(records, "toolResult")[0]
    assert (result["toolCallId"], result["toolName"], result["isError"]) == ("c1", "bash", False)
    assert result["content"] == finish["result"]["content"]
    assert "one" in text_of(result)
    turn = next(record for record in records if record["type"] == "turn_end")
    assert turn["message"] == answers(records)[0]
    assert turn["toolResults"] == [result]
    assert said_in(second.request)[-1] == ("user", text_of(result))


@proves("event.tool_error", "tool.unknown", "tool.bad_arguments")
def test_a_tool_that_fails_is_a_result_for_the_model_not_an_end(agent: RpcProcess, server: ModelServer) -> None:
    server.answers(
        Call("bash", {"command": "exit 3"}, id="a"),
        Call("nosuch", {}, id="b"),
        Call("read", {}, id="c"),
    )
    server.answers("I see.")
    records = agent.run("x")
    results = {message["toolCallId"]: message for message in ended(records, "toolResult")}
    assert [results[name]["isError"] for name in "abc"] == [True, True, True]
    assert "3" in text_of(results["a"])
    assert "nosuch" in text_of(results["b"])
    assert "path" in text_of(results["c"])
    assert text_of(answers(records)[-1]) == "I see."


@proves("tool.ordered")
def test_calls_of_one_answer_change_things_in_call_order(agent: RpcProcess, server: ModelServer) -> None:
    server.answers(
        Call("bash", {"command": "echo 1 >> log; cat log"}, id="a"),
        Call("bash", {"command": "echo 2 >> log; cat log"}, id="b"),
        Call("write", {"path": "log", "content": "new\n"}, id="c"),
        Call("read", {"path": "log"}, id="d"),
    )
    server.answers("done")
    texts = tool_texts(agent.run("x"))
    assert texts[0].split() == ["1"]
    assert texts[1].split() == ["1", "2"]
    assert texts[3].split() == ["new"]


@proves("stop.length")
def test_a_cut_answer_says_length(agent: RpcProcess, server: ModelServer) -> None:
    server.answers("half a sen", stop="max_tokens")
    assert answers(agent.run("x"))[0]["stopReason"] == "length"


@proves("stop.error", "stop.recovers")
def test_a_provider_error_ends_the_run_and_the_next_prompt_works(agent: RpcProcess, server: ModelServer) -> None:
    server.fails(400, "this is wrong", kind="invalid_request_error")
    records = agent.run("x")
    assert outline(records) == PLAIN
    failed = answers(records)[0]
    assert (failed["stopReason"], failed["content"]) == ("error", [])
    assert "this is wrong" in failed["errorMessage"]
    server.answers("fine")
    assert text_of(answers(agent.run("y"))[0]) == "fine"


@proves("stop.cut_stream")
def test_a_stream_that_breaks_off_is_an_error_that_keeps_what_came(start: Start, server: ModelServer) -> None:
    agent = start(settings={"retry": {"enabled": False}})
    server.answers("half", Cut())
    failed = answers(agent.run("x"))[0]
    assert failed["stopReason"] == "error"
    assert text_of(failed) == "half"
    assert failed["errorMessage"]


@proves("note/resident", "note/in.lines", "get_messages.roles")
def test_one_prompt_after_another_share_the_conversation(agent: RpcProcess, server: ModelServer) -> None:
    server.answers("one")
    agent.run("first")
    last = server.answers("two")
    agent.run("second")
    assert said_in(last.request) == [("user", "first"), ("assistant", "one"), ("user", "second")]


@proves("prompt.busy_refused", "prompt.busy_dropped")
def test_a_second_prompt_is_refused_while_one_runs(agent: RpcProcess, server: ModelServer) -> None:
    gate = Gate()
    server.answers(gate, "one")
    agent.ask("prompt", message="first")
    gate.wait_reached()
    assert agent.refused("prompt", message="second") == (
        "Agent is already processing. Specify streamingBehavior ('steer' or 'followUp') to queue the message."
    )
    gate.open()
    agent.wait_end()
    assert len(server.requests) == 1
    assert agent.ask("get_state")["messageCount"] == 2


@proves("prompt.two_at_once")
def test_of_two_prompts_in_one_write_the_second_is_refused(agent: RpcProcess, server: ModelServer) -> None:
    server.answers("one")
    agent.send({"id": 1, "type": "prompt", "message": "a"}, {"id": 2, "type": "prompt", "message": "b"})
    assert agent.response(1)["success"] is True
    assert agent.response(2)["success"] is False
    agent.wait_end()
    assert [said_in(request)[-1] for request in server.requests] == [("user", "a")]


@proves("prompt.images", "prompt.images_ack", "prompt.image_forms", "images.stored")
def test_an_image_in_any_documented_form_reaches_the_model(agent: RpcProcess, server: ModelServer) -> None:
    data = "iVBORw0KGgo="
    forms: list[dict[str, object]] = [
        {"type": "image", "data": data, "mimeType": "image/png"},
        {"type": "image", "source": {"type": "base64", "mediaType": "image/png", "data": data}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
        {"type": "image", "source": {"type": "url", "url": f"data:image/png;base64,{data}"}},
    ]
    for image in forms:
        asked = server.answers("nice")
        records = agent.run("look", images=[image])
        stored = {"type": "image", "data": data, "mimeType": "image/png"}
        assert ended(records, "user")[0]["content"] == [{"type": "text", "text": "look"}, stored]
        sent = next(block for block in asked.request["messages"][-1]["content"] if block["type"] == "image")
        assert sent["source"] == {"type": "base64", "media_type": "image/png", "data": data}
