"""The stream of a run: deltas that add up, tools that show their progress, and reasons to stop."""

from __future__ import annotations

import itertools
import json
from typing import Any

from fakes.model_server import Call, Text, Thinking, said_in
from support.contract import proves, proves_each
from support.contract_scenes import Seen, Stage, scenario
from support.processes import Fifo
from support.records import answers, deltas, finished_messages, outline, text_of

Record = dict[str, Any]
TWELVE = {
    "start", "text_start", "text_delta", "text_end", "thinking_start", "thinking_delta", "thinking_end",
    "toolcall_start", "toolcall_delta", "toolcall_end", "done", "error",
}  # fmt: skip
REASONS = {"done": {"stop", "length", "toolUse"}, "error": {"aborted", "error"}}
CALL = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "echo one"}}
LOOKING = "Looking 😀 at\u2028it."


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


def only(records: list[Record], kind: str) -> Record:
    return next(record for record in records if record["type"] == kind)


@scenario
def stream(stage: Stage) -> Seen:
    """An answer that thinks, speaks and calls a tool, and a second one about its result."""
    agent = stage.start()
    arguments = {"command": "echo one"}
    stage.server.answers(
        Thinking("Let me think.", signature="s1"), Text(LOOKING, piece=4), Call("bash", arguments, id="c1")
    )
    second = stage.server.answers("It says one.")
    agent.send({"type": "prompt", "message": "x"})
    agent.wait_end()
    records = agent.since(0)
    again = stage.server.answers("ok")
    start = agent.mark()
    agent.send({"type": "prompt", "message": "y"})
    agent.wait_end(start)
    updates = [record for record in records if record["type"] == "message_update"]
    first, last = answers(records)
    return Seen(
        records=records, updates=updates, events=[record["assistantMessageEvent"] for record in updates],
        words=outline(records), first=first, last=last, second=second.request, again=again.request,
        begin=only(records, "tool_execution_start"), finish=only(records, "tool_execution_end"),
        result=finished_messages(records, "toolResult")[0],
        turns=[record for record in records if record["type"] == "turn_end"],
        end=only(records, "agent_end"),
    )  # fmt: skip


@proves_each("kind", {
    "event.agent_start": ("agent_start",),
    "event.agent_end": ("agent_end",),
    "event.turn_start": ("turn_start",),
    "event.turn_end": ("turn_end",),
    "event.message_start": ("message_start",),
    "event.message_update": ("message_update",),
    "event.message_end": ("message_end",),
    "event.tool_execution_start": ("tool_execution_start",),
    "event.tool_execution_end": ("tool_execution_end",),
})  # fmt: skip
def test_the_event_is_sent(stream: Seen, kind: str) -> None:
    assert kind in {record["type"] for record in stream.records}


@proves_each("kind,count", {
    "event.text_start": ("text_start", 2),
    "event.text_end": ("text_end", 2),
    "event.thinking_start": ("thinking_start", 1),
    "event.thinking_end": ("thinking_end", 1),
    "event.toolcall_start": ("toolcall_start", 1),
    "event.toolcall_end": ("toolcall_end", 1),
    "companion/delta.text_start": ("text_start", 2),
    "companion/delta.text_end": ("text_end", 2),
    "companion/delta.thinking_start": ("thinking_start", 1),
    "companion/delta.thinking_end": ("thinking_end", 1),
    "companion/delta.toolcall_start": ("toolcall_start", 1),
    "companion/delta.toolcall_end": ("toolcall_end", 1),
})  # fmt: skip
def test_each_block_begins_and_ends_once_with_index_and_message(stream: Seen, kind: str, count: int) -> None:
    found = deltas(stream.records, kind)
    assert len(found) == count
    assert all(isinstance(event["contentIndex"], int) for event in found)
    assert all(event["partial"]["role"] == "assistant" for event in found)


