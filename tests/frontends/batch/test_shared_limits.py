"""What tasks share: turns at a provider, pauses for all, and money."""

from __future__ import annotations

import pytest

from pigeon.frontends.batch.shared_limits import Rate, SharedLimits


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_requests_are_spread_over_the_minute() -> None:
    limits = SharedLimits({"a": Rate(requests=60)}, now=Clock())
    assert [round(limits.reserve_turn("a", 100), 3) for _ in range(4)] == [0, 1, 2, 3]
    assert limits.reserve_turn("other", 100) == 0


def test_tokens_count_as_they_were_used_in_the_end() -> None:
    clock = Clock()
    limits = SharedLimits({"*": Rate(tokens=6000)}, now=clock)
    assert limits.reserve_turn("a", 100) == 0
    assert limits.reserve_turn("a", 100) == pytest.approx(1)
    limits.record_request_end("a", 500, False, None)
    assert limits.reserve_turn("a", 0) == pytest.approx(7)


def test_a_refusal_holds_back_all_requests_to_that_provider_for_as_long_as_the_server_asks() -> None:
    clock = Clock()
    limits = SharedLimits({}, now=clock)
    assert limits.reserve_turn("a", 1) == limits.reserve_turn("b", 1) == 0
    limits.record_request_end("a", 0, True, 30.0)
    assert limits.reserve_turn("b", 1) == 0
    assert limits.remaining_wait("a") == pytest.approx(30)
    waits = [limits.reserve_turn("a", 1) for _ in range(3)]
    assert waits[0] >= 30
    assert sorted(set(waits)) == waits, "they come back one after the other"
    clock.now += 40
    assert limits.remaining_wait("a") == 0


def test_pauses_without_an_answer_of_the_server_get_longer_and_a_rush_counts_once() -> None:
    clock = Clock()
    limits = SharedLimits({}, now=clock)
    pauses = []
    for _ in range(4):
        for _ in range(5):
            limits.record_request_end("a", 0, True, None)
        pauses.append(limits.remaining_wait("a"))
        clock.now += 100
    assert pauses == pytest.approx([1, 2, 4, 8])
    limits.record_request_end("a", 0, False, None)
    limits.record_request_end("a", 0, True, None)
    assert limits.remaining_wait("a") == pytest.approx(1)


def test_money_is_kept_for_what_runs() -> None:
    limits = SharedLimits({}, max_cost=1.0, spent=0.2)
    assert limits.reserve_money("one", 0.5)
    assert not limits.reserve_money("two", 0.4)
    assert not limits.spend_and_check_exhausted("one", 0.3)
    assert limits.reserve_money("two", 0.3)
    assert limits.release_money("one") == pytest.approx(0.3)
    assert limits.total_cost == pytest.approx(0.5)
    assert limits.spend_and_check_exhausted("two", 0.6)
    assert not limits.reserve_money("three", 0.0)


def test_without_a_limit_all_may_be_spent() -> None:
    limits = SharedLimits({})
    assert limits.reserve_money("a", 1e9)
    assert not limits.spend_and_check_exhausted("a", 1e9)


def test_all_that_wait_for_the_end_of_a_pause_get_through_one_after_the_other() -> None:
    clock = Clock()
    limits = SharedLimits({}, now=clock)
    limits.record_request_end("a", 0, True, 4.0)
    assert limits.find_provider_pauses() == {"a": pytest.approx(4.0)}
    due = {name: clock.now + limits.reserve_turn("a", 1) for name in "xyz"}
    # One of them came too early, because the server asks for more.
    clock.now += 3.0
    limits.record_request_end("a", 0, True, 4.0)
    sent: dict[str, float] = {}
    while due:
        name = min(due, key=due.__getitem__)
        clock.now = due.pop(name)
        wait = limits.remaining_wait("a")
        if wait > 0:
            due[name] = clock.now + wait
        else:
            sent[name] = clock.now - 1000.0
    assert list(sent.values()) == pytest.approx([7.0, 7.05, 7.1])
    assert limits.find_provider_pauses() == {}
