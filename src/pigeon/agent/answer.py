"""One answer of a model: `AnswerStream` requests it, announces the stream and ends with exactly one complete message,
which `Fold` builds from the deltas with constant work for each. Summaries use `Fold` alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

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
    Sampled,
    report_failure,
)
from pigeon.agent.interfaces import ModelProvider, Publish, Watch
from pigeon.agent.scope import Scope
from pigeon.wire.base import ABSENT
from pigeon.wire.content import AssistantBlock, TextContent, ThinkingContent, ToolCall
from pigeon.wire.errors import Aborted
from pigeon.wire.events import (
    MessageEnd,
    MessageStart,
    MessageUpdate,
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolcallDelta,
    ToolcallEnd,
    ToolcallStart,
)
from pigeon.wire.messages import AssistantMessage, Message, StopReason
from pigeon.wire.model import Model, Usage, price_usage, zero_usage

NEARLY_ALL = 0.99
LONGEST_TURN_S = 0.05
LONGEST_NAME = 4096
LONGEST_ERROR = 20_000
ABORT_TEXT = "Request was aborted"
CUT_TEXT = "The answer was stopped by a rule"
_NOTHING_USED = zero_usage()


class AnswerLimits(Struct, frozen=True):
    """The limits of one answer: the characters of all its blocks together, and the number of blocks.

    Far above what models can write (128,000 tokens are half a million characters).
    """

    characters: int = 4_000_000
    blocks: int = 1000


class AnswerTooLong(Exception):
    """The answer has reached a limit, which the text names."""


class _OpenBlock:
    __slots__ = ("done", "kind", "opened", "parts")

    def __init__(self, opened: BlockOpened) -> None:
        self.kind = opened.kind
        self.opened = opened
        self.parts: list[str] = []
        self.done: AssistantBlock | None = None


class Fold:
    """Collects the deltas of one answer into a message and its stream events."""

    def __init__(self, model: Model, timestamp: int, limits: AnswerLimits | None = None) -> None:
        self._model = model
        self._timestamp = timestamp
        self._limits = limits or AnswerLimits()
        self._size = 0
        self._blocks: list[_OpenBlock] = []
        self._call_ids: set[str] = set()
        self._name = Named()
        self.usage: Usage = _NOTHING_USED
        self.sampled: Sampled | None = None

    def add_delta(self, delta: Delta) -> StreamEvent | None:
        """Take in one delta; returns the event that announces it, or None if no block changes.

        Raises `AnswerTooLong` for a delta that would pass a limit; what came before it stays.
        """
        if isinstance(delta, BlockGrew):
            return self._grow_block(delta)
        if isinstance(delta, BlockOpened):
            return self._open_block(delta)
        if isinstance(delta, BlockClosed):
            return self._close_block(delta)
        if isinstance(delta, Metered):
            self.usage = price_usage(delta.usage, self._model.cost, delta.rate)
        elif isinstance(delta, Sampled):
            self.sampled = delta
        elif isinstance(delta, Named):
            self._add_and_check_size(len(delta.response_id or "") + len(delta.response_model or ""))
            self._name = delta
        return None

    def _open_block(self, delta: BlockOpened) -> StreamEvent:
        if delta.index != len(self._blocks):
            raise ValueError(f"block {delta.index} opened out of order")
        if delta.index >= self._limits.blocks:
            raise AnswerTooLong(f"it has more than {self._limits.blocks} blocks")
        self._add_and_check_size(len(delta.call_id) + len(delta.name))
        if delta.kind == "toolCall":
            if max(len(delta.call_id), len(delta.name)) > LONGEST_NAME:
                raise AnswerTooLong(f"the name or id of a tool call has more than {LONGEST_NAME} characters")
            delta = BlockOpened(delta.index, delta.kind, self._make_unique_id(delta.call_id), delta.name)
        self._blocks.append(_OpenBlock(delta))
        if delta.kind == "text":
            return TextStart(content_index=delta.index)
        if delta.kind == "thinking":
            return ThinkingStart(content_index=delta.index)
        return ToolcallStart(content_index=delta.index, id=delta.call_id, tool_name=delta.name)

    def _make_unique_id(self, call_id: str) -> str:
        """The call's id, with a number appended if an earlier call of the same answer has it too."""
        wanted, number = call_id or "call", 2
        unique = wanted
        while unique in self._call_ids:
            unique = f"{wanted}_{number}"
            number += 1
        self._call_ids.add(unique)
        return unique

    def _add_and_check_size(self, size: int) -> None:
        self._size += size
        if self._size > self._limits.characters:
            raise AnswerTooLong(f"it has more than {self._limits.characters} characters")

    def _grow_block(self, delta: BlockGrew) -> StreamEvent:
        block = self._blocks[delta.index]
        self._add_and_check_size(len(delta.text))
        block.parts.append(delta.text)
        if block.kind == "text":
            return TextDelta(content_index=delta.index, delta=delta.text)
        if block.kind == "thinking":
            return ThinkingDelta(content_index=delta.index, delta=delta.text)
        return ToolcallDelta(content_index=delta.index, delta=delta.text)

    def _close_block(self, delta: BlockClosed, *, cut_off: bool = False) -> StreamEvent:
        block = self._blocks[delta.index]
        if isinstance(delta.signature, str):
            self._add_and_check_size(len(delta.signature))
        text = "".join(block.parts)
        block.parts = [text]
        if block.kind == "text":
            block.done = TextContent(text=text, text_signature=delta.signature)
            return TextEnd(content_index=delta.index, content=text)
        if block.kind == "thinking":
            redacted = True if delta.redacted else ABSENT
            block.done = ThinkingContent(thinking=text, thinking_signature=delta.signature, redacted=redacted)
            return ThinkingEnd(content_index=delta.index, content=text)
        from pigeon.wire.partial_json import parse_arguments

        arguments, problem = parse_arguments(text, cut_off=cut_off)
        call = ToolCall(
            id=block.opened.call_id,
            name=block.opened.name,
            arguments=arguments,
            arguments_error=ABSENT if problem is None else problem,
            thought_signature=delta.signature,
        )
        block.done = call
        return ToolcallEnd(content_index=delta.index, tool_call=call)

    def close_open_blocks(self, *, cut_off: bool = False) -> list[StreamEvent]:
        """Close the blocks that the stream left open; `cut_off` means that the answer failed."""
        left = [index for index, block in enumerate(self._blocks) if block.done is None]
        return [self._close_block(BlockClosed(index=index), cut_off=cut_off) for index in left]

    @property
    def is_filled_by_prompt(self) -> bool:
        """True if nothing was written because the prompt fills the whole context."""
        usage, window = self.usage, self._model.context_window
        return window > 0 and usage.output == 0 and usage.input + usage.cache_read >= NEARLY_ALL * window

    def to_message(
        self, stop: StopReason, finished: Finished | None = None, error: str | None = None
    ) -> AssistantMessage:
        """The message as far as it is complete."""
        return AssistantMessage(
            content=[block.done for block in self._blocks if block.done is not None],
            api=self._model.api,
            provider=self._model.provider,
            model=self._model.id,
            usage=self.usage,
            stop_reason=stop,
            error_message=ABSENT if error is None else error,
            timestamp=self._timestamp,
            response_id=self._name.response_id,
            response_model=self._name.response_model,
            raw_stop_reason=finished.raw_stop if finished else ABSENT,
        )


