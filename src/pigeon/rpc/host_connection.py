"""The subject of the few commands that are about the connection to a host instead of the session."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from pigeon.dialects.base import Dialect
from pigeon.session.session import Session


class EventOutlet(Protocol):
    """What events leave through: the `Outbox` of a host behind a pipe, or that of a program in this process."""

    @property
    def dialect(self) -> Dialect:
        """What is spoken now."""
        ...

    @property
    def numbers(self) -> bool:
        """True if events carry their number."""
        ...

    def turn_to(self, dialect: Dialect, numbers: bool) -> None:
        """Speak like this from now on; raises a `Refusal` where that cannot be."""
        ...

    def send_only(self, kinds: frozenset[str] | None) -> None:
        """Leave out events of other types from now on; none leaves out nothing."""
        ...


class HostConnection(Struct, frozen=True):
    """A session, the way of its events to the host, and the longest line in bytes that is accepted from there."""

    session: Session
    outbox: EventOutlet
    record_cap: int