@proves_each("kind", {
    "event.text_delta": ("text_delta",),
    "event.thinking_delta": ("thinking_delta",),
    "event.toolcall_delta": ("toolcall_delta",),
    "companion/delta.text_delta": ("text_delta",),
    "companion/delta.thinking_delta": ("thinking_delta",),
    "companion/delta.toolcall_delta": ("toolcall_delta",),
})  # fmt: skip
def test_a_delta_has_a_text_and_the_index_of_its_block(stream: Seen, kind: str) -> None:
    found = deltas(stream.records, kind)
    assert found
    assert all(isinstance(event["delta"], str) and isinstance(event["contentIndex"], int) for event in found)


@proves("event.update_types", same=("companion/event.update_types",))
def test_updates_are_of_the_documented_twelve_types(stream: Seen) -> None:
    assert {event["type"] for event in stream.events} <= TWELVE


@proves("event.done_error", same=("companion/delta.done_error",))
def test_only_done_and_error_have_a_reason_and_it_is_a_documented_one(stream: Seen) -> None:
    assert all(event.get("reason") in REASONS.get(event["type"], {None}) for event in stream.events)


@proves("event.update_delta", same=("companion/event.update",))
def test_an_update_has_its_delta_and_the_message(stream: Seen) -> None:
    assert all({"message", "assistantMessageEvent"} <= set(record) for record in stream.updates)


@proves("event.partial", same=("companion/delta.partial",))
def test_message_and_partial_hold_everything_so_far(stream: Seen) -> None:
    seen: list[Record] = []
    kinds = [event["type"] for event in stream.events]
    for record in stream.updates[: kinds.index("toolcall_end") + 1]:
        seen.append(record["assistantMessageEvent"])
        assert seen[-1]["partial"] == record["message"]
        assert shown(record["message"])[:2] == so_far(seen)[:2]
    assert all(
        event["partial"] == record["message"] for event, record in zip(stream.events, stream.updates, strict=True)
    )


@proves("event.text_fold", same=("companion/delta.text_fold",))
def test_text_deltas_add_up_to_the_end_of_their_block_and_to_the_message(stream: Seen) -> None:
    told = "".join(event["delta"] for event in deltas(stream.records, "text_delta"))
    assert [event["content"] for event in deltas(stream.records, "text_end")] == [LOOKING, "It says one."]
    assert told == LOOKING + "It says one." == text_of(stream.first) + text_of(stream.last)
    kinds = [event["type"] for event in stream.events if event["type"].startswith("text_")]
    first = kinds[: kinds.index("text_end") + 1]
    assert first == ["text_start", *["text_delta"] * (len(first) - 2), "text_end"]
    assert len(first) > 3
    assert {event["contentIndex"] for event in stream.events if event["type"].startswith("text_")} == {0, 1}


@proves("event.thinking_fold", same=("companion/delta.thinking_fold",))
def test_thinking_deltas_add_up_to_the_end_of_their_block(stream: Seen) -> None:
    thought = "".join(event["delta"] for event in deltas(stream.records, "thinking_delta"))
    assert deltas(stream.records, "thinking_end")[0]["content"] == thought == "Let me think."


@proves("event.toolcall_fold", same=("companion/delta.toolcall_fold",))
def test_the_deltas_of_a_call_add_up_to_its_arguments(stream: Seen) -> None:
    told = "".join(event["delta"] for event in deltas(stream.records, "toolcall_delta"))
    assert json.loads(told) == CALL["arguments"]
    assert deltas(stream.records, "toolcall_end")[0]["toolCall"] == CALL == stream.first["content"][2]


@proves("event.update_toolcall")
def test_updates_of_a_call_have_delta_and_message_too(stream: Seen) -> None:
    of_calls = [r for r in stream.updates if r["assistantMessageEvent"]["type"].startswith("toolcall_")]
    assert of_calls
    assert all(record["message"]["content"][2]["type"] == "toolCall" for record in of_calls)


@proves("omp/type.thinking")
def test_thinking_is_a_block_of_its_own_with_its_signature(stream: Seen) -> None:
    assert [block["type"] for block in stream.first["content"]] == ["thinking", "text", "toolCall"]
    assert stream.first["content"][0] == {
        "type": "thinking", "thinking": "Let me think.", "thinkingSignature": "s1"
    }  # fmt: skip


