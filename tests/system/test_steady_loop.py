"""The clock of the event loop stands while the process does."""

from __future__ import annotations

import asyncio
import time

import pytest

from pigeon.system.clock import STANDSTILL, SteadyLoop


@pytest.fixture
def jumps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What is added here to the clock of the system has passed without us."""
    real, added = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: real() + sum(added))
    return added


def run(work: object) -> None:
    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        runner.run(work)  # type: ignore[arg-type]


def test_time_that_jumps_while_something_runs_is_not_counted(jumps: list[float]) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        fired = loop.create_future()
        timer = loop.call_later(100, fired.set_result, None)
        before = loop.time()
        jumps.append(1000)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not fired.done()
        assert loop.time() - before < STANDSTILL
        timer.cancel()

    run(work())


def test_short_delays_are_counted(jumps: list[float]) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        fired = loop.create_future()
        loop.call_later(0.5, fired.set_result, None)
        jumps.append(STANDSTILL * 0.6)
        await fired

    run(work())
