"""Questions to the host: each waits for the answer with its id, for its time-out, or for the end of its scope."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from pigeon.agent.scope import Scope
from pigeon.wire.commands import ExtensionUiResponse
from pigeon.wire.dialogs import CancelRequest, DialogRequest, EditorRequest
from pigeon.wire.errors import Aborted
from pigeon.wire.events import Outbound

DialogReason = Literal["answered", "timeout", "aborted", "disconnected"]


class DialogEnd(Struct, frozen=True):
    """How a question ended; `answer` is set if it was answered."""

    reason: DialogReason
    answer: ExtensionUiResponse | None = None


class Dialogs:
    """Open dialogs, by id. A host that never answers leaves a dialog open; it never blocks anything else.

    With `announces_ends`, every question that has ended is cancelled, however it ended: several clients may show it.
    """

    def __init__(
        self, post: Callable[[Outbound], None], new_id: Callable[[], str], announces_ends: bool = False
    ) -> None:
        self._post = post
        self._new_id = new_id
        self._closed = False
        self._announces_ends = announces_ends
        self._open: dict[str, asyncio.Future[ExtensionUiResponse | None]] = {}

    async def ask(
        self, make: Callable[[str], DialogRequest], timeout_ms: int | None = None, scope: Scope | None = None
    ) -> ExtensionUiResponse | None:
        """Send a question and wait; returns None if it was cancelled, timed out, or its scope ended."""
        answer = (await self.run_dialog(make, timeout_ms, scope)).answer
        return None if answer is None or answer.cancelled else answer

    async def run_dialog(
        self, make: Callable[[str], DialogRequest], timeout_ms: int | None = None, scope: Scope | None = None
    ) -> DialogEnd:
        """The same, returning how it ended. Nothing is sent once the host is gone."""
        if self._closed or (scope is not None and scope.cancelled):
            return DialogEnd("disconnected" if self._closed else "aborted")
        id = self._new_id()
        request = make(id)
        answer: asyncio.Future[ExtensionUiResponse | None] = asyncio.get_running_loop().create_future()
        self._open[id] = answer
        self._post(request)
        waiting = asyncio.wait_for(answer, timeout_ms / 1000 if timeout_ms else None)
        try:
            given = await (waiting if scope is None else scope.wait(waiting))
        except (TimeoutError, Aborted) as reason:
            if isinstance(reason, Aborted) and isinstance(request, EditorRequest) and not self._announces_ends:
                self.send_notice(lambda new: CancelRequest(id=new, target_id=id))
            return DialogEnd("aborted" if isinstance(reason, Aborted) else "timeout")
        finally:
            self._open.pop(id, None)
            if self._announces_ends:
                self.send_notice(lambda new: CancelRequest(id=new, target_id=id))
        return DialogEnd("disconnected" if given is None else "answered", given)

    @property
    def has_open_dialog(self) -> bool:
        return bool(self._open)

    def send_notice(self, make: Callable[[str], DialogRequest]) -> None:
        self._post(make(self._new_id()))

    def answer(self, response: ExtensionUiResponse) -> None:
        waiting = self._open.get(response.id) if isinstance(response.id, str) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(response)

    def close(self) -> None:
        """The host is gone: cancel every open question, and refuse further ones."""
        self._closed = True
        for waiting in self._open.values():
            if not waiting.done():
                waiting.set_result(None)