@proves("stop.tool_use", same=("omp/type.tool_use", "companion/stop.tool_use"))
def test_an_answer_with_a_call_stops_for_the_tool(stream: Seen) -> None:
    assert stream.first["stopReason"] == "toolUse"


@proves("omp/type.stop", same=("companion/stop.stop",))
def test_the_last_answer_stops(stream: Seen) -> None:
    assert stream.last["stopReason"] == "stop"


@proves("events.no_id")
def test_events_have_no_id(stream: Seen) -> None:
    assert all("id" not in record for record in stream.records)


@proves("event.turns", same=("companion/event.turns",))
def test_turns_pair_up_inside_the_run(stream: Seen) -> None:
    assert stream.words.count("turn_start") == stream.words.count("turn_end")
    assert in_order(stream.words, "agent_start", "turn_start", "turn_end", "turn_start", "turn_end", "agent_end")


@proves("event.turn_count", same=("companion/event.turn_count",))
def test_two_answers_are_two_turns(stream: Seen) -> None:
    assert stream.words.count("turn_end") == 2


@proves("event.turn_end_shape", same=("companion/event.turn_end_shape",))
def test_the_end_of_a_turn_has_the_answer_and_the_results(stream: Seen) -> None:
    assert (stream.turns[0]["message"], stream.turns[0]["toolResults"]) == (stream.first, [stream.result])


@proves("companion/event.turn_end_matches")
def test_every_call_of_a_turn_has_its_result_at_its_end(stream: Seen) -> None:
    assert [[result["toolCallId"] for result in turn["toolResults"]] for turn in stream.turns] == [["c1"], []]


@proves("event.messages_pair", same=("companion/event.message_pairs",))
def test_every_message_begins_and_ends_and_updates_lie_between(stream: Seen) -> None:
    is_open = False
    for word in outline(stream.records, updates=True):
        if word.startswith("message_start"):
            assert not is_open
            is_open = True
        elif word.startswith("message_end"):
            assert is_open
            is_open = False
        elif word in TWELVE:
            assert is_open
    assert not is_open


@proves("note/events.pairs")
def test_as_many_turns_and_messages_begin_as_end(stream: Seen) -> None:
    kinds = [record["type"] for record in stream.records]
    assert kinds.count("turn_start") == kinds.count("turn_end") == 2
    assert kinds.count("message_start") == kinds.count("message_end") == 4


@proves("note/prompt.deltas", same=("note/events.message_update",))
def test_between_acknowledgement_and_end_the_text_arrives_as_deltas(stream: Seen) -> None:
    words = outline(stream.records, updates=True)
    assert in_order(words, "response:prompt", "text_delta", "agent_end")


@proves("note/prompt.tools")
def test_the_progress_of_tools_is_told_between_them(stream: Seen) -> None:
    assert in_order(stream.words, "response:prompt", "tool_execution_start", "tool_execution_end", "agent_end")


@proves("note/events.all")
def test_the_whole_life_of_messages_turns_and_tools_is_told(stream: Seen) -> None:
    told = [word for word in stream.words if word != "tool_execution_update"]
    assert told[5:] == [
        "message_start:assistant", "message_end:assistant", "tool_execution_start", "tool_execution_end",
        "message_start:toolResult", "message_end:toolResult", "turn_end", "turn_start", "message_start:assistant",
        "message_end:assistant", "turn_end", "agent_end", "agent_settled",
    ]  # fmt: skip


@proves("event.tool_start", same=("companion/tool.start",))
def test_the_start_of_a_tool_has_call_name_and_arguments(stream: Seen) -> None:
    assert {key: value for key, value in stream.begin.items() if key != "type"} == {
        "toolCallId": "c1", "toolName": "bash", "args": CALL["arguments"]
    }  # fmt: skip


@proves("event.tool_end", same=("companion/tool.end",))
def test_the_end_of_a_tool_has_its_result_and_whether_it_failed(stream: Seen) -> None:
    assert stream.finish["isError"] is False
    assert "content" in stream.finish["result"]
    assert stream.finish["result"]["content"] == stream.result["content"]


