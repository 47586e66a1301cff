"""Contributions of extensions to a session: tools and providers, at the start and later, and messages on topics to each
other. The composition root adds the first ones; later ones go through the session's port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from pigeon.agent.interfaces import ArgumentTool
from pigeon.extensions.public.context import outcome_of
from pigeon.extensions.public.failures import ExtensionFailed, text_of_error
from pigeon.extensions.public.provider import ExtensionProvider, ProviderDef
from pigeon.extensions.public.tool_def import ToolDef
from pigeon.extensions.runtime.dispatcher import Dispatcher
from pigeon.extensions.runtime.loaded_extension import LoadedExtension
from pigeon.extensions.runtime.pausable_timeout import HANDLER_SECONDS, PausableTimeout
from pigeon.extensions.runtime.session_access import SessionBinding
from pigeon.wire.base import Json
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome

if TYPE_CHECKING:
    from pigeon.agent.interfaces import ToolRun


class ExtensionTool(ArgumentTool):
    """An extension's tool, which the loop runs in the extension's thread, without a time limit, until it is aborted."""

    def __init__(self, definition: ToolDef, loaded: LoadedExtension) -> None:
        self._definition = definition
        self._loaded = loaded
        self.spec = definition.spec
        self.snippet = definition.snippet
        self.guidelines = definition.guidelines

    @property
    def reads_only(self) -> bool:
        return self._definition.reads_only

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Run the tool; an exception of the extension becomes the text of the failure."""
        timeout = PausableTimeout(None)
        context = self._loaded.make_tool_context(run, timeout)
        forget = run.scope.add_cancel_callback(context.cancel)
        try:
            call = self._definition.bind_call(arguments, context)
            result = await run.scope.wait(self._loaded.thread.call(call, (), timeout))
            return outcome_of(result)
        except msgspec.ValidationError as error:
            raise ToolFailed(f"{self.spec.name}: {error}") from None
        except (ExtensionFailed, TypeError) as error:
            raise ToolFailed(str(error)) from error
        finally:
            forget()


class ContributedProvider:
    """A provider for the registry: its entry, and the object that answers if it is not an HTTP service."""

    __slots__ = ("entry", "name", "provider")

    def __init__(self, name: str, entry: dict[str, Any], provider: ExtensionProvider | None) -> None:
        self.name = name
        self.entry = entry
        self.provider = provider


class Contributions:
    """All tools and providers; the first extension that takes a name keeps it."""

    def __init__(self, dispatcher: Dispatcher, binding: SessionBinding) -> None:
        self._dispatcher = dispatcher
        self._binding = binding
        self._deliveries: set[asyncio.Task[None]] = set()

    def list_tools(self) -> list[ExtensionTool]:
        tools: dict[str, ExtensionTool] = {}
        for loaded in self._dispatcher.extensions:
            for definition in loaded.extension.registered.tools.values():
                if definition.spec.name in tools:
                    self._report_name_conflict(loaded, "tool", definition.spec.name)
                else:
                    tools[definition.spec.name] = ExtensionTool(definition, loaded)
        return list(tools.values())

    def list_providers(self) -> list[ContributedProvider]:
        providers: dict[str, ContributedProvider] = {}
        for loaded in self._dispatcher.extensions:
            for definition in loaded.extension.registered.providers.values():
                if definition.name in providers:
                    self._report_name_conflict(loaded, "provider", definition.name)
                else:
                    providers[definition.name] = _build_contribution(loaded, definition)
        return list(providers.values())

    def register_tool(self, loaded: LoadedExtension, tool: ToolDef) -> None:
        owner = self._find_owner(tool.spec.name)
        if owner is not None and owner is not loaded:
            self._report_name_conflict(loaded, "tool", tool.spec.name)
        elif self._binding.port is not None:
            self._binding.port.tools.add(ExtensionTool(tool, loaded))

    def register_provider(self, loaded: LoadedExtension, definition: ProviderDef) -> None:
        """Add a provider that an extension registered after the start."""
        if self._binding.port is not None:
            late = _build_contribution(loaded, definition)
            self._binding.port.models.add_provider(late.name, late.entry, late.provider)

    def unregister_provider(self, name: str) -> None:
        if self._binding.port is not None:
            self._binding.port.models.remove_provider(name)

    def emit_message(self, topic: str, data: Any) -> None:
        """Send data of one extension to those that listen to a topic, without waiting for them."""
        for loaded in self._dispatcher.extensions:
            for name, function in list(loaded.extension.registered.topics):
                if name == topic:
                    task = asyncio.ensure_future(self._deliver(loaded, topic, function, data))
                    self._deliveries.add(task)
                    task.add_done_callback(self._deliveries.discard)

    async def _deliver(self, loaded: LoadedExtension, topic: str, function: Callable[..., Any], data: Any) -> None:
        try:
            await loaded.thread.call(function, (data,), PausableTimeout(HANDLER_SECONDS))
        except ExtensionFailed as error:
            self._dispatcher.reports(loaded.source.path, f"topic:{topic}", text_of_error(error))

    def _find_owner(self, tool: str) -> LoadedExtension | None:
        return next((one for one in self._dispatcher.extensions if tool in one.extension.registered.tools), None)

    def _report_name_conflict(self, loaded: LoadedExtension, what: str, name: str) -> None:
        text = f'the {what} "{name}" is ignored: another extension has one with that name'
        self._dispatcher.reports(loaded.source.path, "load", text)


def _build_contribution(loaded: LoadedExtension, definition: ProviderDef) -> ContributedProvider:
    answers = definition.answer is not None
    provider = ExtensionProvider(definition, loaded.thread, loaded.access.bridge) if answers else None
    return ContributedProvider(definition.name, definition.entry, provider)
