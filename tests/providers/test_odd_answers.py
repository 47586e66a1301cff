"""Answers of servers that do not keep to the API: what the model said is told all the same."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.agent.inference import Delta
from pigeon.providers.anthropic.stream import AnthropicStream
from pigeon.providers.errors import StreamBroken
from pigeon.providers.google.stream import GoogleStream
from pigeon.providers.openai_chat.stream import ChatStream
from pigeon.providers.openai_responses.stream import ResponsesStream
from pigeon.wire.base import ABSENT, value_or_default
from support.model_requests import CollectedAnswer
from support.strategies import json_values

Event = dict[str, Any]
STREAMS: dict[str, Any] = {
    "anthropic": AnthropicStream,
    "chat": ChatStream,
    "responses": ResponsesStream,
    "google": GoogleStream,
}


def play(api: str, *events: Event) -> CollectedAnswer:
    translator = STREAMS[api]("m")
    out: list[Delta] = []
    try:
        for event in events:
            translator.translate_event(b"", json.dumps(event).encode(), out)
        out.append(translator.finish(out))
    except StreamBroken as broken:
        out.append(translator.make_finished_delta("error", broken.failure))
    return CollectedAnswer(out)


def whole(api: str, answer: Any) -> CollectedAnswer:
    translator = STREAMS[api]("m")
    out: list[Delta] = []
    translator.translate_whole_answer(json.dumps(answer).encode(), out)
    out.append(translator.finish(out))
    return CollectedAnswer(out)


def chunk(delta: Any, finish: Any = None, **more: Any) -> Event:
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def response_body(**more: Any) -> Event:
    return {"id": "r", "model": "m", "status": "completed", **more}


GOOD: dict[str, list[Event]] = {
    "anthropic": [
        {"type": "message_start", "message": {"id": "a", "model": "m", "usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "", "citations": None}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "one"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "t", "name": "ls", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'},
        },
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_details": None}, "usage": {}},
        {"type": "message_stop"},
    ],
    "chat": [
        chunk({"role": "assistant", "content": "one", "reasoning_details": []}),
        chunk({"tool_calls": [{"index": 0, "id": "t", "function": {"name": "ls", "arguments": '{"a":1}'}}]}),
        chunk({}, "tool_calls", usage={"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}}),
    ],
    "responses": [
        {"type": "response.created", "response": response_body(status="in_progress")},
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "x"}},
        {"type": "response.output_text.delta", "output_index": 0, "summary_index": 0, "delta": "one"},
        {"type": "response.output_item.done", "output_index": 0, "item": {"type": "message", "id": "x"}},
        {
            "type": "response.output_item.done",
            "output_index": 1,
            "item": {"type": "function_call", "id": "f", "call_id": "t", "name": "ls", "arguments": '{"a":1}'},
        },
        {
            "type": "response.completed",
            "response": response_body(usage={"input_tokens": 3, "input_tokens_details": {}}, output=[]),
        },
    ],
    "google": [
        {"candidates": [{"content": {"parts": [{"text": "one", "thought": False}]}}], "responseId": "g"},
        {"candidates": [{"content": {"parts": [{"functionCall": {"name": "ls", "args": {"a": 1}, "id": "t"}}]}}]},
        {"candidates": [{"finishReason": "STOP", "finishMessage": ""}], "usageMetadata": {"promptTokenCount": 3}},
        {"promptFeedback": {"blockReason": ""}, "modelVersion": "m"},
    ],
}
IDLE = {
    "id", "model", "usage", "index", "input_tokens", "citations", "text_signature", "stop_details", "role", "message",
    "reasoning_details", "prompt_tokens", "prompt_tokens_details", "cached_tokens", "output_index", "summary_index",
    "input_tokens_details", "output", "thought", "responseId", "finishMessage", "usageMetadata", "promptTokenCount",
    "promptFeedback", "blockReason", "modelVersion", "call_id",
}  # fmt: skip
MEANT = [("index", 7), ("output_index", 7), ("thought", True), ("blockReason", "junk")]
EXPECTED = (["text", "toolCall"], ["one", '{"a":1}'], ["ls"], "toolUse")


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the fields are that no answer needs."""
    found: list[tuple[Any, ...]] = []
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if key in IDLE and isinstance(value, dict):
            found.append((*here, key))
        if isinstance(item, dict | list):
            found.extend(paths(item, (*here, key)))
    return found


