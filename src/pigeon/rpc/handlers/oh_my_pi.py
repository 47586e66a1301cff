"""Handlers: commands that only oh-my-pi's clients send. What has no meaning here is refused in the originals' words, so
that a client learns it at once instead of waiting for its time-out."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, NoReturn

from pigeon.rpc.host_connection import HostConnection
from pigeon.rpc.router import handles
from pigeon.session.session import Session
from pigeon.wire import answers, codec
from pigeon.wire import commands as c
from pigeon.wire.base import ABSENT, Absent, Json, or_else
from pigeon.wire.errors import BadRecord, Refusal
from pigeon.wire.messages import Message

PAGE = 100
LARGEST_PAGE = 256
PAGE_BYTES = 768 * 1024
LEVELS = ("off", "progress", "events")
BAD_CURSOR = "Invalid RPC message cursor"
BAD_FILTER = "events must be null or an array of non-empty event type strings"


@handles(c.SetEventFilter)
def set_event_filter(cmd: c.SetEventFilter, connection: HostConnection) -> answers.EventFilter:
    """In force from the next event on."""
    events = cmd.events
    if events is None:
        connection.form.send_only(None)
        return answers.EventFilter(events=None)
    if not isinstance(events, list) or not all(isinstance(name, str) and name for name in events):
        raise Refusal(BAD_FILTER)
    connection.form.send_only(frozenset(events))
    return answers.EventFilter(events=events)


@handles(c.OpenSession)
async def open_session(cmd: c.OpenSession, s: Session) -> answers.OpenedSession:
    """The run that is active ends first, unless the session is open already."""
    cancelled, resumed = await s.switching.open_newest(cmd.session_dir)
    journal = s.journal
    file = journal.file or ABSENT
    return answers.OpenedSession(cancelled=cancelled, resumed=resumed, session_id=journal.session_id, session_file=file)


@handles(c.GetMessagesPage)
def get_messages_page(cmd: c.GetMessagesPage, s: Session) -> answers.MessagesPage:
    """Pages hold for as long as the conversation does not change."""
    limit = or_else(cmd.limit, PAGE)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= LARGEST_PAGE:
        raise Refusal(f"RPC message page limit must be between 1 and {LARGEST_PAGE}")
    if s.activity.busy:
        raise Refusal("Cannot page messages while the session is changing", code="session_busy")
    place = {"version": 1, "sessionId": s.journal.session_id, "leafId": s.journal.leaf_id}
    visible = s.visible
    total = place["messageCount"] = len(visible.lines)
    first = 0 if isinstance(cmd.cursor, Absent) else _offset(cmd.cursor, place)
    page: list[Message] = []
    size = 0
    for line in visible.lines[first : first + limit]:
        message = visible.shown(line)
        size += len(codec.encode(message))
        if page and size > PAGE_BYTES:
            break
        page.append(message)
    behind = first + len(page)
    cursor = ABSENT if behind >= total else _cursor({**place, "offset": behind})
    return answers.MessagesPage(messages=page, next_cursor=cursor, total_messages=total)


def _given(value: Json | Absent) -> str:
    """What a client gave, for a text that repeats it."""
    if isinstance(value, Absent):
        return "undefined"
    return value if isinstance(value, str) else codec.encode(value).decode()


def _cursor(place: dict[str, Json]) -> str:
    return urlsafe_b64encode(codec.encode(place)).decode().rstrip("=")


def _offset(cursor: Json, place: dict[str, Any]) -> int:
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


@handles(c.SetSubagentSubscription)
def set_subagent_subscription(cmd: c.SetSubagentSubscription, s: Session) -> answers.SubagentSubscription:
    """Accepted as it is: there is nothing to subscribe to."""
    if cmd.level not in LEVELS:
        raise Refusal(f"Invalid subagent subscription level: {_given(cmd.level)}")
    return answers.SubagentSubscription(level=cmd.level)


@handles(c.GetSubagents)
def get_subagents(cmd: c.GetSubagents, s: Session) -> answers.Subagents:
    """None."""
    return answers.Subagents(subagents=[])


@handles(c.GetSubagentMessages)
def get_subagent_messages(cmd: c.GetSubagentMessages, s: Session) -> NoReturn:
    """Refused."""
    if isinstance(cmd.subagent_id, str):
        raise Refusal(f"Unknown subagent or session file unavailable: {cmd.subagent_id}")
    if isinstance(cmd.session_file, str):
        raise Refusal("Unknown subagent session file")
    raise Refusal("get_subagent_messages requires subagentId or sessionFile")


@handles(c.GetLoginProviders)
def get_login_providers(cmd: c.GetLoginProviders, s: Session) -> answers.LoginProviders:
    """None."""
    return answers.LoginProviders(providers=[])


@handles(c.Login)
def login(cmd: c.Login, s: Session) -> NoReturn:
    """Refused."""
    raise Refusal(f"Unknown OAuth provider: {_given(cmd.provider_id)}")


@handles(c.SetFastMode)
def set_fast_mode(cmd: c.SetFastMode, s: Session) -> answers.FastMode:
    """Off it is already."""
    if cmd.enabled:
        raise Refusal("Fast mode is unavailable for the current model.")
    return answers.FastMode(enabled=False, active=False)


@handles(c.Handoff)
def handoff(cmd: c.Handoff, s: Session) -> NoReturn:
    """Refused; where there could be no handoff anyway, with that reason."""
    if s.activity.in_run:
        raise Refusal("Cannot hand off while a response is in progress")
    if not s.visible.lines:
        raise Refusal("Nothing to hand off (no messages yet)")
    raise Refusal("Handoff is not available here; use compact, or new_session with a summary in the first prompt")


@handles(c.SetHostUriSchemes)
def set_host_uri_schemes(cmd: c.SetHostUriSchemes, s: Session) -> answers.HostUriSchemes:
    """None are read through the host."""
    if cmd.schemes:
        raise Refusal("Host URI schemes are not available here; offer a host tool that reads the addresses instead")
    return answers.HostUriSchemes(schemes=[])


@handles(c.NegotiateProtocol)
def negotiate_protocol(cmd: c.NegotiateProtocol, s: Session) -> NoReturn:
    """Refused: it was never offered."""
    raise Refusal(f"Unsupported RPC protocol version: {_given(cmd.protocol_version)}")
