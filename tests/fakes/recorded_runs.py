"""Runs that are recorded and played again, in the process of the test, told in all dialects at once."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from fakes.http_server import HttpServer, Reply
from fakes.in_process_agents import InProcessAgent
from pigeon.dialects.choice import dialect_named
from pigeon.rpc.outbox import Outbox
from pigeon.rpc.session_connection import SessionConnection

DIALECTS = ("pi", "pi-latest", "omp", "xcsh", "companion")
Lines = dict[str, list[bytes]]
Talk = Callable[[InProcessAgent], Awaitable[None]]


class ListSink:
    """Takes lines, as a host that is always quick."""

    full = overfull = False

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def put(self, pieces: Iterable[bytes], apart: bool = False, can_wait: bool = False) -> None:
        self.lines.append(b"".join(pieces))

    async def room(self) -> None:
        """There always is."""


def models_file(api: str, url: str) -> dict[str, Any]:
    """Two models of a server, with prices."""
    cost = {"input": 1, "output": 2, "cacheRead": 0.1, "cacheWrite": 1.25}
    model = {"reasoning": True, "input": ["text", "image"], "contextWindow": 200_000, "maxTokens": 8_192, "cost": cost}
    models = [{"id": name, "name": name, **model} for name in ("one", "two")]
    return {"providers": {"here": {"baseUrl": url, "api": api, "apiKey": "sk-here-5Tq81LmXw2", "models": models}}}


class RecordedRun:
    """One folder for a run that is recorded, others for its replays."""

    def __init__(self, root: Path, talk: Talk, settings: dict[str, Any] | None = None) -> None:
        self.root = root
        self.file = root / "run.recording"
        self._talk = talk
        self._settings = {"retry": {"baseDelayMs": 1}, **(settings or {})}

    async def record(self, api: str, path: str, replies: list[Reply], **options: Any) -> Lines:
        """Hold the conversation with a server that speaks this API, and record it."""
        agent = InProcessAgent(self.root / "recorded")
        agent.configure(self._settings)
        async with HttpServer(replies) as server:
            (agent.agent_dir / "models.json").write_text(json.dumps(models_file(api, f"{server.url}{path}")))
            given = {"model": "here/one", "no_session": True, "record": str(self.file), **options}
            return await self._told(agent, given)

    async def replay(self, folder: str, query: str = "", **options: Any) -> Lines:
        """Hold it again with what was recorded: without a server, a key or a models file."""
        agent = InProcessAgent(self.root / folder)
        agent.configure(self._settings)
        return await self._told(agent, {"model": f"recorded/{self.file}{query}", **options})

    async def _told(self, agent: InProcessAgent, options: dict[str, Any]) -> Lines:
        built = await agent.start(**options)
        sinks = {name: ListSink() for name in DIALECTS}
        for name, sink in sinks.items():
            connection = SessionConnection(built.session, dialect_named(name, "0", {}))
            built.session.bus.announce(Outbox(sink, connection).event, lambda: None)
        try:
            await self._talk(agent)
        finally:
            await agent.stop()
        return {name: sink.lines for name, sink in sinks.items()}

    def lines(self) -> list[dict[str, Any]]:
        """The recording."""
        return [json.loads(line) for line in self.file.read_bytes().splitlines()]