class CutByWatch(Exception):
    """A stream rule cuts the answer here."""


class AnswerStream:
    """One streamed answer; `failure` is the reason if it ended in an error, `cut` is True if a watch ended it."""

    def __init__(
        self,
        request: ModelRequest,
        publish: Publish,
        now: Callable[[], int],
        finalize: Callable[[Message], Awaitable[Message]],
        watches: Sequence[Watch] = (),
        limits: AnswerLimits | None = None,
        on_tool_named: Callable[[str], None] | None = None,
    ) -> None:
        self._on_tool_named = on_tool_named
        self._began = now()
        self._fold = Fold(request.model, self._began, limits)
        self._now = now
        self._request = request
        self._publish = publish
        self._finalize = finalize
        self._watches = watches
        self._started = False
        self._reading = False
        self._dropping: asyncio.Future[None] | None = None
        self.failure: Failure | None = None
        self.cut = False

    @property
    def sampled_tokens(self) -> Sampled | None:
        """The token ids of the answer, if the server reported them."""
        return self._fold.sampled

    async def stream(self, provider: ModelProvider, scope: Scope) -> AssistantMessage:
        """Run the request to its end. Never raises for a failing provider."""
        finished: Finished | None = None
        try:
            deltas = provider.stream(self._request)
            forget = scope.add_cancel_callback(lambda: self._drop_stream(deltas))
            try:
                finished = await self._consume(deltas, scope)
            finally:
                forget()
                if self._dropping is not None:
                    await self._dropping
                await close_stream(deltas)
        except Aborted:
            finished = Finished(stop="aborted", failure=Failure(message=ABORT_TEXT))
        except CutByWatch:
            finished = Finished(stop="aborted", failure=Failure(message=CUT_TEXT))
        except AnswerTooLong as error:
            finished = Finished(stop="error", failure=_too_long_failure(error))
        except Exception as error:
            finished = Finished(stop="error", failure=report_failure(error))
        if finished is None:
            finished = Finished(stop="error", failure=_truncated_failure())
        elif finished.stop == "length" and self._fold.is_filled_by_prompt:
            finished = Finished(stop="error", failure=_no_room_failure(), raw_stop=finished.raw_stop)
        # A connection that an abort dropped often looks like an error of the provider.
        if scope.cancelled and finished.stop == "error":
            finished = Finished(stop="aborted", failure=Failure(message=ABORT_TEXT))
        return await self._finish(finished)

    async def _consume(self, deltas: AsyncIterator[Delta], scope: Scope) -> Finished | None:
        iterator = deltas.__aiter__()
        turn = monotonic()
        while True:
            # Deltas may come as fast as they are read, and then nothing here waits: other tasks need their turn.
            asked = monotonic()
            if asked - turn > LONGEST_TURN_S:
                await scope.wait(asyncio.sleep(0))
                turn = asked = monotonic()
            self._reading = True
            try:
                delta = await scope.wait(iterator.__anext__())
            except StopAsyncIteration:
                return None
            finally:
                self._reading = False
            # They had it while this one was waited for.
            if monotonic() - asked > LONGEST_TURN_S:
                turn = monotonic()
            if isinstance(delta, Finished):
                return delta
            event = self._fold.add_delta(delta)
            if self._on_tool_named is not None and isinstance(delta, BlockOpened) and delta.kind == "toolCall":
                self._on_tool_named(delta.name)
            if event is not None:
                await self._announce(event)
            elif isinstance(delta, Metered):
                await self._announce_start()

    def _drop_stream(self, deltas: AsyncIterator[Delta]) -> None:
        """Release the provider at once, even while our events wait for a slow host."""
        if not self._reading:
            self._dropping = asyncio.ensure_future(close_stream(deltas))

    async def _announce_start(self) -> None:
        if not self._started:
            self._started = True
            await self._publish(MessageStart(message=self._fold.to_message("pending")))

    async def _announce(self, event: StreamEvent) -> None:
        if not self._started:
            await self._announce_start()
        await self._publish(MessageUpdate(usage=self._fold.usage, assistant_message_event=event))
        for watch in self._watches:
            seen = watch.check_for_cut(event)
            if seen is not None:
                self.cut = True
                await self._publish(seen)
                raise CutByWatch

    async def _finish(self, finished: Finished) -> AssistantMessage:
        self._watches = ()
        for event in self._fold.close_open_blocks(cut_off=finished.failure is not None):
            await self._announce(event)
        self.failure = finished.failure
        error = finished.failure.message[:LONGEST_ERROR] if finished.failure else None
        message = replace(
            self._fold.to_message(finished.stop, finished, error),
            thinking_level=self._request.thinking,
            duration_ms=max(0, self._now() - self._began),
        )
        # An answer without a single block is announced too: each `message_end` has its `message_start`.
        if not self._started:
            await self._publish(MessageStart(message=message))
        final = await self._finalize(message)
        message = final if isinstance(final, AssistantMessage) else message
        explanation = finished.failure.explanation if finished.failure else ""
        await self._publish(MessageEnd(message=message, explanation=explanation or ABSENT))
        return message


async def close_stream(deltas: AsyncIterator[Delta]) -> None:
    """Close a provider's connection, unless it is being read or closed at this moment, which also releases it."""
    close = getattr(deltas, "aclose", None)
    if close is not None and not getattr(deltas, "ag_running", False):
        await close()


def _too_long_failure(error: AnswerTooLong) -> Failure:
    return Failure(message=f"The answer was broken off: {error}", code="answer_too_long")


def _no_room_failure() -> Failure:
    text = "The conversation fills the model's context: there was no room for an answer"
    return Failure(message=text, code="context_full", overflow=True)


def _truncated_failure() -> Failure:
    return Failure(message="The provider's stream ended without a final event", code="truncated", retryable=True)
