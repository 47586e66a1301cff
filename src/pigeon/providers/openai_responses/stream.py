"""The events of the Responses API, as deltas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from pigeon.agent.inference import BlockClosed, BlockGrew, BlockKind, Delta, Failure, Finished
from pigeon.providers.errors import (
    StreamBroken,
    classify_failure,
    code_of,
    from_event,
    malformed_stream_error,
    message_of,
    truncated_stream_error,
)
from pigeon.providers.stream_translator import StreamTranslator, decode_event, make_metered_delta
from pigeon.system.ids import RANDOM_IDS
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Absent

PLACE_SIZE = 100
_TEXT = ("response.output_text.delta", "response.refusal.delta")
_THOUGHT = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ARGUMENTS = ("response.function_call_arguments.delta",)
_BLOCKS: dict[str, BlockKind] = {"message": "text", "reasoning": "thinking", "function_call": "toolCall"}
_DELTAS = {*_TEXT, *_THOUGHT, *_ARGUMENTS}
_ENDS = {"response.completed", "response.incomplete", "response.failed", "response.done"}


class _InputTokenDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputTokenDetails(Struct):
    reasoning_tokens: int | None = None


class _ResponseUsage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputTokenDetails | None = None
    output_tokens_details: _OutputTokenDetails | None = None


class _ResponseObject(Struct):
    id: str | None = None
    model: str | None = None
    status: str | None = None
    usage: _ResponseUsage | None = None
    service_tier: str | None = None
    error: Any = None
    incomplete_details: Any = None
    output: list[dict[str, Any]] | None = None


class _ResponseEvent(Struct):
    needed: ClassVar = ("type", "item")
    type: str = ""
    output_index: int = -1
    summary_index: int = -1
    delta: Any = None
    item: dict[str, Any] | None = None
    response: _ResponseObject | None = None
    code: Any = None
    message: str | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_ResponseEvent)
_whole = msgspec.json.Decoder(_ResponseObject)


class _OpenItem:
    """An output item while it arrives; `implied` until the server announces one that only appeared in deltas."""

    __slots__ = ("grown", "implied", "index", "kind", "part")

    def __init__(self, index: int, kind: str, implied: bool = False) -> None:
        self.index = index
        self.kind = kind
        self.implied = implied
        self.grown = False
        self.part = 0

    def try_accept_announcement(self, kind: Any) -> bool:
        """Accept the server's announcement of an item; returns False if it cannot be this one."""
        if not self.implied or self.kind != kind:
            return False
        self.implied = False
        return True

    def append_text(self, text: str, part: int) -> BlockGrew:
        """The delta of more text; a blank line separates two parts of a summary."""
        if part != self.part and part >= 0:
            self.part = part
            if self.grown:
                text = "\n\n" + text
        self.grown = True
        return BlockGrew(self.index, text)


