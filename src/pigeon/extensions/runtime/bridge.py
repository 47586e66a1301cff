"""From an extension's thread to the protocol's event loop and back. There is no other way to a session."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pigeon.extensions.public.failures import NotBound

_T = TypeVar("_T")
ANSWER_WITHIN = 10.0
GONE = "The session is closed"


class Bridge:
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
