"""Handlers: switches, retry and compaction. Switches last for the process and never touch the user's settings files."""

from __future__ import annotations

from collections.abc import Awaitable

from pigeon.rpc.router import handles
from pigeon.session.session import Session
from pigeon.wire.answers import Compacted
from pigeon.wire.commands import (
    AbortRetry,
    Compact,
    SetAutoCompaction,
    SetAutoRetry,
    SetFollowUpMode,
    SetInterruptMode,
    SetSteeringMode,
)


@handles(SetSteeringMode)
def set_steering_mode(cmd: SetSteeringMode, s: Session) -> None:
    """In force at the next delivery."""
    s.queue.set_steering_mode(cmd.mode)


@handles(SetFollowUpMode)
def set_follow_up_mode(cmd: SetFollowUpMode, s: Session) -> None:
    """In force at the next delivery."""
    s.queue.set_follow_up_mode(cmd.mode)


@handles(SetInterruptMode)
def set_interrupt_mode(cmd: SetInterruptMode, s: Session) -> None:
    """In force at the next tool call."""
    s.queue.set_interrupt_mode(cmd.mode)


@handles(SetAutoRetry)
def set_auto_retry(cmd: SetAutoRetry, s: Session) -> None:
    """In force at the next failure."""
    s.engine.retry.set_enabled(cmd.enabled)


@handles(AbortRetry)
def abort_retry(cmd: AbortRetry, s: Session) -> None:
    """A waiting retry ends the run; a request that is under way goes on."""
    s.engine.retry.cancel()


@handles(SetAutoCompaction)
def set_auto_compaction(cmd: SetAutoCompaction, s: Session) -> None:
    """In force at the next check."""
    s.engine.compaction.set_enabled(cmd.enabled)


@handles(Compact)
def compact(cmd: Compact, s: Session) -> Awaitable[Compacted]:
    """The active run is aborted first and not resumed."""
    return s.engine.compact(cmd.custom_instructions)
