"""The commands and events of one client, by WebSocket or by Unix socket.

All clients of a conversation share the events that its worker writes (`worker.py`). So what `--mode rpc` does for
its one host is done here for each client: `hello` tells it which features these events have, and `set_event_filter`
leaves some out. Every other command goes to the worker, if the client's scope allows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, get_args

from pigeon import __version__
from pigeon.frontends.serve.conversation import ServedConversation
from pigeon.frontends.serve.conversations import Conversations
from pigeon.frontends.serve.scopes import Scope, permitted
from pigeon.frontends.serve.watching import WatchEnd, Watcher
from pigeon.rpc.lanes import MOST_IN_FLIGHT
from pigeon.transport.reader import DEFAULT_CAP
from pigeon.wire import codec
from pigeon.wire.answers import (
    DialectName,
    EventFilter,
    Feature,
    InputLimits,
    Response,
    Sessions,
    Welcome,
    failed,
    succeeded,
)
from pigeon.wire.base import ABSENT, Json, or_else
from pigeon.wire.commands import SILENT_NAMES, Hello, ListSessions, SetEventFilter
from pigeon.wire.errors import BadRecord, PigeonError, Refusal

DIALECT: DialectName = "pi-latest"


class ClientSession:
    """One client of one conversation, from its first line to its last."""

    def __init__(
        self, conversations: Conversations, conversation: ServedConversation, scope: Scope, after: int | None
    ) -> None:
        self._conversations = conversations
        self.conversation = conversation
        self._watcher = Watcher(conversation, scope, after)
        # Once it is open: the client gets the events after the one with this number.
        self.start = 0

    async def open(self) -> None:
        """Wake the conversation and begin to watch; raises `PigeonError` or `OSError`."""
        await self._conversations.ready(self.conversation)
        await self.conversation.wake()
        self.conversation.attach(self._watcher)
        self.start = self._watcher.begin()

    def refuse_line(self, why: str) -> None:
        """Answer a line that is no valid command with an error."""
        self._answer(failed("parse", f"Failed to parse command: {why}"))

    def close(self) -> None:
        """The client has gone."""
        self.conversation.detach(self._watcher)

    def end(self, why: WatchEnd) -> None:
        """Send the client nothing more; `lines` ends."""
        self._watcher.end(why)

    @property
    def ended(self) -> WatchEnd | None:
        """Why the server ended it; none if the client disconnected."""
        return self._watcher.ended

    def lines(self) -> AsyncIterator[list[bytes]]:
        """The lines to send to the client, as they come."""
        return self._watcher.lines()

    async def take(self, line: bytes) -> None:
        """Handle a line from the client; waits while the client leaves earlier answers unread."""
        try:
            value = codec.decode(line)
            problem = codec.shape_error(line, values=len(line))
        except BadRecord as error:
            value, problem = None, str(error)
        if not isinstance(value, dict) or value.get("type") not in SILENT_NAMES:
            await self._watcher.room(MOST_IN_FLIGHT)
        if problem is not None or not isinstance(value, dict) or not isinstance(value.get("type"), str):
            id = value.get("id") if isinstance(value, dict) else None
            why = problem or 'expected a JSON object with a "type"'
            self._answer(failed("parse", f"Failed to parse command: {why}", ABSENT if id is None else id))
            return
        if value.get("id") is None:
            value.pop("id", None)
        try:
            value = permitted(value, self._watcher.scope, self._conversations, self.conversation.record.cwd)
        except Refusal as error:
            self._answer(failed(value["type"], str(error), value.get("id", ABSENT)))
            return
        if value["type"] in ("hello", "set_event_filter"):
            self._own(value)
        elif value["type"] == "list_sessions" and value.get("scope") == "all":
            await self._list(value)
        else:
            await self._send_on(value)

    async def _send_on(self, value: dict[str, Json]) -> None:
        try:
            self._conversations.check_open(str(value["type"]))
            self._check_session(value)
            await self._conversations.ready(self.conversation)
        except PigeonError as error:
            self._answer(failed(str(value["type"]), str(error), value.get("id", ABSENT)))
            return
        await self.conversation.tell(value, self._watcher)

    async def _list(self, value: dict[str, Any]) -> None:
        """Answer for all folders below the roots, which the worker does not know."""
        try:
            command = codec.command_of(value)
            assert isinstance(command, ListSessions)
            asked = (None, None, command.limit, or_else(command.cursor, None))
            rows, following = await asyncio.to_thread(self._conversations.rows, *asked)
        except Refusal as error:
            self._answer(failed("list_sessions", str(error), value.get("id", ABSENT)))
            return
        page = Sessions(sessions=rows, next_cursor=ABSENT if following is None else following)
        self._answer(succeeded("list_sessions", codec.to_plain(page), command.id))

    def _check_session(self, value: dict[str, Json]) -> None:
        """Raise a `Refusal` if another conversation has the session open."""
        path = value.get("sessionPath") if value["type"] == "switch_session" else None
        owner = self._conversations.owner_of(path, self.conversation) if isinstance(path, str) else None
        if owner is not None:
            raise Refusal(f"This session is open in the conversation {owner}. Attach to that one")

    def _own(self, value: dict[str, Any]) -> None:
        """Answer a command that concerns only this client's connection."""
        try:
            command = codec.command_of(value)
        except BadRecord as error:
            self._answer(failed(value["type"], str(error), value.get("id", ABSENT)))
            return
        if isinstance(command, Hello):
            self._answer(_welcome(command))
        elif isinstance(command, SetEventFilter):
            events = or_else(command.events, None)
            kinds = None if events is None else frozenset(events)
            self._watcher.send_only(kinds)
            data = codec.to_plain(EventFilter(events=None if kinds is None else sorted(kinds)))
            self._answer(succeeded("set_event_filter", data, command.id))

    def _answer(self, response: Response) -> None:
        self._watcher.answer(codec.encode(response), self.conversation.log.end)


def _welcome(command: Hello) -> Response:
    asked = or_else(command.dialect, DIALECT)
    if asked != DIALECT:
        return failed("hello", f"Served conversations speak {DIALECT} only, not {asked}", command.id)
    limits = InputLimits(record_bytes=DEFAULT_CAP, commands_in_flight=MOST_IN_FLIGHT)
    features = list(get_args(Feature))
    welcome = Welcome(name="pigeon", version=__version__, dialect=DIALECT, features=features, limits=limits)
    return succeeded("hello", codec.to_plain(welcome), command.id)
