"""The stream of a run: deltas that add up, tools that show their progress, and reasons to stop."""

from __future__ import annotations

import itertools
import json
from typing import Any

from fakes.contract_manifest import proves
from fakes.dialect_cases import in_each
from fakes.fifo import Fifo
from fakes.model_server import Call, ModelServer, Text, Thinking
from fakes.record_outline import answers, deltas, ended, outline, text_of
from fakes.rpc_process import RpcProcess, Start

Record = dict[str, Any]
TWELVE = {
    "start", "text_start", "text_delta", "text_end", "thinking_start", "thinking_delta", "thinking_end",
    "toolcall_start", "toolcall_delta", "toolcall_end", "done", "error",
}  # fmt: skip
REASONS = {"done": {"stop", "length", "toolUse"}, "error": {"aborted", "error"}}


def so_far(events: list[Record]) -> list[str]:
    """What each block holds after these stream events, as text."""
    blocks: dict[int, str] = {}
    for event in events:
        if "contentIndex" in event:
            blocks[event["contentIndex"]] = blocks.get(event["contentIndex"], "") + event.get("delta", "")
    return [blocks[index] for index in sorted(blocks)]


def shown(message: Record) -> list[str]:
    """The same of a message; of a tool call only whether there is anything yet."""
    return [block.get("text", block.get("thinking", "")) for block in message["content"]]


def in_order(words: list[str], *wanted: str) -> bool:
    """True if these words come in this order, others between them or not."""
    rest = iter(words)
    return all(word in rest for word in wanted)


@proves("event.update_types", "event.done_error", dialects=("pi", "omp"))
@proves(
    "event.thinking_delta",
    "event.toolcall_delta",
    "event.tool_execution_start",
    "event.tool_execution_end",
    dialects=("omp", "xcsh"),
)
@proves(
    "events.no_id",
    "event.turns",
    "event.turn_end_shape",
    "event.turn_count",
    "event.messages_pair",
    "event.text_start",
    "event.text_end",
    "event.thinking_start",
    "event.thinking_end",
    "event.toolcall_start",
    "event.toolcall_end",
    "event.text_fold",
    "event.thinking_fold",
    "event.toolcall_fold",
    "event.partial",
    "event.tool_start",
    "event.tool_ids",
    "event.tool_order",
    "event.tool_end",
    "event.update_toolcall",
    "event.message_end_assistant",
    "event.message_end_tool",
    "omp/type.thinking",
    "omp/type.stop",
    "omp/type.tool_use",
    dialects=("omp",),
)
@proves(
    "event.agent_start",
    "event.agent_end",
    "event.turn_start",
    "event.turn_end",
    "event.message_start",
    "event.message_update",
    "event.message_end",
    "event.tool_execution_start",
    "event.tool_execution_end",
    "companion/event.update_types",
    "companion/delta.text_start",
    "companion/delta.text_end",
    "companion/delta.thinking_start",
    "companion/delta.thinking_delta",
    "companion/delta.thinking_end",
    "companion/delta.toolcall_start",
    "companion/delta.toolcall_delta",
    "companion/delta.toolcall_end",
    "companion/delta.thinking_fold",
    "companion/delta.toolcall_fold",
    "companion/delta.partial",
    "companion/delta.done_error",
    "companion/tool.end",
    dialects=("companion",),
)
@in_each("pi", "omp", "xcsh", "companion")
def test_the_stream_tells_everything_and_adds_up(spoken: RpcProcess, server: ModelServer) -> None:
    call = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "echo one"}}
    server.answers(Thinking("Let me think."), Text("Looking.", piece=3), Call("bash", {"command": "echo one"}, id="c1"))
    server.answers("It says one.")
    spoken.send({"type": "prompt", "message": "x"})
    spoken.wait_end()
    records = spoken.records
    updates = [record for record in records if record["type"] == "message_update"]
    assert all("id" not in record for record in records)
    assert {record["assistantMessageEvent"]["type"] for record in updates} <= TWELVE
    for record in updates:
        event = record["assistantMessageEvent"]
        assert event.get("reason") in REASONS.get(event["type"], {None})
        assert isinstance(event["contentIndex"], int)
        assert event["partial"] == record["message"]
        assert event["partial"]["role"] == "assistant"
    first, second = answers(records)
    assert [block["type"] for block in first["content"]] == ["thinking", "text", "toolCall"]
    assert (first["stopReason"], second["stopReason"]) == ("toolUse", "stop")
    ends = [event["type"] for event in (record["assistantMessageEvent"] for record in updates)]
    assert ends.count("text_start") == ends.count("text_end") == 2
    assert ends.count("toolcall_start") == ends.count("toolcall_end") == 1
    assert deltas(records, "thinking_end")[0]["content"] == "Let me think."
    assert [event["content"] for event in deltas(records, "text_end")] == ["Looking.", "It says one."]
    assert deltas(records, "toolcall_end")[0]["toolCall"] == call == first["content"][2]
    seen: list[Record] = []
    for record in updates[: ends.index("toolcall_end") + 1]:
        seen.append(record["assistantMessageEvent"])
        assert shown(record["message"])[:2] == so_far(seen)[:2]
    assert so_far(seen)[:2] == ["Let me think.", "Looking."]
    assert json.loads(so_far(seen)[2]) == call["arguments"]
    _tools_are_told(records, call)


