"""Trees of agents with faults at random points: every prompt and every agent ends once, no limit is passed, and no
process is left. A few cases are part of the tests; `make faults-agents` plays 500."""

from __future__ import annotations

from collections import Counter

import pytest

from stress.agent_faults import Tally, play
from stress.tree_faults import TreeCase, play_kills

COUNT = 8


async def test_every_agent_of_a_tree_ends_once_whatever_breaks() -> None:
    TreeCase.figures.clear()
    tally = await play(list(range(COUNT)), side_by_side=COUNT, kind=TreeCase)
    assert tally.failures == []
    assert TreeCase.figures["agents"] >= COUNT
    assert TreeCase.figures["agents 2 deep"] > 0


@pytest.mark.timeout(180)
def test_agents_are_known_and_continue_after_a_kill() -> None:
    tally, figures = Tally(), Counter[str]()
    play_kills([3, 4], tally, figures)
    assert tally.failures == []
    assert figures["agents continued after a kill"] > 0
