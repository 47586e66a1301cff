"""One extension's own thread and event loop, and what keeps an extension from ending the process.

Whatever an extension does in its thread only affects itself: a loop that never ends, a `time.sleep` or a `sys.exit`
delays or ends nothing but its own work. Plain functions run in a further thread each, so they may block. A call goes
through these states:

    running  -- returned or raised --------------------------->  done
    running  -- its time is over, or the loop is silent ------>  stopped: the call fails with `TookTooLong`
    stopped  -- the loop answers a pulse --------------------->  free: the next call is taken
    stopped  -- no answer: `Interrupted` raised, five times -->  free, or unresponsive until the loop answers

An unresponsive thread sits in a C call, where no exception reaches it; calls fail at once until it comes back.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import ctypes
import inspect
import io
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from pigeon.extensions.public.failures import (
    ExtensionFailed,
    Interrupted,
    TookTooLong,
    Unresponsive,
    print_traceback,
    text_of_error,
)
from pigeon.extensions.runtime.pausable_timeout import PausableTimeout

PULSE_SECONDS = 5.0
ANSWERS_PULSE_WITHIN = 25.0
GRACE_SECONDS = 0.5
INTERRUPTIONS = 5
CLEANUP_SECONDS = 0.3
WORKER_GRACE_SECONDS = 1.0
SWITCH_SECONDS = 0.001


class ExtensionThread:
    """Runs an extension's code. `call` is used on the session's loop; `report` is called in this thread with the text
    of a failure in work that is not awaited."""

    def __init__(self, name: str, report: Callable[[str], None], print_tracebacks: bool = False) -> None:
        self.name = name
        self._report = report
        self._print_tracebacks = print_tracebacks
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(self._on_loop_error)
        self._thread = threading.Thread(target=self._run_loop, name=f"extension {name}", daemon=True)
        self._closing = False
        self._pulse: concurrent.futures.Future[None] | None = None
        self._freeing: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[Any]] = set()
        self._thread.start()

    @property
    def is_unresponsive(self) -> bool:
        return self._freeing is not None and not self._freeing.done()

    async def call(self, function: Callable[..., Any], args: tuple[Any, ...], timeout: PausableTimeout) -> Any:
        """Call a function of the extension; raises `ExtensionFailed` for any failure in it."""
        if self._closing or self.loop.is_closed() or not self._thread.is_alive():
            raise ExtensionFailed("it was stopped" if self._closing else "its thread has ended")
        if self.is_unresponsive:
            raise Unresponsive("it is still blocked by its own code, so it was not called")
        expired: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timeout.start(lambda: _set_outcome(expired, None, None))
        running = asyncio.wrap_future(self._submit(self._call_guarded(function, args)))
        try:
            await self._wait_until_done(running, expired, timeout)
        finally:
            timeout.stop()
            if not running.done():
                running.cancel()
        if running.cancelled():
            raise ExtensionFailed("its work was cancelled")
        error = running.exception()
        if isinstance(error, ExtensionFailed):
            raise error
        if error is not None:
            raise ExtensionFailed(text_of_error(error)) from error
        return running.result()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start background work; it ends with this thread. May be called from any thread."""

        def start_task() -> None:
            task = self.loop.create_task(self._run_and_report(work))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

        self.loop.call_soon_threadsafe(start_task)

    def close(self) -> None:
        """Cancel everything and let the thread end; a blocked thread is left behind."""
        if self._closing:
            return
        self._closing = True
        if self._freeing is not None:
            self._freeing.cancel()
        self.loop.call_soon_threadsafe(self._stop_loop)

    async def _wait_until_done(
        self, running: asyncio.Future[Any], expired: asyncio.Future[None], timeout: PausableTimeout
    ) -> None:
        asked_at: float | None = None
        clock = asyncio.get_running_loop().time
        while not running.done():
            futures: set[asyncio.Future[Any]] = {running, expired}
            await asyncio.wait(futures, timeout=PULSE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                return
            if expired.done():
                self._start_interrupting()
                raise TookTooLong(f"it took longer than {_format_seconds(timeout.seconds)} and was stopped")
            if self._send_pulse_if_answered() or asked_at is None:
                asked_at = clock()
            elif clock() - asked_at > ANSWERS_PULSE_WITHIN:
                self._start_interrupting()
                raise TookTooLong("it blocked its thread and was stopped")

    def _send_pulse_if_answered(self) -> bool:
        answered = self._pulse is None or self._pulse.done()
        if answered:
            self._pulse = self._submit(_do_nothing())
        return answered

    def _start_interrupting(self) -> None:
        """Check whether the thread is blocked, and interrupt it if so."""
        if not self.is_unresponsive and not self._closing:
            self._freeing = asyncio.get_running_loop().create_task(self._interrupt_until_free())

    async def _interrupt_until_free(self) -> None:
        pulse = asyncio.wrap_future(self._submit(_do_nothing()))
        for _ in range(INTERRUPTIONS):
            await asyncio.wait({pulse}, timeout=GRACE_SECONDS)
            if pulse.done():
                return
            interrupt(self._thread)
        await asyncio.wait({pulse})

    async def _call_guarded(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        try:
            if _is_async(function):
                return await function(*args)
            result = await self._call_in_worker(function, args)
            return await result if inspect.isawaitable(result) else result
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._print_error(error)
            raise ExtensionFailed(text_of_error(error)) from (error if isinstance(error, Exception) else None)

    async def _call_in_worker(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        done: asyncio.Future[Any] = self.loop.create_future()

        def call_and_pass_outcome() -> None:
            try:
                outcome: tuple[Any, BaseException | None] = (function(*args), None)
            except BaseException as error:
                self._print_error(error)
                outcome = (None, ExtensionFailed(text_of_error(error)))
            self.loop.call_soon_threadsafe(_set_outcome, done, *outcome)

        def guarded_work() -> None:
            with contextlib.suppress(RuntimeError, Interrupted):  # the loop may be closed, and the result unwanted
                call_and_pass_outcome()

        thread = threading.Thread(target=guarded_work, name=f"{self._thread.name} worker", daemon=True)
        thread.start()
        try:
            return await done
        except asyncio.CancelledError:
            self.loop.call_later(WORKER_GRACE_SECONDS, interrupt, thread)
            raise

    async def _run_and_report(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._report(text_of_error(error))

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle a failure in a task or callback that is not awaited."""
        error = context.get("exception")
        if not self._closing:
            self._report(text_of_error(error) if isinstance(error, BaseException) else str(context.get("message")))

    def _print_error(self, error: BaseException) -> None:
        if self._print_tracebacks:
            print_traceback(error)

    def _submit(self, work: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._closing and not self.loop.is_closed():
            try:
                self.loop.run_forever()
            except BaseException as error:  # an exit in a stray task ends that task, not the thread
                self._report(text_of_error(error))
        self._close_loop()

    def _stop_loop(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.call_later(0, self.loop.stop)

    def _close_loop(self) -> None:
        try:
            tasks = asyncio.all_tasks(self.loop)
            if tasks:
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=CLEANUP_SECONDS))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()
        except BaseException:
            return


def interrupt(thread: threading.Thread) -> None:
    """Raise `Interrupted` in a thread at its next step; code in a C call gets it when that returns."""
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Interrupted))


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _set_outcome(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(result)


def _format_seconds(seconds: float | None) -> str:
    return f"{seconds:g} seconds"


async def _do_nothing() -> None:
    return None


# The process is shared by every agent in it. The guard against exits stays once it is installed, because a thread that
# could not be ended may outlive its agent; the switch interval is restored with the last agent.
_exit = os._exit
_abort = os.abort
_lock = threading.Lock()
_users = 0
_interval = sys.getswitchinterval()


def guard_process() -> None:
    """Let only the main thread end the process, and make a busy extension yield to the session's loop."""
    global _users, _interval
    with _lock:
        os._exit = _exit_thread
        os.abort = _abort_thread
        if _users == 0:
            _interval = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_SECONDS)
        _users += 1


def end_process_guard() -> None:
    """Called when an agent has ended; standard streams that an extension closed are replaced, so that the process can
    end cleanly."""
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            sys.setswitchinterval(_interval)
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except Exception:
            setattr(sys, name, io.StringIO())


def _exit_thread(status: int = 0) -> NoReturn:
    if threading.current_thread() is threading.main_thread():
        _exit(status)
    raise SystemExit(status)


def _abort_thread() -> NoReturn:
    if threading.current_thread() is threading.main_thread():
        _abort()
    raise SystemExit("os.abort")
