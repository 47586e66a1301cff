"""Handlers: conversations."""

from __future__ import annotations

from pigeon.rpc.router import handles
from pigeon.session.session import Session
from pigeon.wire.answers import Cancelled
from pigeon.wire.commands import NewSession


@handles(NewSession)
async def new_session(cmd: NewSession, s: Session) -> Cancelled:
    """The old run ends with all its events first."""
    await s.begin_anew(cmd.parent_session)
    return Cancelled(cancelled=False)
