"""Handlers: the state of the session, its messages and its totals."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from pigeon.rpc.outbox import LongAnswer
from pigeon.rpc.router import handles
from pigeon.session.context.transcript import VisibleEntries
from pigeon.session.history.views import context_usage, list_pieces, name_in, stats_pieces
from pigeon.session.session import Session
from pigeon.wire import answers, codec
from pigeon.wire.base import ABSENT
from pigeon.wire.commands import GetCommands, GetLastAssistantText, GetMessages, GetSessionStats, GetState
from pigeon.wire.content import text_of
from pigeon.wire.messages import AssistantMessage


@handles(GetState)
def get_state(cmd: GetState, s: Session) -> answers.State:
    """Answered at once, whatever is going on."""
    return _with_all(_state(s), s) if s.full_state else _state(s)


def _with_all(state: answers.State, s: Session) -> answers.State:
    """What oh-my-pi's clients read besides: there is no work beside the run here, no fast mode, and
    speed is not measured."""
    tools = [
        answers.DumpedTool(name=tool.name, description=tool.description, parameters=tool.parameters)
        for tool in s.toolset.specs()
    ]
    return replace(
        state,
        has_pending_async_work=False,
        is_settled=s.engine.settled,
        fast_mode_enabled=False,
        tokens_per_second=None,
        fast_mode_active=False,
        system_prompt=[s.system_prompt.text()],
        dump_tools=tools,
        context_usage=context_usage(s.journal.branch, s.models.model),
    )


def _state(s: Session) -> answers.State:
    queued = len(s.queue)
    return answers.State(
        model=s.models.model,
        thinking_level=s.models.level,
        is_streaming=s.activity.in_run,
        is_compacting=s.activity.compacting,
        steering_mode=s.queue.steering_mode,
        follow_up_mode=s.queue.follow_up_mode,
        interrupt_mode=s.queue.interrupt_mode,
        session_file=s.journal.file or ABSENT,
        session_id=s.journal.session_id,
        session_name=name_in(s.transcript.info) or ABSENT,
        auto_compaction_enabled=s.engine.compaction.enabled,
        message_count=len(s.visible.lines),
        pending_message_count=queued,
        queued_message_count=queued,
        todo_phases=s.todos.read(),
        sandbox=s.sandbox(),
    )


@handles(GetMessages)
def get_messages(cmd: GetMessages, s: Session) -> LongAnswer:
    """Complete messages only; the one that is streaming comes with its `message_end`."""
    return LongAnswer(_message_pieces(s.visible, len(s.visible.lines)))


def _message_pieces(visible: VisibleEntries, count: int) -> Iterator[bytes]:
    """The messages that are there now, whatever is added while they are encoded."""
    yield b'{"messages":'
    yield from list_pieces(codec.encode(visible.shown(line)) for line in islice(visible.lines, count))
    yield b"}"


@handles(GetLastAssistantText)
def get_last_assistant_text(cmd: GetLastAssistantText, s: Session) -> answers.LastAssistantText:
    """Aborted answers without content do not count."""
    for line in reversed(s.visible.lines):
        message = s.visible.message(line) if line.role == "assistant" else None
        if isinstance(message, AssistantMessage) and not (message.stop_reason == "aborted" and not message.content):
            return answers.LastAssistantText(text=text_of(message.content).strip() or None)
    return answers.LastAssistantText(text=None)


@handles(GetSessionStats)
def get_session_stats(cmd: GetSessionStats, s: Session) -> LongAnswer:
    """Everything billed in this session, and how full the context is."""
    usage = context_usage(s.journal.branch, s.models.model)
    lines = islice(s.journal.lines, len(s.journal.lines))
    return LongAnswer(stats_pieces(s.journal.session_id, s.journal.file, lines, usage))


@handles(GetCommands)
def get_commands(cmd: GetCommands, s: Session) -> answers.Commands:
    """What `prompt` expands."""
    return answers.Commands(commands=s.prompting.commands())
