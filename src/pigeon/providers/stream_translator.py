"""What every adapter keeps while an answer arrives: open blocks, token counts, and how it may end."""

from __future__ import annotations

from typing import Protocol

from pigeon.agent.inference import BlockKind, BlockOpened, Delta, Failure, Finished, Metered, Named
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.messages import StopReason
from pigeon.wire.model import Cost, Usage


class Translator(Protocol):
    """Turns the events of one API into deltas."""

    done: bool

    def take(self, name: bytes, data: bytes, out: list[Delta]) -> None:
        """Append the deltas of one event; raises `StreamBroken` when the answer cannot go on."""
        ...

    def whole(self, data: bytes, out: list[Delta]) -> None:
        """Append the deltas of an answer that came as one JSON object."""
        ...

    def finish(self, out: list[Delta]) -> Finished:
        """The stream is over; raises `StreamBroken` if it was over too early."""
        ...

    def broken(self, failure: Failure) -> Finished:
        """How a failed answer ends, with what is known of it."""
        ...


class Assembly:
    """Common state of the translators."""

    def __init__(self) -> None:
        self.done = False
        self._name = Named()
        self.raw_stop: str | Absent = ABSENT
        self._blocks = 0

    def named(self, out: list[Delta], response_id: str | None, model: str | None, asked: str) -> None:
        """Take the answer's id, and its model if that is not the one asked for; told once each is known."""
        known = self._name
        name = Named(response_id or known.response_id, model if model and model != asked else known.response_model)
        if name != known:
            self._name = name
            out.append(name)

    def open(self, out: list[Delta], kind: BlockKind, call_id: str = "", name: str = "") -> int:
        """Begin a block and return its index."""
        index = self._blocks
        self._blocks = index + 1
        out.append(BlockOpened(index, kind, call_id, name))
        return index

    def whole(self, data: bytes, out: list[Delta]) -> None:
        """An answer in one piece reads like a single event, unless an API says otherwise."""
        self.take(b"", data, out)

    def take(self, name: bytes, data: bytes, out: list[Delta]) -> None:
        """One event."""
        raise NotImplementedError

    def ended(self, stop: StopReason, failure: Failure | None = None) -> Finished:
        """The last delta."""
        return Finished(stop, failure, self.raw_stop)

    def broken(self, failure: Failure) -> Finished:
        """The last delta of a failed answer."""
        return self.ended("error", failure)


def counted(
    *, sent: int, output: int, cache_read: int = 0, cache_write: int = 0, rate: float = 1, **more: int | Absent
) -> Metered:
    """Token counts as a delta; counts below zero are a provider's mistake and become zero."""
    fresh, cached, written, said = (max(0, count) for count in (sent, cache_read, cache_write, output))
    return Metered(
        Usage(
            input=fresh,
            output=said,
            cache_read=cached,
            cache_write=written,
            total_tokens=fresh + cached + written + said,
            cost=Cost(),
            cache_write_1h=more.get("cache_write_1h", ABSENT),
            reasoning=more.get("reasoning", ABSENT),
        ),
        rate,
    )
