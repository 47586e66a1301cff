"""What one extension can reach of its session: through the bridge, once it is bound, as far as it declared it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from pigeon.extensions.adapters.session_port import SessionPort
from pigeon.extensions.public.failures import NotBound
from pigeon.extensions.runtime.bridge import Bridge
from pigeon.wire.commands import ExtensionUiResponse
from pigeon.wire.dialogs import DialogRequest

_T = TypeVar("_T")


class Asks(Protocol):
    """Questions to the host."""

    async def ask(
        self, make: Callable[[str], DialogRequest], timeout_ms: int | None = None
    ) -> ExtensionUiResponse | None:
        """Send a question and wait; none when it was cancelled or timed out."""
        ...

    def tell(self, make: Callable[[str], DialogRequest]) -> None:
        """Send a notice that needs no answer."""
        ...


class Binding(Struct, frozen=True):
    """A session and its host."""

    port: SessionPort
    dialogs: Asks


class Reach:
    """One extension's way to the session."""

    def __init__(self, name: str, needs: frozenset[str] | None, bridge: Bridge) -> None:
        self._name = name
        self._needs = needs
        self.bridge = bridge
        self.binding: Binding | None = None

    def bound(self, capability: str | None = None) -> Binding:
        """The session; raises `NotBound` while there is none, `PermissionError` for what was not declared."""
        if capability is not None and self._needs is not None and capability not in self._needs:
            raise PermissionError(f'the extension "{self._name}" did not declare that it needs "{capability}"')
        if self.binding is None:
            raise NotBound("There is no session yet: act in a handler, for example of session_start")
        return self.binding

    def call(self, capability: str | None, function: Callable[[SessionPort], _T]) -> _T:
        """Call something of the session and wait for it."""
        port = self.bound(capability).port
        return self.bridge.call(lambda: function(port))

    async def run(self, capability: str | None, function: Callable[[SessionPort], Coroutine[Any, Any, _T]]) -> _T:
        """Run something of the session without blocking the extension."""
        port = self.bound(capability).port
        return await self.bridge.run(lambda: function(port))
