"""Handlers: switches, limits, retry and compaction. These settings last for the process and never change the user's
settings files."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import NoReturn

from pigeon.rpc.router import handles
from pigeon.session.session import Session
from pigeon.wire.answers import Compacted, LimitsState
from pigeon.wire.commands import (
    AbortRetry,
    Compact,
    GetLimits,
    Handoff,
    SetAutoCompaction,
    SetAutoRetry,
    SetFollowUpMode,
    SetInterruptMode,
    SetLimits,
    SetLocale,
    SetSteeringMode,
)
from pigeon.wire.errors import Refusal
from pigeon.wire.steering import parse_limits


@handles(SetSteeringMode)
def set_steering_mode(cmd: SetSteeringMode, s: Session) -> None:
    """Takes effect at the next delivery."""
    s.queue.set_steering_mode(cmd.mode)


@handles(SetFollowUpMode)
def set_follow_up_mode(cmd: SetFollowUpMode, s: Session) -> None:
    """Takes effect at the next delivery."""
    s.queue.set_follow_up_mode(cmd.mode)


@handles(SetInterruptMode)
def set_interrupt_mode(cmd: SetInterruptMode, s: Session) -> None:
    """Takes effect at the next tool call."""
    s.queue.set_interrupt_mode(cmd.mode)


@handles(SetAutoRetry)
def set_auto_retry(cmd: SetAutoRetry, s: Session) -> None:
    """Takes effect at the next failure."""
    s.engine.retry.set_enabled(cmd.enabled)


@handles(AbortRetry)
def abort_retry(cmd: AbortRetry, s: Session) -> None:
    """A waiting retry ends the run; a request in progress continues."""
    s.engine.retry.cancel()


@handles(SetLimits)
def set_limits(cmd: SetLimits, s: Session) -> LimitsState:
    """Takes effect at the next request; a refusal changes nothing."""
    s.engine.set_limits(parse_limits(cmd.limits))
    return s.engine.limits.state()


@handles(GetLimits)
def get_limits(cmd: GetLimits, s: Session) -> LimitsState:
    """The limits of the conversation, and of the run if it has any."""
    return s.engine.limits.state()


@handles(SetAutoCompaction)
def set_auto_compaction(cmd: SetAutoCompaction, s: Session) -> None:
    """Takes effect when the size of the context is next checked."""
    s.engine.compaction.set_enabled(cmd.enabled)


@handles(Compact)
def compact(cmd: Compact, s: Session) -> Awaitable[Compacted]:
    """The active run is aborted first and not resumed."""
    return s.history.compact(cmd.custom_instructions)


@handles(Handoff)
def handoff(cmd: Handoff, s: Session) -> NoReturn:
    """Always refused; if a handoff would be impossible anyway, with that reason."""
    if s.activity.is_running:
        raise Refusal("Cannot hand off while a response is in progress")
    if not s.visible_entries.lines:
        raise Refusal("Nothing to hand off (no messages yet)")
    raise Refusal("Handoff is not available here; use compact, or new_session with a summary in the first prompt")


@handles(SetLocale)
def set_locale(cmd: SetLocale, s: Session) -> None:
    """Takes effect at the next request to a model."""
    s.system_prompt.set_locale(cmd.locale)
