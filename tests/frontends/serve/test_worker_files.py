"""What a worker keeps for the next one besides the session, and how long it keeps the helper for commands."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from pigeon.app.build import BuiltAgent
from pigeon.frontends.serve.worker_state import RUN_FILE, read_last_run
from pigeon.frontends.serve.workers import worker
from pigeon.frontends.serve.workers.worker import HelperTimer
from pigeon.frontends.serve.workers.worker_files import RunFile
from pigeon.wire.events import AgentSettled

SETTLED = AgentSettled(run_id="r", reason="done")


def test_the_last_run_is_what_the_next_worker_reads_also_if_its_id_is_shorter(tmp_path: Path) -> None:
    assert read_last_run(str(tmp_path)) == ""
    file = RunFile(str(tmp_path / RUN_FILE))
    for run in ("0198-long-life-10", "0198-9"):
        file.save_if_changed(run)
        assert read_last_run(str(tmp_path)) == run
    file.close()
    assert (tmp_path / RUN_FILE).stat().st_mode & 0o777 == 0o600


def test_a_run_that_is_on_disk_is_not_written_again(tmp_path: Path) -> None:
    file = RunFile(str(tmp_path / RUN_FILE))
    file.restore("before")
    file.save_if_changed("before")
    assert not (tmp_path / RUN_FILE).exists()


class Agent:
    """An agent whose helper is released."""

    def __init__(self, is_running: bool) -> None:
        self.session = self.activity = self.processes = self
        self.is_running = is_running
        self.released = asyncio.Event()

    def release_when_idle(self) -> None:
        self.released.set()


@pytest.mark.parametrize("is_running", [True, False])
def test_the_helper_is_released_some_time_after_the_last_run_unless_another_is_active(
    is_running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "HELPER_SECONDS", 0.0)

    async def test() -> None:
        agent = Agent(is_running)
        timer = HelperTimer(cast(BuiltAgent, cast(Any, agent)))
        timer.restart(SETTLED)
        timer.restart(SETTLED)
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.01, passed.set_result, None)
        await passed
        assert agent.released.is_set() != is_running
        timer.stop()

    asyncio.run(test())
