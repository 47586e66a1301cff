"""What an extension says about itself: the events it listens to, its tools, commands, flags and providers.

A module makes one `Extension` and decorates functions with its methods, or has a function `setup(ext)` that does the
same. Registering is possible at any time; acting on the session only once there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from pigeon.extensions.public.events import BY_NAME, Event
from pigeon.extensions.public.failures import NotBound
from pigeon.extensions.public.provider import ProviderDef, provider_def
from pigeon.extensions.public.tool_def import ToolDef, tool_def
from pigeon.extensions.runtime.pausable_timeout import HANDLER_SECONDS

if TYPE_CHECKING:
    from pigeon.extensions.public.context import Context

_F = TypeVar("_F", bound=Callable[..., Any])
CAPABILITIES = frozenset({"ui", "messages", "entries", "tools", "models", "exec", "sessions", "control"})


@dataclass(frozen=True, slots=True)
class Handler:
    """One function that listens to one event."""

    event: type[Event]
    function: Callable[..., Any]
    timeout: float | None
    tools: frozenset[str] | None

    def wants(self, event: Event) -> bool:
        """False for a tool that the handler does not care for."""
        return self.tools is None or getattr(event, "tool", None) in self.tools


@dataclass(frozen=True, slots=True)
class CommandDef:
    """A slash command."""

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
        """What was given, or the default."""
        return self.default if self._given is None else self._given

    def __bool__(self) -> bool:
        return bool(self.value)

    def give(self, value: bool | str) -> None:
        """Take the value from the command line."""
        if isinstance(self.default, bool) and isinstance(value, str):
            value = value.strip().lower() not in ("", "0", "false", "no", "off")
        self._given = value


class Runtime(Protocol):
    """The running side of an extension; there is none while its module is being loaded."""

    def context(self) -> Context:
        """A context that belongs to no event."""
        ...

    def tool_added(self, tool: ToolDef) -> None:
        """A tool was registered late."""
        ...

    def provider_added(self, provider: ProviderDef) -> None:
        """A provider was registered late."""
        ...

    def provider_removed(self, name: str) -> None:
        """A provider was taken back."""
        ...

    def emit(self, topic: str, data: Any) -> None:
        """Tell the other extensions."""
        ...

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start background work."""
        ...


class Registry:
    """Everything that one extension registered."""

    def __init__(self) -> None:
        self.handlers: list[Handler] = []
        self.tools: dict[str, ToolDef] = {}
        self.commands: dict[str, CommandDef] = {}
        self.flags: dict[str, Flag] = {}
        self.providers: dict[str, ProviderDef] = {}
        self.topics: list[tuple[str, Callable[..., Any]]] = []
        self.changes = 0


class Extension:
    """One extension. `needs` declares what it uses of the session; what is not in there is then refused."""

    def __init__(self, name: str, *, version: str = "", needs: Iterable[str] | None = None) -> None:
        wanted = None if needs is None else frozenset(needs)
        if wanted is not None and not wanted <= CAPABILITIES:
            unknown = ", ".join(sorted(wanted - CAPABILITIES))
            raise ValueError(f"unknown capability: {unknown}; there are {', '.join(sorted(CAPABILITIES))}")
        self.name = name
        self.version = version
        self.needs = wanted
        self.registry = Registry()
        self.runtime: Runtime | None = None

    def on(
        self, event: type[Event] | str, *, tools: Iterable[str] | None = None, timeout: float = HANDLER_SECONDS
    ) -> Callable[[_F], _F]:
        """Listen to an event, by its class or its name; `tools` limits tool events to these tools."""
        kind = BY_NAME.get(event) if isinstance(event, str) else event
        if not (isinstance(kind, type) and issubclass(kind, Event)):
            raise ValueError(f"there is no event {event!r}")
        wanted = None if tools is None else frozenset([tools] if isinstance(tools, str) else tools)

        def register(function: _F) -> _F:
            self._listen(Handler(kind, function, timeout, wanted))
            return function

        return register

    def off(self, function: Callable[..., Any]) -> None:
        """Stop listening with this function, to events and topics."""
        self.registry.handlers = [one for one in self.registry.handlers if one.function is not function]
        self.registry.topics = [one for one in self.registry.topics if one[1] is not function]
        self.registry.changes += 1

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
        """
        if function:
            return self._add_tool(function[0], tool_def(function[0], **options))
        return lambda actual: self._add_tool(actual, tool_def(actual, **options))

    def command(self, name: str, *, help: str = "", timeout: float | None = None) -> Callable[[_F], _F]:
        """Register the slash command `/name`; the function gets the rest of the line and a context."""
        if not name or name.startswith("/") or any(char.isspace() for char in name):
            raise ValueError(f"{name!r} cannot be the name of a command: no slash, no spaces")

        def register(function: _F) -> _F:
            if name in self.registry.commands:
                raise ValueError(f'two commands are called "{name}"')
            described = help or (function.__doc__ or "").strip().partition("\n")[0]
            self.registry.commands[name] = CommandDef(name, function, described, timeout)
            self.registry.changes += 1
            return function

        return register

    def flag(self, name: str, *, default: bool | str | None = False, help: str = "") -> Flag:
        """Register the option `--name`; a boolean by default, a string if the default is one or none."""
        clean = name.removeprefix("--")
        flag = Flag(clean, default, help)
        self.registry.flags[clean] = flag
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
        """Register a provider of models. The decorated function gives the models, or, as an async generator over a
        request, the answers; with `models` given and a known `api` nothing has to be decorated."""
        entry: dict[str, Any] = {"baseUrl": base_url, "api": api, "apiKey": api_key}
        entry = {key: value for key, value in entry.items() if value}
        if headers:
            entry["headers"] = dict(headers)
        if models is not None and api:
            self._provide(provider_def(name, entry, models, None))

        def register(function: _F) -> _F:
            self._provide(provider_def(name, entry, models, function))
            return function

        return register

    def remove_provider(self, name: str) -> None:
        """Take a provider back."""
        self.registry.providers.pop(name, None)
        if self.runtime is not None:
            self.runtime.provider_removed(name)

    def topic(self, name: str) -> Callable[[_F], _F]:
        """Listen to what other extensions `emit` under this name."""

        def register(function: _F) -> _F:
            self.registry.topics.append((name, function))
            self.registry.changes += 1
            return function

        return register

    def emit(self, name: str, data: Any = None) -> None:
        """Tell all extensions that listen to this topic, without waiting for them."""
        self._running().emit(name, data)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start work in the background; it is cancelled when the process ends."""
        self._running().spawn(work)

    @property
    def context(self) -> Context:
        """The session outside of any event; raises while there is none."""
        return self._running().context()

    def _add_tool(self, function: Callable[..., Any], made: ToolDef) -> Callable[..., Any]:
        if made.spec.name in self.registry.tools:
            raise ValueError(f'two tools are called "{made.spec.name}"')
        self.registry.tools[made.spec.name] = made
        if self.runtime is not None:
            self.runtime.tool_added(made)
        return function

    def _listen(self, handler: Handler) -> None:
        self.registry.handlers.append(handler)
        self.registry.changes += 1

    def _provide(self, provider: ProviderDef) -> None:
        self.registry.providers[provider.name] = provider
        if self.runtime is not None:
            self.runtime.provider_added(provider)

    def _running(self) -> Runtime:
        if self.runtime is None:
            raise NotBound("There is no session yet: act in a handler, for example of session_start")
        return self.runtime
