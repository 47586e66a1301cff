"""One answer: ask the provider, announce the stream, end in exactly one complete message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from pigeon.agent.fold import Fold
from pigeon.agent.inference import (
    BlockClosed,
    BlockGrew,
    BlockOpened,
    Delta,
    Failure,
    Finished,
    Metered,
    ModelRequest,
    Named,
)
from pigeon.agent.interfaces import ModelProvider, Publish, Watch
from pigeon.agent.scope import Scope
from pigeon.wire.errors import Aborted
from pigeon.wire.events import MessageEnd, MessageStart, MessageUpdate, StreamEvent
from pigeon.wire.messages import AssistantMessage, Message

ABORT_TEXT = "Request was aborted"
CUT_TEXT = "The answer was stopped by a rule"


class CutByWatch(Exception):
    """The watch has seen enough."""


class AnswerStream:
    """One streamed answer; `failure` says why when it ended in an error, `cut` is true if the watch ended it."""

    def __init__(
        self,
        request: ModelRequest,
        publish: Publish,
        now: Callable[[], int],
        final: Callable[[Message], Awaitable[Message]],
        watch: Watch | None = None,
    ) -> None:
        self._fold = Fold(request.model, now())
        self._request = request
        self._publish = publish
        self._final = final
        self._watch = watch
        self._started = False
        self._reading = False
        self._dropping: asyncio.Future[None] | None = None
        self.failure: Failure | None = None
        self.cut = False

    @property
    def incomplete(self) -> set[str]:
        """Calls whose arguments were cut off."""
        return self._fold.incomplete

    async def stream(self, provider: ModelProvider, scope: Scope) -> AssistantMessage:
        """Run the request to its end. Never raises for a failing provider."""
        finished: Finished | None = None
        try:
            deltas = provider.stream(self._request)
            forget = scope.on_cancel(lambda: self._drop(deltas))
            try:
                finished = await self._consume(deltas, scope)
            finally:
                forget()
                await _closed(deltas)
        except Aborted:
            finished = Finished(stop="aborted", failure=Failure(message=ABORT_TEXT))
        except CutByWatch:
            finished = Finished(stop="aborted", failure=Failure(message=CUT_TEXT))
        except Exception as error:
            finished = Finished(stop="error", failure=_unexpected(error))
        if finished is None:
            finished = Finished(stop="error", failure=_truncated())
        elif finished.stop == "length" and self._fold.filled_by_prompt:
            finished = Finished(stop="error", failure=_no_room(), raw_stop=finished.raw_stop)
        if scope.cancelled and finished.stop == "error":
            finished = Finished(stop="aborted", failure=Failure(message=ABORT_TEXT))
        return await self._finish(finished)

    async def _consume(self, deltas: AsyncIterator[Delta], scope: Scope) -> Finished | None:
        iterator = deltas.__aiter__()
        while True:
            self._reading = True
            try:
                delta = await scope.wait(iterator.__anext__())
            except StopAsyncIteration:
                return None
            finally:
                self._reading = False
            if isinstance(delta, BlockGrew):
                await self._announce(self._fold.grew(delta))
            elif isinstance(delta, Finished):
                return delta
            elif isinstance(delta, Metered):
                self._fold.metered(delta)
                await self._start()
            elif isinstance(delta, Named):
                self._fold.named(delta)
            elif isinstance(delta, BlockOpened):
                await self._announce(self._fold.opened(delta))
            else:
                assert isinstance(delta, BlockClosed)
                await self._announce(self._fold.closed(delta))

    def _drop(self, deltas: AsyncIterator[Delta]) -> None:
        """Let go of the provider at once, also while the host is so slow that our events still wait for room."""
        if not self._reading:
            self._dropping = asyncio.ensure_future(_closed(deltas))

    async def _start(self) -> None:
        if not self._started:
            self._started = True
            await self._publish(MessageStart(message=self._fold.message("pending")))

    async def _announce(self, event: StreamEvent) -> None:
        if not self._started:
            await self._start()
        await self._publish(MessageUpdate(usage=self._fold.usage, assistant_message_event=event))
        seen = self._watch.sees(event) if self._watch is not None else None
        if seen is not None:
            self.cut = True
            await self._publish(seen)
            raise CutByWatch

    async def _finish(self, finished: Finished) -> AssistantMessage:
        self._watch = None
        for event in self._fold.close_open():
            await self._announce(event)
        self.failure = finished.failure
        error = finished.failure.message if finished.failure else None
        message = self._fold.message(finished.stop, finished, error)
        if not self._started:
            await self._publish(MessageStart(message=message))
        final = await self._final(message)
        message = final if isinstance(final, AssistantMessage) else message
        await self._publish(MessageEnd(message=message))
        return message


async def _closed(deltas: AsyncIterator[Delta]) -> None:
    close = getattr(deltas, "aclose", None)
    if close is not None:
        await close()


def _unexpected(error: Exception) -> Failure:
    return Failure(message=f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def _no_room() -> Failure:
    text = "The conversation fills the model's context: there was no room for an answer"
    return Failure(message=text, code="context_full", overflow=True)


def _truncated() -> Failure:
    return Failure(message="The provider's stream ended without a final event", code="truncated", retryable=True)
