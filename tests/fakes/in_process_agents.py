"""Agents that live in the process of the test: each with its own folders, variables, settings and scripted model."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from pigeon.app.build import BuiltAgent, build
from pigeon.app.options import AgentOptions
from pigeon.session.prompting import HostMessage
from pigeon.system.environment import Environment
from pigeon.wire import codec
from pigeon.wire.answers import Accepted
from pigeon.wire.base import ABSENT
from pigeon.wire.content import ImageInput, text_of
from pigeon.wire.events import Outbound
from pigeon.wire.messages import AssistantMessage, ToolResultMessage

Record = dict[str, Any]


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
        self.agent.session.bus.announce(self._hear, lambda: None)
        await self.agent.lifecycle.started(lambda: None)
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

    async def settled(self) -> None:
        """Wait for the end of the run."""
        await self.agent.session.activity.until_idle()

    async def say(self, text: str, images: list[Record] | None = None) -> None:
        """Prompt and wait."""
        await self.ask(text, images)
        await self.settled()

    def said(self) -> list[str]:
        """What the model said."""
        messages = self.agent.session.context
        return [text_of(message.content) for message in messages if isinstance(message, AssistantMessage)]

    def results(self) -> list[str]:
        """What the tools returned, as the model saw it."""
        messages = self.agent.session.context
        return [text_of(message.content) for message in messages if isinstance(message, ToolResultMessage)]

    async def until(self, kind: str) -> Record:
        """Wait for an event of this type."""
        while not self.heard(kind):
            self._news.clear()
            await self._news.wait()
        return self.heard(kind)[0]

    def heard(self, kind: str) -> list[Record]:
        """Events of one type."""
        return [event for event in self.events if event["type"] == kind]

    async def stop(self) -> None:
        """End the agent, as its host would."""
        agent, self._built = self.agent, None
        await agent.lifecycle.leaving()
        await agent.session.close()
        await agent.lifecycle.stop()

    def _hear(self, event: Outbound) -> None:
        self.events.append(codec.to_plain(event))
        self._news.set()


def bash(command: str) -> Record:
    """A reply of the model that runs a command."""
    return {"toolCalls": [{"name": "bash", "arguments": {"command": command}}]}