@proves("event.tool_ids", same=("companion/tool.ids",))
def test_one_id_links_call_execution_and_result(stream: Seen) -> None:
    assert (stream.finish["toolCallId"], stream.finish["toolName"]) == ("c1", "bash")
    assert stream.first["content"][2]["id"] == stream.begin["toolCallId"] == stream.result["toolCallId"] == "c1"


@proves("event.tool_order", same=("companion/tool.flow",))
def test_call_start_end_and_result_come_in_this_order(stream: Seen) -> None:
    steps = ("message_end:assistant", "tool_execution_start", "tool_execution_end", "message_end:toolResult")
    assert in_order(stream.words, *steps)


@proves("event.message_end_assistant", same=("companion/event.end_complete",))
def test_the_end_of_an_answer_has_the_whole_message(stream: Seen) -> None:
    assert shown(stream.first) == ["Let me think.", LOOKING, ""]
    assert stream.first["content"][2] == CALL


@proves("event.message_end_tool", same=("companion/tool.result_message",))
def test_the_end_of_a_tool_message_has_the_whole_result(stream: Seen) -> None:
    result = stream.result
    assert (result["toolCallId"], result["toolName"], result["isError"]) == ("c1", "bash", False)
    assert said_in(stream.second)[-1] == ("user", text_of(result))


@proves("companion/tool.output")
def test_the_result_of_a_tool_has_its_output(stream: Seen) -> None:
    assert text_of(stream.result).strip() == text_of(stream.finish["result"]).strip() == "one"


@proves("companion/event.order")
def test_the_early_protocol_tells_a_run_in_the_documented_order(stream: Seen) -> None:
    assert [word for word in stream.words if word != "tool_execution_update"] == [
        "agent_start", "turn_start", "message_start:user", "message_end:user", "message_start:assistant",
        "message_end:assistant", "tool_execution_start", "tool_execution_end", "message_start:toolResult",
        "message_end:toolResult", "turn_end", "turn_start", "message_start:assistant", "message_end:assistant",
        "turn_end", "agent_end",
    ]  # fmt: skip


@proves("companion/event.message_roles")
def test_messages_of_every_role_begin_and_end(stream: Seen) -> None:
    for role in ("user", "assistant", "toolResult"):
        assert stream.words.count(f"message_start:{role}") == stream.words.count(f"message_end:{role}") > 0


@proves("companion/event.user")
def test_the_message_of_the_user_has_its_text_and_a_time(stream: Seen) -> None:
    (user,) = finished_messages(stream.records, "user")
    assert text_of(user) == "x"
    assert isinstance(user["timestamp"], int)


@proves("companion/event.start_empty")
def test_an_answer_begins_empty_with_usage_and_stop_reason(stream: Seen) -> None:
    begun = [record["message"] for record in stream.records if record["type"] == "message_start"]
    first = next(message for message in begun if message["role"] == "assistant")
    assert first["content"] == []
    assert {"usage", "stopReason"} <= set(first)


@proves("companion/event.agent_end_messages")
def test_the_end_of_the_run_has_all_its_messages(stream: Seen) -> None:
    assert [message["role"] for message in stream.end["messages"]] == ["user", "assistant", "toolResult", "assistant"]


@proves("dialect.one_end", dialects=("companion",))
def test_a_prompt_of_the_early_protocol_has_one_end(stream: Seen) -> None:
    assert stream.words.count("agent_start") == stream.words.count("agent_end") == 1


@proves("companion/in.prompt")
def test_a_prompt_runs_the_agent(stream: Seen) -> None:
    assert stream.words[0] == "agent_start"


@proves("companion/in.prompt_text")
def test_the_text_of_a_prompt_reaches_the_model(stream: Seen) -> None:
    assert said_in(stream.second)[0] == ("user", "x")


@proves("companion/in.prompt_again")
def test_a_second_prompt_runs_in_the_same_process(stream: Seen) -> None:
    assert said_in(stream.again)[-1] == ("user", "y")


@proves("companion/out.lines")
def test_every_line_of_the_early_protocol_is_one_object(stream: Seen) -> None:
    assert all(isinstance(record, dict) for record in stream.records)


