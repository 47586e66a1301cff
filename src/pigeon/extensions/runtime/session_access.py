"""How an extension reaches its session: from its own thread, over a bridge to the session's event loop and back.

A session is used on its own loop only; an extension has no other access. All extensions of one agent share one
`SessionBinding`, which is empty while they are loaded; each has its own `SessionAccess`, which refuses whatever the
extension did not declare.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from pigeon.extensions.public.failures import NO_SESSION, NotBound

if TYPE_CHECKING:
    from pigeon.extensions.adapters.session_port import SessionPort
    from pigeon.session.host.dialogs import Dialogs

_T = TypeVar("_T")
ANSWER_WITHIN = 10.0
CLOSED = "The session is closed"


class LoopBridge:
    """Transfers calls to the event loop on which it was created."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._open = True

    def close(self) -> None:
        """Make every later call raise `NotBound`."""
        self._open = False

    def post(self, function: Callable[[], object]) -> None:
        """Call a function on that loop without waiting; from any thread, without effect once the loop is gone."""
        with contextlib.suppress(NotBound):
            self._post(lambda: _ignore_value(function()))

    def call(self, function: Callable[[], _T]) -> _T:
        """Call a function on that loop and wait for its result; from any thread."""
        if not self._open:
            raise NotBound(CLOSED)
        if threading.get_ident() == self._thread:
            return function()
        result: concurrent.futures.Future[_T] = concurrent.futures.Future()

        def call_and_set_result() -> None:
            if not result.set_running_or_notify_cancel():
                return
            try:
                result.set_result(function())
            except Exception as error:
                result.set_exception(error)

        self._post(call_and_set_result)
        try:
            return result.result(ANSWER_WITHIN)
        except concurrent.futures.TimeoutError:
            result.cancel()
            raise NotBound("The session did not answer") from None

    async def run(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine on that loop and wait without blocking this one; cancelling here cancels there."""
        if not self._open:
            raise NotBound(CLOSED)
        if threading.get_ident() == self._thread:
            return await work()
        working = _await_work(work)
        try:
            over_there = asyncio.run_coroutine_threadsafe(working, self._loop)
        except RuntimeError:
            working.close()
            raise NotBound(CLOSED) from None
        return await asyncio.wrap_future(over_there)

    def _post(self, work: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            raise NotBound(CLOSED) from None


def _ignore_value(value: object) -> None:
    return None


async def _await_work(work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    return await work()


class SessionBinding:
    """State that the extensions of one agent share: their loop, whether the project is trusted, and the session once
    there is one. Created on the session's loop."""

    def __init__(self, cwd: str, mode: str) -> None:
        self.bridge = LoopBridge()
        self.cwd = cwd
        self.mode = mode
        self.trusted = False
        self.port: SessionPort | None = None
        self.dialogs: Dialogs | None = None

    def bind(self, port: SessionPort, dialogs: Dialogs) -> None:
        """Connect the session: from here on extensions can act."""
        self.port = port
        self.dialogs = dialogs

    def set_trusted(self, trusted: bool) -> None:
        """Set the decision about the project."""
        self.trusted = trusted


class SessionAccess:
    """One extension's access to the session, and to the event loop of its own thread."""

    def __init__(
        self, name: str, needs: frozenset[str] | None, binding: SessionBinding, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.name = name
        self.loop = loop
        self.binding = binding
        self.bridge = binding.bridge
        self._needs = needs

    def require_port(self, capability: str | None = None) -> SessionPort:
        """The session's port; raises `NotBound` while there is none, `PermissionError` for an undeclared capability."""
        self._require_capability(capability)
        if self.binding.port is None:
            raise NotBound(NO_SESSION)
        return self.binding.port

    def require_dialogs(self) -> Dialogs:
        """The dialogs of the host; raises like `port`."""
        self._require_capability("ui")
        if self.binding.dialogs is None:
            raise NotBound(NO_SESSION)
        return self.binding.dialogs

    def call(self, capability: str | None, function: Callable[[SessionPort], _T]) -> _T:
        """Call a function of the session and wait for it."""
        port = self.require_port(capability)
        return self.bridge.call(lambda: function(port))

    async def run(self, capability: str | None, function: Callable[[SessionPort], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine of the session without blocking the extension."""
        port = self.require_port(capability)
        return await self.bridge.run(lambda: function(port))

    def _require_capability(self, capability: str | None) -> None:
        if capability is not None and self._needs is not None and capability not in self._needs:
            raise PermissionError(f'the extension "{self.name}" did not declare that it needs "{capability}"')
