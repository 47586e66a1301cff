"""How the process ends: the first reason counts, a second one hurries, and nothing takes longer than it may."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from pigeon.rpc.shutdown import Shutdown
from pigeon.transport import exit_codes


async def never() -> None:
    await asyncio.get_running_loop().create_future()


async def test_the_first_reason_decides_the_exit_code() -> None:
    shutdown = Shutdown()
    waiting = asyncio.ensure_future(shutdown.wait_for_request())
    await asyncio.sleep(0)
    assert not waiting.done()
    for code in (exit_codes.OK, exit_codes.FAILED, exit_codes.FAILED):
        shutdown.request_exit(code)
    assert await waiting == exit_codes.OK
    assert await shutdown.wait_for_request() == exit_codes.OK


async def test_work_is_finished_unless_a_second_reason_comes() -> None:
    shutdown = Shutdown()
    shutdown.request_exit(exit_codes.OK)
    assert await shutdown.wait_for_work(asyncio.ensure_future(asyncio.sleep(0))) == exit_codes.OK
    work = asyncio.ensure_future(never())
    asyncio.get_running_loop().call_soon(shutdown.request_exit, 143)
    assert await shutdown.wait_for_work(work) == 143
    assert not work.done(), "it is stopped by what follows, not here"
    closing = asyncio.ensure_future(asyncio.sleep(0))
    await shutdown.wait_for_cleanup(closing, 60)
    assert closing.done(), "the second reason leaves time for a clean end"
    work.cancel()


async def test_closing_ends_with_its_time_or_with_one_more_reason() -> None:
    shutdown = Shutdown()
    work = asyncio.ensure_future(never())
    await shutdown.wait_for_cleanup(work, 0)
    shutdown.request_exit(exit_codes.OK)
    asyncio.get_running_loop().call_soon(shutdown.request_exit, 130)
    async with asyncio.timeout(10):
        await shutdown.wait_for_cleanup(work, 60)
    assert not work.done()
    work.cancel()


@pytest.mark.parametrize(("number", "code"), exit_codes.BY_SIGNAL.items())
async def test_a_signal_is_a_reason_with_its_own_code(number: int, code: int) -> None:
    shutdown = Shutdown()
    shutdown.watch_signals()
    try:
        os.kill(os.getpid(), number)
        async with asyncio.timeout(10):
            assert await shutdown.wait_for_request() == code
    finally:
        for watched in exit_codes.BY_SIGNAL:
            asyncio.get_running_loop().remove_signal_handler(watched)


def test_the_codes_are_those_of_a_shell() -> None:
    assert exit_codes.BY_SIGNAL == {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}
