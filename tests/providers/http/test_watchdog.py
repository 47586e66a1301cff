from __future__ import annotations

import asyncio

import pytest

from fakes.virtual_time import virtually
from pigeon.providers.http.watchdog import Stalled, Watchdog


def test_silence_ends_in_stalled() -> None:
    async def story() -> float:
        watchdog = Watchdog(300)
        with pytest.raises(Stalled):
            await watchdog.wait(asyncio.Event().wait())
        watchdog.stop()
        return asyncio.get_running_loop().time()

    assert virtually(story()) == pytest.approx(300)


def test_waits_without_content_add_up() -> None:
    async def pings(watchdog: Watchdog) -> None:
        while True:
            await watchdog.wait(asyncio.sleep(15))

    async def story() -> float:
        watchdog = Watchdog(300)
        with pytest.raises(Stalled):
            await pings(watchdog)
        watchdog.stop()
        return asyncio.get_running_loop().time()

    assert virtually(story()) == pytest.approx(300)


def test_content_gives_the_full_time_again() -> None:
    async def story() -> None:
        watchdog = Watchdog(300)
        for _ in range(30):
            await watchdog.wait(asyncio.sleep(299))
            watchdog.fed()
        watchdog.stop()

    virtually(story())


def test_a_slow_reader_is_not_blamed_on_the_server() -> None:
    async def story() -> None:
        watchdog = Watchdog(300)
        await watchdog.wait(asyncio.sleep(1))
        watchdog.fed()
        await asyncio.sleep(10_000)
        await watchdog.wait(asyncio.sleep(299))
        watchdog.stop()

    virtually(story())


def test_zero_means_never() -> None:
    async def story() -> str:
        return await Watchdog(0).wait(asyncio.sleep(1_000_000, "late"))

    assert virtually(story()) == "late"


async def test_a_cancellation_from_outside_stays_one() -> None:
    watchdog = Watchdog(300)
    task = asyncio.ensure_future(watchdog.wait(asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    watchdog.stop()
