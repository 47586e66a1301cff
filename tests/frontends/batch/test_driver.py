"""The driver, with an engine that runs nothing: attempts, ends before the end, counting, and how much it remembers."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from pigeon.frontends.batch.batch_folder import Attempt, BatchFolder, BatchRecord
from pigeon.frontends.batch.driver import MOST_ATTEMPTS, Driver
from pigeon.frontends.batch.records import TaskResult, TaskSpec, hash_of
from pigeon.frontends.batch.task_link import FatalTask
from pigeon.frontends.batch.task_process import TaskProcessDied
from pigeon.wire.errors import StartupError
from support.batch import InstantEngine, Watching, filled_folder, put_finished, result_of, results_in

SPECS = [TaskSpec(id=f"t{number}", prompt=f"do {number}") for number in range(6)]


async def drive_batch(
    folder: BatchFolder,
    work: Callable[[TaskSpec], TaskResult | None],
    *,
    budget: float | None = None,
    retry: bool = False,
) -> tuple[Driver, InstantEngine, list[TaskResult]]:
    engine = InstantEngine(folder, work)
    engine.budget = budget
    driver = Driver(folder, folder.read_record(), lambda spent, exhausted: engine, Watching())
    return driver, engine, [result async for result in driver.run_tasks(retry)]


async def test_results_are_written_in_the_order_of_the_tasks(tmp_path: Path) -> None:
    folder = filled_folder(tmp_path, SPECS)
    driver, engine, results = await drive_batch(folder, result_of)
    assert engine.submitted == [spec.id for spec in SPECS]
    assert {one.id for one in results} == set(engine.submitted)
    assert list(results_in(tmp_path)) == engine.submitted
    assert (driver.outcome.stopped, driver.outcome.remaining_count, engine.stopped) == (None, 0, True)


async def test_what_is_finished_is_not_run_again_and_what_was_half_is_removed(tmp_path: Path) -> None:
    folder = filled_folder(tmp_path, SPECS)
    for spec in SPECS[:3]:
        put_finished(folder, spec, result_of(spec, cost=1.0))
    half = tmp_path / f".part-{hash_of(SPECS[3])}-0123"
    (half / "workspace").mkdir(parents=True)
    (half / "x.jsonl").write_text('{"message":{"usage":{"cost":{"total":0.25}}}}\nhalf a li')
    (tmp_path / "results.jsonl").write_text('{"id":"t0"}\n{"id":"t')
    driver, engine, _ = await drive_batch(folder, result_of)
    assert engine.submitted == ["t3", "t4", "t5"]
    assert len(results_in(tmp_path)) == 6
    assert driver.outcome.tally.cost == 3.0
    assert folder.read_wasted_cost() == 0.25, "money that was spent in vain still counts"
    assert not half.exists()


async def test_a_process_that_dies_is_started_again_and_a_task_that_kills_it_is_an_error(tmp_path: Path) -> None:
    folder = filled_folder(tmp_path, SPECS[:3])
    tries: dict[str, int] = {}

    def work(spec: TaskSpec) -> TaskResult:
        tries[spec.id] = tries.get(spec.id, 0) + 1
        if spec.id == "t0" and tries["t0"] < 3:
            raise TaskProcessDied("killed", False)
        if spec.id == "t1":
            raise TaskProcessDied("The task's process was killed by SIGKILL", tries["t1"] < 4)
        return result_of(spec)

    await drive_batch(folder, work)
    found = results_in(tmp_path)
    assert tries == {"t0": 3, "t1": 3 + MOST_ATTEMPTS, "t2": 1}
    assert {id: one["status"] for id, one in found.items()} == {"t0": "done", "t1": "error", "t2": "done"}
    assert "SIGKILL" in found["t1"]["error"]


async def test_a_full_disk_ends_the_batch_and_leaves_what_was_finished(tmp_path: Path) -> None:
    folder = filled_folder(tmp_path, SPECS)

    def work(spec: TaskSpec) -> TaskResult:
        if spec.id == "t3":
            raise FatalTask("No space left on device")
        return result_of(spec)

    driver, engine, _ = await drive_batch(folder, work)
    assert "No space left" in (driver.outcome.stopped or "")
    assert len(engine.submitted) <= 5
    assert set(results_in(tmp_path)) >= {"t0", "t1"}


class FillingFolder(BatchFolder):
    """Its disk is full when the list of results is made for the second time."""

    lists = 0

    def write_results(self, seen: Callable[[TaskSpec, TaskResult | None], None]) -> None:
        self.lists += 1
        if self.lists > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_results(seen)


async def test_a_disk_that_is_full_at_the_end_is_named_as_the_reason(tmp_path: Path) -> None:
    filled_folder(tmp_path, SPECS[:2])
    driver, _, results = await drive_batch(FillingFolder(str(tmp_path)), result_of)
    assert len(results) == 2
    assert driver.outcome.stopped == f"{tmp_path}: No space left on device"


class FullFolder(BatchFolder):
    """Its disk is full when a result is listed, or when it is recorded what an attempt has cost."""

    def add_result(self, result: TaskResult) -> None:
        if result.id == "t1":
            raise OSError(errno.ENOSPC, "No space left on device")
        super().add_result(result)

    def add_unfinished(self, attempt: Attempt) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_disk_that_is_full_when_a_result_is_listed_ends_the_batch_and_loses_nothing(tmp_path: Path) -> None:
    filled_folder(tmp_path, SPECS)
    driver, engine, _ = await drive_batch(FullFolder(str(tmp_path)), result_of)
    assert driver.outcome.stopped == f"{tmp_path}: No space left on device"
    assert len(engine.submitted) < len(SPECS)
    again, engine, _ = await drive_batch(BatchFolder(str(tmp_path)), result_of)
    assert "t1" not in engine.submitted, "its result is in its folder"
    assert list(results_in(tmp_path)) == [spec.id for spec in SPECS]
    assert again.outcome.stopped is None


async def test_a_disk_that_is_full_when_wasted_money_is_recorded_ends_the_batch(tmp_path: Path) -> None:
    filled_folder(tmp_path, SPECS[:1])
    folder = FullFolder(str(tmp_path))
    engine = InstantEngine(folder, lambda spec: None)
    engine.release_money = lambda task: asyncio.sleep(0, 2.0)  # type: ignore[method-assign,assignment]
    driver = Driver(folder, folder.read_record(), lambda spent, exhausted: engine, Watching())
    assert [result async for result in driver.run_tasks(False)] == []
    assert driver.outcome.stopped == f"{tmp_path}: No space left on device"


@pytest.mark.parametrize(
    ("problem", "stopped"),
    [
        (OSError(errno.EIO, "Input/output error"), "{}: Input/output error"),
        (StartupError("no process can be started"), "no process can be started"),
    ],
    ids=["disk", "processes"],
)
async def test_a_task_that_cannot_be_run_at_all_ends_the_batch_with_the_reason(
    tmp_path: Path, problem: Exception, stopped: str
) -> None:
    folder = filled_folder(tmp_path, SPECS)

    def work(spec: TaskSpec) -> TaskResult:
        if spec.id == "t1":
            raise problem
        return result_of(spec)

    driver, _, results = await drive_batch(folder, work)
    assert driver.outcome.stopped == stopped.format(tmp_path)
    assert "t1" not in {one.id for one in results}
    assert driver.outcome.remaining_count >= 1


async def test_a_batch_ends_when_its_money_is_spent_and_goes_on_with_more(tmp_path: Path) -> None:
    folder = filled_folder(tmp_path, SPECS)
    driver, engine, results = await drive_batch(folder, lambda spec: result_of(spec, cost=1.0), budget=2.5)
    assert driver.outcome.limited
    assert len(results) == len(engine.submitted) < 4
    again, engine, _ = await drive_batch(folder, lambda spec: result_of(spec, cost=1.0))
    assert len(engine.submitted) + len(results) == 6
    assert not again.outcome.limited
    assert len(results_in(tmp_path)) == 6


async def test_those_that_are_not_done_are_run_again_on_request_and_what_they_cost_still_counts(tmp_path: Path) -> None:
    folder = filled_folder(tmp_path, SPECS)
    await drive_batch(
        folder, lambda spec: result_of(spec, cost=1.0, status="failed" if spec.id in ("t1", "t4") else "done")
    )
    _, engine, _ = await drive_batch(folder, result_of)
    assert engine.submitted == []
    _, engine, _ = await drive_batch(folder, result_of, retry=True)
    assert engine.submitted == ["t1", "t4"]
    assert folder.read_wasted_cost() == 2.0
    assert {one["status"] for one in results_in(tmp_path).values()} == {"done"}


async def test_leaving_the_iteration_stops_the_rest(tmp_path: Path) -> None:
    folder = filled_folder(tmp_path, SPECS)
    engine = InstantEngine(folder, result_of)
    driver = Driver(folder, folder.read_record(), lambda spent, exhausted: engine, Watching())
    results = driver.run_tasks()
    await anext(results)
    await results.aclose()  # type: ignore[attr-defined]
    assert engine.stopped
    assert len(engine.submitted) < 6
    assert results_in(tmp_path).keys() == set(engine.submitted)


async def test_an_interruption_ends_in_order(tmp_path: Path) -> None:
    folder = filled_folder(tmp_path, SPECS)
    engine = InstantEngine(folder, result_of)
    driver = Driver(folder, folder.read_record(), lambda spent, exhausted: engine, Watching())
    async for _ in driver.run_tasks():
        driver.stop("Interrupted", signal=2)
    await asyncio.sleep(0)
    assert driver.outcome.signal == 2
    assert driver.outcome.remaining_count == 6 - len(results_in(tmp_path)) > 0


def test_two_drivers_cannot_work_on_one_folder(tmp_path: Path) -> None:
    first, second = BatchFolder(str(tmp_path)), BatchFolder(str(tmp_path))
    first.lock()
    with pytest.raises(StartupError, match=r"is being worked on by process \d+ on "):
        second.lock()
    first.close()
    second.lock()
    second.close()


async def test_the_driver_remembers_nothing_of_tasks_that_are_over(tmp_path: Path) -> None:
    """Results with long texts, ten times as many of them: no more memory."""
    specs = [TaskSpec(id=f"t{number}", prompt="x" * 10_000 + str(number)) for number in range(110)]
    folder = filled_folder(tmp_path, specs)
    del specs
    engine = InstantEngine(folder, lambda spec: result_of(spec, text="y" * 20_000))
    driver = Driver(folder, folder.read_record(), lambda spent, exhausted: engine, Watching())
    # Where tasks and results are made; other threads of the test's process take memory, too.
    filters = [
        tracemalloc.Filter(True, name) for name in ("*/pigeon/frontends/batch/*", "*/support/batch.py", __file__)
    ]
    sizes = []
    tracemalloc.start()
    try:
        count = 0
        async for _ in driver.run_tasks():
            count += 1
            if count in (10, 100):
                # What only waits for the collector is not remembered.
                gc.collect()
                traces = tracemalloc.take_snapshot().filter_traces(filters).traces
                sizes.append(sum(trace.size for trace in traces))
    finally:
        tracemalloc.stop()
    early, late = sizes
    assert early > 0
    assert late < early + 100_000, sizes


async def test_a_result_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = filled_folder(tmp_path, SPECS)
    put_finished(folder, SPECS[0], result_of(SPECS[0]))
    (tmp_path / hash_of(SPECS[0]) / "result.json").write_text(json.dumps({"id": 7}))
    with pytest.raises(StartupError, match=hash_of(SPECS[0])):
        await drive_batch(folder, result_of)


async def test_a_driver_that_was_killed_before_it_took_its_tasks_is_gone_on_from(tmp_path: Path) -> None:
    folder = BatchFolder(str(tmp_path))
    folder.stage_tasks(SPECS)
    folder.put_record(BatchRecord(id="a-batch"))
    with pytest.raises(StartupError, match=r"tasks\.jsonl cannot be read"):
        list(folder.read_tasks())
    folder.adopt_leftover_tasks()
    assert [spec.id for spec in folder.read_tasks()] == [spec.id for spec in SPECS]
    folder.stage_tasks(SPECS[:1])
    folder.adopt_leftover_tasks()
    assert len(list(folder.read_tasks())) == len(SPECS), "tasks that were read later and never taken do not count"
