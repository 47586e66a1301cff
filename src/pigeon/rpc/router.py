"""Which function handles which command: explicit registration; a second handler for a command is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from pigeon.wire.commands import NAMES, Command

Result = Any
CommandHandler = Callable[[Any, Any], Result | Awaitable[Result]]
_F = TypeVar("_F", bound=Callable[..., Any])
_handlers: dict[type[Command], CommandHandler] = {}


def handles(*kinds: type[Command]) -> Callable[[_F], _F]:
    """Register a handler: a function of the command and of the object that the command is about.

    It returns the answer's data or raises a `Refusal`; it may be async.
    """

    def register(handler: _F) -> _F:
        for kind in kinds:
            if kind in _handlers:
                raise RuntimeError(f"two handlers for {NAMES[kind]}")
            _handlers[kind] = handler
        return handler

    return register


def registered_handlers() -> Mapping[type[Command], CommandHandler]:
    """The handler of each command; complete once `handlers/all` is imported."""
    return _handlers
