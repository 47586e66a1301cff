"""One client of a conversation: what it is sent, in which order, and from where on.

Events are read from the log on disk, for each client from where it is, and an answer is sent behind the events that
came before it. So a client that reads slowly holds nothing up, and costs no memory but for its unread answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Literal

from pigeon.transport.event_log import LogEnd, LogReader
from pigeon.wire import codec
from pigeon.wire.base import Absent, Json

if TYPE_CHECKING:
    from pigeon.serve.conversation import ServedConversation

MOST_UNREAD = 64 * 1024 * 1024
Scope = Literal["read", "talk", "admin"]
# What a client may have to answer, whatever else it wants to see.
ALWAYS_SENT = ("extension_ui_request", "host_tool_call", "host_tool_cancel")
# Why a client is left: it does not read its answers, its token was taken back, the conversation is gone.
WatchEnd = Literal["too slow", "revoked", "deleted"]
_TYPE = b'"type":"'
# What a command of a client prints carries the id of the command: in the log that of the supervisor.
_BASH = b'{"type":"bash_execution_update"'
_BASH_ID = _BASH + b',"id":"'
MOST_BASH_IDS = 100


class Watcher:
    """A client; `after` is the number of the last event that it has, none for one that wants what comes from now on."""

    def __init__(self, conversation: ServedConversation, scope: Scope, after: int | None) -> None:
        self.scope = scope
        self._conversation = conversation
        self._after = after
        self._asked_before: list[bytes] = []
        self._kinds: frozenset[str] | None = None
        self._bash_ids: dict[bytes, bytes] = {}
        self._answers: deque[tuple[LogEnd, bytes]] = deque()
        self._unread = 0
        self._changed = asyncio.Event()
        self.ended: WatchEnd | None = None

    def begin(self) -> int:
        """Fix where it begins: behind the event with this number. One that had none is sent the open questions, too."""
        if self._after is None:
            self._after = self._conversation.number
            self._asked_before = list(self._conversation.work.questions.values())
        return self._after

    def send_only(self, kinds: frozenset[str] | None) -> None:
        """Leave out events of other types from now on; none leaves out nothing."""
        self._kinds = kinds

    def began_bash(self, id: str, asked_as: Json | Absent) -> None:
        """Show what this command of the client prints under the id that the client gave it, if it gave one."""
        self._bash_ids[id.encode()] = b"" if isinstance(asked_as, Absent) else b',"id":' + codec.encode(asked_as)
        if len(self._bash_ids) > MOST_BASH_IDS:
            del self._bash_ids[next(iter(self._bash_ids))]

    def answer(self, line: bytes, end: LogEnd) -> None:
        """Send an answer, behind the events up to that end of the log."""
        self._unread += len(line)
        # One answer may be of any length.
        if self._answers and self._unread > MOST_UNREAD:
            self.end("too slow")
        if self.ended is None:
            self._answers.append((end, line))
        self._changed.set()

    def end(self, why: WatchEnd) -> None:
        """Send nothing more."""
        if self.ended is None:
            self.ended = why
        self._answers.clear()
        self._changed.set()

    def wake(self) -> None:
        """There is more in the log."""
        self._changed.set()

    async def lines(self) -> AsyncIterator[list[bytes]]:
        """All that it is to be sent, without LF, until it is to `end`."""
        conversation = self._conversation
        sent = self.begin()
        if self._asked_before:
            yield self._asked_before
        reader = LogReader(conversation.log_folder, sent, conversation.end)
        try:
            while self.ended is None:
                if reader.lost:
                    snapshot, number = await conversation.snapshot()
                    yield [b'{"type":"gap","after":%d,"snapshot":%s}' % (sent, snapshot)]
                    reader.close()
                    reader = LogReader(conversation.log_folder, number, conversation.end)
                    if reader.lost:
                        # Even the message that is under way began longer ago.
                        reader.close()
                        reader = LogReader(conversation.log_folder, conversation.number, conversation.end)
                self._changed.clear()
                lines = reader.read(self._answers[0][0] if self._answers else conversation.end)
                if reader.lost:
                    continue
                sent = reader.number
                if lines:
                    if self._bash_ids:
                        lines = [self._as_asked(line) for line in lines]
                    yield lines if self._kinds is None else [line for line in lines if self._wants(line)]
                elif self._answers:
                    line = self._answers.popleft()[1]
                    self._unread -= len(line)
                    yield [line]
                else:
                    await self._changed.wait()
        finally:
            reader.close()

    def _as_asked(self, line: bytes) -> bytes:
        if not line.startswith(_BASH_ID):
            return line
        at = line.find(b'"', len(_BASH_ID))
        member = self._bash_ids.get(line[len(_BASH_ID) : at])
        return line if member is None else _BASH + member + line[at + 1 :]

    def _wants(self, line: bytes) -> bool:
        at = line.find(_TYPE) + len(_TYPE)
        kind = line[at : line.find(b'"', at)].decode("ascii", "replace")
        return kind in ALWAYS_SENT or self._kinds is None or kind in self._kinds
