"""Whatever a server sends, a translator tells a well-formed answer or says why not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pigeon.agent.inference import Delta
from pigeon.providers.anthropic.stream import AnthropicStream
from pigeon.providers.errors import StreamBroken
from pigeon.providers.google.stream import GoogleStream
from pigeon.providers.openai_chat.stream import ChatStream
from pigeon.providers.openai_responses.stream import ResponsesStream
from support.model_requests import CollectedAnswer
from support.strategies import json_values
from support.strategies import words as one_of

WORDS = ("", "a", "b", "hello", "stop", "bash", "{}", '{"x":', "1}", "\ud83d")
words = st.sampled_from(WORDS)
small = st.integers(-1, 3)
anything = json_values(one_of(*WORDS), size=6, scalars=range(-1, 4))


def record(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with some of these fields, now and then of a wrong kind."""
    loose = {name: st.one_of(kind, kind, kind, kind, anything) for name, kind in fields.items()}
    return st.fixed_dictionaries({}, optional=loose)


def one_of(*texts: str) -> st.SearchStrategy[str]:
    return st.sampled_from(texts)


usage = record(
    input_tokens=small,
    output_tokens=small,
    prompt_tokens=small,
    completion_tokens=small,
    prompt_tokens_details=record(cached_tokens=small),
    input_tokens_details=record(cached_tokens=small),
)
anthropic = record(
    type=one_of(
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    ),
    index=small,
    content_block=record(
        type=one_of("text", "thinking", "redacted_thinking", "tool_use", "other"),
        id=words,
        name=words,
        text=words,
        input=anything,
        data=words,
    ),
    delta=record(
        type=one_of("text_delta", "thinking_delta", "input_json_delta", "signature_delta"),
        text=words,
        thinking=words,
        partial_json=words,
        signature=words,
        stop_reason=one_of("end_turn", "max_tokens", "refusal", "odd"),
    ),
    message=record(id=words, model=words, usage=usage),
    usage=usage,
    error=anything,
)
parts = words | st.lists(record(type=one_of("text"), text=words), max_size=2)
chat = record(
    id=words,
    model=words,
    choices=st.lists(
        record(
            delta=record(
                content=words
                | st.lists(record(type=one_of("text", "thinking"), text=words, thinking=parts), max_size=2),
                reasoning=words,
                reasoning_details=st.lists(record(type=words, index=small, text=words), max_size=2),
                tool_calls=st.lists(
                    record(index=small, id=words, function=record(name=words, arguments=words)), max_size=2
                ),
            ),
            finish_reason=one_of("stop", "length", "tool_calls", "odd"),
        ),
        max_size=1,
    ),
    usage=usage,
)
item = record(
    type=one_of("message", "reasoning", "function_call", "other"),
    id=words,
    call_id=words,
    name=words,
    arguments=words,
    content=st.lists(record(type=words, text=words), max_size=2),
    summary=st.lists(record(type=words, text=words), max_size=2),
    encrypted_content=words,
)
responses = record(
    type=one_of(
        "response.created",
        "response.output_item.added",
        "response.output_item.done",
        "response.output_text.delta",
        "response.reasoning_summary_text.delta",
        "response.function_call_arguments.delta",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "error",
    ),
    output_index=small,
    summary_index=small,
    delta=words,
    item=item,
    response=record(id=words, status=one_of("completed", "incomplete", "failed"), usage=usage, output=st.lists(item)),
)
google = record(
    candidates=st.lists(
        record(
            content=record(
                parts=st.lists(
                    record(
                        text=words,
                        thought=st.booleans(),
                        thoughtSignature=words,
                        functionCall=record(name=words, id=words, args=st.dictionaries(words, anything)),
                    ),
                    max_size=3,
                )
            ),
            finishReason=one_of("STOP", "MAX_TOKENS", "SAFETY"),
        ),
        max_size=1,
    ),
    usageMetadata=record(promptTokenCount=small, candidatesTokenCount=small),
)

TRANSLATORS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "anthropic": (lambda: AnthropicStream("m"), anthropic),
    "chat": (lambda: ChatStream("m"), chat),
    "responses": (lambda: ResponsesStream("m"), responses),
    "google": (lambda: GoogleStream("m"), google),
}


def play(translator: Any, events: list[bytes]) -> CollectedAnswer:
    out: list[Delta] = []
    try:
        for data in events:
            translator.translate_event(b"", data, out)
        out.append(translator.finish(out))
    except StreamBroken as broken:
        out.append(translator.make_finished_delta("error", broken.failure))
    return CollectedAnswer(out)


@pytest.mark.parametrize("name", list(TRANSLATORS))
@settings(max_examples=settings.default.max_examples // 3)
@given(data=st.data())
def test_any_events_make_a_well_formed_answer(name: str, data: st.DataObject) -> None:
    make, event = TRANSLATORS[name]
    events = [json.dumps(one).encode() for one in data.draw(st.lists(event, max_size=6))]
    told = play(make(), events)
    if told.end.stop != "error":
        assert set(told.signatures) == set(range(len(told.kinds))), "a block was left open"


@pytest.mark.parametrize("name", list(TRANSLATORS))
@settings(max_examples=settings.default.max_examples // 3)
@given(events=st.lists(st.binary(max_size=30) | anything.map(lambda value: json.dumps(value).encode()), max_size=4))
def test_any_bytes_are_an_answer_or_a_failure(name: str, events: list[bytes]) -> None:
    play(TRANSLATORS[name][0](), events)


@pytest.mark.parametrize("name", list(TRANSLATORS))
@settings(max_examples=settings.default.max_examples // 3)
@given(data=st.binary(max_size=30) | anything.map(lambda value: json.dumps(value).encode()))
def test_any_body_in_one_piece_is_an_answer_or_a_failure(name: str, data: bytes) -> None:
    translator = TRANSLATORS[name][0]()
    out: list[Delta] = []
    try:
        translator.translate_whole_answer(data, out)
        translator.done = True
        out.append(translator.finish(out))
    except StreamBroken as broken:
        out.append(translator.make_finished_delta("error", broken.failure))
    CollectedAnswer(out)
