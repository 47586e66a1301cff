"""The conversation in the words of an API, without telling the whole of it anew for each request.

A conversation mostly grows at its end. It is cut into chunks, each of which begins with an answer that says something:
nothing before such an answer depends on what comes after it, in any API. Chunks that are complete are kept as they
were encoded, and used again as long as the conversation still begins with the very same messages.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from msgspec import Raw

from pigeon.agent.inference import ModelMessage, ModelRequest
from pigeon.providers.history.normalize import CallIds, Normalise, handed_over, speaks
from pigeon.providers.http.exchange import encoded
from pigeon.wire.model import Model

Convert = Callable[[list[ModelMessage], int], list[dict[str, Any]]]


class _Chunk:
    """How many messages, how many of them after the handover, how many items, and the call ids used for them."""

    __slots__ = ("call_ids", "items", "messages", "told")

    def __init__(self, messages: int, told: int, items: int, call_ids: list[str]) -> None:
        self.messages = messages
        self.told = told
        self.items = items
        self.call_ids = call_ids


class HistoryCache:
    """Remembers the conversation of the last request."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._forget_all(str)

    def items(self, request: ModelRequest, normalise: Normalise, convert: Convert) -> list[Any]:
        """What the API gets; the last chunk as objects that may still be changed, all before it as finished JSON."""
        if request.model is not self._model:
            self._model = request.model
            self._forget_all(normalise)
        messages = request.messages
        self._forget_what_changed(messages)
        at = len(self._known)
        last: list[Any] = []
        while at < len(messages):
            end = _chunk_end(messages, at)
            last = self._converted(messages[at:end], request.model, convert, is_last=end == len(messages))
            at = end
        return [*self._items, *last]

    def _converted(
        self, messages: list[ModelMessage], model: Model, convert: Convert, is_last: bool
    ) -> list[dict[str, Any]]:
        """What a chunk becomes; remembered unless it is the last, which may still grow, or be marked."""
        finished: list[Raw] | None = None
        try:
            handed = handed_over(messages, model, self._ids)
            items = convert(handed, self._told)
            if not is_last:
                finished = [Raw(encoded(item)) for item in items]
        finally:
            used = self._ids.taken()
            if finished is None:
                self._ids.give_back(used)
        if finished is not None:
            self._chunks.append(_Chunk(len(messages), len(handed), len(finished), used))
            self._known += messages
            self._items += finished
            self._told += len(handed)
        return items

    def _forget_all(self, normalise: Normalise) -> None:
        self._chunks: list[_Chunk] = []
        self._known: list[ModelMessage] = []
        self._items: list[Raw] = []
        self._told = 0
        self._ids = CallIds(normalise)

    def _forget_what_changed(self, messages: list[ModelMessage]) -> None:
        """Let go of chunks that are no longer how the conversation begins, or that would no longer end there."""
        known = self._known
        same = len(known)
        if len(messages) <= same or not all(map(operator.is_, known, messages)):
            pairs = enumerate(zip(known, messages, strict=False))
            same = next((at for at, (one, other) in pairs if one is not other), min(same, len(messages)))
        while self._chunks and not (len(known) <= same and len(known) < len(messages) and speaks(messages[len(known)])):
            chunk = self._chunks.pop()
            del known[len(known) - chunk.messages :]
            del self._items[len(self._items) - chunk.items :]
            self._told -= chunk.told
            self._ids.give_back(chunk.call_ids)


def conversation(
    request: ModelRequest, cache: HistoryCache | None, normalise: Normalise, convert: Convert
) -> list[Any]:
    """The conversation in the words of an API; all of it as objects, if nobody remembers anything."""
    if cache is None:
        return convert(handed_over(request.messages, request.model, CallIds(normalise)), 0)
    return cache.items(request, normalise, convert)


def _chunk_end(messages: list[ModelMessage], at: int) -> int:
    at += 1
    while at < len(messages) and not speaks(messages[at]):
        at += 1
    return at
