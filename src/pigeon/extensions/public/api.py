"""What an extension declares: the events it listens to, its tools, commands, flags and providers.

A module makes one `Extension` and decorates functions with its methods, or has a function `setup(ext)` that does the
same. Registering is possible at any time; acting on the session only while there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pigeon.extensions.public.events import BY_NAME, Event
from pigeon.extensions.public.failures import NO_SESSION, ExtensionFailed, NotBound
from pigeon.extensions.public.provider import ProviderDef, build_provider_def
from pigeon.extensions.public.tool_def import ToolDef, build_tool_def
from pigeon.extensions.runtime.pausable_timeout import HANDLER_SECONDS

if TYPE_CHECKING:
    from pigeon.extensions.public.context import Context
    from pigeon.extensions.runtime.loaded_extension import LoadedExtension

_F = TypeVar("_F", bound=Callable[..., Any])
IN_USE = "another agent in this process uses it; an entry point that is a function setup(ext) can be used by several"
CAPABILITIES = frozenset({"ui", "messages", "entries", "tools", "models", "exec", "sessions", "control"})


@dataclass(frozen=True, slots=True)
class Handler:
    """One function that listens to one event."""

    event: type[Event]
    function: Callable[..., Any]
    timeout: float | None
    tools: frozenset[str] | None

    def should_handle(self, event: Event) -> bool:
        """False for a tool that the handler does not want; the case of its name does not matter."""
        return self.tools is None or str(getattr(event, "tool", "")).lower() in self.tools


@dataclass(frozen=True, slots=True)
class CommandDef:
    """A slash command that an extension has registered."""

    name: str
    function: Callable[..., Any]
    help: str
    timeout: float | None


class Flag:
    """An option on the command line; its value is known once the extension is loaded."""

    def __init__(self, name: str, default: bool | str | None, help: str) -> None:
        self.name = name
        self.default = default
        self.help = help
        self._given: bool | str | None = None

    @property
    def value(self) -> bool | str | None:
        """The given value, or the default."""
        return self.default if self._given is None else self._given

    def __bool__(self) -> bool:
        return bool(self.value)

    def give(self, value: bool | str | None) -> None:
        """Set the value from the command line; None removes an earlier one."""
        if isinstance(self.default, bool) and isinstance(value, str):
            value = value.strip().lower() not in ("", "0", "false", "no", "off")
        self._given = value


class Registrations:
    """Everything that one extension registered; names are unique within it.

    `changes` counts up with handlers and commands: `LoadedExtension.handlers` and `ExtensionCommands` keep an index
    until it changes.
    """

    def __init__(self) -> None:
        self.handlers: list[Handler] = []
        self.tools: dict[str, ToolDef] = {}
        self.commands: dict[str, CommandDef] = {}
        self.flags: dict[str, Flag] = {}
        self.providers: dict[str, ProviderDef] = {}
        self.topics: list[tuple[str, Callable[..., Any]]] = []
        self.changes = 0

    def add_handler(self, handler: Handler) -> None:
        """Register a handler for one of the extension's events."""
        self.handlers.append(handler)
        self.changes += 1

    def add_command(self, command: CommandDef) -> None:
        """Add a command; raises `ValueError` if its name is in use."""
        if command.name in self.commands:
            raise ValueError(f'two commands are called "{command.name}"')
        self.commands[command.name] = command
        self.changes += 1

    def add_tool(self, tool: ToolDef) -> None:
        """Add a tool; raises `ValueError` if its name is in use."""
        if tool.spec.name in self.tools:
            raise ValueError(f'two tools are called "{tool.spec.name}"')
        self.tools[tool.spec.name] = tool

    def remove_function(self, function: Callable[..., Any]) -> None:
        """Stop listening with a function."""
        self.handlers = [one for one in self.handlers if one.function is not function]
        self.topics = [one for one in self.topics if one[1] is not function]
        self.changes += 1


