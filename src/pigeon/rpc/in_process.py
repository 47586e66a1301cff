"""A host that lives in the same process as the agent: records in, records out, by the same lanes and handlers as over
a pipe (`rpc/host.py`).

Events are those of the dialect `pi-latest`. Keys are masked as they are on the wire, because the program may show or
forward what it gets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from pigeon.dialects.base import Dialect
from pigeon.dialects.pi_latest import PiLatest
from pigeon.rpc.handlers.all import HANDLERS
from pigeon.rpc.lanes import CommandRunner
from pigeon.rpc.outbox import LongAnswer
from pigeon.rpc.session_connection import SessionConnection
from pigeon.session.session import Session
from pigeon.wire import codec
from pigeon.wire.commands import Command, Subject
from pigeon.wire.errors import PigeonError, Refusal, text_for_host
from pigeon.wire.events import Outbound

# The dialect of such a host, whose defaults must be passed to `pigeon.app.build` with the options.
SPOKEN: type[Dialect] = PiLatest
SLICE_PIECES = 250
OTHER_DIALECT = "An agent in this process speaks pi-latest only"


class InProcessHost:
    """Serves one session to a program in this process, which gets every event through `hear`."""

    def __init__(
        self,
        session: Session,
        version: str,
        hear: Callable[[Any], None],
        mask: Callable[[bytes], bytes],
    ) -> None:
        self._hear = hear
        self._connection = SessionConnection(session, SPOKEN(version), mask, fixed_dialect=OTHER_DIALECT)
        subjects: Mapping[Subject, object] = {"session": session, "connection": self._connection}
        self._commands = CommandRunner(subjects, HANDLERS, session.bus.call_when_saved)
        session.bus.add_announcer(self._on_event)

    def submit(self, command: Command, finish: Callable[[Any, BaseException | None], None]) -> None:
        """Run a command; `finish` is called exactly once, before any event that follows the answer.

        Raises `BadRecord` for a command that would be refused as a line.
        """
        checked = codec.command_of(codec.to_plain(command))

        def join_long_answer(result: Any) -> Any:
            return self._join_long_answer(result, command) if isinstance(result, LongAnswer) else result

        def on_ended(data: Any, error: BaseException | None) -> None:
            if error is not None:
                finish(None, error if isinstance(error, PigeonError) else _to_refusal(error))
            else:
                finish(None if command.answer is None else self._mask_data(data), None)

        self._commands.submit(checked, on_ended, join_long_answer)

    def _on_event(self, event: Outbound) -> None:
        for record in self._connection.to_records(event):
            self._hear(record)

    def _mask_data(self, data: Any) -> Any:
        return self._connection.mask_record(self._connection.filter_answer_data(data))

    async def wait_until_drained(self) -> None:
        await self._commands.wait_until_drained()

    async def _join_long_answer(self, answer: LongAnswer, command: Command) -> Any:
        """Join the pieces of JSON of a long answer, yielding to other work in between."""
        made: list[bytes] = []
        while pieces := _take_some_pieces(answer.pieces):
            made += pieces
            await asyncio.sleep(0)
        kind: Any = command.answer
        return codec.convert(codec.decode(b"".join(made)), kind)


def _take_some_pieces(pieces: Iterator[bytes]) -> list[bytes]:
    return list(islice(pieces, SLICE_PIECES))


def _to_refusal(error: BaseException) -> Refusal:
    refusal = Refusal(text_for_host(error))
    refusal.__cause__ = error
    return refusal
