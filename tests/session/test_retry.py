"""The pause before another try: how long it is, and who ends it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.agent.inference import Failure
from pigeon.agent.scope import Scope
from pigeon.session.bus import Bus
from pigeon.session.context.transcript import Transcript
from pigeon.session.retry import CANCELLED, Retry
from pigeon.session.settings import RetryPolicy
from pigeon.wire.events import AutoRetryEnd, AutoRetryStart
from support.strategies import empty_journal

BUSY = Failure(message="busy", retryable=True)


class Told:
    """A retry and what it says; `on_start` happens while the start is being told."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.on_start: Any = lambda: None
        bus = Bus()
        bus.add_announcer(self._on_event, lambda: None)
        self.retry = Retry(Transcript(empty_journal()), bus, RetryPolicy(base_delay_ms=60_000), enabled=True)

    def _on_event(self, event: Any) -> None:
        self.events.append(event)
        if isinstance(event, AutoRetryStart):
            self.on_start()

    def ends(self) -> list[AutoRetryEnd]:
        return [event for event in self.events if isinstance(event, AutoRetryEnd)]


@given(st.integers(0, 2))
def test_a_pause_is_at_most_a_fifth_off(tried: int) -> None:
    nominal = 2000 << tried
    assert RetryPolicy().wanted_delay_ms(tried, BUSY) == nominal
    assert abs(RetryPolicy().jittered_delay_ms(tried, BUSY) - nominal) <= nominal * 0.2


def test_pauses_differ() -> None:
    assert len({RetryPolicy().jittered_delay_ms(0, BUSY) for _ in range(50)}) > 1


@given(st.integers(1, 60_000))
def test_a_pause_is_never_shorter_than_the_server_asks_nor_longer_than_allowed(asked: int) -> None:
    pause = RetryPolicy().jittered_delay_ms(0, Failure(message="busy", retryable=True, retry_after_ms=asked))
    assert asked <= pause <= min(asked * 1.2 + 1, 60_000)


@pytest.mark.parametrize("asked", [0, -5])
def test_a_server_that_asks_for_no_pause_gets_the_ordinary_one(asked: int) -> None:
    failure = Failure(message="busy", retryable=True, retry_after_ms=asked)
    assert RetryPolicy().wanted_delay_ms(0, failure) == 2000


async def test_cancelling_tells_the_end_before_it_returns() -> None:
    told = Told()
    pause = asyncio.ensure_future(told.retry.pause_before_retry(BUSY, Scope()))
    for _ in range(5):
        await asyncio.sleep(0)
    told.retry.cancel()
    assert told.ends() == [AutoRetryEnd(success=False, attempt=1, final_error=CANCELLED)]
    told.retry.cancel()
    assert await pause is False
    assert len(told.ends()) == 1


async def test_a_pause_can_be_cancelled_while_it_is_being_announced() -> None:
    told = Told()
    told.on_start = told.retry.cancel
    assert await asyncio.wait_for(told.retry.pause_before_retry(BUSY, Scope()), 30) is False
    assert len(told.ends()) == 1


async def test_stopping_the_run_ends_the_pause_with_one_word() -> None:
    told, scope = Told(), Scope()
    told.on_start = scope.cancel
    assert await asyncio.wait_for(told.retry.pause_before_retry(BUSY, scope), 30) is False
    assert told.ends() == [AutoRetryEnd(success=False, attempt=1, final_error=CANCELLED)]


async def test_cancelling_nothing_says_nothing() -> None:
    told = Told()
    told.retry.cancel()
    assert told.events == []


async def test_there_is_nothing_to_cancel_once_a_pause_is_over() -> None:
    told = Told()
    policy = RetryPolicy(base_delay_ms=0)
    bus = Bus()
    bus.add_announcer(told.events.append, lambda: None)
    retry = Retry(Transcript(empty_journal()), bus, policy, enabled=True)
    assert await asyncio.wait_for(retry.pause_before_retry(BUSY, Scope()), 30)
    retry.cancel()
    assert told.ends() == []
    await retry.on_success()
    assert told.ends() == [AutoRetryEnd(success=True, attempt=1)]
