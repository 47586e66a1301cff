"""A session as extensions see it, made of lists: what they do to it can be looked at."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pigeon.extensions.adapters.session_port import ExecResult, SessionFacts
from pigeon.extensions.runner import Runner
from pigeon.extensions.runtime.discovery import Source
from pigeon.session.host.dialogs import Dialogs
from pigeon.system.ids import RANDOM_IDS
from pigeon.wire.answers import ContextUsage, SlashCommand
from pigeon.wire.commands import ExtensionUiResponse
from pigeon.wire.messages import CustomMessage, Message
from pigeon.wire.model import Model, ModelCost, ThinkingLevel
from support.processes import eventually


def a_model(id: str = "m-1", provider: str = "fake") -> Model:
    return Model(
        id=id, name=id, api="x", provider=provider, base_url="", reasoning=True, input=["text"], cost=ModelCost(),
        context_window=1000, max_tokens=100,
    )  # fmt: skip


class FakeConversation:
    def __init__(self) -> None:
        self.sent: list[tuple[CustomMessage, bool, str]] = []
        self.prompted: list[tuple[Any, str | None]] = []
        self.kept: list[dict[str, Any]] = []
        self.said: list[Message] = []
        self.name: str | None = None
        self.labels: dict[str, str | None] = {}

    def facts(self) -> SessionFacts:
        return SessionFacts("s-1", "/tmp/s.jsonl", self.name, "/work", self.kept[-1]["id"] if self.kept else None)

    def entries(self, branch_only: bool) -> list[dict[str, Any]]:
        return copy.deepcopy(self.kept)

    def messages(self) -> list[Message]:
        return self.said

    def send_message(self, message: CustomMessage, trigger_turn: bool, deliver_as: str) -> None:
        self.sent.append((message, trigger_turn, deliver_as))

    def send_user_message(self, content: Any, deliver_as: str | None) -> None:
        self.prompted.append((content, deliver_as))

    def append_entry(self, custom_type: str, data: Any) -> str:
        self.kept.append({"type": "custom", "id": f"e{len(self.kept)}", "customType": custom_type, "data": data})
        return str(self.kept[-1]["id"])

    def set_name(self, name: str) -> None:
        self.name = name

    def set_label(self, entry_id: str, label: str | None) -> None:
        self.labels[entry_id] = label


class FakeTools:
    def __init__(self) -> None:
        self.names = ["read", "bash"]
        self.added: dict[str, Any] = {}

    def active(self) -> list[str]:
        return list(self.names)

    def describe_all(self) -> list[tuple[str, str]]:
        return [(name, f"the tool {name}") for name in (*self.names, *self.added)]

    def activate(self, names: list[str]) -> None:
        self.names = names

    def add(self, tool: Any) -> None:
        self.added[tool.spec.name] = tool


class FakeModels:
    def __init__(self) -> None:
        self.providers: dict[str, tuple[Mapping[str, Any], Any]] = {}
        self.chosen = a_model()
        self.level: ThinkingLevel = "medium"

    def current(self) -> Model | None:
        return self.chosen

    def available(self) -> list[Model]:
        return [a_model("m-1"), a_model("m-2")]

    def select_model(self, provider: str, model_id: str) -> bool:
        found = [model for model in self.available() if (model.provider, model.id) == (provider, model_id)]
        self.chosen = found[0] if found else self.chosen
        return bool(found)

    def thinking(self) -> ThinkingLevel:
        return self.level

    def set_thinking(self, level: ThinkingLevel) -> None:
        self.level = level

    def add_provider(self, name: str, entry: Mapping[str, Any], provider: Any) -> None:
        self.providers[name] = (entry, provider)

    def remove_provider(self, name: str) -> None:
        self.providers.pop(name, None)


class FakeControl:
    def __init__(self) -> None:
        self.idle = True
        self.ran: list[list[str]] = []
        self.did: list[str] = []

    def is_idle(self) -> bool:
        return self.idle

    def has_pending_messages(self) -> bool:
        return False

    def abort(self) -> None:
        self.did.append("abort")

    def shutdown(self) -> None:
        self.did.append("shutdown")

    def context_usage(self) -> ContextUsage | None:
        return ContextUsage(tokens=10, context_window=1000, percent=1)

    def system_prompt(self) -> str:
        return "You are a pigeon."

    def commands(self) -> list[SlashCommand]:
        return []

    async def compact(self, instructions: str | None) -> None:
        self.did.append(f"compact {instructions}")

    async def wait_until_idle(self) -> None:
        self.did.append("waited")

    async def new_session(self, parent: str | None) -> bool:
        self.did.append("new")
        return True

    async def switch_session(self, path: str) -> bool:
        self.did.append(f"switch {path}")
        return True

    async def fork(self, entry_id: str) -> bool:
        self.did.append(f"fork {entry_id}")
        return True

    async def exec(self, argv: list[str], cwd: str | None, timeout: float | None) -> ExecResult:
        self.ran.append(argv)
        return ExecResult(stdout="out", stderr="", code=0)


class Stage:
    """A runner with extensions from source text, bound to a fake session; the host answers what `answer` says."""

    def __init__(self, folder: Path, flags: dict[str, bool | str] | None = None) -> None:
        self._folder = folder
        self.posted: list[Any] = []
        self.conversation = FakeConversation()
        self.tools = FakeTools()
        self.models = FakeModels()
        self.control = FakeControl()
        self.dialogs = Dialogs(self._post, RANDOM_IDS.dialog_id)
        self.answer: Callable[[Any], dict[str, Any] | None] = lambda request: None
        self.runner = Runner(cwd=str(folder), mode="rpc", flags=flags or {}, post=self._post)

    def source(self, name: str, text: str, scope: Any = "user") -> Source:
        path = self._folder / f"{name}.py"
        path.write_text("from pigeon.extensions import *\nimport asyncio, os, sys, time\n" + text)
        return Source(str(path), scope, "auto")

    async def load(self, name: str, text: str, scope: Any = "user") -> None:
        await self.runner.load([self.source(name, text, scope)])

    def bind(self) -> None:
        port: Any = SimpleNamespace(
            conversation=self.conversation, tools=self.tools, models=self.models, control=self.control
        )
        self.runner.bind(port, self.dialogs)

    def errors(self) -> list[tuple[str, str, str]]:
        """(file, event, error) of what was reported."""
        found = [event for event in self.posted if type(event).__name__ == "ExtensionError"]
        return [(Path(event.extension_path).name, event.event, event.error) for event in found]

    def dialog_requests(self) -> list[Any]:
        return [event for event in self.posted if hasattr(event, "id") and type(event).__name__.endswith("Request")]

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait for something to become true, in whatever thread: the stage has no part in all of them."""
        assert await asyncio.to_thread(eventually, done), "it never came to that"

    def _post(self, event: Any) -> None:
        self.posted.append(event)
        if type(event).__name__.endswith("Request"):
            given = self.answer(event)
            if given is not None:
                response = ExtensionUiResponse(id=event.id, **given)
                asyncio.get_running_loop().call_soon(self.dialogs.answer, response)
