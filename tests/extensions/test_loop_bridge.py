"""How the threads of extensions reach the session, and what they are told once there is none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pigeon.extensions.public.failures import NotBound
from pigeon.extensions.runtime.session_access import CLOSED, LoopBridge


def made_on_a_loop_that_is_over() -> LoopBridge:
    async def make() -> LoopBridge:
        return LoopBridge()

    return asyncio.run(make())


async def nothing() -> None:
    raise AssertionError("there is no loop to run on")


@pytest.mark.parametrize(
    "reach",
    [
        lambda bridge: bridge.call(lambda: 1),
        lambda bridge: asyncio.run(bridge.run(nothing)),
    ],
    ids=["call", "run"],
)
def test_an_extension_that_outlives_the_session_is_told_that_it_is_closed(reach: Callable[[LoopBridge], Any]) -> None:
    bridge = made_on_a_loop_that_is_over()
    told: list[str] = []

    def in_thread() -> None:
        try:
            bridge.post(lambda: 1 / 0)
            reach(bridge)
        except NotBound as error:
            told.append(str(error))

    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    assert told == [CLOSED]


async def test_a_thread_gets_the_value_or_the_exception_of_what_it_asks_for() -> None:
    bridge, here = LoopBridge(), threading.get_ident()
    assert await asyncio.to_thread(bridge.call, threading.get_ident) == here
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(bridge.call, lambda: 1 / 0)