def _tools_are_told(records: list[Record], call: Record) -> None:
    words = outline(records, updates=True)
    assert words.count("turn_start") == words.count("turn_end") == 2
    assert in_order(words, "agent_start", "turn_start", "turn_end", "turn_start", "turn_end", "agent_end")
    assert in_order(
        words, "message_end:assistant", "tool_execution_start", "tool_execution_end", "message_end:toolResult"
    )
    open_message = False
    for word in words:
        if word.startswith("message_start"):
            assert not open_message
            open_message = True
        elif word.startswith("message_end"):
            assert open_message
            open_message = False
        elif word in TWELVE:
            assert open_message
    begin = next(record for record in records if record["type"] == "tool_execution_start")
    assert {key: begin[key] for key in begin if key != "type"} == {
        "toolCallId": "c1",
        "toolName": "bash",
        "args": call["arguments"],
    }
    finish = next(record for record in records if record["type"] == "tool_execution_end")
    assert (finish["toolCallId"], finish["toolName"], finish["isError"]) == ("c1", "bash", False)
    (result,) = ended(records, "toolResult")
    assert finish["result"]["content"] == result["content"]
    assert set(finish["result"]) >= {"content"}
    assert (result["toolCallId"], text_of(result).strip()) == ("c1", "one")
    turn = next(record for record in records if record["type"] == "turn_end")
    assert (turn["message"], turn["toolResults"]) == (answers(records)[0], [result])


@proves("event.tool_execution_update", dialects=("pi", "omp", "xcsh"))
@proves("event.tool_update", "event.tool_cumulative", "event.tool_live", dialects=("pi", "omp"))
@in_each("pi", "omp", "xcsh")
def test_the_progress_of_a_tool_is_shown_while_it_runs(spoken: RpcProcess, server: ModelServer) -> None:
    go = Fifo(spoken.folders.work)
    slow = f"echo one; {go.waits}; echo two"
    server.answers(Call("bash", {"command": slow}, id="c1"))
    server.answers("ok")
    spoken.ask("prompt", message="x")
    spoken.wait(lambda r: r["type"] == "tool_execution_update" and "one" in text_of(r["partialResult"]))
    assert not spoken.since(0, "tool_execution_end")
    go.release()
    spoken.wait_end()
    updates = spoken.since(0, "tool_execution_update")
    assert all(set(update) == {"type", "toolCallId", "toolName", "args", "partialResult"} for update in updates)
    assert {(update["toolCallId"], update["toolName"], update["args"]["command"]) for update in updates} == {
        ("c1", "bash", slow)
    }
    texts = [text_of(update["partialResult"]) for update in updates]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert text_of(spoken.since(0, "tool_execution_end")[0]["result"]).split() == ["one", "two"]


@proves("event.tool_error", "omp/type.length", "omp/type.error", dialects=("omp",))
@proves(
    "companion/tool.error",
    "companion/tool.error_read",
    "companion/stop.length",
    "companion/stop.error",
    "companion/stop.error_message",
    dialects=("companion",),
)
@in_each("omp", "companion")
def test_failed_tools_and_answers_say_so(spoken: RpcProcess, server: ModelServer) -> None:
    server.answers(Call("bash", {"command": "exit 3"}, id="a"), Call("read", {"path": "no-such-file"}, id="b"))
    server.answers("half a sen", stop="max_tokens")
    spoken.send({"type": "prompt", "message": "x"})
    spoken.wait_end()
    assert [record["isError"] for record in spoken.since(0, "tool_execution_end")] == [True, True]
    assert [message["isError"] for message in ended(spoken.records, "toolResult")] == [True, True]
    assert answers(spoken.records)[-1]["stopReason"] == "length"
    server.fails(400, "this is wrong", kind="invalid_request_error")
    start = spoken.mark()
    spoken.send({"type": "prompt", "message": "y"})
    spoken.wait_end(start)
    failed = answers(spoken.records)[-1]
    assert failed["stopReason"] == "error"
    assert "this is wrong" in failed["errorMessage"]
    assert not spoken.since(start, "error")


@proves("frame.json_errors", dialects=("omp", "xcsh"))
@proves("xcsh/error.alive", "xcsh/error.empty_name", "xcsh/error.blank_name", dialects=("xcsh",))
@proves("omp/set_session_name.empty", "omp/set_session_name.keeps", dialects=("omp",))
@in_each("omp", "xcsh")
def test_failures_leave_the_process_alive_and_its_output_clean(spoken: RpcProcess) -> None:
    spoken.ask("set_session_name", name="kept")
    for name in ("", "   "):
        assert spoken.refused("set_session_name", name=name) == "Session name cannot be empty"
    assert spoken.ask("get_state")["sessionName"] == "kept"
    bad = ["{", "null", "[1]", '"x"', "{}", '{"type": 5}', '{"type": "prompt"}', '{"type": "nope", "id": 1}', b"\xff{"]
    start = spoken.mark()
    spoken.send(*bad)
    failures = spoken.wait_count("response", len(bad), start)
    assert all(record["success"] is False and record["error"] for record in failures)
    spoken.refused("set_model", provider="a", modelId="b")
    spoken.refused("branch", entryId="nobody")
    assert spoken.ask("get_state")["isStreaming"] is False


@proves("get_state.model_null", dialects=("pi", "omp"))
@in_each("pi", "omp")
def test_without_any_model_the_model_is_null(start: Start, dialect: str) -> None:
    agent = start(dialect=dialect, models=[], model=None)
    assert agent.ask("get_state")["model"] is None
