"""One loaded extension: what it registered, where its code runs, what it can access."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from pigeon.extensions.public.api import Extension, Handler
from pigeon.extensions.public.context import CommandContext, Context, Place
from pigeon.extensions.public.events import Event
from pigeon.extensions.public.provider import ProviderDef
from pigeon.extensions.public.tool_def import ToolDef
from pigeon.extensions.runtime.discovery import Source
from pigeon.extensions.runtime.extension_thread import ExtensionThread
from pigeon.extensions.runtime.pausable_timeout import PausableTimeout
from pigeon.extensions.runtime.session_access import SessionAccess


class Crew(Protocol):
    """All extensions together, as one of them sees them."""

    def tool_added(self, loaded: LoadedExtension, tool: ToolDef) -> None:
        """A tool was registered late."""
        ...

    def provider_added(self, loaded: LoadedExtension, provider: ProviderDef) -> None:
        """A provider was registered late."""
        ...

    def provider_removed(self, name: str) -> None:
        """A provider was taken back."""
        ...

    def emitted(self, topic: str, data: Any) -> None:
        """One extension tells the others something."""
        ...


class LoadedExtension:
    """One loaded extension."""

    def __init__(
        self,
        extension: Extension,
        source: Source,
        thread: ExtensionThread,
        access: SessionAccess,
        place: Place,
        crew: Crew,
    ) -> None:
        self.extension = extension
        self.source = source
        self.thread = thread
        self.access = access
        self._place = place
        self._crew = crew
        self._index: dict[type[Event], list[Handler]] = {}
        self._indexed = -1

    def handlers(self, kind: type[Event]) -> list[Handler]:
        """Those for one event, in the order they were registered."""
        registry = self.extension.registry
        if self._indexed != registry.changes:
            self._indexed = registry.changes
            self._index = {}
            for handler in list(registry.handlers):
                self._index.setdefault(handler.event, []).append(handler)
        return self._index.get(kind, [])

    async def ask(self, handler: Handler, event: Event, timeout: PausableTimeout) -> Any:
        """Call a handler with an event and a context of its own; raises `ExtensionFailed`."""
        return await self.thread.call(handler.function, self._arguments(handler, event, timeout), timeout)

    def command_context(self, timeout: PausableTimeout) -> CommandContext:
        """What a slash command gets."""
        return CommandContext(self.access, self._place, timeout)

    @property
    def place(self) -> Place:
        """What stays the same while the extension lives."""
        return self._place

    def trust(self, trusted: bool) -> None:
        """The project was found trusted or not."""
        self._place.trusted = trusted

    # The extension's own side: called in its thread.

    def context(self) -> Context:
        """A context that belongs to no event."""
        return Context(self.access, self._place)

    def tool_added(self, tool: ToolDef) -> None:
        """A tool was registered late."""
        self.access.bridge.call(lambda: self._crew.tool_added(self, tool))

    def provider_added(self, provider: ProviderDef) -> None:
        """A provider was registered late."""
        self.access.bridge.call(lambda: self._crew.provider_added(self, provider))

    def provider_removed(self, name: str) -> None:
        """A provider was taken back."""
        self.access.bridge.call(lambda: self._crew.provider_removed(name))

    def emit(self, topic: str, data: Any) -> None:
        """Tell the other extensions."""
        self.access.bridge.call(lambda: self._crew.emitted(topic, data))

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start background work."""
        self.thread.spawn(work)

    def _arguments(self, handler: Handler, event: Event, timeout: PausableTimeout) -> tuple[Any, ...]:
        if takes(handler.function) < 2:
            return (event,)
        return event, Context(self.access, self._place, timeout)


def takes(function: Callable[..., Any]) -> int:
    """How many positional arguments a function takes; a large number if any."""
    import inspect

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2
    if any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters):
        return 100
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in positional for one in parameters)
