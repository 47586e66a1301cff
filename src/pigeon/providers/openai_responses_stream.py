"""The events of the Responses API, as deltas."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from pigeon.providers.assembly import Assembly, counted, decoded
from pigeon.providers.errors import StreamBroken, classified, code_of, from_event, malformed
from pigeon.providers.exchange import truncated
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.inference import BlockClosed, BlockGrew, Delta, Failure, Finished

_TEXT = ("response.output_text.delta", "response.refusal.delta")
_THOUGHT = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ARGUMENTS = ("response.function_call_arguments.delta",)
_DELTAS = {*_TEXT, *_THOUGHT, *_ARGUMENTS}
_ENDS = {"response.completed", "response.incomplete", "response.failed", "response.done"}


class _InputDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Response(Struct):
    id: str | None = None
    model: str | None = None
    status: str | None = None
    usage: _Usage | None = None
    error: Any = None
    incomplete_details: Any = None
    output: list[dict[str, Any]] | None = None


class _Event(Struct):
    type: str = ""
    output_index: int = 0
    summary_index: int = 0
    delta: Any = None
    item: dict[str, Any] | None = None
    response: _Response | None = None
    code: Any = None
    message: str | None = None
    error: Any = None
    arguments: str | None = None


_decoder = msgspec.json.Decoder(_Event)
_whole = msgspec.json.Decoder(_Response)


class _Item:
    __slots__ = ("grown", "index", "kind", "part")

    def __init__(self, index: int, kind: str) -> None:
        self.index = index
        self.kind = kind
        self.grown = False
        self.part = 0


class ResponsesStream(Assembly):
    """Translates one answer: each output item is a block."""

    def __init__(self, model_id: str) -> None:
        super().__init__()
        self._model = model_id
        self._items: dict[int, _Item] = {}
        self._unsealed: dict[str, tuple[_Item, dict[str, Any]]] = {}
        self._calls = 0
        self._last: _Response | None = None
        self._kind = ""

    def take(self, name: bytes, data: bytes, out: list[Delta]) -> None:
        """One event."""
        if data == b"[DONE]":
            return
        event = decoded(_decoder, _Event, data, f"The event {name.decode('utf-8', 'replace') or '(unnamed)'}")
        kind = event.type
        if kind in _DELTAS:
            self._grow(kind, event, out)
        elif kind == "response.output_item.added":
            if event.item is not None:
                self._start(event.output_index, event.item, out)
        elif kind == "response.output_item.done":
            if event.item is not None:
                self._close(event.output_index, event.item, out)
        elif kind in _ENDS:
            self._end(kind, event.response, out)
        elif kind == "response.created":
            self._begin(event.response, out)
        elif kind == "error" or (not kind and event.error is not None):
            raise StreamBroken(_error(event, data))

    def whole(self, data: bytes, out: list[Delta]) -> None:
        """The response that a server sent without streaming."""
        response = decoded(_whole, _Response, data, "The response")
        if response.output is None and response.error is None:
            raise malformed("The response", "it has no output")
        for place, item in enumerate(response.output or ()):
            self._close(place, item, out)
        self._end("response.completed" if response.error is None else "response.failed", response, out)

    def finish(self, out: list[Delta]) -> Finished:
        """The answer is complete, or it ends in the reason why not."""
        response = self._last
        if response is None:
            raise truncated("the response was completed")
        self._seal(response, out)
        for place in list(self._items):
            out.append(BlockClosed(self._items.pop(place).index))
        status = response.status or self._kind.removeprefix("response.")
        self.raw_stop = status
        if status == "completed":
            return self.ended("toolUse" if self._calls else "stop")
        if status == "incomplete":
            details = response.incomplete_details
            reason = details.get("reason") if isinstance(details, dict) else None
            if reason == "max_output_tokens":
                return self.ended("length")
            return self.ended(
                "error", Failure(message=f"The answer is incomplete: {reason or 'no reason given'}", code=reason)
            )
        return self.ended("error", _failed(response.error, status))

    def _begin(self, response: _Response | None, out: list[Delta]) -> None:
        if response is not None:
            self.named(out, response.id, response.model, self._model)

    def _start(self, place: int, item: dict[str, Any], out: list[Delta]) -> None:
        kind = item.get("type")
        if kind == "message":
            self._items[place] = _Item(self.open(out, "text"), "message")
        elif kind == "reasoning":
            self._items[place] = _Item(self.open(out, "thinking"), "reasoning")
        elif kind == "function_call":
            self._calls += 1
            item_id = item.get("id")
            call_id = f"{item.get('call_id')}|{item_id}" if item_id else str(item.get("call_id"))
            self._items[place] = _Item(self.open(out, "toolCall", call_id, str(item.get("name") or "")), "call")

    def _grow(self, kind: str, event: _Event, out: list[Delta]) -> None:
        item = self._items.get(event.output_index)
        text = event.delta
        if item is None or not text or type(text) is not str:
            return
        if kind in _THOUGHT and event.summary_index != item.part:
            item.part = event.summary_index
            if item.grown:
                text = "\n\n" + text
        item.grown = True
        out.append(BlockGrew(item.index, text))

    def _close(self, place: int, done: dict[str, Any], out: list[Delta]) -> None:
        if place not in self._items:
            self._start(place, done, out)
        item = self._items.pop(place, None)
        if item is None:
            return
        if not item.grown:
            text = _whole_text(item.kind, done)
            if text:
                out.append(BlockGrew(item.index, text))
        if item.kind == "reasoning" and not done.get("encrypted_content") and done.get("id"):
            # Azure gives the encrypted content only with the completed response.
            self._unsealed[str(done["id"])] = (item, done)
            return
        out.append(BlockClosed(item.index, _signature(item.kind, done)))

    def _seal(self, response: _Response, out: list[Delta]) -> None:
        final = {str(item.get("id")): item for item in response.output or () if item.get("type") == "reasoning"}
        for item_id, (item, done) in self._unsealed.items():
            out.append(BlockClosed(item.index, _signature("reasoning", final.get(item_id, done))))
        self._unsealed.clear()

    def _end(self, kind: str, response: _Response | None, out: list[Delta]) -> None:
        self.done = True
        self._kind = kind
        self._last = response or _Response()
        self._begin(response, out)
        usage = self._last.usage
        if usage is None:
            return
        details = usage.input_tokens_details or _InputDetails()
        cached, written = details.cached_tokens or 0, details.cache_write_tokens or 0
        thought = usage.output_tokens_details.reasoning_tokens if usage.output_tokens_details else 0
        out.append(
            counted(
                sent=(usage.input_tokens or 0) - cached - written,
                output=usage.output_tokens or 0,
                cache_read=cached,
                cache_write=written,
                reasoning=thought or 0,
            )
        )


def _whole_text(kind: str, item: dict[str, Any]) -> str:
    """The text of an item that came without deltas."""
    if kind == "call":
        arguments = item.get("arguments") or ""
        return arguments if isinstance(arguments, str) else codec.encode(arguments).decode()
    parts = item.get("content") if kind == "message" else item.get("summary") or item.get("content")
    if not isinstance(parts, list):
        return ""
    texts = (part.get("text") or part.get("refusal") for part in parts if isinstance(part, dict))
    return ("" if kind == "message" else "\n\n").join(text for text in texts if isinstance(text, str))


def _signature(kind: str, item: dict[str, Any]) -> str | Absent:
    """What must be sent back with the block."""
    if kind == "reasoning":
        return codec.encode(item).decode()
    if kind == "message" and item.get("id"):
        phase = {"phase": item["phase"]} if item.get("phase") else {}
        return codec.encode({"v": 1, "id": item["id"], **phase}).decode()
    return ABSENT


def _error(event: _Event, data: bytes) -> Failure:
    error = event.error if isinstance(event.error, dict) else {"code": event.code, "message": event.message}
    said = error.get("message")
    code = code_of(error)
    if isinstance(said, str) and said:
        return from_event(error, f"{code}: {said}" if code else said)
    return from_event(error, data.decode("utf-8", "replace"))


def _failed(error: Any, status: str) -> Failure:
    code = code_of(error)
    said = error.get("message") if isinstance(error, dict) else None
    if not said:
        return Failure(message=f"The response ended as {status}", code=code or status)
    return classified(f"{code}: {said}" if code else str(said), code=code)
