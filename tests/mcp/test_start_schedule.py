"""When tool servers are connected."""

from __future__ import annotations

import pytest

from pigeon.mcp import start_schedule
from pigeon.mcp.start_schedule import StartSchedule


class Starts:
    """Counts how often all servers are connected."""

    def __init__(self) -> None:
        self.count = 0
        self.schedule = StartSchedule(self.connect_all)

    def connect_all(self) -> None:
        self.schedule.end_pause_and_mark_begun()
        self.count += 1


@pytest.fixture(autouse=True)
def _long_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_schedule, "START_PAUSE", 3600.0)


async def test_skipping_the_pause_connects_at_once_what_waits_for_its_end() -> None:
    starts = Starts()
    starts.schedule.skip_startup_delay()
    assert starts.count == 0
    starts.schedule.schedule_connecting()
    assert (starts.count, starts.schedule.has_begun) == (1, True)
    waiting = Starts()
    waiting.schedule.schedule_connecting()
    assert (waiting.count, waiting.schedule.has_begun) == (0, False)
    waiting.schedule.skip_startup_delay()
    assert waiting.count == 1


async def test_one_server_that_is_connected_does_not_end_the_pause_of_the_others() -> None:
    starts = Starts()
    starts.schedule.schedule_connecting()
    starts.schedule.mark_begun()
    assert (starts.count, starts.schedule.has_begun) == (0, True)
    starts.schedule.skip_startup_delay()
    assert starts.count == 1


async def test_a_schedule_that_has_begun_has_no_further_pause() -> None:
    starts = Starts()
    starts.connect_all()
    starts.schedule.schedule_connecting()
    starts.schedule.skip_startup_delay()
    assert starts.count == 1
