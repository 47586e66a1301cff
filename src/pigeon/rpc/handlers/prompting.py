"""Handlers: prompts, the names of files in them, queued messages, abort."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from msgspec.structs import replace

from pigeon.rpc.router import handles
from pigeon.session.prompting import HostMessage, make_final_answer
from pigeon.session.session import Session
from pigeon.wire.answers import Accepted, ClearedQueue, FoundFiles, QueueItem
from pigeon.wire.base import Absent
from pigeon.wire.commands import (
    Abort,
    AbortAndPrompt,
    ClearQueue,
    EditQueued,
    FindFiles,
    FollowUp,
    PromoteQueued,
    Prompt,
    RemoveQueued,
    Steer,
)
from pigeon.wire.errors import ABORTED_BEFORE, Refusal
from pigeon.wire.steering import parse_limits


@handles(Prompt)
def prompt(cmd: Prompt, s: Session) -> Awaitable[Accepted] | Accepted:
    """Answered when it is accepted or refused; the run continues in the background."""
    message = _to_host_message(cmd)  # an invalid message changes nothing
    if not isinstance(cmd.locale, Absent):
        s.system_prompt.set_locale(cmd.locale)
    return s.prompting.prompt(message, cmd.streaming_behavior)


@handles(Steer)
def steer(cmd: Steer, s: Session) -> Awaitable[Accepted] | Accepted:
    """Queues the message; never starts a run."""
    return s.prompting.queue_message(_to_host_message(cmd), "steering")


@handles(FollowUp)
def follow_up(cmd: FollowUp, s: Session) -> Awaitable[Accepted] | Accepted:
    """Queues the message; never starts a run."""
    return s.prompting.queue_message(_to_host_message(cmd), "followUp")


@handles(Abort)
def abort(cmd: Abort, s: Session) -> Awaitable[None] | None:
    """Takes effect at once; answered when the current work has ended."""
    return s.engine.abort() if isinstance(cmd.tool_call_id, Absent) else s.engine.calls.stop(cmd.tool_call_id)


@handles(AbortAndPrompt)
def abort_and_prompt(cmd: AbortAndPrompt, s: Session) -> Awaitable[Accepted] | Accepted:
    """The aborted run's last events precede the answer, and the new run's first events follow it."""
    message = _to_host_message(cmd)  # an invalid message aborts nothing
    known = s.prompting.find_earlier_answer(message)
    if known is not None:
        return known
    ended = s.engine.abort()
    return _prompt_after_abort(ended, s.engine.abort_count, message, s)


async def _prompt_after_abort(ended: Awaitable[None] | None, aborts: int, message: HostMessage, s: Session) -> Accepted:
    if ended is not None:
        await ended
    if s.engine.abort_count != aborts:
        raise Refusal(ABORTED_BEFORE)
    accepted = s.prompting.prompt(message)
    return accepted if isinstance(accepted, Accepted) else await accepted


@handles(ClearQueue)
def clear_queue(cmd: ClearQueue, s: Session) -> ClearedQueue:
    steering, follow_up = s.queue.clear()
    return ClearedQueue(steering=steering, follow_up=follow_up)


@handles(RemoveQueued)
def remove_queued(cmd: RemoveQueued, s: Session) -> QueueItem:
    return s.queue.remove(cmd.queued_id)


@handles(EditQueued)
def edit_queued(cmd: EditQueued, s: Session) -> Awaitable[QueueItem]:
    return s.prompting.edit_queued(cmd.queued_id, cmd.message)


@handles(PromoteQueued)
def promote_queued(cmd: PromoteQueued, s: Session) -> QueueItem:
    return s.queue.promote_to_steering(cmd.queued_id)


def _to_host_message(cmd: Prompt | Steer | FollowUp | AbortAndPrompt) -> HostMessage:
    """The message of a command; the command's id is repeated at the end of the prompt."""
    message = HostMessage(cmd.message, cmd.images, cmd.attachments)
    if isinstance(cmd, (Prompt, AbortAndPrompt)):
        limits = None if isinstance(cmd.limits, Absent) else parse_limits(cmd.limits)
        message = replace(message, id=cmd.id, limits=limits, final_answer=make_final_answer(cmd.output_schema))
    if isinstance(cmd.client_message_id, Absent):
        return message
    from pigeon.session.client_messages import digest_of

    return replace(message, client_id=cmd.client_message_id, digest=digest_of(cmd))


@handles(FindFiles)
async def find_files(cmd: FindFiles, s: Session) -> FoundFiles:
    """Searches the names of files; never reads their contents."""
    return FoundFiles(paths=await asyncio.to_thread(s.dependencies.files.find_files, cmd.text.lower(), cmd.limit))
