"""Runs with limits, and faults at random points: no run uses more than its limit and one answer, and each says why it
ended. A few cases are part of the tests; `make faults-limits` plays 500."""

from __future__ import annotations

from stress.agent_faults import play
from stress.limit_faults import LimitCase

COUNT = 16


async def test_no_run_passes_its_limit_by_more_than_one_answer_whatever_breaks() -> None:
    tally = await play(list(range(COUNT)), ("pi-latest",), side_by_side=COUNT, kind=LimitCase)
    assert tally.failures == []
    assert LimitCase.figures["runs"] >= COUNT
    assert LimitCase.figures["ended limit"] > 1
