"""The events of the Messages API, as deltas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from pigeon.agent.inference import BlockClosed, BlockGrew, Delta, Failure, Finished
from pigeon.providers.errors import StreamBroken, from_event, truncated_stream_error, unknown_stop_failure
from pigeon.providers.stream_translator import StreamTranslator, decode_event, make_metered_delta
from pigeon.system.ids import RANDOM_IDS
from pigeon.wire import codec
from pigeon.wire.base import ABSENT
from pigeon.wire.messages import StopReason

REFUSED = "The model refused to complete the request"
_STOPS: dict[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "tool_use": "toolUse",
}


class _CacheCreation(Struct):
    ephemeral_1h_input_tokens: int | None = None


class _MessageUsage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: _CacheCreation | None = None


class _BlockDelta(Struct):
    needed: ClassVar = ("type", "text", "thinking", "partial_json")
    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    signature: str = ""
    stop_reason: str | None = None
    stop_details: Any = None


class _ContentBlock(Struct):
    needed: ClassVar = ("type", "name", "text", "thinking")
    type: str = ""
    id: str = ""
    name: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    input: Any = None


class _WholeMessage(Struct):
    needed: ClassVar = ("content",)
    id: str = ""
    model: str = ""
    usage: _MessageUsage | None = None
    content: list[_ContentBlock] | None = None
    stop_reason: str | None = None
    error: Any = None


class _MessageEvent(Struct):
    needed: ClassVar = ("type", "delta", "content_block")
    type: str = ""
    index: int = -1
    delta: _BlockDelta | None = None
    content_block: _ContentBlock | None = None
    message: _WholeMessage | None = None
    usage: _MessageUsage | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_MessageEvent)
_whole = msgspec.json.Decoder(_WholeMessage)


class _StartedBlock:
    """A content block while it arrives; `whole` are arguments that came with its start."""

    __slots__ = ("_signature", "index", "redacted", "whole")

    def __init__(self, index: int, signature: str = "", redacted: bool = False, whole: Any = None) -> None:
        self.index = index
        self._signature = [signature]
        self.redacted = redacted
        self.whole = whole

    @property
    def signature(self) -> str:
        """What must be sent back with the block."""
        return "".join(self._signature)

    def append_delta(self, change: _BlockDelta, out: list[Delta], hold: Callable[[int], None]) -> None:
        """Append the text of a delta, or hold it."""
        kind = change.type
        if kind == "text_delta":
            text = change.text
        elif kind == "input_json_delta":
            text = change.partial_json
            if text:
                self.whole = None
        elif kind == "thinking_delta":
            text = change.thinking
        elif kind == "signature_delta":
            hold(len(change.signature))
            self._signature.append(change.signature)
            return
        else:
            return
        if text:
            out.append(BlockGrew(self.index, text))


class AnthropicStream(StreamTranslator):
    """Translates one answer of the Messages API into deltas."""

    def __init__(self, model_id: str, new_id: Callable[[], str] = RANDOM_IDS.request_id) -> None:
        """`new_id` is for calls without an id."""
        super().__init__()
        self._model = model_id
        self._new_id = new_id
        self._open: dict[int, _StartedBlock] = {}
        self._next = 0
        self._counts = [0, 0, 0, 0, 0]
        self._stop: str | None = None
        self._details: Any = None
        self._begun = False

    def translate_event(self, name: bytes, data: bytes, out: list[Delta]) -> None:
        if data == b"[DONE]":  # servers that translate from another API send this where it does not belong
            return
        event = decode_event(_decoder, _MessageEvent, data, name)
        kind = event.type or name.decode("utf-8", "replace")
        if kind == "content_block_delta":
            block = self._open.get(event.index) or self._last_open_block(event.index)
            if block is not None and event.delta is not None:
                block.append_delta(event.delta, out, self.count_held_characters)
        elif kind == "content_block_start":
            if event.content_block is not None:
                self._start_block(event.index, event.content_block, out)
        elif kind == "content_block_stop":
            self._close_block(event.index, out)
        elif kind == "message_start":
            self._begin_message(event.message, out)
        elif kind == "message_delta":
            self._update_message(event, out)
        elif kind == "message_stop":
            self.done = True
        elif kind == "error" or event.error:
            raise StreamBroken(from_event(event.error, data.decode("utf-8", "replace")))

    def translate_whole_answer(self, data: bytes, out: list[Delta]) -> None:
        """The message that a server sent without streaming."""
        message = decode_event(_whole, _WholeMessage, data, "The message")
        if message.error or message.content is None:
            raise StreamBroken(from_event(message.error, data.decode("utf-8", "replace")))
        self._begin_message(message, out)
        for index, block in enumerate(message.content):
            self._start_block(index, block, out)
            self._close_block(index, out)
        self._stop = message.stop_reason
        self.raw_stop = message.stop_reason or ABSENT
        self.done = True

    def finish(self, out: list[Delta]) -> Finished:
        """The answer is complete, or ends with the reason for a failure."""
        if not self.done:
            raise truncated_stream_error("message_stop" if self._begun else "the message began")
        for index in list(self._open):
            self._close_block(index, out)
        stop = self._stop
        if stop is None:
            raise truncated_stream_error("a stop reason")
        if stop in _STOPS:
            return self.make_finished_delta(_STOPS[stop])
        return self.make_finished_delta("error", _failure_of_stop(stop, self._details))

    def _begin_message(self, message: _WholeMessage | None, out: list[Delta]) -> None:
        self._begun = True
        if message is None:
            return
        self.report_id_and_model(out, message.id, message.model, self._model)
        self._add_usage(message.usage, out)

    def _start_block(self, index: int, block: _ContentBlock, out: list[Delta]) -> None:
        first = ""
        if block.type == "text":
            started = _StartedBlock(self.open_block(out, "text"))
            first = block.text
        elif block.type == "thinking":
            started = _StartedBlock(self.open_block(out, "thinking"), block.signature)
            first = block.thinking
        elif block.type == "redacted_thinking":
            started = _StartedBlock(self.open_block(out, "thinking"), block.data, redacted=True)
        elif block.type == "tool_use":
            call_id = block.id or f"toolu_{self._new_id()}"
            started = _StartedBlock(self.open_block(out, "toolCall", call_id, block.name), whole=block.input)
        else:
            return
        if index < 0:
            index = self._next
        self._next = index + 1
        self._close_block(index, out)
        self._open[index] = started
        if first:
            out.append(BlockGrew(started.index, first))

    def _close_block(self, index: int, out: list[Delta]) -> None:
        if index < 0 and self._open:
            index = next(reversed(self._open))
        block = self._open.pop(index, None)
        if block is None:
            return
        if block.whole:
            # Some servers send all arguments at once, with the start of the block.
            out.append(BlockGrew(block.index, codec.encode(block.whole).decode()))
        out.append(BlockClosed(block.index, block.signature or ABSENT, block.redacted))

    def _last_open_block(self, index: int) -> _StartedBlock | None:
        """A delta without an index belongs to the block that was opened last."""
        return next(reversed(self._open.values()), None) if index < 0 else None

    def _update_message(self, event: _MessageEvent, out: list[Delta]) -> None:
        if event.delta is not None and event.delta.stop_reason:
            self._stop = event.delta.stop_reason
            self.raw_stop = event.delta.stop_reason
            self._details = event.delta.stop_details
        self._add_usage(event.usage, out)

    def _add_usage(self, usage: _MessageUsage | None, out: list[Delta]) -> None:
        if usage is None:
            return
        long_writes = usage.cache_creation.ephemeral_1h_input_tokens if usage.cache_creation else None
        fresh = (
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_input_tokens,
            usage.cache_creation_input_tokens,
            long_writes,
        )
        # Proxies leave counts out or send null; known counts stay.
        self._counts = [old if new is None else new for old, new in zip(self._counts, fresh, strict=True)]
        sent, output, read, written, written1h = self._counts
        out.append(
            make_metered_delta(sent=sent, output=output, cache_read=read, cache_write=written, cache_write_1h=written1h)
        )


def _failure_of_stop(reason: str, details: Any) -> Failure:
    if reason == "refusal":
        why = details.get("explanation") if isinstance(details, dict) else None
        return Failure(message=f"{REFUSED}: {why}" if why else REFUSED, code="refusal")
    if reason == "model_context_window_exceeded":
        return Failure(message="The answer ran into the end of the context window", code=reason, overflow=True)
    if reason == "sensitive":
        return Failure(message="The answer was withheld as sensitive", code=reason)
    return unknown_stop_failure(reason)