@proves("companion/out.types")
def test_every_line_of_the_early_protocol_has_a_type(stream: Seen) -> None:
    assert all(isinstance(record["type"], str) for record in stream.records)


@proves("companion/out.no_responses")
def test_the_early_protocol_has_events_only(stream: Seen) -> None:
    assert "response" not in {record["type"] for record in stream.records}


@scenario
def progress(stage: Stage) -> Seen:
    """A tool that shows a part of its output and waits."""
    agent = stage.start()
    go = Fifo(agent.folders.work)
    slow = f"echo one; {go.waits}; echo two"
    stage.server.answers(Call("bash", {"command": slow}, id="c1"))
    stage.server.answers("ok")
    agent.ask("prompt", message="x")
    agent.wait(lambda r: r["type"] == "tool_execution_update" and "one" in text_of(r["partialResult"]))
    early = agent.since(0, "tool_execution_end")
    go.release()
    agent.wait_end()
    updates = agent.since(0, "tool_execution_update")
    return Seen(slow=slow, early=early, updates=updates, end=agent.since(0, "tool_execution_end")[0])


@proves("event.tool_execution_update")
def test_the_progress_of_a_tool_is_an_event(progress: Seen) -> None:
    assert progress.updates


@proves("event.tool_update")
def test_progress_has_call_name_arguments_and_the_partial_result(progress: Seen) -> None:
    assert all(set(u) == {"type", "toolCallId", "toolName", "args", "partialResult"} for u in progress.updates)
    found = {(update["toolCallId"], update["toolName"], update["args"]["command"]) for update in progress.updates}
    assert found == {("c1", "bash", progress.slow)}


@proves("event.tool_cumulative")
def test_a_partial_result_holds_all_output_so_far(progress: Seen) -> None:
    texts = [text_of(update["partialResult"]) for update in progress.updates]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert text_of(progress.end["result"]).split() == ["one", "two"]


@proves("event.tool_live")
def test_output_is_shown_while_the_tool_runs(progress: Seen) -> None:
    assert not progress.early


@scenario
def failed(stage: Stage) -> Seen:
    """Tools that fail, an answer that is cut, and a provider that refuses."""
    agent = stage.start()
    stage.server.answers(
        Call("bash", {"command": "exit 3"}, id="a"),
        Call("read", {"path": "no-such-file"}, id="b"),
        Call("nosuch", {}, id="c"),
        Call("read", {}, id="d"),
    )
    stage.server.answers("half a sen", stop="max_tokens")
    agent.send({"type": "prompt", "message": "x"})
    agent.wait_end()
    ends, results = agent.since(0, "tool_execution_end"), finished_messages(agent.records, "toolResult")
    cut = answers(agent.records)[-1]
    stage.server.fails(400, "this is wrong", kind="invalid_request_error")
    start = agent.mark()
    agent.send({"type": "prompt", "message": "y"})
    agent.wait_end(start)
    refused = agent.since(start)
    stage.server.answers("fine")
    start = agent.mark()
    agent.send({"type": "prompt", "message": "z"})
    agent.wait_end(start)
    return Seen(
        ends={record["toolCallId"]: record for record in ends}, results={one["toolCallId"]: one for one in results},
        cut=cut, refused=refused, error=answers(refused)[-1], last=answers(agent.since(start))[-1],
    )  # fmt: skip


@proves("event.tool_error", same=("companion/tool.error",))
def test_a_command_that_fails_is_an_error_and_shows_its_code(failed: Seen) -> None:
    assert (failed.ends["a"]["isError"], failed.results["a"]["isError"]) == (True, True)
    assert "3" in text_of(failed.results["a"])


@proves("companion/tool.error_read")
def test_a_file_that_cannot_be_read_is_an_error(failed: Seen) -> None:
    assert (failed.ends["b"]["isError"], failed.results["b"]["isError"]) == (True, True)


@proves("tool.unknown")
def test_a_tool_that_nobody_knows_is_an_error_that_names_it(failed: Seen) -> None:
    assert failed.results["c"]["isError"] is True
    assert "nosuch" in text_of(failed.results["c"])


