"""A run that is under way when its host goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pigeon.frontends.draining import should_drain
from support.in_process_agent import InProcessAgent


@pytest.mark.parametrize(
    ("model", "asked", "drains"),
    [(None, False, False), (None, True, True), ("demo", False, True)],
    ids=["", "asked", "demo"],
)
async def test_a_run_is_finished_without_its_host_if_asked_or_for_the_demo(
    tmp_path: Path, model: str | None, asked: bool, drains: bool
) -> None:
    one = InProcessAgent(tmp_path)
    one.configure()
    agent = await one.start(**({} if model is None else {"model": model}))
    try:
        assert should_drain(agent, asked) is drains
    finally:
        await one.stop()
