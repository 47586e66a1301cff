"""Which conversations of `pigeon serve` may be awake when more are wanted than are allowed, without any worker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import cast

import pytest

from pigeon.frontends.serve import wake_queue
from pigeon.frontends.serve.conversation import ServedConversation
from pigeon.frontends.serve.wake_queue import Stopping, TooMany, WakeQueue
from pigeon.wire.open_work import OpenWork

TURNS = 50


class Sleeper:
    """A conversation as the queue sees it; `needed` says whether its worker lets itself be put to sleep."""

    def __init__(self, used: float = 0.0) -> None:
        self.used = used
        self.state = "asleep"
        self.is_running = self.needed = False
        self.work = OpenWork()
        self.asked = 0

    @property
    def has_worker(self) -> bool:
        return self.state != "asleep"

    @property
    def is_idle(self) -> bool:
        return self.state == "awake" and not self.is_running

    async def try_sleep(self) -> bool:
        self.asked += 1
        self.state = "stopping"
        await asyncio.sleep(0)
        self.state = "awake" if self.needed else "asleep"
        return not self.needed


class Crowd:
    """Conversations of which two may be awake, and a clock that stands still."""

    def __init__(self) -> None:
        self.now = 0.0
        self.all: list[Sleeper] = []
        self.woken: list[Sleeper] = []
        self.queue = WakeQueue(
            2, lambda: [cast(ServedConversation, one) for one in self.all if one.has_worker], self._time
        )

    def _time(self) -> float:
        return self.now

    def add(self, state: str = "asleep", running: bool = False) -> Sleeper:
        one = Sleeper(len(self.all))
        one.state, one.is_running = state, running
        self.all.append(one)
        return one

    async def wake(self, one: Sleeper) -> None:
        await self.queue.wait_for_admission(cast(ServedConversation, one))
        one.state = "starting"
        self.woken.append(one)
        assert sum(other.has_worker for other in self.all) <= 2

    def ask(self, one: Sleeper) -> asyncio.Task[None]:
        return asyncio.ensure_future(self.wake(one))

    def begin(self, one: Sleeper) -> None:
        """Its worker is there, and has nothing to do yet."""
        one.state = "awake"
        self.queue.process_requests()


def run(test: Callable[[Crowd], Awaitable[None]]) -> None:
    async def whole() -> None:
        await test(Crowd())

    asyncio.run(whole())


async def settle() -> None:
    """Let everything happen that needs no more than the loop."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def test_a_burst_is_let_in_one_after_the_other_while_others_only_start() -> None:
    async def test(crowd: Crowd) -> None:
        burst = [crowd.add() for _ in range(12)]
        tasks = [crowd.ask(one) for one in burst]
        await settle()
        assert crowd.woken == burst[:2], "the others wait for those that start"
        for one in burst:
            crowd.begin(one)
            await settle()
        await asyncio.gather(*tasks)
        assert crowd.woken == burst, "in the order in which they came"

    run(test)


def test_when_all_are_busy_nobody_waits() -> None:
    async def test(crowd: Crowd) -> None:
        crowd.add("awake", running=True)
        starting = crowd.add("starting")
        waiting = crowd.ask(crowd.add())
        await settle()
        assert not waiting.done()
        starting.state, starting.is_running = "awake", True
        crowd.queue.process_requests()
        with pytest.raises(TooMany, match="are busy"):
            await waiting
        with pytest.raises(TooMany, match="are busy"):
            await crowd.wake(crowd.add())

    run(test)


def test_who_waits_too_long_is_refused_and_later_ones_go_on_waiting() -> None:
    async def test(crowd: Crowd) -> None:
        crowd.add("awake", running=True)
        starting = crowd.add("starting")
        early = crowd.ask(crowd.add())
        await settle()
        crowd.now = wake_queue.WAKE_SECONDS - 0.1
        late = crowd.ask(crowd.add())
        await settle()
        crowd.now = wake_queue.WAKE_SECONDS
        crowd.queue.process_requests()
        with pytest.raises(TooMany, match="at once"):
            await early
        assert not late.done()
        crowd.begin(starting)
        await late

    run(test)


def test_no_more_than_some_wait() -> None:
    async def test(crowd: Crowd) -> None:
        crowd.add("starting")
        crowd.add("starting")
        waiting = [crowd.ask(crowd.add()) for _ in range(wake_queue.MOST_WAITING)]
        await settle()
        with pytest.raises(TooMany, match="at once"):
            await crowd.wake(crowd.add())
        crowd.queue.refuse_all(Stopping, "it stops")
        assert [str(error) for error in await asyncio.gather(*waiting, return_exceptions=True)] == ["it stops"] * len(
            waiting
        )

    run(test)


def test_one_that_its_worker_needs_is_asked_once_and_another_sleeps_in_its_place() -> None:
    async def test(crowd: Crowd) -> None:
        needed, other = crowd.add("awake"), crowd.add("awake")
        needed.needed = True
        await crowd.wake(crowd.add())
        assert (needed.state, needed.asked, other.state) == ("awake", 1, "asleep")
        crowd.all[2].is_running = True
        with pytest.raises(TooMany, match="are busy"):
            await crowd.wake(other)
        assert needed.asked == 1
        crowd.now, needed.needed = wake_queue.NEEDED_SECONDS, False
        await crowd.wake(other)
        assert needed.state == "asleep"

    run(test)


def test_a_client_that_goes_while_it_waits_leaves_its_place_to_the_next() -> None:
    async def test(crowd: Crowd) -> None:
        crowd.add("awake", running=True)
        last = crowd.add("starting")
        gone, following = crowd.add(), crowd.add()
        waiting, after = crowd.ask(gone), crowd.ask(following)
        await settle()
        last.state = "asleep"
        crowd.queue.process_requests()
        # It was let in, and goes before it has noticed.
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        await after
        assert crowd.woken == [following]

    run(test)


def test_two_clients_of_one_conversation_need_one_place() -> None:
    async def test(crowd: Crowd) -> None:
        crowd.add("awake", running=True)
        idle, wanted = crowd.add("awake"), crowd.add()
        await asyncio.gather(crowd.ask(wanted), crowd.ask(wanted))
        assert (idle.asked, crowd.woken) == (1, [wanted, wanted])

    run(test)
