"""From records to lines: the dialect says how, the writer keeps the order.

While a host reads too slowly, deltas of the same block are put together into longer ones instead of queueing up: it
gets the same text in fewer, larger updates, and the agent is not held back by a slow reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import get_args

from msgspec.structs import replace

from pigeon.dialects.base import Dialect, OutputLine, numbered, plain_answer, with_data, with_member
from pigeon.transport.writer import LineSink
from pigeon.wire.answers import Response
from pigeon.wire.base import ABSENT, Absent, Record
from pigeon.wire.dialogs import DialogRequest
from pigeon.wire.errors import Refusal
from pigeon.wire.events import (
    AgentEnd,
    AgentSettled,
    BashExecutionUpdate,
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
# What is made of a long answer in one go: a few milliseconds.
SLICE_PIECES = 250
SLICE_BYTES = 256 * 1024
_GROWING = (TextDelta, ThinkingDelta, ToolcallDelta)
# The id of the run that is active.
ActiveRun = Callable[[], str | None]
OTHER_DIALECT = "An agent in this process speaks pi-latest only"


class HeldDeltas:
    """Deltas of one block that wait for room."""

    def __init__(self, update: MessageUpdate, delta: TextDelta | ThinkingDelta | ToolcallDelta) -> None:
        self._update = update
        self._first = delta
        self._parts = [delta.delta]
        self.size = len(delta.delta)

    def takes(self, update: MessageUpdate) -> bool:
        """Add a delta; false if it does not belong here."""
        delta = update.assistant_message_event
        if not isinstance(delta, _GROWING) or type(delta) is not type(self._first):
            return False
        if delta.content_index != self._first.content_index:
            return False
        self._update = update
        self._parts.append(delta.delta)
        self.size += len(delta.delta)
        return True

    def merged(self) -> MessageUpdate:
        """One update that says it all."""
        event = replace(self._first, delta="".join(self._parts))
        return replace(self._update, assistant_message_event=event)


class LongAnswer:
    """The data of an answer that may be long, as pieces of JSON that are made when they are asked for.

    Empty pieces are allowed; no key may stand across the border of two pieces, or it would not be masked.
    """

    __slots__ = ("pieces",)

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces = pieces


class EncodedData:
    """The data of an answer, encoded and masked."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces


class EventForm:
    """What events look like to a host: the dialect, numbers, ids of runs, and which types of them it wants.

    `changing` is called before each change, so that what waits leaves in the form that it was meant for. A form with a
    `fixed` dialect refuses others.
    """

    def __init__(
        self, dialect: Dialect, changing: Callable[[], None] = lambda: None, fixed: bool = False, count: int = 0
    ) -> None:
        """`count` events were numbered before."""
        self._dialect = dialect
        self._changing = changing
        self._fixed = fixed
        self._turned = False
        self._numbers = False
        self._count = count
        self._active: ActiveRun | None = None
        self._kinds: frozenset[str] | None = None

    @property
    def dialect(self) -> Dialect:
        """What is spoken now."""
        return self._dialect

    @property
    def numbers(self) -> bool:
        """True if events carry their number."""
        return self._numbers

    @property
    def attributes(self) -> bool:
        """True if events carry the id of their run."""
        return self._active is not None

    def turn_to(self, dialect: Dialect, numbers: bool) -> None:
        """Speak like this from now on; raises a `Refusal` where that cannot be."""
        if self._fixed and dialect.name != self._dialect.name:
            raise Refusal(OTHER_DIALECT)
        self._changing()
        self._dialect, self._numbers, self._turned = dialect, numbers, True

    def attribute(self, active: ActiveRun | None) -> None:
        """Put the id of the active run, which this tells, on events from now on; none for no ids."""
        self._changing()
        self._active = active

    def send_only(self, kinds: frozenset[str] | None) -> None:
        """Leave out events of other types from now on; none leaves out nothing."""
        self._changing()
        self._kinds = kinds

    def take_turn(self) -> bool:
        """True once after each `turn_to`: for the answer that says so, which is the same in all dialects."""
        turned, self._turned = self._turned, False
        return turned

    def wants(self, kind: str) -> bool:
        """Whether the host wants events of this type; what has no type is no event."""
        return self._kinds is None or not kind or kind in self._kinds

    def next_number(self) -> int:
        """The number of the next event."""
        self._count += 1
        return self._count

    def run_of(self, event: Outbound) -> str | None:
        """The run that an event tells of, if the host wants to know: what ends a run says so itself, and what a command
        of the host prints is of none."""
        if self._active is None or isinstance(event, BashExecutionUpdate):
            return None
        return self._active() if isinstance(event.run_id, Absent) else event.run_id


