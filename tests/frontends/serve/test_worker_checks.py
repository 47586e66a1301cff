"""How often the supervisor looks after its workers: on a clock that jumps, with conversations that count it."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import pytest

from fakes.clock import virtually
from pigeon.frontends.serve.worker_checks import IDLE_CHECK_SECONDS, ServeLimits, WorkerChecks

HOUR = 3600.0


class AtOnce(ThreadPoolExecutor):
    """Does what is given to a thread at once: the clock would not wait for it."""

    def submit(self, work: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*arguments, **named))
        return done


class Awake:
    """A conversation that is awake; `slept` is when it was put to sleep."""

    pid = None
    must_move = False

    def __init__(self, is_idle: bool = True) -> None:
        self.is_idle = is_idle
        self.used = 0.0
        self.checks = 0
        self.slept: float | None = None

    def enforce_time_limits(self, silence: float, host_tool_wait: float) -> None:
        self.checks += 1

    async def try_sleep(self) -> bool:
        self.slept = asyncio.get_running_loop().time()
        return True


class Wakes:
    """No requests wait; counts how often they were looked at."""

    has_requests = False
    checks = 0

    def process_requests(self) -> None:
        self.checks += 1


class Workers:
    parent_pid = os.getpid()


async def check_for(seconds: float, awake: list[Awake], idle_seconds: float = HOUR) -> Wakes:
    wakes, loop = Wakes(), asyncio.get_running_loop()
    begin = loop.time()
    loop.set_default_executor(AtOnce())
    for one in awake:
        one.used = begin
    checks = WorkerChecks(
        ServeLimits(idle_seconds=idle_seconds),
        cast(Any, Workers()),
        cast(Any, wakes),
        lambda: cast(Any, [one for one in awake if one.slept is None]),
        loop.time,
    )
    checks.start()
    await asyncio.sleep(seconds)
    checks.stop()
    for one in awake:
        one.slept = one.slept and one.slept - begin
    return wakes


def test_nothing_is_looked_at_while_no_conversation_is_awake() -> None:
    assert virtually(check_for(100.0, [])).checks == 0


@pytest.mark.parametrize(("is_idle", "most"), [(True, 100 / IDLE_CHECK_SECONDS), (False, 100)])
def test_idle_conversations_are_looked_at_rarely_and_busy_ones_every_second(is_idle: bool, most: int) -> None:
    one = Awake(is_idle)
    virtually(check_for(100.0, [one]))
    assert most * 0.9 - 1 <= one.checks <= most


def test_a_conversation_falls_asleep_when_its_time_is_over_and_then_nothing_is_looked_at() -> None:
    one = Awake()
    wakes = virtually(check_for(1000.0, [one], idle_seconds=30.0))
    assert one.slept is not None
    assert 30 <= one.slept <= 30 + 2 * IDLE_CHECK_SECONDS
    assert one.checks <= 1 + 40 / IDLE_CHECK_SECONDS
    assert wakes.checks <= one.checks + 2
