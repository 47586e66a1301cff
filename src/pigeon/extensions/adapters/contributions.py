"""What extensions bring along: tools and providers, at the start and later, and what they tell each other.

An extension's tool, as the loop runs it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from pigeon.agent.inference import ToolSpec
from pigeon.extensions.adapters.session_port import Equipment
from pigeon.extensions.public.context import ToolContext, outcome_of
from pigeon.extensions.public.failures import ExtensionFailed, text_of_error
from pigeon.extensions.public.provider import ExtensionStreamer, ProviderDef
from pigeon.extensions.public.tool_def import ToolDef
from pigeon.extensions.runtime.dispatcher import Dispatcher
from pigeon.extensions.runtime.loaded_extension import LoadedExtension
from pigeon.extensions.runtime.pausable_timeout import HANDLER_SECONDS, PausableTimeout
from pigeon.wire.base import Json
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome

if TYPE_CHECKING:
    from pigeon.agent.interfaces import ToolRun


class ExtensionTool:
    """Runs in the extension's thread, for as long as it takes, until it is aborted."""

    def __init__(self, definition: ToolDef, loaded: LoadedExtension) -> None:
        self._definition = definition
        self._member = loaded
        self.snippet = definition.snippet
        self.guidelines = definition.guidelines

    @property
    def spec(self) -> ToolSpec:
        """How the model sees it."""
        return self._definition.spec

    @property
    def reads_only(self) -> bool:
        """True if neighbouring calls may run beside it."""
        return self._definition.reads_only

    def prepare(self, arguments: dict[str, Json]) -> dict[str, Json]:
        """Arguments as they are."""
        return arguments

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Do it; whatever the extension raises becomes the text of the failure."""
        timeout = PausableTimeout(None)
        context = ToolContext(self._member.access, self._member.place, timeout, run)
        forget = run.scope.on_cancel(context.cancel)
        try:
            call = self._definition.bound(arguments, context)
            result = await run.scope.wait(self._member.thread.call(call, (), timeout))
            return outcome_of(result)
        except msgspec.ValidationError as error:
            raise ToolFailed(f"{self.spec.name}: {error}") from None
        except (ExtensionFailed, TypeError) as error:
            raise ToolFailed(str(error)) from error
        finally:
            forget()


class ContributedProvider:
    """A provider, ready for the registry: its entry, and who answers if it is no HTTP service."""

    __slots__ = ("entry", "name", "streamer")

    def __init__(self, name: str, entry: dict[str, Any], streamer: ExtensionStreamer | None) -> None:
        self.name = name
        self.entry = entry
        self.streamer = streamer


class Contributions:
    """All tools and providers; the first extension that takes a name keeps it."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._equipment: Equipment | None = None
        self._beside: set[asyncio.Task[None]] = set()

    def bind(self, equipment: Equipment) -> None:
        """From here on, what comes late is put in place at once."""
        self._equipment = equipment

    def tools(self) -> list[ExtensionTool]:
        """The tools of all extensions."""
        tools: dict[str, ExtensionTool] = {}
        for loaded in self._dispatcher.extensions:
            for definition in loaded.extension.registry.tools.values():
                if definition.spec.name in tools:
                    self._taken(loaded, "tool", definition.spec.name)
                else:
                    tools[definition.spec.name] = ExtensionTool(definition, loaded)
        return list(tools.values())

    def providers(self) -> list[ContributedProvider]:
        """The providers of all extensions."""
        bundles: dict[str, ContributedProvider] = {}
        for loaded in self._dispatcher.extensions:
            for provider in loaded.extension.registry.providers.values():
                if provider.name in bundles:
                    self._taken(loaded, "provider", provider.name)
                else:
                    bundles[provider.name] = _contributed(loaded, provider)
        return list(bundles.values())

    def tool_added(self, loaded: LoadedExtension, tool: ToolDef) -> None:
        """A tool was registered late."""
        owner = self._owner(tool.spec.name)
        if owner is not None and owner is not loaded:
            self._taken(loaded, "tool", tool.spec.name)
        elif self._equipment is not None:
            self._equipment.add_tool(ExtensionTool(tool, loaded))

    def provider_added(self, loaded: LoadedExtension, provider: ProviderDef) -> None:
        """A provider was registered late."""
        if self._equipment is not None:
            bundle = _contributed(loaded, provider)
            self._equipment.add_provider(bundle.name, bundle.entry, bundle.streamer)

    def provider_removed(self, name: str) -> None:
        """A provider was taken back."""
        if self._equipment is not None:
            self._equipment.remove_provider(name)

    def emitted(self, topic: str, data: Any) -> None:
        """One extension tells the others something; nobody waits for them."""
        for loaded in self._dispatcher.extensions:
            for name, function in list(loaded.extension.registry.topics):
                if name == topic:
                    task = asyncio.ensure_future(self._hand_over(loaded, topic, function, data))
                    self._beside.add(task)
                    task.add_done_callback(self._beside.discard)

    async def _hand_over(self, loaded: LoadedExtension, topic: str, function: Any, data: Any) -> None:
        try:
            await loaded.thread.call(function, (data,), PausableTimeout(HANDLER_SECONDS))
        except ExtensionFailed as error:
            self._dispatcher.reports(loaded.source.path, f"topic:{topic}", text_of_error(error))

    def _owner(self, tool: str) -> LoadedExtension | None:
        return next((one for one in self._dispatcher.extensions if tool in one.extension.registry.tools), None)

    def _taken(self, loaded: LoadedExtension, what: str, name: str) -> None:
        text = f'the {what} "{name}" is left out: another extension has one of that name'
        self._dispatcher.reports(loaded.source.path, "load", text)


def _contributed(loaded: LoadedExtension, provider: ProviderDef) -> ContributedProvider:
    answers = provider.answer is not None
    streamer = ExtensionStreamer(provider, loaded.thread, loaded.access.bridge) if answers else None
    return ContributedProvider(provider.name, provider.entry, streamer)
