"""One loaded extension: its registrations, the thread that runs its code, and its access to the session."""

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

    def handlers_for(self, kind: type[Event]) -> list[Handler]:
        """The handlers of one event, in the order of registration."""
        registered = self.extension.registered
        if self._indexed != registered.changes:
            self._indexed = registered.changes
            self._index = {}
            for handler in list(registered.handlers):
                self._index.setdefault(handler.event, []).append(handler)
        return self._index.get(kind, [])

    async def call_handler(self, handler: Handler, event: Event, timeout: PausableTimeout) -> Any:
        """Call a handler with an event and its own context; raises `ExtensionFailed`."""
        arguments = (event, Context(self.access, timeout))
        return await self.thread.call(handler.function, _trim_arguments(handler.function, arguments), timeout)

    async def run_command(self, function: Callable[..., Any], arguments: str, timeout: PausableTimeout) -> None:
        """Run a slash command with the rest of its line; raises `ExtensionFailed`."""
        given = (arguments, CommandContext(self.access, timeout))
        await self.thread.call(function, _trim_arguments(function, given, least=0), timeout)

    def make_tool_context(self, run: ToolRun, timeout: PausableTimeout) -> ToolContext:
        return ToolContext(self.access, timeout, run)

    def close(self) -> None:
        """Let the thread end, and release the `Extension` for another agent."""
        self.thread.close()
        self.extension.detach()

    def make_context(self) -> Context:
        return Context(self.access)

    def register_tool(self, tool: ToolDef) -> None:
        """Add a tool to the running session; waits until that is done."""
        self.access.bridge.call(lambda: self._contributions.register_tool(self, tool))

    def register_provider(self, provider: ProviderDef) -> None:
        """Add a provider to the running session; waits until that is done."""
        self.access.bridge.call(lambda: self._contributions.register_provider(self, provider))

    def unregister_provider(self, name: str) -> None:
        """Remove a provider from the running session; waits until that is done."""
        self.access.bridge.call(lambda: self._contributions.unregister_provider(name))

    def emit(self, topic: str, data: Any) -> None:
        """Send data to the extensions that listen to a topic."""
        self.access.bridge.call(lambda: self._contributions.emit_message(topic, data))

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start background work in the extension's thread."""
        self.thread.spawn(work)


def _trim_arguments(function: Callable[..., Any], arguments: tuple[Any, ...], least: int = 1) -> tuple[Any, ...]:
    """The arguments that a function has parameters for, but at least so many of them."""
    return arguments[: max(least, _count_positional_parameters(function))]


def _count_positional_parameters(function: Callable[..., Any]) -> int:
    """The number of positional arguments that a function takes; a large number if any."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2
    if any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters):
        return 100
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in positional for one in parameters)