class ResponsesStream(StreamTranslator):
    """Translates one answer: each output item is a block."""

    def __init__(self, model_id: str, new_id: Callable[[], str] = RANDOM_IDS.request_id) -> None:
        """`new_id` is for calls without an id."""
        super().__init__()
        self._model = model_id
        self._new_id = new_id
        self._items: dict[int, _OpenItem] = {}
        self._places: set[int] = set()
        self._last_place = -1
        self._kinds: set[str] = set()
        self._unsealed: list[tuple[_OpenItem, dict[str, Any]]] = []
        self._last: _ResponseObject | None = None
        self._kind = ""

    def translate_event(self, name: bytes, data: bytes, out: list[Delta]) -> None:
        if data == b"[DONE]":
            return
        event = decode_event(_decoder, _ResponseEvent, data, name)
        kind = event.type or name.decode("utf-8", "replace")
        if kind in _DELTAS:
            self._add_delta(kind, event, out)
        elif kind == "response.output_item.added":
            if event.item is not None:
                self._start_item(event.output_index, event.item, out)
        elif kind == "response.output_item.done":
            if event.item is not None:
                self._close_item(event.output_index, event.item, out)
        elif kind in _ENDS:
            self._end_response(kind, event.response, out)
        elif kind == "response.created":
            self._begin_response(event.response, out)
        elif kind == "error" or (not kind and event.error):
            raise StreamBroken(_failure_of_event(event, data))

    def translate_whole_answer(self, data: bytes, out: list[Delta]) -> None:
        """The response that a server sent without streaming."""
        response = decode_event(_whole, _ResponseObject, data, "The response")
        if response.output is None and not response.error:
            raise malformed_stream_error("The response", "it has no output")
        self._end_response("response.failed" if response.error else "response.completed", response, out)

    def finish(self, out: list[Delta]) -> Finished:
        """The answer is complete, or ends with the reason for a failure."""
        response = self._last
        if response is None:
            raise truncated_stream_error("the response was completed")
        self._close_unsealed_items(response, out)
        for place in list(self._items):
            out.append(BlockClosed(self._items.pop(place).index))
        status = response.status or self._kind.removeprefix("response.").replace("done", "completed")
        self.raw_stop = status
        if status == "completed":
            return self.make_finished_delta("toolUse" if "function_call" in self._kinds else "stop")
        if status == "incomplete":
            details = response.incomplete_details
            said = details.get("reason") if isinstance(details, dict) else None
            reason = said if isinstance(said, str) else None
            if reason == "max_output_tokens":
                return self.make_finished_delta("length")
            return self.make_finished_delta(
                "error", Failure(message=f"The answer is incomplete: {reason or 'no reason given'}", code=reason)
            )
        return self.make_finished_delta("error", _failure_of_response(response.error, status))

    def _begin_response(self, response: _ResponseObject | None, out: list[Delta]) -> None:
        if response is not None:
            self.report_id_and_model(out, response.id, response.model, self._model)

    def _start_item(
        self, place: int, item: dict[str, Any], out: list[Delta], implied: bool = False
    ) -> _OpenItem | None:
        """Begin an item at the given place, or else after the others."""
        place = self._reserve_place(place)
        old = self._items.get(place)
        if old is not None:
            if old.try_accept_announcement(item.get("type")):
                return old
            out.append(BlockClosed(self._items.pop(place).index))
        opened = self._open_item(item, out, implied)
        if opened is not None:
            self._items[place] = opened
        return opened

    def _reserve_place(self, place: int) -> int:
        taken = place if place >= 0 else self._last_place + 1
        if taken not in self._places:
            self.count_held_characters(PLACE_SIZE)
            self._places.add(taken)
            self._last_place = max(self._last_place, taken)
        return taken

    def _open_item(self, item: dict[str, Any], out: list[Delta], implied: bool = False) -> _OpenItem | None:
        kind = item.get("type")
        if not isinstance(kind, str) or kind not in _BLOCKS:
            return None
        block = _BLOCKS[kind]
        self._kinds.add(kind)
        if block != "toolCall":
            return _OpenItem(self.open_block(out, block), kind, implied)
        item_id = item.get("id")
        call_id = item.get("call_id") or item_id or f"call_{self._new_id()}"
        known = f"{call_id}|{item_id}" if item_id else str(call_id)
        return _OpenItem(self.open_block(out, block, known, str(item.get("name") or "")), kind)

    def _add_delta(self, kind: str, event: _ResponseEvent, out: list[Delta]) -> None:
        item = self._items.get(event.output_index) or self._find_or_start_item(kind, event, out)
        text = event.delta
        if item is None or not text or type(text) is not str:
            return
        out.append(item.append_text(text, event.summary_index if kind in _THOUGHT else -1))

    def _find_or_start_item(self, kind: str, event: _ResponseEvent, out: list[Delta]) -> _OpenItem | None:
        """The item of a delta without a place, or with one where no item was announced."""
        if event.output_index in self._places:
            return None
        wanted = "message" if kind in _TEXT else "reasoning" if kind in _THOUGHT else "function_call"
        if event.output_index < 0:
            for item in reversed(self._items.values()):
                if item.kind == wanted:
                    return item
        if wanted == "function_call" or not event.delta:
            return None
        return self._start_item(event.output_index, {"type": wanted}, out, implied=True)

    def _close_item(self, place: int, done: dict[str, Any], out: list[Delta]) -> None:
        if place < 0:
            kind = done.get("type")
            place = next((where for where, item in reversed(self._items.items()) if item.kind == kind), -1)
        item = self._items.pop(self._reserve_place(place), None) or self._open_item(done, out)
        if item is not None:
            self._complete_item(item, done, out)

    def _complete_item(self, item: _OpenItem, done: dict[str, Any], out: list[Delta]) -> None:
        if not item.grown:
            text = _whole_text(item.kind, done)
            if text:
                out.append(BlockGrew(item.index, text))
        if item.kind == "reasoning" and not done.get("encrypted_content") and done.get("id"):
            # Azure sends the encrypted content only with the completed response.
            self.count_held_characters(len(codec.encode(done)))
            self._unsealed.append((item, done))
            return
        out.append(BlockClosed(item.index, _signature_of_item(item.kind, done)))

    def _add_missing_output(self, output: list[dict[str, Any]], out: list[Delta]) -> None:
        """Append output that only came with the end of the response.

        Ids and places do not help to recognize known output, because some servers change them: a kind of item counts as
        new if there was none of it before.
        """
        before = set(self._kinds)
        for place, done in enumerate(output):
            kind = str(done.get("type"))
            item = self._items.get(place)
            if item is not None and item.kind == kind:
                del self._items[place]
                self._complete_item(item, done, out)
            elif kind == "reasoning" and before and kind not in before:
                # Behind the output that it led to, it can be read but not sent back.
                text = _whole_text("reasoning", done)
                late = self._open_item(done, out) if text else None
                if late is not None:
                    out.extend((BlockGrew(late.index, text), BlockClosed(late.index)))
            elif kind not in before:
                late = self._open_item(done, out)
                if late is not None:
                    self._complete_item(late, done, out)

    def _close_unsealed_items(self, response: _ResponseObject, out: list[Delta]) -> None:
        final = {str(item.get("id")): item for item in response.output or () if item.get("type") == "reasoning"}
        for item, done in self._unsealed:
            out.append(BlockClosed(item.index, _signature_of_item("reasoning", final.get(str(done["id"]), done))))
        self._unsealed.clear()

    def _end_response(self, kind: str, response: _ResponseObject | None, out: list[Delta]) -> None:
        self.done = True
        self._kind = kind
        self._last = response or _ResponseObject()
        self._begin_response(response, out)
        self._add_missing_output(self._last.output or [], out)
        usage = self._last.usage
        if usage is None:
            return
        details = usage.input_tokens_details or _InputTokenDetails()
        cached, written = details.cached_tokens or 0, details.cache_write_tokens or 0
        thought = usage.output_tokens_details.reasoning_tokens if usage.output_tokens_details else 0
        out.append(
            make_metered_delta(
                sent=(usage.input_tokens or 0) - cached - written,
                output=usage.output_tokens or 0,
                cache_read=cached,
                cache_write=written,
                reasoning=thought or 0,
                rate=_price_factor(self._last.service_tier, self._model),
            )
        )