def gist(told: CollectedAnswer) -> Any:
    return told.kinds, told.texts, [name for _, name in told.calls.values()], told.end.stop


@pytest.mark.parametrize("api", list(GOOD))
@pytest.mark.parametrize("junk", [None, [], {}, "junk", 7, 1.5, True, ["junk"], {"junk": {}}], ids=json.dumps)
def test_junk_in_a_field_that_is_not_needed_changes_nothing(api: str, junk: Any) -> None:
    assert gist(play(api, *GOOD[api])) == EXPECTED
    for path in paths(GOOD[api]):
        if (path[-1], junk) in MEANT:
            continue
        events: Any = copy.deepcopy(GOOD[api])
        place = events
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = junk
        assert gist(play(api, *events)) == EXPECTED, path


anything = json_values(size=6)


@given(usage=st.fixed_dictionaries({"prompt_tokens": anything, "prompt_tokens_details": anything}) | anything)
def test_no_usage_ever_spoils_an_answer(usage: Any) -> None:
    assert gist(play("chat", *GOOD["chat"][:2], chunk({}, "tool_calls", usage=usage))) == EXPECTED
    end = {"type": "response.completed", "response": response_body(usage=usage)}
    assert gist(play("responses", *GOOD["responses"][:-1], end)) == EXPECTED


@pytest.mark.parametrize(
    ("api", "events"),
    [
        ("anthropic", [{"type": "message_start", "message": {"usage": {}}}]),
        ("chat", [chunk({}, "stop", usage={})]),
        ("chat", [chunk({}, "stop", usage={"prompt_tokens_details": {}, "completion_tokens_details": {}})]),
        ("responses", [{"type": "response.completed", "response": response_body(usage={})}]),
        (
            "responses",
            [
                {
                    "type": "response.completed",
                    "response": response_body(usage={"input_tokens_details": {}, "output_tokens_details": {}}),
                }
            ],
        ),
        ("google", [{"usageMetadata": {}}]),
    ],
)
def test_counts_that_are_left_out_are_zero(api: str, events: list[Event]) -> None:
    usage = play(api, *events).usage
    assert usage is not None
    counts = (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.total_tokens)
    assert (counts, value_or_default(usage.reasoning, 0)) == ((0, 0, 0, 0, 0), 0)


def test_the_good_fields_of_a_record_survive_a_bad_one() -> None:
    usage = {
        "prompt_tokens": "50",
        "completion_tokens": 3,
        "prompt_tokens_details": [],
        "completion_tokens_details": {"reasoning_tokens": "x"},
    }
    told = play("chat", chunk({"content": "x"}, "stop", usage=usage))
    assert told.usage is not None
    assert (told.counts, told.usage.reasoning) == ((50, 3, 0, 0), 0)


def test_nulls_in_blocks_are_nothing() -> None:
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": None}}
    said = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "n", "signature": None}}
    end: list[Event] = [
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "text": None}},
        {"type": "message_stop"},
    ]
    assert play("anthropic", block, said, *end).texts == ["n"]


@pytest.mark.parametrize(
    ("api", "event", "named"),
    [
        (
            "anthropic",
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": {"a": 1}}},
            "`text`",
        ),
        ("chat", chunk({"tool_calls": "ls"}), "`tool_calls`"),
        ("chat", chunk({"tool_calls": [{"index": 0, "function": "ls"}]}), "`function`"),
        ("chat", {"choices": "x"}, "`choices`"),
        ("responses", {"type": "response.output_item.done", "item": "x"}, "`item`"),
        ("google", {"candidates": [{"content": {"parts": [{"text": ["x"]}]}}]}, "`text`"),
        ("google", {"candidates": [{"content": {"parts": [{"functionCall": {"name": "a", "args": "x"}}]}}]}, "`args`"),
    ],
)
def test_words_that_cannot_be_read_are_not_passed_over(api: str, event: Event, named: str) -> None:
    failure = play(api, event).failure
    assert failure.code == "malformed_stream"
    assert named in failure.message


def test_an_empty_error_is_none() -> None:
    assert play("chat", chunk({"content": "x"}, "stop", error={})).texts == ["x"]
    assert play("google", {**GOOD["google"][2], "error": []}).end.stop == "stop"


