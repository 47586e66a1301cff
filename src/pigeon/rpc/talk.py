"""The talk with one host: what commands work on that are about how we speak, not about the session."""

from __future__ import annotations

from msgspec import Struct

from pigeon.rpc.outbox import Outbox
from pigeon.session.session import Session


class Talk(Struct):
    """A session, the way to its host, and the longest line that is taken from there."""

    session: Session
    outbox: Outbox
    record_cap: int
