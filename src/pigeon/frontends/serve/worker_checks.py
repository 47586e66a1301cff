"""What the supervisor checks from time to time: limits of workers, silence, idle conversations, requests that wait.

It checks once a second while something is going on, rarely while all awake conversations are idle, and not at all while
none is awake.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from pigeon.frontends.serve.conversation import ServedConversation
from pigeon.frontends.serve.resources import ProcessUse, private_memory, uses_of
from pigeon.frontends.serve.wake_queue import WakeQueue
from pigeon.frontends.serve.worker_process import Workers

CHECK_SECONDS = 1.0
# While nothing is going on, and nothing can exceed its time.
IDLE_CHECK_SECONDS = 5.0
MB = 1024 * 1024


class ServeLimits(Struct, frozen=True, kw_only=True):
    """How much may be served at once, and how much one worker may use: `worker_memory` in MB, with all its processes.

    A worker that dies is restarted `worker_restarts` times within a minute, and one that is silent for `worker_silence`
    seconds is ended; 0 means never. A host tool waits `host_tool_wait` seconds for a client. With
    `allow_exec` clients may name workspaces by a command.
    """

    awake: int = 200
    kept: int = 10_000
    idle_seconds: float = 600.0
    worker_memory: int = 4096
    worker_processes: int = 500
    worker_restarts: int = 5
    worker_silence: int = 60
    host_tool_wait: int = 120
    allow_exec: bool = False


class WorkerChecks:
    """Enforces the limits of awake conversations, and puts idle ones to sleep."""

    def __init__(
        self,
        limits: ServeLimits,
        workers: Workers,
        wakes: WakeQueue,
        awake: Callable[[], list[ServedConversation]],
        now: Callable[[], float],
    ) -> None:
        self._limits = limits
        self._workers = workers
        self._wakes = wakes
        self._awake = awake
        self._now = now
        self._something_changed = asyncio.Event()
        self._checking: asyncio.Task[None] | None = None
        self._sleeping: set[asyncio.Task[bool]] = set()

    def start(self) -> None:
        """Begin to check, once the conversations of an earlier supervisor were found."""
        self._checking = asyncio.ensure_future(self._check_regularly())

    def stop(self) -> None:
        """Check nothing more; what is being put to sleep goes on."""
        if self._checking is not None:
            self._checking.cancel()

    def note_change(self) -> None:
        """Called when a conversation may have become busy, idle or asleep, and when a request begins to wait."""
        self._something_changed.set()

    async def _check_regularly(self) -> None:
        while True:
            await self._wait_for_next_check()
            before = self._now() - self._limits.idle_seconds
            for one in self._awake():
                one.enforce_time_limits(self._limits.worker_silence, self._limits.host_tool_wait)
                if one.is_idle and (one.must_move or one.used < before):
                    self._put_to_sleep(one)
            self._wakes.process_requests()
            await self._end_excessive_workers()

    def _put_to_sleep(self, one: ServedConversation) -> None:
        task = asyncio.ensure_future(one.try_sleep())
        self._sleeping.add(task)
        task.add_done_callback(self._sleeping.discard)
        task.add_done_callback(lambda _: self._wakes.process_requests())

    async def _wait_for_next_check(self) -> None:
        """Wait a second, and longer while nothing is going on."""
        while not self._awake() and not self._wakes.has_requests:
            self._something_changed.clear()
            await self._something_changed.wait()
        await asyncio.sleep(CHECK_SECONDS)
        self._something_changed.clear()
        awake = self._awake()
        if all(one.is_idle and not one.must_move for one in awake) and not self._wakes.has_requests:
            asleep_in = min((one.used for one in awake), default=0.0) + self._limits.idle_seconds - self._now()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(asleep_in, IDLE_CHECK_SECONDS - CHECK_SECONDS))):
                    await self._something_changed.wait()

    async def _end_excessive_workers(self) -> None:
        """End workers that exceed their limits of memory or processes."""
        workers = {one.pid: one for one in self._awake() if one.pid is not None}
        shared = self._workers.parent_pid
        uses, base = await asyncio.to_thread(lambda: (uses_of(list(workers)), private_memory(shared)))
        for pid, use in uses.items():
            why = self._describe_excess(use, base)
            if why and workers[pid].pid == pid:
                workers[pid].kill(why)

    def _describe_excess(self, use: ProcessUse, base: int) -> str:
        limits = self._limits
        # A worker shares the memory of the parent that it was forked from, so that part is not counted.
        if limits.worker_memory and use.memory - base > limits.worker_memory * MB:
            return f"it and its commands used more than {limits.worker_memory} MB of memory (--worker-memory)"
        if limits.worker_processes and use.processes > limits.worker_processes:
            return f"it had more than {limits.worker_processes} processes (--worker-processes)"
        return ""
