"""Handlers: the state of the session, its messages and its totals."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from itertools import islice
from typing import Any

from msgspec.structs import replace

from pigeon.rpc.outbox import LongAnswer
from pigeon.rpc.router import handles
from pigeon.rpc.session_connection import SessionConnection
from pigeon.session.context.transcript import VisibleEntries
from pigeon.session.history.views import context_usage, encode_list, encode_stats, name_of_info
from pigeon.session.session import Session
from pigeon.wire import answers, codec
from pigeon.wire.base import ABSENT, Absent, Json, value_or_default
from pigeon.wire.commands import (
    GetAvailableCommands,
    GetCommands,
    GetLastAssistantText,
    GetMessages,
    GetMessagesPage,
    GetSessionStats,
    GetState,
)
from pigeon.wire.content import text_of
from pigeon.wire.errors import BadRecord, Refusal
from pigeon.wire.messages import AssistantMessage, Message

PAGE = 100
LARGEST_PAGE = 256
PAGE_BYTES = 768 * 1024
BAD_CURSOR = "Invalid RPC message cursor"


@handles(GetState)
def get_state(cmd: GetState, connection: SessionConnection) -> answers.State:
    """Answered at once, whatever is going on."""
    state = _read_state(connection.session)
    return connection.dialect.convert_state(state, lambda: _add_full_state(state, connection.session))


def _add_full_state(state: answers.State, s: Session) -> answers.State:
    """The state with what only some clients read."""
    tools = [
        answers.DumpedTool(name=tool.name, description=tool.description, parameters=tool.parameters)
        for tool in s.toolset.specs()
    ]
    return replace(
        state,
        is_settled=s.engine.is_settled,
        system_prompt=[s.system_prompt.text()],
        dump_tools=tools,
        context_usage=context_usage(s.journal.branch, s.models.model),
    )


def _read_state(s: Session) -> answers.State:
    queued = len(s.queue)
    return answers.State(
        model=s.models.model,
        thinking_level=s.models.level,
        is_streaming=s.activity.is_running,
        is_compacting=s.activity.is_compacting,
        steering_mode=s.queue.steering_mode,
        follow_up_mode=s.queue.follow_up_mode,
        interrupt_mode=s.queue.interrupt_mode,
        session_file=s.journal.file or ABSENT,
        session_id=s.journal.session_id,
        session_name=name_of_info(s.transcript.info_entry) or ABSENT,
        auto_compaction_enabled=s.engine.compaction.is_enabled,
        message_count=len(s.visible_entries.lines),
        pending_message_count=queued,
        queued_message_count=queued,
        todo_phases=s.todos.current_phases(),
        sandbox=s.dependencies.sandbox(),
        workspace=s.dependencies.workspace.state(),
    )


@handles(GetMessages)
def get_messages(cmd: GetMessages, s: Session) -> LongAnswer:
    """Complete messages only; the streaming one comes with its `message_end`."""
    return LongAnswer(_encode_messages(s.visible_entries, len(s.visible_entries.lines)))


def _encode_messages(visible: VisibleEntries, count: int) -> Iterator[bytes]:
    """The messages that exist now, whatever is added while they are encoded."""
    yield b'{"messages":'
    yield from encode_list(codec.encode(visible.to_host_message(line)) for line in islice(visible.lines, count))
    yield b"}"


@handles(GetMessagesPage)
def get_messages_page(cmd: GetMessagesPage, s: Session) -> answers.MessagesPage:
    """Pages stay valid while the conversation does not change."""
    limit = value_or_default(cmd.limit, PAGE)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= LARGEST_PAGE:
        raise Refusal(f"RPC message page limit must be between 1 and {LARGEST_PAGE}")
    if s.activity.is_busy:
        raise Refusal("Cannot page messages while the session is changing", code="session_busy")
    place = {"version": 1, "sessionId": s.journal.session_id, "leafId": s.journal.leaf_id}
    visible = s.visible_entries
    total = place["messageCount"] = len(visible.lines)
    first = 0 if isinstance(cmd.cursor, Absent) else _decode_cursor(cmd.cursor, place)
    page: list[Message] = []
    size = 0
    for line in visible.lines[first : first + limit]:
        message = visible.to_host_message(line)
        size += len(codec.encode(message))
        if page and size > PAGE_BYTES:
            break
        page.append(message)
    behind = first + len(page)
    cursor = ABSENT if behind >= total else _encode_cursor({**place, "offset": behind})
    return answers.MessagesPage(messages=page, next_cursor=cursor, total_messages=total)


def _encode_cursor(place: dict[str, Json]) -> str:
    return urlsafe_b64encode(codec.encode(place)).decode().rstrip("=")


def _decode_cursor(cursor: Json, place: dict[str, Any]) -> int:
    try:
        found = codec.decode(urlsafe_b64decode(str(cursor) + "=" * (-len(str(cursor)) % 4)))
        offset = found.pop("offset")
    except (BadRecord, ValueError, TypeError, AttributeError, KeyError):
        raise Refusal(BAD_CURSOR) from None
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise Refusal(BAD_CURSOR)
    if found != place:
        raise Refusal("RPC message cursor is stale", code="stale_cursor")
    if offset > place["messageCount"]:
        raise Refusal(BAD_CURSOR)
    return offset


@handles(GetLastAssistantText)
def get_last_assistant_text(cmd: GetLastAssistantText, s: Session) -> answers.LastAssistantText:
    """Skips aborted answers without content."""
    for line in reversed(s.visible_entries.lines):
        message = s.visible_entries.message_of(line) if line.role == "assistant" else None
        if isinstance(message, AssistantMessage) and not (message.stop_reason == "aborted" and not message.content):
            return answers.LastAssistantText(text=text_of(message.content).strip() or None)
    return answers.LastAssistantText(text=None)


@handles(GetSessionStats)
def get_session_stats(cmd: GetSessionStats, s: Session) -> LongAnswer:
    usage = context_usage(s.journal.branch, s.models.model)
    lines = islice(s.journal.lines, len(s.journal.lines))
    of_agents = s.dependencies.agents.list_open_usage()
    return LongAnswer(encode_stats(s.journal.session_id, s.journal.file, lines, usage, of_agents))


@handles(GetCommands, GetAvailableCommands)
def get_commands(cmd: GetCommands | GetAvailableCommands, s: Session) -> answers.Commands:
    """Returns the slash commands that `prompt` expands."""
    return answers.Commands(commands=s.prompting.list_commands())
