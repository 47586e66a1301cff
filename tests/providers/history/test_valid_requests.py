"""Whatever the history, the request is one that the provider takes: what it refuses once it would refuse for ever."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.api_rules import broken_rules
from pigeon.providers.history.cache import HistoryCache
from pigeon.providers.http.exchange import encode_body
from support.model_requests import (
    BODIES,
    MODELS,
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


def encode_request(api: str, model: Any, history: list[Any], memory: HistoryCache | None = None) -> bytes:
    request = a_request(model)
    request.messages = history
    return encode_body(BODIES[api](request, memory))


@pytest.mark.parametrize("api", BODIES)
@given(data=st.data())
def test_whatever_the_history_the_request_is_valid(api: str, data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(MODELS[api]))
    other = data.draw(st.sampled_from(list(BODIES)))
    history = data.draw(st.lists(st.one_of(messages_of(api), messages_of(other)), max_size=10))
    assert broken_rules(api, encode_request(api, model, history)) == []


@pytest.mark.parametrize("api", BODIES)
@given(data=st.data())
def test_it_stays_valid_while_the_history_grows(api: str, data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(MODELS[api]))
    history: list[Any] = []
    memory = HistoryCache()
    for more in data.draw(st.lists(st.lists(messages_of(api), max_size=4), max_size=5)):
        history = [*history, *more]
        assert broken_rules(api, encode_request(api, model, history, memory)) == []


def refused_histories(api: str) -> dict[str, list[Any]]:
    model = MODELS[api][0]
    other = a_model(provider="there")
    return {
        "blank output": [user_message("go"), assistant_message(tool_call("a"), by=model), tool_result("a", "\n")],
        "no output": [user_message("go"), assistant_message(tool_call("a"), by=model), tool_result("a")],
        "an image in a failure": [
            user_message("go"),
            assistant_message(tool_call("a"), by=model),
            tool_result("a", PNG, is_error=True),
        ],
        "an answer first": [assistant_message(text_block("hi"), by=model), user_message("go")],
        "an answer last": [user_message("go"), assistant_message(text_block("hi"), by=model)],
        "an answer of thoughts": [
            user_message("go"),
            assistant_message(thinking_block("hm", "c2ln"), by=model),
            user_message("and?"),
        ],
        "thoughts at the end": [
            user_message("go"),
            assistant_message(text_block("a"), thinking_block("hm", "c2ln"), by=model),
            user_message("and?"),
        ],
        "only blanks": [user_message(" ")],
        "only a failure": [assistant_message(text_block("x"), by=model, stop_reason="error")],
        "nothing": [],
        "a lost result": [user_message("go"), assistant_message(tool_call("a"), by=model), user_message("well?")],
        "a lost call": [user_message("go"), tool_result("a", "x")],
        "a repeated id": [
            user_message("go"),
            assistant_message(tool_call("a"), tool_call("a"), by=model),
            tool_result("a", "x"),
        ],
        "an id again": [user_message("go"), *[assistant_message(tool_call("a"), by=model), tool_result("a", "x")] * 2],
        "a long id": [user_message("go"), assistant_message(tool_call("x" * 99), by=model), tool_result("x" * 99, "x")],
        "another's id": [
            user_message("go"),
            assistant_message(tool_call("a!|fc_9"), by=other),
            tool_result("a!|fc_9", "x"),
        ],
        "half a pair": [
            user_message("\ud83d"),
            assistant_message(tool_call("a", None, x="\udc00"), by=model),
            tool_result("a", "\ud83d"),
        ],
    }


@pytest.mark.parametrize("api", BODIES)
@pytest.mark.parametrize("name", refused_histories("anthropic-messages"))
def test_what_providers_refuse_for_ever_is_not_sent(api: str, name: str) -> None:
    for model in MODELS[api]:
        assert broken_rules(api, encode_request(api, model, refused_histories(api)[name])) == []


@pytest.mark.parametrize("api", BODIES)
def test_a_blank_result_says_that_there_was_no_output(api: str) -> None:
    model = MODELS[api][0]
    body = encode_request(
        api, model, [user_message("go"), assistant_message(tool_call("a"), by=model), tool_result("a", " \n", "")]
    )
    assert b"(no output)" in body


def test_images_of_a_failure_follow_all_results() -> None:
    api = "anthropic-messages"
    model = MODELS[api][0]
    calls = assistant_message(tool_call("a"), tool_call("b"), by=model)
    history = [
        user_message("go"),
        calls,
        tool_result("a", "no", PNG, is_error=True),
        tool_result("b", "yes"),
        user_message("and?"),
    ]
    request = a_request(model, *history, cache="none")
    results, after = BODIES[api](request, None)["messages"][2:]
    assert [block["type"] for block in results["content"]] == ["tool_result", "tool_result", "text", "image"]
    assert results["content"][0]["content"] == "no"
    assert "a (bash)" in results["content"][2]["text"]
    assert after["content"] == "and?"


@pytest.mark.parametrize("api", BODIES)
def test_a_result_behind_a_blank_answer_still_finds_its_call(api: str) -> None:
    model = MODELS[api][0]
    blank = assistant_message(text_block(" "), by=model)
    body = encode_request(
        api,
        model,
        [
            user_message("go"),
            assistant_message(tool_call("a"), by=model),
            blank,
            tool_result("a", "late"),
            user_message("x"),
        ],
    )
    assert b"late" in body
    assert b"No result" not in body


@pytest.mark.parametrize("api", BODIES)
def test_thoughts_of_another_model_are_shown_to_no_model(api: str) -> None:
    other = a_model(provider="there")
    talk = [
        user_message("go"),
        assistant_message(thinking_block("private doubts", "c2ln"), text_block("Done."), by=other),
        user_message("and?"),
    ]
    for model in MODELS[api]:
        body = encode_request(api, model, talk)
        assert b"private doubts" not in body
        assert b"Done." in body
