"""The driver: gives tasks to an engine while it has room, and keeps count.

Tasks are read one by one from the folder, and results are written there by the processes that produce them; the driver
only holds the running tasks and a tally. So its memory does not grow with the batch, and if it is killed, no finished
task is lost. A process that dies is restarted; a task whose process keeps dying is an error.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol

from pigeon.frontends.batch.batch_folder import Attempt, BatchFolder, BatchRecord, Tally
from pigeon.frontends.batch.engine import TaskEngine
from pigeon.frontends.batch.records import TaskResult, TaskSpec, hash_of
from pigeon.frontends.batch.task_link import FatalTask
from pigeon.frontends.batch.task_process import PART, TaskProcessDied
from pigeon.frontends.batch.task_run import commit_folder, put_result
from pigeon.system.clock import now_ms
from pigeon.wire import codec
from pigeon.wire.errors import PigeonError, text_for_host

MOST_ATTEMPTS = 5
# Attempts that failed through no fault of the task; after this many, something is wrong with the machine.
MOST_INNOCENT = 50
# Tolerance for rounding in sums of dollars.
SMALLEST_COST = 1e-9
# Seconds between checks for providers that refuse requests.
LOOK_SECONDS = 2.0
LEFT = "The batch was left"
SPENT = "The batch has reached its cost limit (--max-cost)"


class BatchWatcher(Protocol):
    """Receives the progress of a running batch."""

    def on_batch_began(self, tally: Tally, slots: int) -> None:
        """Called when the batch begins; `tally` counts what was finished before."""
        ...

    def on_task_started(self, spec: TaskSpec) -> None: ...

    def on_task_ended(self, spec: TaskSpec, result: TaskResult | None, tally: Tally, spent: float) -> None:
        """Called when a task has ended; `result` is None if it will be run again later."""
        ...

    def on_providers_paused(self, pauses: Mapping[str, float]) -> None:
        """Called every two seconds while providers refuse requests, with the seconds for which all tasks wait."""
        ...


class Outcome:
    """How a batch has ended; `stopped` is the reason if not all tasks were run."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.stopped: str | None = None
        self.signal: int | None = None
        self.limited = False

    def note_stop(self, reason: str, signal: int | None, limited: bool) -> None:
        """Note that the batch ends early, and the signal that caused it, if any."""
        self.stopped, self.signal, self.limited = reason, signal, limited

    @property
    def remaining_count(self) -> int:
        return self.tally.total - self.tally.finished_count


