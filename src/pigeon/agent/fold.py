"""Deltas to a message: pure, and constant work per delta."""

from __future__ import annotations

from pigeon.agent.inference import BlockClosed, BlockGrew, BlockOpened, Finished, Metered, Named
from pigeon.wire.base import ABSENT
from pigeon.wire.content import AssistantBlock, TextContent, ThinkingContent, ToolCall
from pigeon.wire.events import (
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
from pigeon.wire.messages import AssistantMessage, StopReason
from pigeon.wire.model import Model, Usage, priced, zero_usage
from pigeon.wire.partial_json import parse_arguments

NEARLY_ALL = 0.99


class _OpenBlock:
    __slots__ = ("done", "kind", "opened", "parts")

    def __init__(self, opened: BlockOpened) -> None:
        self.kind = opened.kind
        self.opened = opened
        self.parts: list[str] = []
        self.done: AssistantBlock | None = None


class Fold:
    """One answer as it grows; `incomplete` names the calls whose arguments were cut off."""

    def __init__(self, model: Model, timestamp: int) -> None:
        self._model = model
        self._timestamp = timestamp
        self._blocks: list[_OpenBlock] = []
        self._name = Named()
        self.usage: Usage = zero_usage()
        self.incomplete: set[str] = set()

    def named(self, name: Named) -> None:
        """The provider's names."""
        self._name = name

    def opened(self, delta: BlockOpened) -> StreamEvent:
        """A block begins."""
        if delta.index != len(self._blocks):
            raise ValueError(f"block {delta.index} opened out of order")
        if delta.kind == "toolCall":
            delta = BlockOpened(delta.index, delta.kind, self._own_id(delta.call_id), delta.name)
        self._blocks.append(_OpenBlock(delta))
        if delta.kind == "text":
            return TextStart(content_index=delta.index)
        if delta.kind == "thinking":
            return ThinkingStart(content_index=delta.index)
        return ToolcallStart(content_index=delta.index, id=delta.call_id, tool_name=delta.name)

    def _own_id(self, call_id: str) -> str:
        """The call's id, told apart from an earlier call of the same answer that has it too."""
        taken = {block.opened.call_id for block in self._blocks if block.kind == "toolCall"}
        wanted, number = call_id or "call", 2
        unique = wanted
        while unique in taken:
            unique = f"{wanted}_{number}"
            number += 1
        return unique

    def grew(self, delta: BlockGrew) -> StreamEvent:
        """A block gets longer."""
        block = self._blocks[delta.index]
        block.parts.append(delta.text)
        if block.kind == "text":
            return TextDelta(content_index=delta.index, delta=delta.text)
        if block.kind == "thinking":
            return ThinkingDelta(content_index=delta.index, delta=delta.text)
        return ToolcallDelta(content_index=delta.index, delta=delta.text)

    def closed(self, delta: BlockClosed) -> StreamEvent:
        """A block is complete."""
        block = self._blocks[delta.index]
        text = "".join(block.parts)
        if block.kind == "text":
            block.done = TextContent(text=text, text_signature=delta.signature)
            return TextEnd(content_index=delta.index, content=text)
        if block.kind == "thinking":
            redacted = True if delta.redacted else ABSENT
            block.done = ThinkingContent(thinking=text, thinking_signature=delta.signature, redacted=redacted)
            return ThinkingEnd(content_index=delta.index, content=text)
        arguments, complete = parse_arguments(text)
        if not complete:
            self.incomplete.add(block.opened.call_id)
        call = ToolCall(
            id=block.opened.call_id,
            name=block.opened.name,
            arguments=arguments,
            thought_signature=delta.signature,
        )
        block.done = call
        return ToolcallEnd(content_index=delta.index, tool_call=call)

    def close_open(self) -> list[StreamEvent]:
        """Close what the stream left open."""
        left = [index for index, block in enumerate(self._blocks) if block.done is None]
        return [self.closed(BlockClosed(index=index)) for index in left]

    def metered(self, counts: Metered) -> None:
        """Take the provider's counts, with this model's prices."""
        self.usage = priced(counts.usage, self._model.cost, counts.rate)

    @property
    def filled_by_prompt(self) -> bool:
        """True if nothing was said because the prompt has taken the whole context."""
        usage, window = self.usage, self._model.context_window
        return window > 0 and usage.output == 0 and usage.input + usage.cache_read >= NEARLY_ALL * window

    def message(self, stop: StopReason, finished: Finished | None = None, error: str | None = None) -> AssistantMessage:
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
