from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pigeon.providers.request import (
    SAFETY_TOKENS,
    choose_output_cap,
    estimate_context_tokens,
    split_budget,
    thinking_budget,
)
from pigeon.wire.tokens import IMAGE_CHARACTERS
from support.model_requests import (
    PNG,
    a_model,
    a_request,
    assistant_message,
    text_block,
    thinking_block,
    tool_call,
    tool_result,
    user_message,
)


def test_the_estimate_begins_at_the_last_bill() -> None:
    request = a_request(
        a_model(),
        user_message("x" * 4000),
        assistant_message(text_block("y"), tokens=500, timestamp=5),
        user_message("z" * 400, timestamp=6),
    )
    assert estimate_context_tokens(request) == 500 + 115  # 400 characters, three and a half to a token, rounded up


def test_without_a_bill_everything_is_counted() -> None:
    request = a_request(
        a_model(),
        user_message("x" * 400),
        assistant_message(thinking_block("t" * 40), tool_call("c", command="l" * 39)),
        tool_result("c", "r" * 40, PNG),
        system_prompt="s" * 400,
        tools=[],
    )
    chars = 400 + 40 + len("bash") + len('{"command":""}') + 39 + 40 + IMAGE_CHARACTERS + 400
    assert 0 <= estimate_context_tokens(request) - chars / 3.5 < 8


def test_bills_of_failed_answers_and_of_replaced_history_do_not_count() -> None:
    failed = a_request(
        a_model(), user_message("x"), assistant_message(tokens=9000, stop_reason="error"), system_prompt="", tools=[]
    )
    assert estimate_context_tokens(failed) == 1
    replaced = a_request(
        a_model(),
        user_message("summary", timestamp=100),
        assistant_message(tokens=9000, timestamp=50),
        system_prompt="",
        tools=[],
    )
    assert estimate_context_tokens(replaced) < 10


def test_the_answer_must_fit_behind_the_prompt() -> None:
    large = a_model(context_window=100_000, max_tokens=99_000)
    used = a_request(large, user_message("a"), assistant_message(tokens=4000), user_message("b"))
    assert choose_output_cap(used) == 100_000 - 4000 - 1 - SAFETY_TOKENS
    model = a_model(context_window=10_000, max_tokens=8000)
    assert (
        choose_output_cap(a_request(model, user_message("a"), assistant_message(tokens=4000), user_message("b")))
        == 10_000 - 4000 - 1 - 2500
    )
    long = a_request(
        a_model(context_window=20_000, max_tokens=16_384), user_message("x" * 28_000), system_prompt="", tools=[]
    )
    assert choose_output_cap(long) == 20_000 - 8000 - SAFETY_TOKENS
    full = a_request(model, user_message("a"), assistant_message(tokens=9999), user_message("b"))
    assert choose_output_cap(full) == 1
    assert choose_output_cap(a_request(model, max_tokens=100)) == 100
    assert choose_output_cap(a_request(a_model(context_window=0, max_tokens=8000))) == 8000
    assert choose_output_cap(a_request(a_model(max_tokens=0))) == 0


def test_budgets_of_levels() -> None:
    assert [thinking_budget(level, {}) for level in ("minimal", "low", "medium", "high", "xhigh", "max")] == [
        1024,
        2048,
        8192,
        16384,
        16384,
        16384,
    ]
    assert thinking_budget("max", {"high": 7}) == 7
    assert thinking_budget("low", {"low": 5}) == 5


@given(
    st.integers(1, 300_000),
    st.integers(0, 400_000),
    st.sampled_from(["minimal", "low", "medium", "high", "max"]),
    st.integers(0, 500_000),
)
def test_thinking_never_eats_the_whole_answer(max_tokens: int, window: int, level: str, used: int) -> None:
    model = a_model(max_tokens=max_tokens, context_window=window)
    total, budget = split_budget(
        a_request(model, user_message("a"), assistant_message(tokens=used), thinking=level), {}
    )
    assert 1 <= total <= max_tokens
    assert budget >= 0
    assert budget == 0 or budget <= total - 1024
