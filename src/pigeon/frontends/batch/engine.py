"""Engines run tasks in parallel: their interface, and `local`, which needs nothing but this machine.

An engine is used like an executor of `concurrent.futures`: `submit` gives a future of the result, and as many tasks are
running as it has `slots`. It also provides the limits that all tasks share, which must be reachable from the tasks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Protocol

from pigeon.frontends.batch.records import TaskResult, TaskSpec
from pigeon.frontends.batch.shared_limits import SharedLimits
from pigeon.frontends.batch.task_process import TaskProcesses
from pigeon.frontends.batch.task_run import TaskPlace

# Tasks per core, since they mostly wait for a model; and the memory that each needs for its commands.
TASKS_PER_CORE = 2
MEMORY_PER_TASK = 512 * 1024 * 1024


class TaskEngine(Protocol):
    """Runs tasks in parallel, and keeps the limits that they share."""

    @property
    def max_handed_over(self) -> int:
        """How many tasks it has room for now."""
        ...

    async def open(self) -> None: ...

    def submit(self, spec: TaskSpec) -> Future[TaskResult | None]:
        """Run a task; the result is None if it was stopped.

        The future raises `TaskProcessDied` if its process died, and `FatalTask` if no task can be run here.
        """
        ...

    async def reserve_money(self, task: str, share: float) -> bool:
        """Reserve money for a task (`SharedLimits.reserve_money`)."""
        ...

    async def release_money(self, task: str) -> float:
        """Release a task's money and return what it has spent (`SharedLimits.release_money`)."""
        ...

    async def get_total_cost(self) -> float: ...

    async def find_provider_pauses(self) -> dict[str, float]:
        """The providers that refuse requests, with the seconds until the next request."""
        ...

    async def stop(self, reason: str) -> None:
        """End all running tasks in order."""
        ...

    def kill(self) -> None:
        """End everything at once; always the last call."""
        ...


class LocalLimits:
    """The limits of tasks whose host is the driver itself."""

    def __init__(self, limits: SharedLimits) -> None:
        self._limits = limits

    async def reserve_turn(self, provider: str, tokens: int) -> float:
        return self._limits.reserve_turn(provider, tokens)

    async def remaining_wait(self, provider: str) -> float:
        """The seconds that a request still has to wait."""
        return self._limits.remaining_wait(provider)

    async def record_request_end(
        self, provider: str, more_tokens: int, is_refused: bool, seconds: float | None
    ) -> None:
        self._limits.record_request_end(provider, more_tokens, is_refused, seconds)

    async def spend_and_check_exhausted(self, task: str, dollars: float) -> bool:
        return self._limits.spend_and_check_exhausted(task, dollars)


class LocalEngine:
    """A pool of processes on this machine, one for each task."""

    def __init__(self, place: TaskPlace, slots: int, limits: SharedLimits, exhausted: Callable[[], None]) -> None:
        """`exhausted` is called when the last of the money is spent."""
        self._place = place
        self._slots = slots
        self._limits = limits
        self._exhausted = exhausted
        self._processes = TaskProcesses(place.variables, LocalLimits(limits))
        self._running: set[asyncio.Task[None]] = set()

    @property
    def max_handed_over(self) -> int:
        return self._slots

    async def open(self) -> None:
        """Does nothing: the first task starts the warm parent."""

    def submit(self, spec: TaskSpec) -> Future[TaskResult | None]:
        future: Future[TaskResult | None] = Future()
        future.set_running_or_notify_cancel()
        running = asyncio.ensure_future(self._run(spec, future))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return future

    async def _run(self, spec: TaskSpec, future: Future[TaskResult | None]) -> None:
        try:
            future.set_result(await self._processes.run(spec, self._place, self._on_exhausted))
        except asyncio.CancelledError:
            future.set_result(None)
            raise
        except Exception as error:
            future.set_exception(error)

    async def _on_exhausted(self) -> None:
        self._exhausted()

    async def reserve_money(self, task: str, share: float) -> bool:
        return self._limits.reserve_money(task, share)

    async def release_money(self, task: str) -> float:
        return self._limits.release_money(task)

    async def get_total_cost(self) -> float:
        return self._limits.total_cost

    async def find_provider_pauses(self) -> dict[str, float]:
        return self._limits.find_provider_pauses()

    async def stop(self, reason: str) -> None:
        await self._processes.stop(reason)

    def kill(self) -> None:
        self._processes.kill()


def count_fitting_slots() -> int:
    """How many tasks fit on this machine, by its cores and free memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    free = _available_memory()
    by_memory = cores * TASKS_PER_CORE if free is None else free // MEMORY_PER_TASK
    return max(1, min(cores * TASKS_PER_CORE, by_memory))


def _available_memory() -> int | None:
    """The bytes of memory that are available, within the limit of a container; or None if unknown."""
    found = []
    with suppress(OSError, ValueError, IndexError), open("/proc/meminfo", encoding="ascii") as file:
        found += [int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:")]
    with suppress(OSError, ValueError):
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            most = int(file.read())
        with open("/sys/fs/cgroup/memory.current", encoding="ascii") as file:
            found.append(max(0, most - int(file.read())))
    return min(found) if found else None
