"""All conversations of `pigeon serve`: which there are, how many may be awake, and when one is put to sleep.

A conversation is known by the id of the session that it began as, and has a folder of that name with its record and its
event log. A session that was made elsewhere, as in the terminal, becomes one when it is asked for.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from pigeon.app.options import AgentOptions
from pigeon.serve.conversation import RECORD_FILE, ConversationRecord, ServedConversation
from pigeon.serve.worker_process import SocketFolder, Workers
from pigeon.session.history.listing import all_folders, listed, row_of
from pigeon.session.history.repository import default_folder
from pigeon.system import ids
from pigeon.system.clock import now_ms
from pigeon.wire import codec
from pigeon.wire.answers import SessionRow
from pigeon.wire.errors import BadRecord, Refusal

LOOK_SECONDS = 5.0
MOST_LISTED = 200
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class UnknownConversation(Refusal):
    """There is no conversation with this id."""


class TooMany(Refusal):
    """As many conversations as are allowed are awake, and none of them can be put to sleep."""


class ServeLimits(Struct, frozen=True, kw_only=True):
    """How much may be served at once."""

    awake: int = 200
    idle_seconds: float = 600.0


class Conversations:
    """The conversations below one agent's folder. `roots` are the folders that may be worked in."""

    def __init__(
        self,
        agent_dir: str,
        options: AgentOptions,
        variables: Mapping[str, str],
        roots: Sequence[str],
        limits: ServeLimits,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agent_dir = agent_dir
        self._options = options
        self._variables = variables
        self._roots = [os.path.realpath(root) for root in roots]
        self._limits = limits
        self._now = now
        self._folder = os.path.join(agent_dir, "serve", "conversations")
        os.makedirs(self._folder, 0o700, exist_ok=True)
        self._sockets = SocketFolder(os.path.join(agent_dir, "serve", "run"))
        self.workers = Workers(variables)
        self._known: dict[str, ServedConversation] = {}
        self._looking: asyncio.Task[None] | None = None

    @property
    def awake(self) -> list[ServedConversation]:
        """Those that have a worker."""
        return [one for one in self._known.values() if one.state != "asleep"]

    @property
    def known(self) -> list[ServedConversation]:
        """Those that were used since the start."""
        return list(self._known.values())

    async def open(self) -> None:
        """Get ready, and find the workers that an earlier supervisor has left."""
        await self.workers.open()
        for name in self._sockets.names():
            with suppress(Refusal):
                await self.conversation(name).find()
        self._looking = asyncio.ensure_future(self._look_after())

    async def close(self, stop: bool = True) -> None:
        """Stop all workers, or leave them to the next supervisor."""
        if self._looking is not None:
            self._looking.cancel()
        if stop:
            await asyncio.gather(*(one.sleep() for one in self.awake))
        for one in self._known.values():
            one.leave()
        self.workers.close()
        self._sockets.close()

    def new(self, cwd: str, model: str | None = None) -> ServedConversation:
        """A conversation in a folder; raises `Refusal` if that is not one of those that may be opened."""
        record = ConversationRecord(id=ids.session_id(now_ms()), cwd=self.allowed(cwd), model=model)
        made = self._make(record)
        made.save()
        return made

    def conversation(self, id: str) -> ServedConversation:
        """The one with this id; raises `UnknownConversation`."""
        known = self._known.get(id)
        if known is not None:
            return known
        if not _ID.fullmatch(id):
            raise UnknownConversation(f"There is no session {id[:100]!r}")
        record = self._kept(id) or self._adopted(id)
        if record is None:
            raise UnknownConversation(f"There is no session {id}")
        self.allowed(record.cwd)
        return self._make(record)

    async def ready(self, one: ServedConversation) -> None:
        """See that there is room for one more worker; raises `TooMany`."""
        if one.state == "awake" or len(self.awake) < self._limits.awake:
            return
        idle = sorted((other for other in self.awake if other.idle), key=lambda other: other.used)
        if not idle:
            raise TooMany(f"{self._limits.awake} conversations are at work, which is the most. Try again later")
        await idle[0].sleep()

    async def remove(self, id: str) -> None:
        """Forget a conversation and its event log; its session file is left alone."""
        one = self.conversation(id)
        await one.sleep()
        one.leave()
        self._known.pop(id, None)
        shutil.rmtree(os.path.join(self._folder, id), ignore_errors=True)

    def rows(self, cwd: str | None = None) -> list[SessionRow]:
        """The sessions on disk in the folders that may be opened, newest first."""
        everywhere = os.path.join(self._agent_dir, "sessions")
        folders = all_folders(everywhere) if cwd is None else [default_folder(self._agent_dir, self.allowed(cwd))]
        rows, _ = listed(folders, None, MOST_LISTED)
        return [row for row in rows if self.may_open(row.cwd)]

    def may_open(self, cwd: str) -> bool:
        """Whether a folder is one of those that may be worked in."""
        path = os.path.realpath(cwd)
        return any(path == root or path.startswith(root.rstrip(os.sep) + os.sep) for root in self._roots)

    def may_use_file(self, path: str) -> bool:
        """Whether a session file, or a folder of them, belongs to such a folder or is the agent's own."""
        real = os.path.realpath(path)
        if not real.startswith(os.path.realpath(self._agent_dir) + os.sep):
            return self.may_open(real)
        row = row_of(real) if os.path.isfile(real) else None
        return row is not None and self.may_open(row.cwd)

    def allowed(self, cwd: str) -> str:
        """The folder, if it may be worked in; raises `Refusal`."""
        if not os.path.isabs(cwd) or not self.may_open(cwd):
            raise Refusal(f"{cwd} is not below a folder that may be opened: {', '.join(self._roots)}")
        if not os.path.isdir(cwd):
            raise Refusal(f"{cwd} is not a folder")
        return cwd

    def _make(self, record: ConversationRecord) -> ServedConversation:
        folder = os.path.join(self._folder, record.id)
        os.makedirs(folder, 0o700, exist_ok=True)
        made = ServedConversation(
            record, folder, self._options, self._variables, self.workers, self._sockets, self._now
        )
        self._known[record.id] = made
        return made

    def _kept(self, id: str) -> ConversationRecord | None:
        try:
            with open(os.path.join(self._folder, id, RECORD_FILE), "rb") as file:
                return codec.convert(codec.decode(file.read()), ConversationRecord)
        except (OSError, BadRecord):
            return None

    def _adopted(self, id: str) -> ConversationRecord | None:
        """A session that was made elsewhere."""
        for folder in all_folders(os.path.join(self._agent_dir, "sessions")):
            for name in os.listdir(folder):
                if name.endswith(f"_{id}.jsonl"):
                    path = os.path.join(folder, name)
                    row = row_of(path)
                    if row is not None:
                        return ConversationRecord(id=id, cwd=row.cwd, session_file=path)
        return None

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            before = self._now() - self._limits.idle_seconds
            for one in self.awake:
                if one.idle and one.used < before:
                    await one.sleep()
