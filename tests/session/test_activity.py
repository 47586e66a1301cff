"""The state machine of a session: what may begin when, what an abort reaches, and what waits for the end of a run."""

from __future__ import annotations

import asyncio

import pytest

from pigeon.session.activity import COMPACTING_TEXT, Activity
from pigeon.wire.errors import Aborted, Refusal, SessionBusy


async def test_a_run_is_reserved_until_it_ends() -> None:
    activity = Activity()
    assert (activity.state, activity.is_running, activity.is_busy, activity.wait_for_end()) == (
        "idle",
        False,
        False,
        None,
    )
    scope = activity.begin_run()
    assert (activity.state, activity.is_running, activity.is_busy) == ("running", True, True)
    with pytest.raises(SessionBusy):
        activity.begin_run()
    ended = activity.wait_for_end()
    assert ended is not None
    activity.end()
    await ended
    assert (activity.state, activity.is_running, activity.is_busy, activity.wait_for_end()) == (
        "idle",
        False,
        False,
        None,
    )
    assert not scope.cancelled


async def test_a_compaction_comes_next_and_keeps_prompts_out() -> None:
    activity = Activity()
    run = activity.begin_run()
    claim = activity.claim_compaction()
    assert run.cancelled, "what is going on is stopped"
    activity.end()
    assert activity.is_busy, "the claim stands"
    with pytest.raises(Refusal, match=COMPACTING_TEXT):
        activity.begin_run()
    with pytest.raises(Refusal, match="already in progress"):
        activity.claim_compaction()
    scope = activity.begin_compaction(claim)
    assert (activity.state, activity.is_compacting, activity.is_running) == ("compacting", True, False)
    with pytest.raises(Refusal, match=COMPACTING_TEXT):
        activity.begin_run()
    with pytest.raises(Refusal, match="already in progress"):
        activity.claim_compaction()
    activity.cancel()
    assert scope.cancelled
    activity.end()
    assert not activity.is_busy
    activity.begin_run()


async def test_a_claim_that_is_cancelled_before_its_turn_never_begins() -> None:
    activity = Activity()
    activity.begin_run()
    claim = activity.claim_compaction()
    activity.cancel()
    activity.end()
    with pytest.raises(Aborted):
        activity.begin_compaction(claim)
    assert (activity.state, activity.is_busy) == ("idle", False)
    activity.begin_run()


async def test_the_state_moves_inside_a_run() -> None:
    activity = Activity()
    activity.begin_run()
    with activity.pausing_run("retrying"):
        assert (activity.state, activity.is_running, activity.is_compacting) == ("retrying", True, False)
    with activity.pausing_run("compacting"):
        assert (activity.state, activity.is_running, activity.is_compacting) == ("compacting", True, True)
    assert activity.state == "running"


async def test_what_must_not_come_between_waits_for_the_end_of_the_run() -> None:
    activity = Activity()
    done: list[str] = []
    activity.defer_to_run_end(lambda: done.append("at once"))
    activity.begin_run()
    activity.defer_to_run_end(lambda: done.append(f"first, {activity.state}"))
    activity.defer_to_run_end(lambda: done.append("second"))
    assert done == ["at once"]
    activity.end()
    assert done == ["at once", "first, running", "second"]
    activity.begin_compaction(activity.claim_compaction())
    activity.defer_to_run_end(lambda: done.append("beside a compaction"))
    assert done[-1] == "beside a compaction"


async def test_a_wait_for_one_end_is_not_held_up_by_the_next_run() -> None:
    activity = Activity()
    activity.begin_run()
    first = activity.wait_for_end()
    waiting = asyncio.ensure_future(activity.wait_until_idle())
    await asyncio.sleep(0)
    assert not waiting.done()
    activity.end()
    activity.begin_run()
    assert first is not None
    await first
    await waiting
    again = asyncio.ensure_future(activity.wait_until_idle())
    await asyncio.sleep(0)
    assert not again.done()
    activity.end()
    await again


async def test_a_waiter_that_gives_up_does_not_end_the_run() -> None:
    activity = Activity()
    scope = activity.begin_run()
    ended = activity.wait_for_end()
    assert ended is not None
    waiter = asyncio.ensure_future(ended)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    assert not scope.cancelled
    activity.end()
    assert not activity.is_busy


async def test_after_closing_nothing_begins_and_the_state_stays() -> None:
    activity = Activity()
    scope = activity.begin_run()
    activity.close()
    assert scope.cancelled
    assert activity.state == "closing"
    with activity.pausing_run("retrying"):
        assert activity.state == "closing"
    assert activity.state == "closing"
    activity.end()
    assert (activity.state, activity.is_busy) == ("closing", False)
    with pytest.raises(Refusal, match="The session is closing"):
        activity.begin_run()
    with pytest.raises(Refusal, match="The session is closing"):
        activity.begin_compaction(activity.claim_compaction())


async def test_a_run_that_waits_takes_over_without_a_moment_of_rest() -> None:
    activity = Activity("life")
    activity.begin_run()
    assert not activity.can_reserve_next_run, "nobody can take it for ended yet"
    activity.allow_next_run()
    assert activity.can_reserve_next_run
    following = activity.reserve_next_run()
    assert (following.run_id, activity.can_reserve_next_run) == ("life-2", False)
    ended = activity.wait_for_end()
    assert ended is not None
    activity.end()
    await ended
    await following.wait_for_turn()
    assert (activity.is_running, activity.run_id, activity.scope) == (True, "life-2", following.scope)
    assert not activity.can_reserve_next_run
    with pytest.raises(SessionBusy):
        activity.begin_run()
    activity.end()
    assert not activity.is_busy


async def test_who_aborts_waits_for_the_run_that_waits_too() -> None:
    activity = Activity()
    activity.begin_run()
    activity.allow_next_run()
    following = activity.reserve_next_run()
    activity.cancel()
    assert following.scope.cancelled
    ended = asyncio.ensure_future(activity.wait_for_end() or asyncio.sleep(0))
    activity.end()
    await following.wait_for_turn()
    assert not ended.done()
    activity.end()
    await ended


async def test_a_reserved_run_can_be_given_up_before_and_in_its_turn() -> None:
    activity = Activity()
    activity.begin_run()
    activity.allow_next_run()
    activity.release_next_run(activity.reserve_next_run())
    assert activity.can_reserve_next_run
    following = activity.reserve_next_run()
    activity.end()
    assert activity.is_running
    activity.release_next_run(following)
    assert not activity.is_busy


async def test_a_closed_session_begins_no_run_that_waits() -> None:
    activity = Activity()
    activity.begin_run()
    activity.allow_next_run()
    following = activity.reserve_next_run()
    ended = activity.wait_for_end()
    assert ended is not None
    activity.close()
    activity.end()
    await ended
    with pytest.raises(Aborted):
        await following.wait_for_turn()
    await activity.wait_until_idle()


async def test_a_compaction_on_request_takes_the_place_of_another() -> None:
    activity = Activity()
    first = activity.begin_compaction(activity.claim_compaction())
    second = activity.claim_compaction(replaces=True)
    third = activity.claim_compaction(replaces=True)
    assert first.cancelled
    assert second.is_cancelled
    activity.end()
    with pytest.raises(Aborted):
        activity.begin_compaction(second)
    assert not activity.begin_compaction(third).cancelled
