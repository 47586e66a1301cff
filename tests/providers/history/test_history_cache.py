"""A conversation told from memory is the same, byte for byte, as one told anew."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from pigeon.agent.inference import ModelRequest
from pigeon.providers.history import cache
from pigeon.providers.history.cache import HistoryCache
from pigeon.providers.http.exchange import encode_body
from pigeon.wire.messages import AssistantMessage
from pigeon.wire.model import Model
from support.model_requests import (
    BASH,
    BODIES,
    MODELS,
    PLACES,
    PNG,
    a_model,
    a_request,
    assistant_message,
    messages_of,
    text_block,
    thinking_block,
    tool_call,
    tool_result,
    user_message,
)

CHAT = BODIES["openai-completions"]


def steps_of(api: str) -> st.SearchStrategy[list[tuple[str, Any, Any]]]:
    """How a conversation changes between two requests; most often it grows."""
    message = messages_of(api)
    place = st.integers(0, 1000)
    grow = st.tuples(st.just("grow"), place, st.lists(message, max_size=5))
    edits = st.tuples(st.sampled_from(["replace", "insert"]), place, message)
    less = st.tuples(st.sampled_from(["cut", "remove"]), place, st.none())
    switch = st.tuples(st.just("switch"), place, st.none())
    return st.lists(st.one_of(grow, grow, edits, less, switch), min_size=1, max_size=8)


def change_history(history: list[Any], what: str, place: int, by: Any) -> list[Any]:
    at = place % (len(history) + 1)
    if what == "grow":
        return [*history, *by]
    if what == "cut":
        return history[:at]
    if what == "insert":
        return [*history[:at], by, *history[at:]]
    return [*history[:at], *([] if what == "remove" else [by]), *history[at + 1 :]]


def a_talk(by: Model) -> list[Any]:
    """A conversation of three complete chunks and one that may still change."""
    return [
        user_message("begin"),
        assistant_message(thinking_block("hm", "sig"), text_block("one"), tool_call("a"), by=by),
        tool_result("a", "first"),
        assistant_message(text_block("two"), tool_call("b"), by=by),
        tool_result("b", "second", PNG),
        user_message("more"),
        assistant_message(text_block("three"), by=by),
        user_message("and now?"),
    ]


def conversation_in(body: dict[str, Any], api: str) -> list[Any]:
    """The conversation in a body, without instructions."""
    items = body[PLACES.get(api, "messages")]
    return [item for item in items if isinstance(item, Raw) or item.get("role") not in ("system", "developer")]


def finished_items(body: dict[str, Any], api: str) -> list[Raw]:
    return [item for item in conversation_in(body, api) if isinstance(item, Raw)]


@pytest.mark.parametrize("api", BODIES)
@given(data=st.data())
def test_however_a_conversation_changes_it_is_told_as_if_anew(api: str, data: st.DataObject) -> None:
    body_of, models, memory = BODIES[api], MODELS[api], HistoryCache()
    history: list[Any] = data.draw(st.lists(messages_of(api), max_size=10))
    model = data.draw(st.sampled_from(models))
    more = data.draw(
        st.fixed_dictionaries(
            {
                "cache": st.sampled_from(["none", "short", "long"]),
                "system_prompt": st.sampled_from(["Be brief.", "half \ud83d", ""]),
                "tools": st.sampled_from([[], [BASH]]),
            }
        )
    )
    for what, place, by in [("grow", 0, []), *data.draw(steps_of(api))]:
        if what == "switch":
            model = models[place % len(models)]
        else:
            history = change_history(history, what, place, by)
        request = ModelRequest(model=model, messages=history, **more)
        assert encode_body(body_of(request, memory)) == encode_body(body_of(request, None))


@pytest.mark.parametrize("api", BODIES)
def test_what_cannot_change_any_more_is_encoded_once(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, memory = MODELS[api][0], HistoryCache()
    count = 0

    def count_call(body: Any) -> bytes:
        nonlocal count
        count += 1
        return encode_body(body)

    monkeypatch.setattr(cache, "encode_body", count_call)
    talk = a_talk(model)
    first = finished_items(BODIES[api](a_request(model, *talk), memory), api)
    assert len(first) == count > 3
    talk += [assistant_message(text_block("four"), by=model), user_message("thanks")]
    second = finished_items(BODIES[api](a_request(model, *talk), memory), api)
    assert len(second) == count > len(first)
    assert all(old is new for old, new in zip(first, second, strict=False))


@pytest.mark.parametrize("api", BODIES)
def test_a_conversation_that_was_cut_keeps_what_is_before_the_cut(api: str) -> None:
    model, memory = MODELS[api][0], HistoryCache()
    talk = a_talk(model)
    first = finished_items(BODIES[api](a_request(model, *talk), memory), api)
    talk[5:] = [user_message("something else"), assistant_message(text_block("else"), by=model), user_message("go on")]
    second = finished_items(BODIES[api](a_request(model, *talk), memory), api)
    assert second[0] is first[0]
    assert second[1] is first[1]
    assert second[-1] is not first[-1]


@pytest.mark.parametrize("api", BODIES)
def test_a_result_that_takes_the_place_of_the_next_answer_is_still_told(api: str) -> None:
    model, memory = MODELS[api][0], HistoryCache()
    begin = [user_message("begin"), assistant_message(tool_call("a"), by=model)]
    BODIES[api](
        a_request(model, *begin, assistant_message(text_block("no result yet"), by=model), user_message("go on")),
        memory,
    )
    request = a_request(model, *begin, tool_result("a", "the late result"), user_message("go on"))
    late = encode_body(BODIES[api](request, memory))
    assert late == encode_body(BODIES[api](request, None))
    assert b"the late result" in late


@pytest.mark.parametrize("api", BODIES)
def test_another_model_hears_nothing_that_was_made_for_the_first(api: str) -> None:
    model, other, memory = *MODELS[api][:2], HistoryCache()
    talk = a_talk(model)
    first = finished_items(BODIES[api](a_request(model, *talk), memory), api)
    BODIES[api](a_request(other, *talk), memory)
    again = finished_items(BODIES[api](a_request(model, *talk), memory), api)
    assert [bytes(item) for item in again] == [bytes(item) for item in first]
    assert not any(old is new for old, new in zip(first, again, strict=True))


@pytest.mark.parametrize("api", BODIES)
def test_spoiling_a_body_spoils_no_later_one(api: str) -> None:
    model, memory = MODELS[api][-2], HistoryCache()
    talk = a_talk(model)
    for length in range(1, len(talk) + 1):
        request = a_request(model, *talk[:length])
        expected = encode_body(BODIES[api](request, None))
        for _ in range(2):
            body = BODIES[api](request, memory)
            assert encode_body(body) == expected
            for item in conversation_in(body, api):
                if isinstance(item, dict):
                    spoil(item)
            body[PLACES.get(api, "messages")].clear()


def spoil(item: dict[str, Any]) -> None:
    for part in (item.get("content"), item.get("parts"), item.get("output")):
        for block in part if isinstance(part, list) else ():
            block["cache_control"] = "spoiled"
        if isinstance(part, list):
            part.append("spoiled")
    item["spoiled"] = True


@pytest.mark.parametrize("api", ["anthropic-messages", "openai-completions"])
def test_the_mark_for_the_cache_moves_on_with_the_end_of_the_conversation(api: str) -> None:
    model, memory = a_model(api=api, compat={"cacheControlFormat": "anthropic"}), HistoryCache()
    talk = a_talk(model)
    ends_with_user = [not isinstance(message, AssistantMessage) for message in talk]
    for length, by_user in enumerate(ends_with_user, 1):
        conversation = conversation_in(BODIES[api](a_request(model, *talk[:length], tools=[]), memory), api)
        marks = [encode_body(item).count(b"cache_control") for item in conversation]
        if by_user:
            assert marks == [0] * (len(marks) - 1) + [1]
        assert not any(count for item, count in zip(conversation, marks, strict=True) if isinstance(item, Raw))


def test_without_instructions_the_first_message_may_be_told_from_memory() -> None:
    model, memory = a_model(api="openai-completions", compat={"cacheControlFormat": "anthropic"}), HistoryCache()
    request = a_request(model, *a_talk(model), system_prompt="")
    assert encode_body(CHAT(request, memory)) == encode_body(CHAT(request, None))


def test_a_message_that_cannot_be_encoded_leaves_no_trace_in_the_cache() -> None:
    model, memory = MODELS["openai-completions"][0], HistoryCache()
    broken = assistant_message(tool_call("a", command=object()), by=model)
    for end in ([], [user_message("x"), assistant_message(text_block("y"), by=model)]):
        with pytest.raises(TypeError, match="unsupported"):
            CHAT(a_request(model, user_message("begin"), broken, *end), memory)
    request = a_request(model, *a_talk(model))
    assert encode_body(CHAT(request, memory)) == encode_body(CHAT(request, None))