class Driver:
    """Runs one batch from its current state to its end."""

    def __init__(
        self,
        folder: BatchFolder,
        record: BatchRecord,
        engine: Callable[[float, Callable[[], None]], TaskEngine],
        watcher: BatchWatcher,
    ) -> None:
        """`engine` creates the engine, given what was spent so far and a callback for when the money is used up."""
        self._folder = folder
        self._record = record
        self._make_engine = engine
        self._watcher = watcher
        self._tally = Tally()
        self.outcome = Outcome(self._tally)
        self._engine: TaskEngine | None = None
        self._stopping = asyncio.Event()
        self._ending: asyncio.Future[None] | None = None
        self._pending: set[asyncio.Task[TaskResult | None]] = set()
        self.spent = 0.0

    def stop(self, reason: str, *, signal: int | None = None, limited: bool = False) -> None:
        """Start no further task, and end the running ones; the next driver starts them over."""
        if self._stopping.is_set():
            return
        self.outcome.note_stop(reason, signal, limited)
        self._stopping.set()
        if self._engine is not None:
            self._ending = asyncio.ensure_future(self._engine.stop(reason))

    def kill(self) -> None:
        self.stop("killed")
        if self._engine is not None:
            self._engine.kill()

    async def run_tasks(self, retry_failed: bool = False) -> AsyncIterator[TaskResult]:
        """Run the remaining tasks and yield results as they come. Leaving the iteration stops the rest.

        Raises `StartupError` where the engine cannot be used, or nothing can be written.
        """
        await asyncio.to_thread(self._clean_up_and_count_results, retry_failed)
        self.spent = self._tally.cost + self._folder.read_wasted_cost()
        engine = self._engine = self._make_engine(self.spent, lambda: self.stop(SPENT, limited=True))
        looking: asyncio.Future[None] | None = None
        try:
            await engine.open()
            self._watcher.on_batch_began(self._tally, engine.max_handed_over)
            looking = asyncio.ensure_future(self._report_pauses_regularly(engine))
            async for result in self._run_remaining(engine):
                yield result
        finally:
            if looking is not None:
                looking.cancel()
            self.stop(LEFT)
            if self._ending is not None:
                await asyncio.shield(self._ending)
            for task in self._pending:
                task.cancel()
            if self._pending:
                await asyncio.wait(self._pending)
            engine.kill()
            try:
                await asyncio.to_thread(self._sort_results_and_clean_up)
            except OSError as error:
                # The folders have all results; the next driver rebuilds the list from them.
                if self.outcome.stopped is None or self.outcome.stopped == LEFT:
                    self.outcome.note_stop(f"{self._folder.path}: {text_for_host(error)}", None, False)

    def _sort_results_and_clean_up(self) -> None:
        """Sort the results; once all tasks are done, also remove attempts that a lost machine has left."""
        self._folder.write_results(lambda spec, result: None)
        if not self.outcome.remaining_count:
            self._folder.remove_unfinished_attempts()

    def _clean_up_and_count_results(self, retry_failed: bool) -> None:
        """Cleans up after an earlier driver and counts what it has finished; runs in a thread."""
        folder, tally = self._folder, self._tally
        folder.remove_unfinished_attempts()
        if retry_failed:
            for spec in folder.read_tasks():
                result = folder.read_result(spec)
                if result is not None and result.status != "done":
                    folder.discard_result(result)

        folder.write_results(lambda spec, result: tally.count_task(result))

    async def _run_remaining(self, engine: TaskEngine) -> AsyncIterator[TaskResult]:
        for spec in self._folder.read_tasks():
            if self._stopping.is_set():
                break
            if self._folder.is_finished(spec):
                continue
            while len(self._pending) >= engine.max_handed_over or not await self._try_reserve_money(engine, spec):
                if not self._pending:
                    self.stop(SPENT, limited=True)
                    break
                async for result in self._wait_for_results():
                    yield result
                if self._stopping.is_set():
                    break
            if self._stopping.is_set():
                break
            self._watcher.on_task_started(spec)
            self._pending.add(asyncio.ensure_future(self._run_task(engine, spec)))
        while self._pending:
            async for result in self._wait_for_results():
                yield result
        # The loop is over; what `finally` does is not an interruption.
        if not self._stopping.is_set():
            self._stopping.set()

    async def _report_pauses_regularly(self, engine: TaskEngine) -> None:
        """Check regularly which providers refuse requests."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._watcher.on_providers_paused(await engine.find_provider_pauses())

    async def _wait_for_results(self) -> AsyncIterator[TaskResult]:
        """Wait until a task has ended, and yield the results of all that have."""
        done, self._pending = await asyncio.wait(self._pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            result = task.result()
            if result is not None:
                yield result

    async def _try_reserve_money(self, engine: TaskEngine, spec: TaskSpec) -> bool:
        """Reserve money for a task: its own limit, else the cost of the dearest so far; false if too little is left."""
        return await engine.reserve_money(spec.id, float(spec.limits.get("cost", self._tally.dearest)))

    async def _run_task(self, engine: TaskEngine, spec: TaskSpec) -> TaskResult | None:
        """The result of a task, after as many attempts as needed, or None if it was stopped."""
        result = None
        try:
            result = await self._retry_until_result(engine, spec)
        except (FatalTask, OSError) as error:
            reason = text_for_host(error) if isinstance(error, OSError) else str(error)
            self.stop(f"{self._folder.path}: {reason}")
        except PigeonError as error:
            self.stop(str(error))
        # The cost of earlier attempts is not part of the result, but was spent all the same.
        wasted = await engine.release_money(spec.id) - (0.0 if result is None else result.cost)
        if wasted > SMALLEST_COST:
            self._record_unfinished(spec, wasted, self.outcome.stopped or "The task's process was killed")
        if result is not None:
            self._tally.add(result)
            try:
                self._folder.add_result(result)
            except OSError as error:
                self.stop(f"{self._folder.path}: {text_for_host(error)}")
        self.spent = await engine.get_total_cost()
        self._watcher.on_task_ended(spec, result, self._tally, self.spent)
        return result

    async def _retry_until_result(self, engine: TaskEngine, spec: TaskSpec) -> TaskResult | None:
        attempts = innocent = 0
        while True:
            try:
                return await asyncio.wrap_future(engine.submit(spec))
            except TaskProcessDied as error:
                if self._stopping.is_set():
                    return None
                attempts += not error.innocent
                innocent += error.innocent
                if innocent >= MOST_INNOCENT:
                    # The fault is with this machine, not the task, which is left to the next driver.
                    raise FatalTask(f"{error} ({innocent} times)") from None
                if attempts >= MOST_ATTEMPTS:
                    return await asyncio.to_thread(self._give_up_task, spec, f"{error} ({attempts} attempts)")

    def _give_up_task(self, spec: TaskSpec, reason: str) -> TaskResult:
        """Record a task as failed for good; runs in a thread."""
        folder = hash_of(spec)
        part = os.path.join(self._folder.path, f"{PART}{folder}-{os.urandom(4).hex()}")
        os.mkdir(part, 0o700)
        result = TaskResult(
            id=spec.id, status="error", error=reason, folder=folder, group=spec.group, model=spec.model, began=now_ms()
        )
        put_result(part, spec, codec.encode(result))
        return commit_folder(part, os.path.join(self._folder.path, folder), result)

    def _record_unfinished(self, spec: TaskSpec, cost: float, reason: str) -> None:
        try:
            self._folder.add_unfinished(Attempt(id=spec.id, folder=hash_of(spec), cost=cost, reason=reason))
        except OSError as error:
            self.stop(f"{self._folder.path}: {text_for_host(error)}")
