"""Served conversations in this process, with a warm parent and real workers, and clients to talk to them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pigeon.app.options import AgentOptions
from pigeon.frontends.serve.client_session import ClientSession
from pigeon.frontends.serve.conversation import ServedConversation
from pigeon.frontends.serve.conversations import Conversations
from pigeon.frontends.serve.counts import ServeCounts
from pigeon.frontends.serve.worker_checks import ServeLimits
from pigeon.frontends.serve.worker_process import Workers

Record = dict[str, Any]
T = TypeVar("T")
PATIENCE = 30.0


class InProcessService:
    """All conversations below one folder, on one loop; `limits` and the clock can be changed by starting anew."""

    def __init__(self, root: Path, shared: int = 1) -> None:
        """With `shared` above 1, up to so many conversations are in one process."""
        self.shares = shared > 1
        self.root = root
        self.work = root / "work"
        self.work.mkdir()
        self.agent_dir = root / "agent"
        self._runner = asyncio.Runner()
        self._variables = {"HOME": str(root), "PATH": os.environ["PATH"], "PIGEON_SERVE_WARM_UP": "off"}
        # Starting a warm parent takes a second, so all supervisors share one.
        self.workers = Workers(self._variables, str(self.agent_dir / "serve" / "run"), shared)
        self.all = self.make_conversations()
        self.run(self.all.open())

    def make_conversations(self, **limits: Any) -> Conversations:
        """A supervisor that is not open yet."""
        options = AgentOptions(agent_dir=str(self.agent_dir), model="demo")
        self.counts = ServeCounts()
        return Conversations(
            str(self.agent_dir),
            options,
            self._variables,
            [str(self.root)],
            ServeLimits(**limits),
            self.counts,
            self.workers,
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this on the loop, within reasonable time."""
        return self._runner.run(asyncio.wait_for(work, 2 * PATIENCE))

    def restart(self, leave: bool = True, between: Callable[[], Awaitable[None]] | None = None, **limits: Any) -> None:
        """Another supervisor; workers are left to it, as after a kill, or stopped. `between` is done without one."""

        async def replace() -> None:
            await self.all.close(stop=not leave)
            if between is not None:
                await between()
            self.all = self.make_conversations(**limits)
            await self.all.open()

        self.run(replace())

    def close(self) -> None:
        self.run(self.all.close())
        self.run(self._end())
        self._runner.close()

    async def _end(self) -> None:
        self.workers.end_parent()


class ServiceClient:
    """One client of a conversation: `async with ServiceClient(...) as talk`."""

    def __init__(self, service: InProcessService, one: ServedConversation, after: int | None = None) -> None:
        self._session = ClientSession(service.all, one, "admin", after)
        self.one = one
        self.events: list[Record] = []
        self.answers: dict[str, list[Record]] = {}
        self._changed = asyncio.Condition()
        self._reading: asyncio.Task[None] | None = None
        self._count = 0

    async def __aenter__(self) -> ServiceClient:
        await self._session.wake_and_watch()
        self._reading = asyncio.ensure_future(self._read())
        return self

    async def __aexit__(self, *problem: object) -> None:
        assert self._reading is not None
        self._reading.cancel()
        with suppress(asyncio.CancelledError):
            await self._reading
        self._session.stop_watching()

    async def _read(self) -> None:
        async for lines in self._session.stream_lines():
            for line in lines:
                record = json.loads(line)
                if record["type"] == "response":
                    self.answers.setdefault(str(record.get("id")), []).append(record)
                else:
                    self.events.append(record)
            async with self._changed:
                self._changed.notify_all()

    async def send(self, type: str, **fields: Any) -> str:
        """Send a command; its id."""
        self._count += 1
        id = str(fields.pop("id", f"c{self._count}"))
        await self._session.handle_frame(json.dumps({"id": id, "type": type, **fields}).encode())
        return id

    async def answer_to(self, id: str) -> Record:
        """The answer to a command, which has exactly one."""
        await self.until(lambda: id in self.answers)
        assert len(self.answers[id]) == 1
        return self.answers[id][0]

    async def ask(self, type: str, **fields: Any) -> Record:
        """Send a command and wait for its answer."""
        return await self.answer_to(await self.send(type, **fields))

    async def data(self, type: str, **fields: Any) -> Any:
        """The data of an answer that says yes."""
        answer = await self.ask(type, **fields)
        assert answer["success"], answer
        return answer.get("data")

    async def until(self, seen: Callable[[], bool]) -> None:
        """Wait until this is true, which a record brings about."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(seen)

    async def event(self, type: str, count: int = 1) -> Record:
        """The first event of a type, or a later one, that has come or comes."""
        await self.until(lambda: len(self.of(type)) >= count)
        return self.of(type)[count - 1]

    def of(self, type: str) -> list[Record]:
        """The events of a type so far; of dialogs, those of a method."""
        return [event for event in self.events if type in (event["type"], event.get("method"))]

    async def run(self, message: str) -> Record:
        before = len(self.of("agent_settled"))
        assert (await self.ask("prompt", message=message))["success"]
        return await self.event("agent_settled", before + 1)


async def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that no record tells."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0)
