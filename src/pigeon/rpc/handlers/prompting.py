"""Handlers: say something, queue something, stop."""

from __future__ import annotations

from collections.abc import Awaitable

from pigeon.rpc.router import handles
from pigeon.session.prompting import Says
from pigeon.session.session import Session
from pigeon.wire.answers import ClearedQueue
from pigeon.wire.base import Absent
from pigeon.wire.commands import Abort, AbortAndPrompt, ClearQueue, FollowUp, Prompt, Steer


@handles(Prompt)
def prompt(cmd: Prompt, s: Session) -> Awaitable[None] | None:
    """Answered when it is accepted or refused; what it starts goes on in the background."""
    if not isinstance(cmd.locale, Absent):
        s.work.locale = cmd.locale.strip()
    return s.prompting.prompt(Says(cmd.message, cmd.images, cmd.attachments), cmd.streaming_behavior)


@handles(Steer)
def steer(cmd: Steer, s: Session) -> Awaitable[None] | None:
    """Never starts a run."""
    return s.prompting.queue(Says(cmd.message, cmd.images, cmd.attachments), "steering")


@handles(FollowUp)
def follow_up(cmd: FollowUp, s: Session) -> Awaitable[None] | None:
    """Never starts a run."""
    return s.prompting.queue(Says(cmd.message, cmd.images, cmd.attachments), "followUp")


@handles(Abort)
async def abort(cmd: Abort, s: Session) -> None:
    """Answered when everything has ended."""
    await s.work.abort()


@handles(AbortAndPrompt)
async def abort_and_prompt(cmd: AbortAndPrompt, s: Session) -> None:
    """The aborted run's last events come before the answer, the new run's first after it."""
    await s.work.abort()
    waiting = s.prompting.prompt(Says(cmd.message, cmd.images, cmd.attachments))
    if waiting is not None:
        await waiting


@handles(ClearQueue)
def clear_queue(cmd: ClearQueue, s: Session) -> ClearedQueue:
    """The host gets the texts back."""
    steering, follow_up = s.queue.clear()
    return ClearedQueue(steering=steering, follow_up=follow_up)