def _price_factor(tier: str | None, model_id: str) -> float:
    """The factor that a service tier applies to the price."""
    if tier == "flex":
        return 0.5
    if tier == "priority":
        return 2.5 if model_id == "gpt-5.5" else 2
    return 1


def _whole_text(kind: str, item: dict[str, Any]) -> str:
    """The text of an item that came without deltas."""
    if kind == "function_call":
        arguments = item.get("arguments") or ""
        return arguments if isinstance(arguments, str) else codec.encode(arguments).decode()
    parts = item.get("content") if kind == "message" else item.get("summary") or item.get("content")
    if not isinstance(parts, list):
        return ""
    texts = (part.get("text") or part.get("refusal") for part in parts if isinstance(part, dict))
    return ("" if kind == "message" else "\n\n").join(text for text in texts if isinstance(text, str))


def _signature_of_item(kind: str, item: dict[str, Any]) -> str | Absent:
    """The signature to send back with the block."""
    if kind == "reasoning":
        return codec.encode(item).decode()
    if kind == "message" and item.get("id"):
        phase = {"phase": item["phase"]} if item.get("phase") else {}
        return codec.encode({"v": 1, "id": item["id"], **phase}).decode()
    return ABSENT


def _failure_of_event(event: _ResponseEvent, data: bytes) -> Failure:
    error = event.error if isinstance(event.error, dict) else {"code": event.code, "message": event.message}
    said = message_of(error)
    code = code_of(error)
    if said:
        return from_event(error, f"{code}: {said}" if code else said)
    return from_event(error, data.decode("utf-8", "replace"))


def _failure_of_response(error: Any, status: str) -> Failure:
    code = code_of(error)
    said = message_of(error)
    if not said:
        return Failure(message=f"The response ended as {status}", code=code or status)
    return classify_failure(f"{code}: {said}" if code else said, code=code)
