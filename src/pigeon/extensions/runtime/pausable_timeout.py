"""How long an extension's code may run: its own time counts, but not the time a person takes to answer a dialog."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

HANDLER_SECONDS = 30.0


class PausableTimeout:
    """A time limit for one call that stands still while a dialog is open. Used on the session's loop only.

    `in_dialog` is set while one is open; the event queue then continues with later events.
    """

    def __init__(self, seconds: float | None) -> None:
        self._left = seconds
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._expire: Callable[[], object] = _do_nothing
        self._dialogs = 0
        self.seconds = seconds
        self.in_dialog = asyncio.Event()

    def start(self, expire: Callable[[], object]) -> None:
        """Start the clock; `expire` is called once when the time is up."""
        self._expire = expire
        self._start_timer()

    def stop(self) -> None:
        """Stop the clock at the end of the call: `expire` is not called any more."""
        self._expire = _do_nothing
        self._stop_timer()
        # A dialog that is still open resumes it.
        self._left = None

    def pause(self) -> None:
        """Stop the clock while a dialog is open; calls may be nested."""
        self._dialogs += 1
        if self._dialogs == 1:
            self._stop_timer()
            self.in_dialog.set()

    def resume(self) -> None:
        """Start the clock again after the last open dialog."""
        self._dialogs -= 1
        if self._dialogs == 0:
            self.in_dialog.clear()
            self._start_timer()

    def _start_timer(self) -> None:
        if self._left is not None and self._timer is None and self._dialogs == 0:
            loop = asyncio.get_running_loop()
            self._since = loop.time()
            self._timer = loop.call_later(self._left, self._on_expired)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            assert self._left is not None
            self._left = max(0.0, self._left - (asyncio.get_running_loop().time() - self._since))

    def _on_expired(self) -> None:
        self._timer = None
        self._expire()


def _do_nothing() -> None:
    return None
