"""Cancellation: a tree of scopes (run > turn > tool). Cancelling a scope cancels everything below it.

Work is only interrupted inside `Scope.wait`; between those points it checks `cancelled`. So an abort never leaves an
event half announced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from pigeon.wire.errors import Aborted, PigeonError, Refusal

_T = TypeVar("_T")
STOP_GRACE = 0.5
ABANDON_AFTER = 1.0


class WorkStopped(PigeonError):
    """The awaited work was cancelled, but neither by the scope nor together with the waiting task."""


class Scope:
    """One cancellable piece of work; `cancelled` is True from the moment of cancellation on."""

    def __init__(self, parent: Scope | None = None) -> None:
        self._callbacks: dict[object, Callable[[], object]] = {}
        self.cancelled = False
        self._detach = parent.add_cancel_callback(self.cancel) if parent else _do_nothing
        if parent and parent.cancelled:
            self.cancelled = True

    def make_child(self) -> Scope:
        return Scope(self)

    def cancel(self) -> None:
        """Stop this work and everything below it; further calls change nothing."""
        if self.cancelled:
            return
        self.cancelled = True
        callbacks = list(self._callbacks.values())
        self._callbacks.clear()
        for callback in callbacks:
            callback()

    def close(self) -> None:
        """End this work, which removes the scope from its parent."""
        self._detach()

    def raise_if_cancelled(self) -> None:
        if self.cancelled:
            raise Aborted

    def add_cancel_callback(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back once at cancellation; the returned function removes the callback."""
        key = object()
        self._callbacks[key] = callback
        return lambda: _remove_callback(self._callbacks, key)

    async def wait(self, awaitable: Awaitable[_T]) -> _T:
        """Await something, or raise `Aborted` as soon as the scope is cancelled.

        Raises `WorkStopped` if something else cancelled it, which is an ordinary failure and not the end of our work.
        """
        if self.cancelled:
            if asyncio.iscoroutine(awaitable):
                awaitable.close()
            raise Aborted
        # `cancel` interrupts the waiting task by cancelling it. That cancellation is ours, so it is undone with
        # `uncancel`; if the task was cancelled from elsewhere too, the count stays above zero and that cancellation
        # continues.
        task = asyncio.current_task()
        assert task is not None
        key = object()
        interrupted = False

        def interrupt() -> None:
            nonlocal interrupted
            interrupted = True
            task.cancel()

        self._callbacks[key] = interrupt
        try:
            return await awaitable
        except asyncio.CancelledError:
            if interrupted:
                interrupted = False
                if task.uncancel() == 0:
                    raise Aborted from None
            elif not task.cancelling():
                raise WorkStopped("The request was cancelled, and not by the agent") from None
            raise
        finally:
            self._callbacks.pop(key, None)
            if interrupted:
                task.uncancel()

    async def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run work that may ignore cancellation: after it the work gets a grace period, then its task is cancelled,
        then abandoned."""
        task = asyncio.ensure_future(work)
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task.add_done_callback(lambda _: _resolve_future(over))
        forget = self.add_cancel_callback(lambda: _resolve_future(over))
        if self.cancelled:
            _resolve_future(over)
        try:
            await over
            # Cancelled and not done: a tool that watches its scope ends within the grace period, and its result counts.
            if not task.done():
                await asyncio.wait({task}, timeout=STOP_GRACE)
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=ABANDON_AFTER)
            if not task.done() or task.cancelled():
                raise Aborted
            return task.result()
        finally:
            forget()
            if not task.done():
                task.cancel()


class RunningCalls:
    """The running tool calls, each with its scope, so that the host can stop a single one."""

    def __init__(self) -> None:
        self._open: dict[Scope, tuple[str, asyncio.Future[None]]] = {}

    def begin_call(self, call_id: str, parent: Scope) -> Scope:
        """The scope of a call that begins; `end_call` must follow."""
        scope = parent.make_child()
        self._open[scope] = call_id, asyncio.get_running_loop().create_future()
        return scope

    def end_call(self, scope: Scope) -> None:
        """Remove a call that has ended and was reported to the host."""
        scope.close()
        _, over = self._open.pop(scope)
        _resolve_future(over)

    def stop(self, call_id: str) -> Awaitable[None]:
        """Cancel this call at once; awaiting the result waits for its end. Raises `Refusal` if it is not running."""
        found = [(scope, over) for scope, (id, over) in self._open.items() if id == call_id]
        if not found:
            raise Refusal(f'No tool call with the id "{call_id[:200]}" is running', "not_found")
        for scope, _ in found:
            scope.cancel()
        return _wait_for_all([over for _, over in found])


async def _wait_for_all(futures: list[asyncio.Future[None]]) -> None:
    await asyncio.wait(futures)


def _remove_callback(callbacks: dict[object, Callable[[], object]], key: object) -> None:
    callbacks.pop(key, None)


def _resolve_future(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _do_nothing() -> None:
    return None
