"""The subject of the few commands that are about the connection to a host instead of the session."""

from __future__ import annotations

from msgspec import Struct

from pigeon.rpc.outbox import EventForm
from pigeon.session.session import Session


class HostConnection(Struct, frozen=True):
    """A session, the form of its events for the host, and the longest line in bytes that is accepted from there."""

    session: Session
    form: EventForm
    record_cap: int
