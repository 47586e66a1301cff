"""A host that lives in the same process as the agent: records in, records out, by the same lanes and handlers as over
a pipe (`rpc/host.py`).

Events are those of the dialect `pi-latest`. Keys are masked as they are on the wire, because the program may show or
send on what it is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

from msgspec.structs import replace

from pigeon.dialects.base import Dialect, kind_of
from pigeon.dialects.pi_latest import PiLatest
from pigeon.rpc.handlers.all import HANDLERS
from pigeon.rpc.host_connection import HostConnection
from pigeon.rpc.lanes import CommandRunner
from pigeon.rpc.outbox import EventForm, LongAnswer
from pigeon.session.session import Session
from pigeon.transport.reader import DEFAULT_CAP
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.commands import Command
from pigeon.wire.errors import PigeonError, Refusal, text_for_host
from pigeon.wire.events import MessageUpdate, Outbound

_T = TypeVar("_T")
# What such a host speaks; its defaults are to be given to `pigeon.app.build` with the options.
SPOKEN: type[Dialect] = PiLatest
SLICE_PIECES = 250


class RecordOutlet:
    """The way of events to a program in this process: as records, in order."""

    def __init__(self, version: str, hear: Callable[[Any], None], mask: Callable[[bytes], bytes]) -> None:
        self.form = EventForm(SPOKEN(version), fixed=True)
        self._hear = hear
        self._mask = mask

    def event(self, event: Outbound) -> None:
        """Hand an event on."""
        run_id = self.form.run_of(event) or ABSENT
        # An update is the model's own words, which are not masked on the wire either.
        shown = [event] if isinstance(event, MessageUpdate) else map(self.masked, self.form.dialect.project(event))
        for record in shown:
            if self.form.wants(kind_of(record)):
                self._hear(self._numbered(record, run_id))

    def masked(self, record: _T) -> _T:
        """A record without keys; itself if it has none."""
        encoded = codec.encode(record)
        masked = self._mask(encoded)
        return record if masked == encoded else codec.convert(codec.decode(masked), type(record))

    def _numbered(self, record: Any, run_id: str | Absent) -> Any:
        if record.run_id != run_id:
            record = replace(record, run_id=run_id)
        return replace(record, seq=self.form.next_number()) if self.form.numbers else record


class InProcessHost:
    """Serves one session to a program in this process, which hears every event by `hear`."""

    def __init__(
        self,
        session: Session,
        version: str,
        hear: Callable[[Any], None],
        mask: Callable[[bytes], bytes],
    ) -> None:
        self._mask = mask
        self._outlet = RecordOutlet(version, hear, mask)
        connection = HostConnection(session, self._outlet.form, DEFAULT_CAP)
        self._commands = CommandRunner({"session": session, "connection": connection}, HANDLERS)
        session.bus.announce(self._outlet.event)

    def submit(self, command: Command, finish: Callable[[Any, BaseException | None], None]) -> None:
        """Have a command carried out; `finish` is called exactly once, before any event that follows the answer.

        Raises `BadRecord` for a command that would be refused as a line.
        """
        checked = codec.command_of(codec.to_plain(command))

        def taken(result: Any) -> Any:
            return self._whole(result, command) if isinstance(result, LongAnswer) else result

        def ended(data: Any, error: BaseException | None) -> None:
            if error is not None:
                finish(None, error if isinstance(error, PigeonError) else _internal(error))
            else:
                finish(None if command.answer is None else self._outlet.masked(data), None)

        self._commands.submit(checked, ended, taken)

    async def drained(self) -> None:
        """Wait until every command has ended."""
        await self._commands.drained()

    async def _whole(self, answer: LongAnswer, command: Command) -> Any:
        """A long answer, which comes as pieces of JSON; other work is done between them."""
        made: list[bytes] = []
        while pieces := _some(answer.pieces):
            made += pieces
            await asyncio.sleep(0)
        kind: Any = command.answer
        return codec.convert(codec.decode(b"".join(made)), kind)


def _some(pieces: Iterator[bytes]) -> list[bytes]:
    return list(islice(pieces, SLICE_PIECES))


def _internal(error: BaseException) -> Refusal:
    refusal = Refusal(text_for_host(error))
    refusal.__cause__ = error
    return refusal
