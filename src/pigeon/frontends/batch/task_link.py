"""The link between the process of a task and its host: the driver, or a worker of a cluster.

Lines of JSON on a pair of sockets. The task asks for its turn at a provider, and tells what it spends and what came of
it; the host may tell it to stop:

    task:  {"ask":P,"tokens":N}   {"still":P}   {"ended":P,"tokens":N,"refused":B,"seconds":S}   {"spent":D}
           {"result":{...}}   {"fatal":TEXT}
    host:  {"wait":S}, the answer to `ask` and `still`   {"stop":REASON}

If the link closes, the other side has ended: a task whose host is gone ends at once, and its commands with it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

from pigeon.agent.inference import Failure
from pigeon.frontends.batch.records import TaskResult
from pigeon.wire import codec

LONGEST_LINE = 1 << 30
# No capacity now: too many requests of ours, or of others.
REFUSED = (429, 529)
# How often a request is sent again at most; and the longest wait that a server may ask for.
MOST_REFUSALS = 30
LONGEST_WAIT = 600.0


class TaskLink:
    """The task's end of the link; it paces the requests of the agent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._asking = asyncio.Lock()
        self._answers: asyncio.Queue[float] = asyncio.Queue()
        self.stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def over(cls, end: socket.socket) -> TaskLink:
        """The link over a connected socket."""
        reader, writer = await asyncio.open_unix_connection(sock=end, limit=LONGEST_LINE)
        return cls(reader, writer)

    async def turn(self, provider: str, tokens: int) -> None:
        """Wait until a request may be sent."""
        async with self._asking:
            wait = await self._asked({"ask": provider, "tokens": tokens})
            while wait > 0:
                await asyncio.sleep(wait)
                wait = await self._asked({"still": provider})

    def ended(self, provider: str, tokens: int, used: int, failure: Failure | None) -> None:
        """Tell how a request has ended."""
        asked = None if failure is None or not failure.retry_after_ms else failure.retry_after_ms / 1000
        self._send({"ended": provider, "tokens": used - tokens, "refused": _is_refusal(failure), "seconds": asked})

    def again(self, failure: Failure, times: int) -> bool:
        """Whether to send a refused request again: if capacity was lacking, unless the wait would be very long."""
        asked = (failure.retry_after_ms or 0) / 1000
        return _is_refusal(failure) and times <= MOST_REFUSALS and asked <= LONGEST_WAIT

    def spent(self, dollars: float) -> None:
        """Tell what an answer has cost."""
        self._send({"spent": dollars})

    async def finish(self, result: TaskResult | None, fatal: str = "") -> None:
        """Tell what came of the task, or why no task can be done here, and wait until the host has it."""
        self._send({"fatal": fatal} if fatal else {"result": result})
        with suppress(OSError):
            await self._writer.drain()
        self._reading.cancel()
        await _closed(self._writer)

    async def _asked(self, record: dict[str, Any]) -> float:
        self._send(record)
        return await self._answers.get()

    def _send(self, record: dict[str, Any]) -> None:
        self._writer.write(codec.encode(record) + b"\n")

    async def _read(self) -> None:
        with suppress(OSError):
            while line := await self._reader.readline():
                record = codec.decode(line)
                if "wait" in record:
                    self._answers.put_nowait(record["wait"])
                elif not self.stopped.done():
                    self.stopped.set_result(record["stop"])
        # There is nothing to tell, and no task to finish.
        os._exit(1)


def _is_refusal(failure: Failure | None) -> bool:
    """Whether the provider has no capacity now; a quota that is used up does not come back by waiting."""
    return failure is not None and failure.status in REFUSED and failure.retryable


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


class LimitsAccess(Protocol):
    """How a host reaches what all tasks share: its own object, or an actor."""

    async def ask(self, provider: str, tokens: int) -> float:
        """As in `SharedLimits`."""
        ...

    async def still(self, provider: str) -> float:
        """As in `SharedLimits`."""
        ...

    async def ended(self, provider: str, more_tokens: int, is_refused: bool, seconds: float | None) -> None:
        """As in `SharedLimits`."""
        ...

    async def spend(self, task: str, dollars: float) -> bool:
        """As in `SharedLimits`."""
        ...


class FatalTask(Exception):
    """No task can be run here, for example because the disk is full; the text says why."""


class HostEnd:
    """The host's end of the link: answers the task's requests until the result arrives."""

    def __init__(
        self, task: str, end: socket.socket, limits: LimitsAccess, exhausted: Callable[[], Awaitable[None]]
    ) -> None:
        """`exhausted` is called when the task has spent the last of the money."""
        self._task = task
        self._end = end
        self._limits = limits
        self._exhausted = exhausted
        self._writer: asyncio.StreamWriter | None = None
        self._stop: str | None = None

    async def serve(self) -> TaskResult | None:
        """The result of the task; none if its process ended without one. Raises `FatalTask`."""
        reader, self._writer = await asyncio.open_unix_connection(sock=self._end, limit=LONGEST_LINE)
        if self._stop is not None:
            self._send({"stop": self._stop})
        try:
            with suppress(OSError):
                while line := await reader.readline():
                    record = codec.decode(line)
                    if "fatal" in record:
                        raise FatalTask(record["fatal"])
                    if "result" in record:
                        return None if record["result"] is None else codec.convert(record["result"], TaskResult)
                    await self._take(record)
            return None
        finally:
            await _closed(self._writer)

    def stop(self, reason: str) -> None:
        """Tell the task to end."""
        self._stop = reason
        self._send({"stop": reason})

    async def _take(self, record: dict[str, Any]) -> None:
        limits = self._limits
        if "ask" in record:
            self._send({"wait": await limits.ask(record["ask"], record["tokens"])})
        elif "still" in record:
            self._send({"wait": await limits.still(record["still"])})
        elif "ended" in record:
            await limits.ended(record["ended"], record["tokens"], record["refused"], record["seconds"])
        elif "spent" in record and await limits.spend(self._task, record["spent"]):
            await self._exhausted()

    def _send(self, record: dict[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(codec.encode(record) + b"\n")