class Outbox:
    """Everything that leaves the process goes through here; events in their order, answers as soon as there are any."""

    def __init__(
        self,
        answers: LineSink,
        dialect: Dialect,
        mask: Callable[[bytes], bytes] = lambda line: line,
        events: LineSink | None = None,
        numbered: int = 0,
        merges: bool = True,
    ) -> None:
        """`mask` takes keys out of every line but the updates of an answer, which are the model's own words.

        `events` is where events go if it is not where answers go. So many were `numbered` by an earlier process. One
        that does not `merge` deltas lets the agent wait for a slow host instead.
        """
        self._merges = merges
        self._answers = answers
        self._events = answers if events is None else events
        self.form = EventForm(dialect, self._let_go, count=numbered)
        self._mask = mask
        self._left_out: tuple[type[Record], ...] = ()
        self._held: HeldDeltas | None = None
        self._may_hold = False
        self._release: asyncio.Task[None] | None = None
        self._making = asyncio.Lock()

    def leave_out_dialogs(self) -> None:
        """Send nothing that a person would have to see or answer."""
        self._left_out += get_args(DialogRequest)

    def leave_out_ends(self) -> None:
        """The process is about to end: say of no run that it is over, since a host may answer that with a command."""
        self._left_out += ENDS

    def mute(self) -> None:
        """Announce nothing more of what happens; commands are still answered, and warnings shown."""
        self._left_out += (Event,)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Announce nothing meanwhile."""
        before, self._left_out = self._left_out, (Event, *get_args(DialogRequest))
        try:
            yield
        finally:
            self._left_out = before

    def greet(self) -> None:
        """Whatever the dialect says first."""
        self._send(self.form.dialect.greeting())

    def event(self, event: Outbound) -> None:
        """Announce an event."""
        if isinstance(event, self._left_out):
            return
        self._may_hold = isinstance(event, MessageUpdate) and isinstance(event.assistant_message_event, _GROWING)
        if isinstance(event, MessageUpdate) and self._hold(event):
            return
        self._let_go()
        self._tell(event)

    def pass_on(self, line: bytes) -> None:
        """Send a line of another agent as it is, behind what waits."""
        self._let_go()
        self._events.put((line, b"\n"))

    def answer(self, response: Response) -> None:
        """Answer a command."""
        # The answer to `hello` itself has the one form that every dialect shares.
        turning = self.form.take_turn()
        data = response.data
        if isinstance(data, EncodedData):
            lines = self._masked(self.form.dialect.answer(replace(response, data=ABSENT)))
            self._send([with_data(line, data.pieces) for line in lines])
        else:
            self._send(self._masked(plain_answer(response) if turning else self.form.dialect.answer(response)))

    def encoded(self, answer: LongAnswer) -> EncodedData | Awaitable[EncodedData]:
        """The data of an answer: at once if it is short, else something to await, and other work is done meanwhile.

        Long ones are made one after the other, each when the host has read what came before, so that there is never
        more than one of them in memory and one on its way.
        """
        if not self._making.locked() and not self._answers.full:
            pieces, done = self._slice(answer.pieces)
            return EncodedData(pieces) if done else self._encoded(pieces, answer.pieces)
        return self._encoded([], answer.pieces)

    async def _encoded(self, made: list[bytes], pieces: Iterator[bytes]) -> EncodedData:
        async with self._making:
            done = False
            while not done:
                await asyncio.sleep(0)
                await self._answers.room()
                more, done = self._slice(pieces)
                made += more
        return EncodedData(made)

    def _slice(self, pieces: Iterator[bytes]) -> tuple[list[bytes], bool]:
        """Some more of an answer, masked; and whether that was the rest of it."""
        taken: list[bytes] = []
        size = 0
        for piece in islice(pieces, SLICE_PIECES):
            taken.append(piece)
            size += len(piece)
            if size > SLICE_BYTES:
                break
        else:
            if len(taken) < SLICE_PIECES:
                return [self._mask(b"".join(taken))], True
        return [self._mask(b"".join(taken))], False

    def refuse_prompt(self, response: Response) -> None:
        """Answer a prompt that is not accepted; once ends are left out, without the result that a dialect may add."""
        ends = issubclass(PromptResult, self._left_out)
        lines = self.form.dialect.answer(response) if ends else self.form.dialect.refused_prompt(response)
        self._send(self._masked(lines))

    def unknown(self, response: Response) -> None:
        """Answer a command that does not exist."""
        self._send(self._masked(self.form.dialect.unknown_command(response)))

    def room(self) -> Awaitable[None] | None:
        """Something to await while the host is behind."""
        if not self._events.full:
            return None
        # Deltas that can still be held need not wait: they will leave as one.
        if self._merges and self._may_hold and (self._held is None or self._held.size < MOST_HELD):
            return None
        return self._events.room()

    @property
    def overfull(self) -> bool:
        """True when the host reads so little that no further command should be taken."""
        return self._answers.overfull

    async def until_room(self) -> None:
        """Wait until the host has caught up."""
        await self._answers.room()

    def _hold(self, update: MessageUpdate) -> bool:
        if self._held is not None:
            return self._held.takes(update)
        delta = update.assistant_message_event
        if not self._merges or not self._events.full or not isinstance(delta, _GROWING):
            return False
        self._held = HeldDeltas(update, delta)
        self._release = asyncio.ensure_future(self._let_go_with_room())
        return True

    async def _let_go_with_room(self) -> None:
        await self._events.room()
        self._let_go()

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._tell(held.merged())

    def _tell(self, event: Outbound) -> None:
        run_id = self.form.run_of(event)
        if not isinstance(event.run_id, Absent):
            event = replace(event, run_id=ABSENT)
        lines = self.form.dialect.lines(event)
        lines = [line for line in lines if self.form.wants(line.kind)]
        if not isinstance(event, MessageUpdate):
            lines = self._masked(lines)
        if run_id is not None:
            lines = [with_member(line, b'"runId":"%s"' % run_id.encode()) for line in lines]
        if self.form.numbers:
            lines = [numbered(line, self.form.next_number()) for line in lines]
        for line in lines:
            # Growing text goes out at once, since people read along; the rest in fewer, larger pieces.
            self._events.put((*line.pieces, b"\n"), line.apart, can_wait=not self._may_hold)

    def _masked(self, lines: list[OutputLine]) -> list[OutputLine]:
        return [replace(line, pieces=tuple(map(self._mask, line.pieces))) for line in lines]

    def _send(self, lines: list[OutputLine]) -> None:
        for line in lines:
            self._answers.put((*line.pieces, b"\n"), line.apart, can_wait=True)
