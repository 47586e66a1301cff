"""One loaded extension: what it registered, the thread that runs its code, and its access to the session."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from pigeon.extensions.public.api import Extension, Handler
from pigeon.extensions.public.context import CommandContext, Context, ToolContext
from pigeon.extensions.public.events import Event
from pigeon.extensions.public.provider import ProviderDef
from pigeon.extensions.public.tool_def import ToolDef
from pigeon.extensions.runtime.discovery import Source
from pigeon.extensions.runtime.extension_thread import ExtensionThread
from pigeon.extensions.runtime.pausable_timeout import PausableTimeout
from pigeon.extensions.runtime.session_access import SessionAccess

if TYPE_CHECKING:
    from pigeon.agent.interfaces import ToolRun
    from pigeon.extensions.adapters.contributions import Contributions


class LoadedExtension:
    """One loaded extension. The methods after `close` are called by `public/api.py`, in the extension's thread."""

    def __init__(
        self,
        extension: Extension,
        source: Source,
        thread: ExtensionThread,
        access: SessionAccess,
        contributions: Contributions,
    ) -> None:
        self.extension = extension
        self.source = source
        self.thread = thread
        self.access = access
        self._contributions = contributions
        self._index: dict[type[Event], list[Handler]] = {}
        self._indexed = -1

    def handlers(self, kind: type[Event]) -> list[Handler]:
        """Those for one event, in the order they were registered."""
        registered = self.extension.registered
        if self._indexed != registered.changes:
            self._indexed = registered.changes
            self._index = {}
            for handler in list(registered.handlers):
                self._index.setdefault(handler.event, []).append(handler)
        return self._index.get(kind, [])

    async def handle(self, handler: Handler, event: Event, timeout: PausableTimeout) -> Any:
        """Call a handler with an event and a context of its own; raises `ExtensionFailed`."""
        arguments = (event, Context(self.access, timeout))
        return await self.thread.call(handler.function, _as_many_as_taken(handler.function, arguments), timeout)

    async def run_command(self, function: Callable[..., Any], arguments: str, timeout: PausableTimeout) -> None:
        """Run a slash command with the rest of its line; raises `ExtensionFailed`."""
        given = (arguments, CommandContext(self.access, timeout))
        await self.thread.call(function, _as_many_as_taken(function, given, least=0), timeout)

    def tool_context(self, run: ToolRun, timeout: PausableTimeout) -> ToolContext:
        """What a tool gets."""
        return ToolContext(self.access, timeout, run)

    def close(self) -> None:
        """Let the thread end, and give the `Extension` back for another agent to use."""
        self.thread.close()
        self.extension.detach()

    def context(self) -> Context:
        """A context that belongs to no event."""
        return Context(self.access)

    def tool_added(self, tool: ToolDef) -> None:
        """A tool was registered late."""
        self.access.bridge.call(lambda: self._contributions.tool_added(self, tool))

    def provider_added(self, provider: ProviderDef) -> None:
        """A provider was registered late."""
        self.access.bridge.call(lambda: self._contributions.provider_added(self, provider))

    def provider_removed(self, name: str) -> None:
        """A provider was taken back."""
        self.access.bridge.call(lambda: self._contributions.provider_removed(name))

    def emit(self, topic: str, data: Any) -> None:
        """Tell the other extensions."""
        self.access.bridge.call(lambda: self._contributions.emitted(topic, data))

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start background work."""
        self.thread.spawn(work)


def _as_many_as_taken(function: Callable[..., Any], arguments: tuple[Any, ...], least: int = 1) -> tuple[Any, ...]:
    """The arguments that a function has parameters for, at least so many of them."""
    return arguments[: max(least, _taken(function))]


def _taken(function: Callable[..., Any]) -> int:
    """How many positional arguments a function takes; a large number if any."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2
    if any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters):
        return 100
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in positional for one in parameters)
