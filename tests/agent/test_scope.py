from __future__ import annotations

import asyncio

import pytest

from fakes.clock import virtually
from pigeon.agent.scope import ABANDON_AFTER, STOP_GRACE, Scope, WorkStopped
from pigeon.wire.errors import Aborted


def test_cancelling_a_scope_cancels_everything_below_it() -> None:
    run = Scope()
    turn = run.make_child()
    tools = [turn.make_child(), turn.make_child()]
    run.cancel()
    assert [scope.cancelled for scope in (turn, *tools)] == [True, True, True]


def test_a_child_ends_without_its_parent_and_its_siblings() -> None:
    run = Scope()
    one, other = run.make_child(), run.make_child()
    one.cancel()
    assert (run.cancelled, one.cancelled, other.cancelled) == (False, True, False)


def test_a_child_of_a_cancelled_scope_begins_cancelled() -> None:
    run = Scope()
    run.cancel()
    assert run.make_child().cancelled


def test_a_closed_child_is_forgotten() -> None:
    run = Scope()
    child = run.make_child()
    child.close()
    run.cancel()
    assert not child.cancelled


def test_check_raises_only_after_cancellation() -> None:
    scope = Scope()
    scope.raise_if_cancelled()
    scope.cancel()
    with pytest.raises(Aborted):
        scope.raise_if_cancelled()


def test_callbacks_come_once_and_in_order() -> None:
    scope, heard = Scope(), list[str]()
    for word in ("a", "b", "c"):
        scope.add_cancel_callback(lambda word=word: heard.append(word))
    scope.cancel()
    scope.cancel()
    assert heard == ["a", "b", "c"]


def test_a_callback_that_was_taken_back_does_not_come() -> None:
    scope, heard = Scope(), list[str]()
    forget = scope.add_cancel_callback(lambda: heard.append("a"))
    scope.add_cancel_callback(lambda: heard.append("b"))
    forget()
    forget()
    scope.cancel()
    assert heard == ["b"]


async def test_wait_gives_the_result_or_the_failure() -> None:
    async def fail() -> None:
        raise ValueError("no")

    scope = Scope()
    assert await scope.wait(asyncio.sleep(0, 7)) == 7
    with pytest.raises(ValueError, match="no"):
        await scope.wait(fail())


async def test_wait_ends_at_once_when_the_scope_is_cancelled() -> None:
    run = Scope()
    asyncio.get_running_loop().call_soon(run.cancel)
    with pytest.raises(Aborted):
        await run.make_child().wait(asyncio.Event().wait())
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_wait_begins_nothing_in_a_cancelled_scope() -> None:
    begun = False

    async def work() -> None:
        nonlocal begun
        begun = True

    scope = Scope()
    scope.cancel()
    with pytest.raises(Aborted):
        await scope.wait(work())
    assert not begun


async def test_a_wait_inside_a_wait_ends_both() -> None:
    run = Scope()
    inner = run.make_child()
    asyncio.get_running_loop().call_soon(run.cancel)
    with pytest.raises(Aborted):
        await run.wait(inner.wait(asyncio.Event().wait()))
    assert await asyncio.sleep(0, "alive") == "alive"


async def test_a_cancelled_task_is_not_taken_for_an_aborted_scope() -> None:
    scope = Scope()
    task = asyncio.ensure_future(scope.wait(asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not scope.cancelled


async def test_what_is_cancelled_from_elsewhere_is_a_failure_and_not_our_end() -> None:
    waited_for: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waited_for.cancel()
    with pytest.raises(WorkStopped):
        await Scope().wait(waited_for)


async def test_after_a_wait_the_scope_leaves_the_task_alone() -> None:
    scope = Scope()
    await scope.wait(asyncio.sleep(0))
    scope.cancel()
    assert await asyncio.sleep(0, "alive") == "alive"


async def test_run_gives_the_result_or_the_failure() -> None:
    async def fail() -> None:
        raise ValueError("no")

    scope = Scope()
    assert await scope.run(asyncio.sleep(0, 7)) == 7
    with pytest.raises(ValueError, match="no"):
        await scope.run(fail())


def test_work_that_hears_of_the_end_may_still_say_something() -> None:
    async def story() -> str:
        scope = Scope()
        over = asyncio.Event()
        scope.add_cancel_callback(over.set)

        async def work() -> str:
            await over.wait()
            await asyncio.sleep(STOP_GRACE / 2)
            return "partial"

        asyncio.get_running_loop().call_later(10, scope.cancel)
        return await scope.run(work())

    assert virtually(story()) == "partial"


def test_deaf_work_is_cancelled_after_a_grace() -> None:
    async def story() -> float:
        scope = Scope()
        scope.cancel()
        with pytest.raises(Aborted):
            await scope.run(asyncio.sleep(1000))
        return asyncio.get_running_loop().time()

    assert virtually(story()) == pytest.approx(STOP_GRACE, abs=0.01)


def test_work_that_refuses_to_end_is_left_behind() -> None:
    async def story() -> tuple[float, int]:
        scope, released, refusals = Scope(), asyncio.Event(), 0

        async def stubborn() -> None:
            nonlocal refusals
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    refusals += 1

        asyncio.get_running_loop().call_soon(scope.cancel)
        with pytest.raises(Aborted):
            await scope.run(stubborn())
        took = asyncio.get_running_loop().time()
        released.set()
        return took, refusals

    took, refusals = virtually(story())
    assert took == pytest.approx(STOP_GRACE + ABANDON_AFTER, abs=0.01)
    assert refusals >= 1


def test_work_of_a_cancelled_task_does_not_stay_behind() -> None:
    async def story() -> bool:
        ended = asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        task = asyncio.ensure_future(Scope().run(work()))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ended.wait()
        return True

    assert virtually(story())
