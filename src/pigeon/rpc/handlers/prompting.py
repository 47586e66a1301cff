"""Handlers: prompts, queued messages, abort."""

from __future__ import annotations

from collections.abc import Awaitable

from pigeon.rpc.router import handles
from pigeon.session.prompting import HostMessage
from pigeon.session.session import Session
from pigeon.wire.answers import Accepted, ClearedQueue
from pigeon.wire.base import Absent
from pigeon.wire.commands import Abort, AbortAndPrompt, ClearQueue, FollowUp, Prompt, Steer
from pigeon.wire.errors import ABORTED_BEFORE, Refusal


@handles(Prompt)
def prompt(cmd: Prompt, s: Session) -> Awaitable[Accepted] | Accepted:
    """Answered when it is accepted or refused; what it starts goes on in the background."""
    if not isinstance(cmd.locale, Absent):
        s.engine.set_locale(cmd.locale)
    return s.prompting.prompt(HostMessage(cmd.message, cmd.images, cmd.attachments, cmd.id), cmd.streaming_behavior)


@handles(Steer)
def steer(cmd: Steer, s: Session) -> Awaitable[Accepted] | Accepted:
    """Never starts a run."""
    return s.prompting.queue(HostMessage(cmd.message, cmd.images, cmd.attachments), "steering")


@handles(FollowUp)
def follow_up(cmd: FollowUp, s: Session) -> Awaitable[Accepted] | Accepted:
    """Never starts a run."""
    return s.prompting.queue(HostMessage(cmd.message, cmd.images, cmd.attachments), "followUp")


@handles(Abort)
def abort(cmd: Abort, s: Session) -> Awaitable[None] | None:
    """In force at once; answered when what was going on has ended."""
    return s.engine.abort()


@handles(AbortAndPrompt)
def abort_and_prompt(cmd: AbortAndPrompt, s: Session) -> Awaitable[Accepted]:
    """The aborted run's last events come before the answer, the new run's first after it."""
    ended = s.engine.abort()
    return _prompt_after(ended, s.engine.aborts, cmd, s)


async def _prompt_after(ended: Awaitable[None] | None, aborts: int, cmd: AbortAndPrompt, s: Session) -> Accepted:
    if ended is not None:
        await ended
    if s.engine.aborts != aborts:
        raise Refusal(ABORTED_BEFORE)
    accepted = s.prompting.prompt(HostMessage(cmd.message, cmd.images, cmd.attachments, cmd.id))
    return accepted if isinstance(accepted, Accepted) else await accepted


@handles(ClearQueue)
def clear_queue(cmd: ClearQueue, s: Session) -> ClearedQueue:
    """The host gets the texts back."""
    steering, follow_up = s.queue.clear()
    return ClearedQueue(steering=steering, follow_up=follow_up)
