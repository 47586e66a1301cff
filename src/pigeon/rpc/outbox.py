"""From records to lines: the connection decides the form, the writer keeps the order.

While a host reads too slowly, deltas of the same block are merged into longer ones instead of queueing up: it gets the
same text in fewer, larger updates, and a slow reader does not delay the agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import get_args

from msgspec.structs import replace

from pigeon.dialects.base import OutputLine
from pigeon.rpc.connection import Connection, EncodedData
from pigeon.transport.writer import LineSink
from pigeon.wire.answers import Response
from pigeon.wire.base import Record
from pigeon.wire.dialogs import DialogRequest
from pigeon.wire.events import (
    AgentEnd,
    AgentSettled,
    Event,
    MessageUpdate,
    Outbound,
    PromptResult,
    SessionSettled,
    TextDelta,
    ThinkingDelta,
    ToolcallDelta,
)

MOST_HELD = 64 * 1024
ENDS = (AgentEnd, AgentSettled, PromptResult, SessionSettled)
# How much of a long answer is encoded at once: a few milliseconds.
SLICE_PIECES = 250
SLICE_BYTES = 256 * 1024
_GROWING = (TextDelta, ThinkingDelta, ToolcallDelta)


class HeldDeltas:
    """Deltas of one block that wait for room."""

    def __init__(self, update: MessageUpdate, delta: TextDelta | ThinkingDelta | ToolcallDelta) -> None:
        self._update = update
        self._first = delta
        self._parts = [delta.delta]
        self.size = len(delta.delta)

    def try_add(self, update: MessageUpdate) -> bool:
        """Add a delta; returns False if it belongs to another block."""
        delta = update.assistant_message_event
        if not isinstance(delta, _GROWING) or type(delta) is not type(self._first):
            return False
        if delta.content_index != self._first.content_index:
            return False
        self._update = update
        self._parts.append(delta.delta)
        self.size += len(delta.delta)
        return True

    def to_update(self) -> MessageUpdate:
        """One update with the text of all deltas."""
        event = replace(self._first, delta="".join(self._parts))
        return replace(self._update, assistant_message_event=event)


class LongAnswer:
    """The data of an answer that may be long, as pieces of JSON that are made on demand.

    Empty pieces are allowed; no key may span two pieces, or it would not be masked.
    """

    __slots__ = ("pieces",)

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces = pieces


class Outbox:
    """Everything that leaves the process goes through here: events in their order, answers as soon as they are
    ready."""

    def __init__(
        self,
        answers: LineSink,
        connection: Connection,
        events: LineSink | None = None,
        merges: bool = True,
    ) -> None:
        """`events` is where events go if not to `answers`. Without `merges`, and for a host with the feature
        `every_delta`, the agent waits for a slow host instead of merging deltas."""
        self._always_waits = not merges
        self._answers = answers
        self._events = answers if events is None else events
        self._connection = connection
        connection.set_change_callback(self._flush_held)
        self._left_out: tuple[type[Record], ...] = ()
        self._held: HeldDeltas | None = None
        self._may_hold = False
        self._release: asyncio.Task[None] | None = None
        self._making = asyncio.Lock()

    @property
    def _merges(self) -> bool:
        return not (self._always_waits or self._connection.sends_every_delta)

    def suppress_dialogs(self) -> None:
        """Send nothing that a person would have to see or answer."""
        self._left_out += get_args(DialogRequest)

    def suppress_run_ends(self) -> None:
        """Do not report the end of any run, because the process is about to end and a host may react with a command."""
        self._left_out += ENDS

    def suppress_events(self) -> None:
        """Send no more events; commands are still answered, and warnings shown."""
        self._left_out += (Event,)

    @contextmanager
    def suppressing_events_and_dialogs(self) -> Iterator[None]:
        """Suppress all events and dialogs inside the `with` block."""
        before, self._left_out = self._left_out, (Event, *get_args(DialogRequest))
        try:
            yield
        finally:
            self._left_out = before

    def greet(self) -> None:
        """Send the greeting of the dialect."""
        self._write_answer(self._connection.greeting())

    def send_event(self, event: Outbound) -> bool:
        """Send an event, or hold a delta back while the host reads slowly; returns True in that case
        (`wait_if_full`)."""
        if isinstance(event, self._left_out):
            return False
        self._may_hold = isinstance(event, MessageUpdate) and isinstance(event.assistant_message_event, _GROWING)
        if not (isinstance(event, MessageUpdate) and self._try_hold(event)):
            self._flush_held()
            self._write_event(event)
        return self._events.is_full

    def forward_line(self, line: bytes) -> None:
        """Send a line of another agent unchanged, after what is waiting."""
        self._flush_held()
        self._events.put((line, b"\n"))

    def send_answer(self, response: Response) -> None:
        self._write_answer(self._connection.to_answer_lines(response))

    def encode_answer(self, answer: LongAnswer) -> EncodedData | Awaitable[EncodedData]:
        """The data of an answer: at once if it is short, else an awaitable, so that other work continues.

        Long answers are encoded one after the other, each when the host has read the previous output, so that there is
        never more than one of them in memory and one being sent.
        """
        if not self._making.locked() and not self._answers.is_full:
            pieces, done = self._read_slice(answer.pieces)
            return EncodedData(pieces) if done else self._encode_in_slices(pieces, answer.pieces)
        return self._encode_in_slices([], answer.pieces)

    async def _encode_in_slices(self, made: list[bytes], pieces: Iterator[bytes]) -> EncodedData:
        async with self._making:
            done = False
            while not done:
                await asyncio.sleep(0)
                await self._answers.wait_for_room()
                more, done = self._read_slice(pieces)
                made += more
        return EncodedData(made)

    def _read_slice(self, pieces: Iterator[bytes]) -> tuple[list[bytes], bool]:
        """Encode and mask the next part of an answer; returns it, and whether it was the last."""
        taken: list[bytes] = []
        size = 0
        for piece in islice(pieces, SLICE_PIECES):
            taken.append(piece)
            size += len(piece)
            if size > SLICE_BYTES:
                break
        else:
            if len(taken) < SLICE_PIECES:
                return [self._connection.mask(b"".join(taken))], True
        return [self._connection.mask(b"".join(taken))], False

    def refuse_prompt(self, response: Response) -> None:
        """Answer a refused prompt; once run ends are suppressed, without the result that a dialect may add."""
        self._write_answer(
            self._connection.to_refusal_lines(response, with_result=not issubclass(PromptResult, self._left_out))
        )

    def refuse_unknown(self, response: Response) -> None:
        self._write_answer(self._connection.to_unknown_command_lines(response))

    def wait_if_full(self) -> Awaitable[None] | None:
        """Returns an awaitable while the host is behind, otherwise None."""
        if not self._events.is_full:
            return None
        # Deltas that can still be held need not wait: they will be sent as one.
        if self._may_hold and self._merges and (self._held is None or self._held.size < MOST_HELD):
            return None
        return self._events.wait_for_room()

    @property
    def is_overfull(self) -> bool:
        """True if the host reads so little that no further command should be accepted."""
        return self._answers.is_overfull

    async def wait_for_room(self) -> None:
        await self._answers.wait_for_room()

    def _try_hold(self, update: MessageUpdate) -> bool:
        if self._held is not None:
            return self._held.try_add(update)
        delta = update.assistant_message_event
        if not self._events.is_full or not isinstance(delta, _GROWING) or not self._merges:
            return False
        self._held = HeldDeltas(update, delta)
        self._release = asyncio.ensure_future(self._flush_when_room())
        return True

    async def _flush_when_room(self) -> None:
        await self._events.wait_for_room()
        self._flush_held()

    def _flush_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._write_event(held.to_update())

    def _write_event(self, event: Outbound) -> None:
        for line in self._connection.to_lines(event):
            # Growing text is sent at once, since people read along; the rest in fewer, larger pieces.
            self._events.put((*line.pieces, b"\n"), line.apart, can_wait=not self._may_hold)

    def _write_answer(self, lines: list[OutputLine]) -> None:
        for line in lines:
            self._answers.put((*line.pieces, b"\n"), line.apart, can_wait=True)