def test_an_event_without_type_goes_by_its_name() -> None:
    translator = AnthropicStream("m")
    for event in GOOD["anthropic"]:
        rest = {key: value for key, value in event.items() if key != "type"}
        translator.translate_event(event["type"].encode(), json.dumps(rest).encode(), [])
    assert translator.finish([]).stop == "toolUse"


@pytest.mark.parametrize("api", ["anthropic", "responses"])
def test_events_without_a_place_belong_to_what_is_open(api: str) -> None:
    events = [
        {key: value for key, value in event.items() if key not in ("index", "output_index")} for event in GOOD[api]
    ]
    assert gist(play(api, *events)) == EXPECTED


def test_calls_without_ids_get_some() -> None:
    block = {"type": "tool_use", "id": None, "name": "ls", "input": {"a": 1}}
    for told in (
        whole("anthropic", {"content": [block, block], "stop_reason": "tool_use"}),
        whole("responses", response_body(output=[{"type": "function_call", "name": "ls", "arguments": "{}"}] * 2)),
    ):
        ids = [call_id for call_id, _ in told.calls.values()]
        assert len(set(ids)) == 2
        assert all(ids)
        assert not any("None" in one for one in ids)


THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}, {"type": "reference", "reference_ids": []}]}


def test_thinking_among_the_parts_of_the_content_is_thinking() -> None:
    told = play(
        "chat",
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": [THOUGHT]}),
        chunk({"content": [{**THOUGHT, "closed": True}, {"type": "text", "text": "so "}]}),
        chunk({"content": "it is"}, "stop"),
    )
    assert (told.kinds, told.texts) == (["thinking", "text"], ["hmhm", "so it is"])
    assert told.signatures == {0: "content", 1: ABSENT}


def test_thinking_in_parts_is_read_from_whole_answers_too() -> None:
    message = {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "so"}]}
    told = whole("chat", {"choices": [{"message": message, "finish_reason": "stop"}]})
    assert (told.kinds, told.texts) == (["thinking", "text"], ["hm", "so"])


@pytest.mark.parametrize("content", [5, {}, [None, 5, {"type": "thinking", "thinking": None}, {"text": 5}]])
def test_content_without_words_opens_no_block(content: Any) -> None:
    assert play("chat", chunk({"content": content}, "stop")).kinds == []


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_details"])
def test_the_thinking_of_a_whole_answer_comes_first(field: str) -> None:
    thinking: Any = [{"type": "reasoning.text", "text": "hm"}] if field == "reasoning_details" else "hm"
    message = {"role": "assistant", "content": "so", field: thinking, "tool_calls": None}
    told = whole("chat", {"choices": [{"message": message, "finish_reason": "stop"}]})
    assert (told.kinds, told.texts) == (["thinking", "text"], ["hm", "so"])