class Extension:
    """One extension. `needs` declares what it uses of the session; everything else is then refused.

    Example:
        from pigeon.extensions import AgentEnd, Context, Extension

        ext = Extension("counter", needs=["ui"])


        @ext.on(AgentEnd)
        async def report(event: AgentEnd, ctx: Context) -> None:
            ctx.ui.notify(f"{len(event.messages)} messages")
    """

    def __init__(self, name: str, *, version: str = "", needs: Iterable[str] | None = None) -> None:
        wanted = None if needs is None else frozenset(needs)
        if wanted is not None and not wanted <= CAPABILITIES:
            unknown = ", ".join(sorted(wanted - CAPABILITIES))
            raise ValueError(f"unknown capability: {unknown}; known: {', '.join(sorted(CAPABILITIES))}")
        self.name = name
        self.version = version
        self.needs = wanted
        self.registered = Registrations()
        self._loaded: LoadedExtension | None = None

    def on(
        self, event: type[Event] | str, *, tools: Iterable[str] | None = None, timeout: float = HANDLER_SECONDS
    ) -> Callable[[_F], _F]:
        """Listen to an event, by its class or its name; `tools` limits tool events to these tools.

        Example:
            from pigeon.extensions import Block, Context, Extension, ToolCall

            ext = Extension("guard")


            @ext.on(ToolCall, tools=["bash"])
            async def refuse(event: ToolCall, ctx: Context) -> Block | None:
                return Block("no pushing") if "git push" in event.args["command"] else None
        """
        kind = BY_NAME.get(event) if isinstance(event, str) else event
        if not (isinstance(kind, type) and issubclass(kind, Event)):
            raise ValueError(f"there is no event {event!r}")
        named = [tools] if isinstance(tools, str) else tools
        wanted = None if named is None else frozenset(name.lower() for name in named)

        def register(function: _F) -> _F:
            self.registered.add_handler(Handler(kind, function, timeout, wanted))
            return function

        return register

    def off(self, function: Callable[..., Any]) -> None:
        """Stop listening with this function, to events and topics."""
        self.registered.remove_function(function)

    @overload
    def tool(self, function: _F, /) -> _F: ...

    @overload
    def tool(
        self,
        *,
        name: str = "",
        description: str = "",
        schema: dict[str, Any] | None = None,
        snippet: str = "",
        guidelines: Sequence[str] = (),
        reads_only: bool = False,
    ) -> Callable[[_F], _F]: ...

    def tool(self, *function: Callable[..., Any], **options: Any) -> Any:
        """Register a tool; its schema comes from the type hints, its description from the docstring.

        With an explicit `schema` the function gets the arguments as one dict. `snippet` is a line for the system
        prompt, `guidelines` are advice for it; a tool that `reads_only` may run beside its neighbours.

        Example:
            from pigeon.extensions import Extension

            ext = Extension("cities")


            @ext.tool(reads_only=True)
            def population(city: str) -> str:
                '''How many people live in a city.'''
                return f"{city}: about 340,000"
        """
        if function:
            return self._add_tool(function[0], build_tool_def(function[0], **options))
        return lambda actual: self._add_tool(actual, build_tool_def(actual, **options))

    def command(self, name: str, *, help: str = "", timeout: float | None = None) -> Callable[[_F], _F]:
        """Register the slash command `/name`; the function gets the rest of the line and a context.

        Example:
            from pigeon.extensions import CommandContext, Extension

            ext = Extension("greeter")


            @ext.command("greet", help="Greet a person")
            async def greet(arguments: str, ctx: CommandContext) -> None:
                ctx.ui.notify(f"Hello, {arguments or 'world'}!")
        """
        if not name or name.startswith("/") or any(char.isspace() for char in name):
            raise ValueError(f"{name!r} cannot be the name of a command: no slash, no spaces")

        def register(function: _F) -> _F:
            described = help or (function.__doc__ or "").strip().partition("\n")[0]
            self.registered.add_command(CommandDef(name, function, described, timeout))
            return function

        return register

    def flag(self, name: str, *, default: bool | str | None = False, help: str = "") -> Flag:
        """Register the option `--name`; a boolean by default, a string if the default is a string or None.

        Example:
            from pigeon.extensions import Context, Extension, SessionStart

            ext = Extension("noisy")
            loud = ext.flag("loud", help="Announce each session")


            @ext.on(SessionStart)
            async def announce(event: SessionStart, ctx: Context) -> None:
                if loud:
                    ctx.ui.notify("A session begins")
        """
        clean = name.removeprefix("--")
        flag = Flag(clean, default, help)
        self.registered.flags[clean] = flag
        return flag

    def provider(
        self,
        name: str,
        *,
        models: Sequence[Mapping[str, Any] | str] | None = None,
        base_url: str = "",
        api: str = "",
        api_key: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Callable[[_F], _F]:
        """Register a provider of models. The decorated function returns the models, or, as an async generator over a
        request, yields the answers; with `models` and a known `api`, no function is needed.

        Example:
            from collections.abc import AsyncIterator

            from pigeon.extensions import Extension, ModelRequest

            ext = Extension("echo")


            @ext.provider("echo", models=["parrot"])
            async def answer(request: ModelRequest) -> AsyncIterator[str]:
                yield f"You have sent {len(request.messages)} messages."
        """
        entry: dict[str, Any] = {"baseUrl": base_url, "api": api, "apiKey": api_key}
        entry = {key: value for key, value in entry.items() if value}
        if headers:
            entry["headers"] = dict(headers)
        if models is not None and api:
            self._add_provider(build_provider_def(name, entry, models, None))

        def register(function: _F) -> _F:
            self._add_provider(build_provider_def(name, entry, models, function))
            return function

        return register

    def remove_provider(self, name: str) -> None:
        """Remove a provider that this extension has registered."""
        self.registered.providers.pop(name, None)
        if self._loaded is not None:
            self._loaded.unregister_provider(name)

    def topic(self, name: str) -> Callable[[_F], _F]:
        """Listen to data that other extensions `emit` under this name."""

        def register(function: _F) -> _F:
            self.registered.topics.append((name, function))
            return function

        return register

    def emit(self, name: str, data: Any = None) -> None:
        """Send data to all extensions that listen to this topic, without waiting for them."""
        self._require_loaded().emit(name, data)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start work in the background; it is cancelled when the process ends."""
        self._require_loaded().spawn(work)

    def attach(self, loaded: LoadedExtension, flags: Mapping[str, bool | str]) -> None:
        """Called by the loader: from here on the extension runs; raises `ExtensionFailed` if it already runs.

        That happens to the entry point of a package, whose module two agents of one process share.
        """
        if self._loaded is not None:
            raise ExtensionFailed(IN_USE)
        self._loaded = loaded
        for flag in self.registered.flags.values():
            flag.give(flags.get(flag.name))

    def detach(self) -> None:
        """Release the extension for another agent; called when the agent ends."""
        self._loaded = None

    @property
    def context(self) -> Context:
        """The session outside of any event; raises `NotBound` while there is none."""
        return self._require_loaded().make_context()

    def _add_tool(self, function: Callable[..., Any], made: ToolDef) -> Callable[..., Any]:
        self.registered.add_tool(made)
        if self._loaded is not None:
            self._loaded.register_tool(made)
        return function

    def _add_provider(self, provider: ProviderDef) -> None:
        self.registered.providers[provider.name] = provider
        if self._loaded is not None:
            self._loaded.register_provider(provider)

    def _require_loaded(self) -> LoadedExtension:
        if self._loaded is None:
            raise NotBound(NO_SESSION)
        return self._loaded
