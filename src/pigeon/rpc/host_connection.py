"""The subject of the few commands that are about the connection to a host instead of the session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from pigeon.dialects.base import Dialect
from pigeon.session.session import Session

# The id of the run that is active.
ActiveRun = Callable[[], str | None]


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

    @property
    def attributes(self) -> bool:
        """True if events carry the id of their run."""
        ...

    def attribute(self, run_id: ActiveRun | None) -> None:
        """Put the id of their run on events from now on; none for no ids."""
        ...

    def send_only(self, kinds: frozenset[str] | None) -> None:
        """Leave out events of other types from now on; none leaves out nothing."""
        ...


class HostConnection(Struct, frozen=True):
    """A session, the way of its events to the host, and the longest line in bytes that is accepted from there."""

    session: Session
    outbox: EventOutlet
    record_cap: int
