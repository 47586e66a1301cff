"""The commands and events of one client, by WebSocket or by Unix socket.

All clients of a conversation share the events that its worker writes (`worker.py`), so each has a `Connection` with the
features of these events, which it cannot change. Commands that concern only the connection are answered here; every
other command goes to the worker, if the client's scope allows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pigeon import __version__
from pigeon.dialects.pi_latest import PiLatest
from pigeon.frontends.serve.client_rights import check_command
from pigeon.frontends.serve.conversation import ServedConversation
from pigeon.frontends.serve.conversations import Conversations
from pigeon.frontends.serve.watching import WatchEnd, Watcher
from pigeon.rpc.command_reader import RefusedLine, read_frame
from pigeon.rpc.connection import OWN_COMMANDS, Connection
from pigeon.rpc.lanes import MOST_IN_FLIGHT
from pigeon.transport.reader import Frame
from pigeon.wire import codec
from pigeon.wire.answers import Response, Sessions, failure_response, success_response
from pigeon.wire.base import ABSENT, Absent, Json, value_or_default
from pigeon.wire.choices import ALL_FEATURES
from pigeon.wire.commands import NAMES, Command, ListSessions, Scope, SwitchSession
from pigeon.wire.errors import PigeonError, Refusal

OTHER_DIALECT = "Served conversations speak pi-latest only, not {}"


class ClientSession:
    """One client of one conversation, from its first line to its last."""

    def __init__(
        self, conversations: Conversations, conversation: ServedConversation, scope: Scope, after: int | None
    ) -> None:
        self._conversations = conversations
        self.conversation = conversation
        dialect = PiLatest(__version__)
        self._connection = Connection(dialect, ALL_FEATURES, fixed_dialect=OTHER_DIALECT, fixed_features=True)
        self._watcher = Watcher(conversation, scope, after, self._connection.should_send_line)
        # Set by `open`: the client gets the events after the one with this number.
        self.start = 0

    async def wake_and_watch(self) -> None:
        """Wake the conversation and begin to watch; raises `PigeonError` or `OSError`."""
        await self._conversations.wait_until_wakeable(self.conversation)
        await self.conversation.wake()
        self.conversation.clients.attach(self._watcher)
        self.start = self._watcher.resolve_start()

    def stop_watching(self) -> None:
        self.conversation.clients.detach(self._watcher)

    def end_watch(self, why: WatchEnd) -> None:
        """Send the client nothing more; `lines` ends."""
        self._watcher.end(why)

    @property
    def end_reason(self) -> WatchEnd | None:
        """Why the server ended it, or None if the client disconnected."""
        return self._watcher.ended

    def stream_lines(self) -> AsyncIterator[list[bytes]]:
        return self._watcher.stream_lines()

    async def handle_frame(self, frame: Frame) -> None:
        """Handle a line from the client; waits while the client has unread answers."""
        for item in read_frame(frame):
            if isinstance(item, RefusedLine) or not item.silent:
                await self._watcher.wait_and_count_command(MOST_IN_FLIGHT)
            if isinstance(item, RefusedLine):
                self._answer(item.response)
                continue
            try:
                await self._handle_command(item)
            except PigeonError as error:
                self._answer(failure_response(NAMES[type(item)], str(error), item.id))

    async def _handle_command(self, command: Command) -> None:
        """Answer a command, or send it on; raises `PigeonError`."""
        command = check_command(command, self._watcher.scope, self._conversations.paths, self.conversation.record.cwd)
        if isinstance(command, OWN_COMMANDS):
            self._answer_success(command, self._connection.answer_own(command))
        elif isinstance(command, ListSessions) and command.scope == "all":
            self._answer_success(command, await self._list_all_sessions(command))
        else:
            self._conversations.check_not_stopping(NAMES[type(command)])
            self._check_not_open_elsewhere(command)
            await self._conversations.wait_until_wakeable(self.conversation)
            await self.conversation.forward_command(codec.to_plain(command), self._watcher)

    async def _list_all_sessions(self, command: ListSessions) -> Sessions:
        """The sessions of all folders below the roots; the worker does not know them all."""
        if not isinstance(command.session_id, Absent):
            rows = await asyncio.to_thread(self._conversations.find_sessions, command.session_id)
            return Sessions(sessions=rows)
        asked = (None, None, command.limit, value_or_default(command.cursor, None))
        rows, following = await asyncio.to_thread(self._conversations.list_sessions, *asked)
        return Sessions(sessions=rows, next_cursor=ABSENT if following is None else following)

    def _check_not_open_elsewhere(self, command: Command) -> None:
        """Raise a `Refusal` if another conversation has the session open."""
        path = command.session_path if isinstance(command, SwitchSession) else None
        owner = None if path is None else self._conversations.find_other_owner(path, self.conversation)
        if owner is not None:
            raise Refusal(f"This session is open in the conversation {owner}. Attach to that one")

    def _answer_success(self, command: Command, data: Json) -> None:
        self._answer(success_response(NAMES[type(command)], data, command.id))

    def _answer(self, response: Response) -> None:
        for line in self._connection.to_answer_lines(response):
            self._watcher.send_answer(b"".join(line.pieces), self.conversation.log.end)
