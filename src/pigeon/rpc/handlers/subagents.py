"""Handlers: subagents, of which there are none. Unsupported commands are refused in oh-my-pi's words, so that a client
learns it at once instead of by a time-out."""

from __future__ import annotations

from typing import NoReturn, get_args

from pigeon.rpc.router import handles
from pigeon.session.session import Session
from pigeon.wire.answers import SubagentLevel, Subagents, SubagentSubscription
from pigeon.wire.base import Absent
from pigeon.wire.codec import value_text
from pigeon.wire.commands import GetSubagentMessages, GetSubagents, SetSubagentSubscription
from pigeon.wire.errors import Refusal


@handles(SetSubagentSubscription)
def set_subagent_subscription(cmd: SetSubagentSubscription, s: Session) -> SubagentSubscription:
    """Accepted without effect: there is nothing to subscribe to."""
    if isinstance(cmd.level, Absent) or cmd.level not in get_args(SubagentLevel):
        raise Refusal(f"Invalid subagent subscription level: {value_text(cmd.level)}")
    return SubagentSubscription(level=cmd.level)


@handles(GetSubagents)
def get_subagents(cmd: GetSubagents, s: Session) -> Subagents:
    """Returns an empty list: there are no subagents."""
    return Subagents(subagents=[])


@handles(GetSubagentMessages)
def get_subagent_messages(cmd: GetSubagentMessages, s: Session) -> NoReturn:
    """Always refused: there are no subagents."""
    if isinstance(cmd.subagent_id, str):
        raise Refusal(f"Unknown subagent or session file unavailable: {cmd.subagent_id}")
    if isinstance(cmd.session_file, str):
        raise Refusal("Unknown subagent session file")
    raise Refusal("get_subagent_messages requires subagentId or sessionFile")