def test_the_word_of_the_provider_behind_a_router_is_shown() -> None:
    error = {"code": 502, "message": "Provider returned error", "metadata": {"raw": "upstream boom"}}
    failure = play("chat", {"error": error, "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]}).failure
    assert failure.message == "Provider returned error\nupstream boom"
    assert (failure.status, failure.retryable) == (502, True)
    structured = {**error, "metadata": {"raw": {"detail": "boom"}}}
    assert '{"detail":"boom"}' in play("chat", {"error": structured}).failure.message


REASONING = {"type": "reasoning", "id": "rs", "summary": [{"text": "hm"}], "encrypted_content": "blob"}
MESSAGE = {"type": "message", "id": "msg", "content": [{"type": "output_text", "text": "late"}]}
CALL = {"type": "function_call", "id": "fc", "call_id": "t", "name": "ls", "arguments": "{}"}


@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_output_that_comes_with_the_end_is_told(status: str) -> None:
    output = [REASONING, MESSAGE, CALL, {"type": "web_search_call"}]
    response = response_body(status=status, output=output, incomplete_details={"reason": "max_output_tokens"})
    told = play("responses", GOOD["responses"][0], {"type": f"response.{status}", "response": response})
    assert (told.kinds, told.texts) == (["thinking", "text", "toolCall"], ["hm", "late", "{}"])
    assert told.calls == {2: ("t|fc", "ls")}
    assert json.loads(told.signatures[0]) == REASONING
    assert told.end.stop == ("toolUse" if status == "completed" else "length")


def item_added(place: int, item: Event) -> Event:
    return {"type": "response.output_item.added", "output_index": place, "item": item}


def text_delta(place: int, text: str) -> Event:
    return {"type": "response.output_text.delta", "output_index": place, "delta": text}


def response_completed(*output: Any) -> Event:
    return {"type": "response.completed", "response": response_body(output=list(output))}


def test_only_what_was_not_streamed_is_taken_from_the_end() -> None:
    shown = {**MESSAGE, "id": "another"}
    done = {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE}
    told = play(
        "responses", item_added(0, MESSAGE), text_delta(0, "late"), done, response_completed(REASONING, shown, CALL)
    )
    assert (told.kinds, told.texts) == (["text", "thinking", "toolCall"], ["late", "hm", "{}"])
    assert told.signatures[1] is ABSENT, "a reasoning item behind its message must not be sent back"


def test_an_item_that_is_announced_gets_its_words_from_the_end() -> None:
    told = play(
        "responses",
        item_added(0, REASONING),
        item_added(1, {**MESSAGE, "content": []}),
        response_completed(REASONING, MESSAGE),
    )
    assert (told.kinds, told.texts) == (["thinking", "text"], ["hm", "late"])
    assert json.loads(told.signatures[1]) == {"v": 1, "id": "msg"}


@pytest.mark.parametrize("rest", [[], [MESSAGE]])
def test_deltas_without_an_item_are_told_at_once_and_once(rest: list[Event]) -> None:
    told = play("responses", text_delta(0, "la"), text_delta(0, "te"), response_completed(*rest))
    assert (told.kinds, told.texts) == (["text"], ["late"])
    late = play(
        "responses",
        text_delta(0, "la"),
        item_added(0, {**MESSAGE, "content": []}),
        text_delta(0, "te"),
        response_completed(*rest),
    )
    assert (late.kinds, late.texts) == (["text"], ["late"])


def delta_without_place(kind: str, text: str) -> Event:
    return {"type": f"response.{kind}.delta", "delta": text}


def test_deltas_without_a_place_go_to_the_open_item_of_their_kind() -> None:
    items = ({"type": "reasoning"}, {"type": "message"}, {**CALL, "arguments": ""})
    told = play(
        "responses",
        *(item_added(place, item) for place, item in enumerate(items)),
        delta_without_place("reasoning_summary_text", "hm"),
        delta_without_place("output_text", "one"),
        delta_without_place("function_call_arguments", '{"a":1}'),
        response_completed(),
    )
    assert gist(told) == (["thinking", "text", "toolCall"], ["hm", "one", '{"a":1}'], ["ls"], "toolUse")


def test_a_thought_without_an_item_is_told_and_arguments_without_a_call_are_not() -> None:
    told = play(
        "responses",
        delta_without_place("reasoning_text", "hm"),
        delta_without_place("function_call_arguments", "{}"),
        response_completed(),
    )
    assert gist(told) == (["thinking"], ["hm"], [], "stop")


def test_an_item_that_is_announced_twice_is_two_items() -> None:
    added = {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "m"}}
    delta = {"type": "response.output_text.delta", "output_index": 0}
    told = play(
        "responses",
        added,
        {**delta, "delta": "one"},
        added,
        {**delta, "delta": "two"},
        {"type": "response.completed", "response": response_body()},
    )
    assert (told.kinds, told.texts) == (["text", "text"], ["one", "two"])


def test_odd_items_at_the_end_are_left_out() -> None:
    odd: list[Any] = [None, 5, {"type": ["message"]}, {"type": "message", "content": "x"}, MESSAGE]
    assert play("responses", response_completed(*odd)).texts == ["", "late"]


def test_half_a_pair_of_surrogates_in_arguments_that_come_whole_does_not_lose_the_answer() -> None:
    block = {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "echo \ud83d"}}
    told = play(
        "anthropic",
        {"type": "message_start", "message": {"id": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    )
    assert told.end.stop == "toolUse"
    assert told.texts[0].startswith('{"command":"echo ')


def test_done_without_a_status_is_completed() -> None:
    item = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "hi"}]}
    told = play("responses", {"type": "response.done", "response": {"id": "r", "output": [item]}})
    assert (told.texts, told.end.stop) == (["hi"], "stop")
