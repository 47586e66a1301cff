"""The history cache: the conversation in the form of an API, without converting all of it for each request.

A conversation mostly grows at its end, and each request repeats all of it. The messages are cut into chunks, each of
which begins with an answer that becomes at least one item in every API (`is_sent_as_item`): in no API do the messages
before such an answer depend on what follows. All chunks but the last are kept as encoded JSON:

    messages    u1  a1 r1 r1  a2 r2 u2   a3 r3
    chunks     [u1][a1 r1 r1][a2 r2 u2][a3 r3]
                `------ cached as Raw ------'  converted for each request: it may grow, and adapters mark its end

What is compared, and when it is dropped:

* Messages are compared by identity. `session/context/transcript` returns the same objects as long as the history is
  unchanged, so a run of `is` over the prefix is enough; never copy messages on their way here. A hook of extensions
  that returns other objects only costs a conversion.
* From the first message that is another object, chunks are dropped from the end. The chunk before it is dropped too if
  what follows now no longer begins a chunk. Their call ids are free again.
* Another model drops everything, compared by identity too: API, compat flags and whether it takes images may differ.

A `HistoryCache` belongs to one gateway, and so to one agent. It keeps one conversation, that of the last request.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from msgspec import Raw, Struct

from pigeon.agent.inference import ModelMessage, ModelRequest
from pigeon.providers.history.normalize import (
    CallIdForm,
    CallIds,
    frame_with_user_turns,
    is_sent_as_item,
    normalize_messages,
)
from pigeon.providers.http.exchange import encode_body
from pigeon.wire.model import Model

# Converts normalized messages, given the number of messages in the chunks before them, to items of the API.
ConvertMessages = Callable[[list[ModelMessage], int], list[dict[str, Any]]]


class _CachedChunk(Struct, frozen=True):
    """The number of messages in a chunk before and after normalizing, of its items, and its call ids."""

    messages: int
    normalized: int
    items: int
    call_ids: list[str]


class HistoryCache:
    """The items of the last request's conversation, encoded."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._drop_all(lambda text, _: text)

    def to_items(self, request: ModelRequest, call_id_form: CallIdForm, convert: ConvertMessages) -> list[Any]:
        """The items for the API: the last chunk as objects that the adapter may change, all before it as encoded
        JSON."""
        if request.model is not self._model:
            self._model = request.model
            self._drop_all(call_id_form)
        messages = frame_with_user_turns(request.messages)
        self._drop_changed(messages)
        at = len(self._known)
        last: list[Any] = []
        while at < len(messages):
            end = _find_chunk_end(messages, at)
            last = self._convert_chunk(messages[at:end], request.model, convert, is_last=end == len(messages))
            at = end
        return [*self._items, *last]

    def _convert_chunk(
        self, messages: list[ModelMessage], model: Model, convert: ConvertMessages, is_last: bool
    ) -> list[dict[str, Any]]:
        """The items of a chunk; cached unless it is the last one, which may still grow or be marked."""
        finished: list[Raw] | None = None
        try:
            ready = normalize_messages(messages, model, self._ids)
            items = convert(ready, self._normalized)
            if not is_last:
                finished = [Raw(encode_body(item)) for item in items]
        finally:
            used = self._ids.pop_new_keys()
            if finished is None:
                self._ids.release_keys(used)
        if finished is not None:
            self._chunks.append(_CachedChunk(len(messages), len(ready), len(finished), used))
            self._known += messages
            self._items += finished
            self._normalized += len(ready)
        return items

    def _drop_all(self, call_id_form: CallIdForm) -> None:
        self._chunks: list[_CachedChunk] = []
        self._known: list[ModelMessage] = []
        self._items: list[Raw] = []
        self._normalized = 0
        self._ids = CallIds(call_id_form)

    def _drop_changed(self, messages: list[ModelMessage]) -> None:
        """Drop the chunks that the conversation no longer begins with, or that would no longer end where they do."""
        known = self._known
        same = len(known)
        if len(messages) <= same or not all(map(operator.is_, known, messages)):
            pairs = enumerate(zip(known, messages, strict=False))
            same = next((at for at, (one, other) in pairs if one is not other), min(same, len(messages)))
        while self._chunks and not (
            len(known) <= same and len(known) < len(messages) and is_sent_as_item(messages[len(known)])
        ):
            chunk = self._chunks.pop()
            del known[len(known) - chunk.messages :]
            del self._items[len(self._items) - chunk.items :]
            self._normalized -= chunk.normalized
            self._ids.release_keys(chunk.call_ids)


def convert_conversation(
    request: ModelRequest, cache: HistoryCache | None, call_id_form: CallIdForm, convert: ConvertMessages
) -> list[Any]:
    """The conversation in the form of an API; without a cache, all of it as objects."""
    if cache is None:
        return convert(
            normalize_messages(frame_with_user_turns(request.messages), request.model, CallIds(call_id_form)), 0
        )
    return cache.to_items(request, call_id_form, convert)


def _find_chunk_end(messages: list[ModelMessage], at: int) -> int:
    at += 1
    while at < len(messages) and not is_sent_as_item(messages[at]):
        at += 1
    return at
