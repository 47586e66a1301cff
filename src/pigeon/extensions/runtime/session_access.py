"""What one extension can access of its session: through the bridge, once it is bound, as far as it declared it.

From an extension's thread to the protocol's event loop and back. There is no other way to a session.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from pigeon.extensions.adapters.session_port import SessionPort
from pigeon.extensions.public.failures import NotBound
from pigeon.wire.commands import ExtensionUiResponse
from pigeon.wire.dialogs import DialogRequest

_T = TypeVar("_T")
ANSWER_WITHIN = 10.0
GONE = "The session is closed"


class LoopBridge:
    """The way to one event loop, the one it is made on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._open = True

    def close(self) -> None:
        """From here on every call raises `NotBound`."""
        self._open = False

    def post(self, function: Callable[[], object]) -> None:
        """Call a function over there, some time; from any thread, also when nobody is there any more."""
        with contextlib.suppress(NotBound):
            self._post(lambda: _ignored(function()))

    def call(self, function: Callable[[], _T]) -> _T:
        """Call a function over there and wait for its result; from any thread."""
        if not self._open:
            raise NotBound(GONE)
        if threading.get_ident() == self._thread:
            return function()
        result: concurrent.futures.Future[_T] = concurrent.futures.Future()

        def work() -> None:
            if not result.set_running_or_notify_cancel():
                return
            try:
                result.set_result(function())
            except Exception as error:
                result.set_exception(error)

        self._post(work)
        try:
            return result.result(ANSWER_WITHIN)
        except concurrent.futures.TimeoutError:
            result.cancel()
            raise NotBound("The session did not answer") from None

    async def run(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine over there and wait without blocking this loop; cancelling here cancels there."""
        if not self._open:
            raise NotBound(GONE)
        if threading.get_ident() == self._thread:
            return await work()
        try:
            over_there = asyncio.run_coroutine_threadsafe(_started(work), self._loop)
        except RuntimeError:
            raise NotBound(GONE) from None
        return await asyncio.wrap_future(over_there)

    def _post(self, work: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            raise NotBound(GONE) from None


def _ignored(value: object) -> None:
    return None


async def _started(work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    return await work()


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


class SessionAccess:
    """One extension's way to the session."""

    def __init__(self, name: str, needs: frozenset[str] | None, bridge: LoopBridge) -> None:
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
