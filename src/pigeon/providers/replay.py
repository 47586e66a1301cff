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

from pigeon.providers.exchange import encoded
from pigeon.providers.handover import CallIds, Normalise, handed_over, speaks
from pigeon.wire.inference import ModelMessage, ModelRequest
from pigeon.wire.model import Model

Convert = Callable[[list[ModelMessage], int], list[dict[str, Any]]]


class _Chunk:
    """Messages, how many there were after the handover, what they became, and the call ids used for them."""

    __slots__ = ("call_ids", "items", "messages", "told")

    def __init__(self, messages: list[ModelMessage], told: int, items: list[Raw], call_ids: list[str]) -> None:
        self.messages = messages
        self.told = told
        self.items = items
        self.call_ids = call_ids


class Replay:
    """Remembers the conversation of the last request."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._chunks: list[_Chunk] = []
        self._ids = CallIds(str)

    def items(self, request: ModelRequest, normalise: Normalise, convert: Convert) -> list[Any]:
        """What the API gets; the last chunk as objects that may still be changed, all before it as finished JSON."""
        if request.model is not self._model:
            self._model, self._chunks, self._ids = request.model, [], CallIds(normalise)
        messages = request.messages
        at = self._kept(messages)
        out: list[Any] = [item for chunk in self._chunks for item in chunk.items]
        told = sum(chunk.told for chunk in self._chunks)
        while at < len(messages):
            end = _chunk_end(messages, at)
            chunk = messages[at:end]
            finished: list[Raw] | None = None
            try:
                handed = handed_over(chunk, request.model, self._ids)
                items = convert(handed, told)
                if end < len(messages):
                    finished = [Raw(encoded(item)) for item in items]
            finally:
                used = self._ids.taken()
                if finished is None:
                    self._ids.give_back(used)
            if finished is not None:
                self._chunks.append(_Chunk(chunk, len(handed), finished, used))
            out.extend(items if finished is None else finished)
            told += len(handed)
            at = end
        return out

    def _kept(self, messages: list[ModelMessage]) -> int:
        """Let go of chunks that are no longer how the conversation begins; where the rest begins."""
        at = kept = 0
        for chunk in self._chunks:
            end = at + len(chunk.messages)
            # One more must follow: the last chunk may still grow, or be marked.
            if end >= len(messages) or not all(map(operator.is_, chunk.messages, messages[at:end])):
                break
            at = end
            kept += 1
        # A chunk ends where the next one begins, which it may no longer do.
        if kept and not speaks(messages[at]):
            kept -= 1
            at -= len(self._chunks[kept].messages)
        for chunk in self._chunks[kept:]:
            self._ids.give_back(chunk.call_ids)
        del self._chunks[kept:]
        return at


def conversation(request: ModelRequest, replay: Replay | None, normalise: Normalise, convert: Convert) -> list[Any]:
    """The conversation in the words of an API; all of it as objects, if nobody remembers anything."""
    if replay is None:
        return convert(handed_over(request.messages, request.model, CallIds(normalise)), 0)
    return replay.items(request, normalise, convert)


def _chunk_end(messages: list[ModelMessage], at: int) -> int:
    at += 1
    while at < len(messages) and not speaks(messages[at]):
        at += 1
    return at
