"""Whatever the history, the request is one that the provider takes: what it refuses once it would refuse for ever."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.model_histories import BODIES, MODELS, messages_of
from fakes.model_requests import PNG, a_model, a_request, answered, called, returned, said, text, thought
from fakes.request_rules import broken_rules
from pigeon.providers.history.cache import HistoryCache
from pigeon.providers.http.exchange import encoded


def sent(api: str, model: Any, history: list[Any], memory: HistoryCache | None = None) -> bytes:
    request = a_request(model)
    request.messages = history
    return encoded(BODIES[api](request, memory))


@pytest.mark.parametrize("api", BODIES)
@given(data=st.data())
def test_whatever_the_history_the_request_is_valid(api: str, data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(MODELS[api]))
    other = data.draw(st.sampled_from(list(BODIES)))
    history = data.draw(st.lists(st.one_of(messages_of(api), messages_of(other)), max_size=10))
    assert broken_rules(api, sent(api, model, history)) == []


@pytest.mark.parametrize("api", BODIES)
@given(data=st.data())
def test_it_stays_valid_while_the_history_grows(api: str, data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(MODELS[api]))
    history: list[Any] = []
    memory = HistoryCache()
    for more in data.draw(st.lists(st.lists(messages_of(api), max_size=4), max_size=5)):
        history = [*history, *more]
        assert broken_rules(api, sent(api, model, history, memory)) == []


def refused(api: str) -> dict[str, list[Any]]:
    model = MODELS[api][0]
    other = a_model(provider="there")
    return {
        "blank output": [said("go"), answered(called("a"), by=model), returned("a", "\n")],
        "no output": [said("go"), answered(called("a"), by=model), returned("a")],
        "an image in a failure": [said("go"), answered(called("a"), by=model), returned("a", PNG, is_error=True)],
        "an answer first": [answered(text("hi"), by=model), said("go")],
        "an answer last": [said("go"), answered(text("hi"), by=model)],
        "an answer of thoughts": [said("go"), answered(thought("hm", "c2ln"), by=model), said("and?")],
        "thoughts at the end": [said("go"), answered(text("a"), thought("hm", "c2ln"), by=model), said("and?")],
        "only blanks": [said(" ")],
        "only a failure": [answered(text("x"), by=model, stop_reason="error")],
        "nothing": [],
        "a lost result": [said("go"), answered(called("a"), by=model), said("well?")],
        "a lost call": [said("go"), returned("a", "x")],
        "a repeated id": [said("go"), answered(called("a"), called("a"), by=model), returned("a", "x")],
        "an id again": [said("go"), *[answered(called("a"), by=model), returned("a", "x")] * 2],
        "a long id": [said("go"), answered(called("x" * 99), by=model), returned("x" * 99, "x")],
        "another's id": [said("go"), answered(called("a!|fc_9"), by=other), returned("a!|fc_9", "x")],
        "half a pair": [said("\ud83d"), answered(called("a", None, x="\udc00"), by=model), returned("a", "\ud83d")],
    }


@pytest.mark.parametrize("api", BODIES)
@pytest.mark.parametrize("name", refused("anthropic-messages"))
def test_what_providers_refuse_for_ever_is_not_sent(api: str, name: str) -> None:
    for model in MODELS[api]:
        assert broken_rules(api, sent(api, model, refused(api)[name])) == []


@pytest.mark.parametrize("api", BODIES)
def test_a_blank_result_says_that_there_was_no_output(api: str) -> None:
    model = MODELS[api][0]
    body = sent(api, model, [said("go"), answered(called("a"), by=model), returned("a", " \n", "")])
    assert b"(no output)" in body


def test_images_of_a_failure_follow_all_results() -> None:
    api = "anthropic-messages"
    model = MODELS[api][0]
    calls = answered(called("a"), called("b"), by=model)
    history = [said("go"), calls, returned("a", "no", PNG, is_error=True), returned("b", "yes"), said("and?")]
    request = a_request(model, *history, cache="none")
    results, after = BODIES[api](request, None)["messages"][2:]
    assert [block["type"] for block in results["content"]] == ["tool_result", "tool_result", "text", "image"]
    assert results["content"][0]["content"] == "no"
    assert "a (bash)" in results["content"][2]["text"]
    assert after["content"] == "and?"


@pytest.mark.parametrize("api", BODIES)
def test_a_result_behind_a_blank_answer_still_finds_its_call(api: str) -> None:
    model = MODELS[api][0]
    blank = answered(text(" "), by=model)
    body = sent(api, model, [said("go"), answered(called("a"), by=model), blank, returned("a", "late"), said("x")])
    assert b"late" in body
    assert b"No result" not in body


@pytest.mark.parametrize("api", BODIES)
def test_thoughts_of_another_model_are_shown_to_no_model(api: str) -> None:
    other = a_model(provider="there")
    talk = [said("go"), answered(thought("private doubts", "c2ln"), text("Done."), by=other), said("and?")]
    for model in MODELS[api]:
        body = sent(api, model, talk)
        assert b"private doubts" not in body
        assert b"Done." in body
