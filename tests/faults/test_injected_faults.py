"""Faults at random points: every accepted prompt ends once, and what was announced is in the file.

`make faults N=10000 SEED=1` plays many more than these.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stress.agent_faults import DIALECTS, end_somewhere, play

CASES = 20


async def test_every_prompt_ends_once_whatever_breaks() -> None:
    tally = await play(list(range(CASES)), side_by_side=CASES)
    assert tally.failures == []
    assert tally.prompts > CASES


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("seed", range(2))
def test_a_program_that_is_ended_somewhere_has_told_no_end_twice(seed: int, dialect: str, tmp_path: Path) -> None:
    end_somewhere(seed, dialect, tmp_path)
