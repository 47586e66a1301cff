"""Handlers: say something, queue something, stop."""

from __future__ import annotations

from pigeon.rpc.router import handles
from pigeon.session.prompting import Says
from pigeon.session.session import Session
from pigeon.wire.answers import ClearedQueue
from pigeon.wire.commands import Abort, AbortAndPrompt, ClearQueue, FollowUp, Prompt, Steer


@handles(Prompt)
def prompt(cmd: Prompt, s: Session) -> None:
    """Accepted or refused at once; the run itself goes on in the background."""
    s.prompting.prompt(Says(cmd.message, cmd.images, cmd.attachments), cmd.streaming_behavior)


@handles(Steer)
def steer(cmd: Steer, s: Session) -> None:
    """Never starts a run."""
    s.prompting.queue(Says(cmd.message, cmd.images, cmd.attachments), "steering")


@handles(FollowUp)
def follow_up(cmd: FollowUp, s: Session) -> None:
    """Never starts a run."""
    s.prompting.queue(Says(cmd.message, cmd.images, cmd.attachments), "followUp")


@handles(Abort)
async def abort(cmd: Abort, s: Session) -> None:
    """Answered when everything has ended."""
    await s.abort()


@handles(AbortAndPrompt)
async def abort_and_prompt(cmd: AbortAndPrompt, s: Session) -> None:
    """The aborted run's last events come before the answer, the new run's first after it."""
    await s.abort()
    s.prompting.prompt(Says(cmd.message, cmd.images, cmd.attachments))


@handles(ClearQueue)
def clear_queue(cmd: ClearQueue, s: Session) -> ClearedQueue:
    """The host gets the texts back."""
    steering, follow_up = s.queue.clear()
    return ClearedQueue(steering=steering, follow_up=follow_up)
