"""Handlers: trust in the project of the conversation."""

from __future__ import annotations

from pigeon.rpc.router import handles
from pigeon.session.session import Session
from pigeon.wire.answers import TrustChange, TrustState
from pigeon.wire.commands import GetTrust, SetTrust


@handles(GetTrust)
def get_trust(cmd: GetTrust, s: Session) -> TrustState:
    """For the conversation's current folder."""
    return s.dependencies.trust.state()


@handles(SetTrust)
def set_trust(cmd: SetTrust, s: Session) -> TrustChange:
    """Takes effect at the next request; a run in progress keeps its settings."""
    change = s.dependencies.trust.set_decision(cmd.trusted, cmd.remember)
    s.engine.policies.mark_for_reload()
    s.announce_commands()
    return change
