"""Open work between an agent and one of its servers: the agent's calls, the server's questions, the time that a step
may take, and the lists that have changed. `link.py` has one of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from typing import Any

import mcp_types as types

from pigeon.mcp.connector.records import Answer, ElicitAnswer, ElicitQuestion, Question
from pigeon.mcp.connector.trimming import strip_hidden_chars
from pigeon.mcp.connector.web_address import parse_web_address

# A server's questions are asked one at a time; when this many are waiting, further ones are declined.
MOST_QUESTIONS = 5
# Sends a question about a server to the agent; returns None if there was no answer.
Ask = Callable[[str, Question], Awaitable[Answer]]


class OpenCalls:
    """The agent's calls that have no answer yet, by their ids."""

    def __init__(self) -> None:
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._overflowed: set[int] = set()

    def start(self, id: int, work: Coroutine[Any, Any, None]) -> None:
        """Answer a call in the background."""
        task = self._tasks[id] = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: self._forget(id))

    def cancel(self, id: int) -> None:
        """Cancel one call, if it is still open."""
        if id in self._tasks:
            self._tasks[id].cancel()

    def cancel_all(self) -> list[asyncio.Task[None]]:
        """Cancel all calls; returns their tasks, which may take a moment to end."""
        for task in self._tasks.values():
            task.cancel()
        return list(self._tasks.values())

    def cancel_overflowed(self) -> None:
        """Cancel all calls after a message that was too large: it is not known which of them it answered."""
        self._overflowed.update(self._tasks)
        self.cancel_all()

    def has_overflowed(self, id: int) -> bool:
        """Whether a call was cancelled by `cancel_overflowed`."""
        return id in self._overflowed

    def _forget(self, id: int) -> None:
        self._tasks.pop(id, None)
        self._overflowed.discard(id)


class Elicitation:
    """The questions that a server asks the person."""

    def __init__(self, server: str, ask: Ask) -> None:
        self._server = server
        self._ask = ask
        self._waiting = 0
        self._one_at_a_time = asyncio.Lock()

    async def ask(self, params: Any) -> types.ElicitResult:
        """Ask, and return the answer in the form of the protocol; an address that no person should open is declined."""
        if self._waiting >= MOST_QUESTIONS:
            return types.ElicitResult(action="cancel")
        message = strip_hidden_chars(params.message)[:4000]
        if isinstance(params, types.ElicitRequestURLParams):
            address = parse_web_address(params.url)
            if address is None:
                return types.ElicitResult(action="decline")
            question = ElicitQuestion(message=message, url=address)
        else:
            schema = params.requested_schema
            requested = schema if isinstance(schema, dict) else schema.model_dump(by_alias=True, mode="json")
            question = ElicitQuestion(message=message, requested=requested)
        self._waiting += 1
        try:
            async with self._one_at_a_time:
                answer = await self._ask(self._server, question)
        finally:
            self._waiting -= 1
        if not isinstance(answer, ElicitAnswer):
            return types.ElicitResult(action="cancel")
        return types.ElicitResult(action=answer.action, content=answer.content)


class Deadline:
    """How long a server may take, at most `longest` seconds; `on_over` is called when it took longer."""

    def __init__(self, longest: float, on_over: Callable[[], None]) -> None:
        self._longest = longest
        self._on_over = on_over
        self._timer: asyncio.TimerHandle | None = None
        self.seconds = 0.0
        self.is_over = False

    def start(self, seconds: float = inf) -> None:
        """Give the server so long from now on, and no longer than `longest`."""
        self.stop()
        self.seconds = min(seconds, self._longest)
        self._timer = asyncio.get_running_loop().call_later(self.seconds, self._on_expired)

    def stop(self) -> None:
        """Cancel the deadline; the server may take any time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_expired(self) -> None:
        self.is_over = True
        self._on_over()


class StaleLists:
    """Which lists of a server have changed since they were loaded."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()
        self._changed = asyncio.Event()

    def mark_stale(self, kind: str) -> None:
        """Note that a list has changed."""
        self._kinds.add(kind)
        self._changed.set()

    async def wait_until_stale(self) -> None:
        await self._changed.wait()

    def pop_all(self) -> tuple[str, ...]:
        """The lists that have changed, which are not stale any more."""
        kinds, self._kinds = tuple(sorted(self._kinds)), set()
        self._changed.clear()
        return kinds