@proves("tool.bad_arguments")
def test_a_call_with_wrong_arguments_is_an_error_that_names_the_field(failed: Seen) -> None:
    assert failed.results["d"]["isError"] is True
    assert "path" in text_of(failed.results["d"])


@proves("stop.length", same=("omp/type.length", "companion/stop.length"))
def test_a_cut_answer_says_length(failed: Seen) -> None:
    assert (failed.cut["stopReason"], text_of(failed.cut)) == ("length", "half a sen")


@proves("stop.error", same=("omp/type.error", "companion/stop.error"))
def test_the_error_of_a_provider_ends_the_run_with_stop_reason_error(failed: Seen, dialect: str) -> None:
    assert (failed.error["stopReason"], failed.error["content"]) == ("error", [])
    around = {"pi": ("response:prompt", "agent_settled"), "omp": ("response:prompt", None), "companion": (None, None)}
    words = [word for word in outline(failed.refused) if word not in ("prompt_result", "session_settled")]
    before, after = around[dialect]
    assert words == [*([before] if before else []), *[
        "agent_start", "turn_start", "message_start:user", "message_end:user", "message_start:assistant",
        "message_end:assistant", "turn_end", "agent_end",
    ], *([after] if after else [])]  # fmt: skip


@proves("companion/stop.error_message")
def test_the_error_of_a_provider_is_told_in_its_words(failed: Seen) -> None:
    assert "this is wrong" in failed.error["errorMessage"]
    assert "error" not in {record["type"] for record in failed.refused}


@proves("stop.recovers")
def test_after_an_error_the_next_prompt_works(failed: Seen) -> None:
    assert text_of(failed.last) == "fine"


@scenario
def refusals(stage: Stage) -> Seen:
    """Names that are none, lines that are no commands, and commands that fail."""
    agent = stage.start()
    agent.ask("set_session_name", name="kept")
    names = {name: agent.expect_error("set_session_name", name=name) for name in ("", "   ")}
    name = agent.ask("get_state")["sessionName"]
    bad = ["{", "null", "[1]", '"x"', "{}", '{"type": 5}', '{"type": "prompt"}', '{"type": "nope", "id": 1}', b"\xff{"]
    start = agent.mark()
    agent.send(*bad)
    failures = agent.wait_count("response", len(bad), start)
    agent.expect_error("set_model", provider="a", modelId="b")
    agent.expect_error("branch", entryId="nobody")
    streaming = agent.ask("get_state")["isStreaming"]
    return Seen(names=names, name=name, failures=failures, streaming=streaming, faults=agent.faults, raw=agent.raw)


@proves("frame.json_errors")
def test_also_after_bad_input_every_line_is_an_object(refusals: Seen) -> None:
    assert refusals.faults == []
    assert all(isinstance(json.loads(line), dict) for line in refusals.raw)
    assert all(record["success"] is False and record["error"] for record in refusals.failures)


@proves("xcsh/error.alive")
def test_failures_leave_the_process_alive(refusals: Seen) -> None:
    assert refusals.streaming is False


@proves("omp/set_session_name.empty", same=("xcsh/error.empty_name",))
def test_an_empty_name_of_a_session_is_refused_with_its_text(refusals: Seen) -> None:
    assert refusals.names[""] == "Session name cannot be empty"


@proves("xcsh/error.blank_name")
def test_a_blank_name_of_a_session_is_refused_as_well(refusals: Seen) -> None:
    assert refusals.names["   "] == "Session name cannot be empty"


@proves("omp/set_session_name.keeps")
def test_after_a_refused_name_the_old_one_stays(refusals: Seen) -> None:
    assert refusals.name == "kept"


@scenario
def modelless(stage: Stage) -> Seen:
    """The state where no model is configured."""
    return Seen(state=stage.start(models=[], model=None).ask("get_state"))


@proves("get_state.model_null")
def test_without_any_model_the_model_is_null(modelless: Seen) -> None:
    assert modelless.state["model"] is None
