"""The link between the process of a task and its host: the driver, or a worker of a cluster.

Records as lines of JSON on a pair of sockets. The task asks for its turn at a provider, and reports what it spends and
what came of it (`FromTask`); the host answers how long to wait, and may stop the task (`FromHost`). If the link closes,
the other side has ended: a task whose host is gone ends at once, and its commands with it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NoReturn, Protocol, cast

from msgspec import Struct

from pigeon.agent.inference import Failure
from pigeon.frontends.batch.records import TaskResult
from pigeon.wire import codec
from pigeon.wire.errors import BadRecord

LONGEST_LINE = 1 << 30
# No capacity now: too many requests of ours, or of others.
REFUSED = (429, 529)
# How often a request is sent again at most, and the longest wait that a server may ask for.
MOST_REFUSALS = 30
LONGEST_WAIT = 600.0


class LinkRecord(Struct, frozen=True, tag=True):
    """One line of the link; its `type` is the name of the class."""


class TurnWanted(LinkRecord, frozen=True):
    """A request of about so many tokens is to be sent to a provider; answered by `TurnWait`."""

    provider: str
    tokens: int


class TurnStillWanted(LinkRecord, frozen=True):
    """The wait is over; answered by `TurnWait`, with zero if the request may be sent."""

    provider: str


class RequestEnded(LinkRecord, frozen=True):
    """A request has ended: how many more tokens it used than expected, and if it was refused, the requested pause."""

    provider: str
    more_tokens: int
    is_refused: bool
    seconds: float | None


class MoneySpent(LinkRecord, frozen=True):
    """An answer of a model has cost this much, in US dollars."""

    dollars: float


class TaskEnded(LinkRecord, frozen=True):
    """The task has ended; its result is None if it was stopped."""

    result: TaskResult | None


class TaskImpossible(LinkRecord, frozen=True):
    """Sent by a task that finds that no task can be run on this machine, with the reason."""

    reason: str


class TurnWait(LinkRecord, frozen=True):
    """How many seconds to wait before asking with `TurnStillWanted`; zero if the request may be sent."""

    seconds: float


class StopTask(LinkRecord, frozen=True):
    """Sent by the host: the task has to end, with the reason."""

    reason: str


FromTask = TurnWanted | TurnStillWanted | RequestEnded | MoneySpent | TaskEnded | TaskImpossible
FromHost = TurnWait | StopTask


class TaskLink:
    """The task's end of the link; it paces the requests of the agent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._asking = asyncio.Lock()
        self._answers: asyncio.Queue[float] = asyncio.Queue()
        self.stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.ensure_future(self._read_records())

    @classmethod
    async def from_socket(cls, end: socket.socket) -> TaskLink:
        """The link over a connected socket."""
        reader, writer = await asyncio.open_unix_connection(sock=end, limit=LONGEST_LINE)
        return cls(reader, writer)

    async def wait_for_turn(self, provider: str, tokens: int) -> None:
        """Wait until a request may be sent."""
        async with self._asking:
            wait = await self._ask_for_wait_time(TurnWanted(provider, tokens))
            while wait > 0:
                await asyncio.sleep(wait)
                wait = await self._ask_for_wait_time(TurnStillWanted(provider))

    def on_request_end(self, provider: str, tokens: int, used: int, failure: Failure | None) -> None:
        """Report how a request has ended."""
        asked = None if failure is None or not failure.retry_after_ms else failure.retry_after_ms / 1000
        self._send(RequestEnded(provider, used - tokens, _is_refusal(failure), asked))

    def should_resend(self, failure: Failure, times: int) -> bool:
        """Whether to resend a refused request: only for lack of capacity, and unless the wait would be very long."""
        asked = (failure.retry_after_ms or 0) / 1000
        return _is_refusal(failure) and times <= MOST_REFUSALS and asked <= LONGEST_WAIT

    def report_cost(self, dollars: float) -> None:
        self._send(MoneySpent(dollars))

    async def report_task_end(self, result: TaskResult | None, fatal: str = "") -> None:
        """Report the result of the task, or why no task can be done here, and wait until the host has it."""
        self._send(TaskImpossible(fatal) if fatal else TaskEnded(result))
        with suppress(OSError):
            await self._writer.drain()
        self._reading.cancel()
        await _close_writer(self._writer)

    async def _ask_for_wait_time(self, record: TurnWanted | TurnStillWanted) -> float:
        self._send(record)
        return await self._answers.get()

    def _send(self, record: FromTask) -> None:
        self._writer.write(codec.encode(record) + b"\n")

    async def _read_records(self) -> NoReturn:
        try:
            while line := await self._reader.readline():
                record: FromHost = codec.convert(codec.decode(line), cast("type[Any]", FromHost))
                if isinstance(record, TurnWait):
                    self._answers.put_nowait(record.seconds)
                elif not self.stopped.done():
                    self.stopped.set_result(record.reason)
        except OSError:
            pass
        except BadRecord as error:
            sys.stderr.write(f"The task's host has sent a record that cannot be read: {error}\n")
            sys.stderr.flush()
        # No host waits for the result, so there is no task to finish.
        os._exit(1)


def _is_refusal(failure: Failure | None) -> bool:
    """Whether the provider has no capacity now; waiting does not bring back a quota that is used up."""
    return failure is not None and failure.status in REFUSED and failure.retryable


async def _close_writer(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


class LimitsAccess(Protocol):
    """How a host reaches the `SharedLimits` of all tasks: by its own object, or by an actor."""

    async def reserve_turn(self, provider: str, tokens: int) -> float: ...

    async def remaining_wait(self, provider: str) -> float: ...

    async def record_request_end(
        self, provider: str, more_tokens: int, is_refused: bool, seconds: float | None
    ) -> None: ...

    async def spend_and_check_exhausted(self, task: str, dollars: float) -> bool: ...


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

    async def serve_until_task_ends(self) -> TaskResult | None:
        """Returns the result of the task, or None if its process ended without one. Raises `FatalTask`."""
        reader, self._writer = await asyncio.open_unix_connection(sock=self._end, limit=LONGEST_LINE)
        if self._stop is not None:
            self._send(StopTask(self._stop))
        try:
            with suppress(OSError):
                while line := await reader.readline():
                    record: FromTask = codec.convert(codec.decode(line), cast("type[Any]", FromTask))
                    if isinstance(record, TaskImpossible):
                        raise FatalTask(record.reason)
                    if isinstance(record, TaskEnded):
                        return record.result
                    await self._handle(record)
            return None
        except BadRecord as error:
            raise FatalTask(f"The process of a task has sent a record that cannot be read: {error}") from None
        finally:
            await _close_writer(self._writer)

    def stop(self, reason: str) -> None:
        """Send the task a request to end, with the reason."""
        self._stop = reason
        self._send(StopTask(reason))

    async def _handle(self, record: TurnWanted | TurnStillWanted | RequestEnded | MoneySpent) -> None:
        limits = self._limits
        if isinstance(record, TurnWanted):
            self._send(TurnWait(await limits.reserve_turn(record.provider, record.tokens)))
        elif isinstance(record, TurnStillWanted):
            self._send(TurnWait(await limits.remaining_wait(record.provider)))
        elif isinstance(record, RequestEnded):
            await limits.record_request_end(record.provider, record.more_tokens, record.is_refused, record.seconds)
        elif await limits.spend_and_check_exhausted(self._task, record.dollars):
            await self._exhausted()

    def _send(self, record: FromHost) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(codec.encode(record) + b"\n")
