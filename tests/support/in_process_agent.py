"""Agents in the process of the test, each with folders and a scripted model of its own; and recorded runs."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from fakes.http_server import HttpServer, Reply
from pigeon.app.build import BuiltAgent, build
from pigeon.app.options import AgentOptions
from pigeon.dialects.choice import NAMES, make_dialect
from pigeon.rpc.outbox import Outbox
from pigeon.rpc.session_connection import SessionConnection
from pigeon.session.prompting import HostMessage
from pigeon.system.environment import Environment
from pigeon.wire import codec
from pigeon.wire.answers import Accepted
from pigeon.wire.base import ABSENT
from pigeon.wire.content import ImageInput, text_of
from pigeon.wire.events import Outbound
from pigeon.wire.messages import AssistantMessage, ToolResultMessage

Record = dict[str, Any]
Lines = dict[str, list[bytes]]


class InProcessAgent:
    """One agent: `configure` its folders, `start`, talk, `stop`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home, self.work, self.agent_dir = root / "home", root / "work", root / "agent"
        for folder in (self.home, self.work, self.agent_dir):
            folder.mkdir(parents=True)
        self.variables = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        self.events: list[Record] = []
        self._news = asyncio.Event()
        self._built: BuiltAgent | None = None

    def configure(self, settings: Record | None = None, replies: list[Any] | None = None, **variables: str) -> None:
        """Write settings and the script of the model; add variables."""
        (self.agent_dir / "settings.json").write_text(json.dumps(settings or {}))
        (self.root / "script.json").write_text(json.dumps(replies or ["Nothing to say."]))
        self.variables.update(variables)

    async def start(self, **options: Any) -> BuiltAgent:
        """Build the agent and listen to it."""
        given = {"model": f"scripted/{self.root / 'script.json'}", "cwd": str(self.work), **options}
        environment = Environment(variables=self.variables, home=str(self.home), cwd=str(self.root))
        self._built = await build(AgentOptions(agent_dir=str(self.agent_dir), **given), environment)
        self.agent.session.bus.add_announcer(self._on_event, lambda: None)
        await self.agent.lifecycle.on_host_ready(lambda: None)
        return self.agent

    @property
    def agent(self) -> BuiltAgent:
        """The agent, once it has been started."""
        assert self._built is not None
        return self._built

    @property
    def is_running(self) -> bool:
        """True from `start` to `stop`."""
        return self._built is not None

    async def ask(self, text: str, images: list[Record] | None = None) -> None:
        """Prompt; the run goes on in the background."""
        pictures = ABSENT if images is None else codec.convert(images, list[ImageInput])
        waiting = self.agent.session.prompting.prompt(HostMessage(text, pictures))
        if not isinstance(waiting, Accepted):
            await waiting

    async def wait_until_settled(self) -> None:
        """Wait for the end of the run."""
        await self.agent.session.activity.wait_until_idle()

    async def prompt(self, text: str, images: list[Record] | None = None) -> None:
        await self.ask(text, images)
        await self.wait_until_settled()

    def model_texts(self) -> list[str]:
        messages = self.agent.session.context
        return [text_of(message.content) for message in messages if isinstance(message, AssistantMessage)]

    def results(self) -> list[str]:
        """What the tools returned, as the model saw it."""
        messages = self.agent.session.context
        return [text_of(message.content) for message in messages if isinstance(message, ToolResultMessage)]

    async def until(self, kind: str) -> Record:
        """Wait for an event of this type."""
        while not self.events_of(kind):
            self._news.clear()
            await self._news.wait()
        return self.events_of(kind)[0]

    def events_of(self, kind: str) -> list[Record]:
        return [event for event in self.events if event["type"] == kind]

    async def stop(self) -> None:
        """End the agent, as its host would."""
        agent, self._built = self.agent, None
        await agent.lifecycle.close_extensions()
        await agent.session.close()
        await agent.lifecycle.stop()

    def _on_event(self, event: Outbound) -> None:
        self.events.append(codec.to_plain(event))
        self._news.set()


def bash(command: str) -> Record:
    """A reply of the model that runs a command."""
    return {"toolCalls": [{"name": "bash", "arguments": {"command": command}}]}


Talk = Callable[[InProcessAgent], Awaitable[None]]


class ListSink:
    """Takes lines, as a host that is always quick."""

    is_full = is_overfull = False

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def put(self, pieces: Iterable[bytes], apart: bool = False, can_wait: bool = False) -> None:
        self.lines.append(b"".join(pieces))

    async def wait_for_room(self) -> None:
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
            return await self._collect_lines(agent, given)

    async def replay(self, folder: str, query: str = "", **options: Any) -> Lines:
        """Hold it again with what was recorded: without a server, a key or a models file."""
        agent = InProcessAgent(self.root / folder)
        agent.configure(self._settings)
        return await self._collect_lines(agent, {"model": f"recorded/{self.file}{query}", **options})

    async def _collect_lines(self, agent: InProcessAgent, options: dict[str, Any]) -> Lines:
        built = await agent.start(**options)
        sinks = {name: ListSink() for name in NAMES}
        for name, sink in sinks.items():
            connection = SessionConnection(built.session, make_dialect(name, "0", {}))
            built.session.bus.add_announcer(Outbox(sink, connection).send_event, lambda: None)
        try:
            await self._talk(agent)
        finally:
            await agent.stop()
        return {name: sink.lines for name, sink in sinks.items()}

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_bytes().splitlines()]
