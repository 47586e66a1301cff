"""The message so far, for clients that expect it in every `message_update`.

A snapshot is never encoded from scratch: each block keeps its encoded text, a delta is escaped once and appended, and a
snapshot is the concatenation of these texts. So the work per delta is one copy of bytes, whatever came before.
"""

from __future__ import annotations

from pigeon.wire.codec import encode
from pigeon.wire.events import (
    MessageUpdate,
    StreamEvent,
    TextDelta,
    TextStart,
    ThinkingDelta,
    ThinkingStart,
    ToolcallDelta,
    ToolcallEnd,
    ToolcallStart,
)
from pigeon.wire.messages import AssistantMessage
from pigeon.wire.model import Usage


class _GrowingText:
    def __init__(self, head: bytes) -> None:
        self._body = bytearray(head)

    def grow(self, delta: bytes) -> None:
        self._body += delta

    def pieces(self) -> tuple[bytes | bytearray, ...]:
        return self._body, b'"}'


class _GrowingCall:
    """A tool call whose arguments arrive as raw JSON."""

    def __init__(self, start: ToolcallStart) -> None:
        identity = encode({"type": "toolCall", "id": start.id, "name": start.tool_name})
        self._head = identity[:-1] + b',"arguments":'
        from pigeon.wire.partial_json import GrowingJson

        self._arguments = GrowingJson()
        self._final: bytes | None = None

    def grow(self, delta: str) -> None:
        self._arguments.feed(delta)

    def finish(self, final: bytes) -> None:
        self._final = final

    def pieces(self) -> tuple[bytes | bytearray, ...]:
        if self._final is not None:
            return (self._final,)
        if not self._arguments.prefix.startswith(b"{"):  # nothing yet, or not an object: hosts may expect one
            return self._head, b"{}}"
        return self._head, self._arguments.prefix, self._arguments.suffix, b"}"


class Snapshot:
    """One streaming answer as encoded bytes."""

    def __init__(self, message: AssistantMessage) -> None:
        self._message = message
        self._usage = message.usage
        self._blocks: list[_GrowingText | _GrowingCall] = []
        self._head, self._tail = _split_around_content(message, message.usage)
        self.encoded_usage = encode(message.usage)

    def apply(self, update: MessageUpdate) -> bytes:
        """Apply one update; returns the encoded event without its closing brace."""
        if update.usage is not self._usage:
            self._update_usage(update.usage)
        event = update.assistant_message_event
        encoded = encode(event)
        self._apply_event(event, encoded)
        return encoded[:-1]

    def encode_message(self) -> bytes:
        pieces: list[bytes | bytearray] = [self._head]
        for index, block in enumerate(self._blocks):
            if index:
                pieces.append(b",")
            pieces.extend(block.pieces())
        pieces.append(self._tail)
        return b"".join(pieces)

    def _apply_event(self, event: StreamEvent, encoded: bytes) -> None:
        if isinstance(event, (TextDelta, ThinkingDelta)):
            block = self._blocks[event.content_index]
            assert isinstance(block, _GrowingText)
            # Escaped already, at the end of the event: to encode it again would make an update a tenth slower.
            block.grow(encoded[encoded.index(b'"delta":"') + 9 : -2])
        elif isinstance(event, ToolcallDelta):
            call = self._blocks[event.content_index]
            assert isinstance(call, _GrowingCall)
            call.grow(event.delta)
        elif isinstance(event, TextStart):
            self._blocks.append(_GrowingText(b'{"type":"text","text":"'))
        elif isinstance(event, ThinkingStart):
            self._blocks.append(_GrowingText(b'{"type":"thinking","thinking":"'))
        elif isinstance(event, ToolcallStart):
            self._blocks.append(_GrowingCall(event))
        elif isinstance(event, ToolcallEnd):
            call = self._blocks[event.content_index]
            assert isinstance(call, _GrowingCall)
            call.finish(encode(event.tool_call))

    def _update_usage(self, usage: Usage) -> None:
        self._usage = usage
        self._head, self._tail = _split_around_content(self._message, usage)
        self.encoded_usage = encode(usage)


def _split_around_content(message: AssistantMessage, usage: Usage) -> tuple[bytes, bytes]:
    """The encoded message in two halves, split inside its empty content list."""
    empty = AssistantMessage(
        content=[],
        api=message.api,
        provider=message.provider,
        model=message.model,
        usage=usage,
        stop_reason="stop",
        timestamp=message.timestamp,
    )
    head, mark, tail = encode(empty).partition(b'"content":[')
    return head + mark, tail
