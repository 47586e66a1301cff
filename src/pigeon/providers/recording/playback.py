"""The model `recorded/FILE`: answers the requests of an agent from a recording, in place of the network.

With strict matching, a request must equal the one that was recorded at this point; otherwise the answer fails and shows
the difference. With loose matching, each request gets the next answer of the same address. Requests that overlapped may
come in any order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Literal

from msgspec import Struct

from pigeon.agent.inference import Failure
from pigeon.agent.interfaces import ModelProvider
from pigeon.providers.errors import StreamBroken
from pigeon.providers.http.network_errors import find_error_class
from pigeon.providers.http.recorders import MASK, HttpRequest
from pigeon.providers.recording.folders import FolderNames, MovedProvider
from pigeon.providers.recording.reader import RecordedExchange, Recording
from pigeon.providers.recording.recorded_lines import DroppedLine, FailedLine, body_json
from pigeon.system.clock import PlaybackPace
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.errors import BadRecord

RecordingMatch = Literal["strict", "loose"]
# How long an answer or a pause that the recorded agent abandoned is kept open for an agent that does not abandon it.
HELD_SECONDS = 10.0
MOST_SHOWN = 3
LONGEST_SHOWN = 80
# Fields that identify a conversation to a provider's cache, and that differ when a session is continued.
_MAY_DIFFER = {"$.prompt_cache_key", "$.metadata.user_id"}
# The pieces are recorded decompressed.
_NOT_REPEATED = {"content-encoding", "content-length", "transfer-encoding"}


class PlaybackOptions(Struct, frozen=True):
    """How requests are matched, and how fast answers come: a factor of the recorded speed, 0 for at once."""

    match: RecordingMatch = "strict"
    speed: float = 0


class Playback:
    """Answers requests from one recording in place of the network."""

    def __init__(
        self,
        recording: Recording,
        options: PlaybackOptions,
        names: FolderNames,
        mask: Callable[[bytes], bytes] = lambda data: data,
    ) -> None:
        self._recording = recording
        self._strict = options.match == "strict"
        self._pace = PlaybackPace(options.speed)
        self._names = names
        self._mask = mask
        self._left = list(recording.exchanges)
        self._pauses = 0

    def wrap_provider(self, provider: ModelProvider) -> ModelProvider:
        return MovedProvider(provider, self._names) if self._names.has_differences else provider

    async def answer(self, request: HttpRequest) -> RecordedAnswer:
        """The recorded answer; raises what the recorded request raised, and `StreamBroken` if there is none."""
        exchange = self._find_exchange(request) if self._strict else self._next_exchange(request)
        self._left.remove(exchange)
        if exchange.head is None:
            await self._pace.pause(exchange.over_at - exchange.sent_at)
            await _raise_recorded_failure(exchange)
            raise _playback_error(
                "recording_ends", f"{self._describe_exchange(exchange)} has no answer: the recording ends within it"
            )
        await self._pace.pause(exchange.head.t - exchange.sent_at)
        return RecordedAnswer(exchange, self._recording.read_piece, self._pace)

    def sleep(self, ms: float) -> Awaitable[None]:
        """A pause between two attempts: none at full speed, unless the recorded run was stopped during it."""
        self._pauses += 1
        return (
            self._pace.pause(ms) if self._recording.has_completed_pause(self._pauses) else asyncio.sleep(HELD_SECONDS)
        )

    def close(self) -> None:
        self._recording.close()

    def _next_exchange(self, request: HttpRequest) -> RecordedExchange:
        for exchange in self._left:
            if (exchange.method, exchange.url) == (request.method, self._masked_url_of(request)):
                return exchange
        raise self._used_up_error(request)

    def _find_exchange(self, request: HttpRequest) -> RecordedExchange:
        candidates = self._list_candidates()
        if not candidates:
            raise self._used_up_error(request)
        found: list[list[str]] = []
        for exchange in candidates:
            differences = list(self._find_differences(exchange, request))
            if not differences:
                return exchange
            found.append(differences)
        nearest = min(range(len(found)), key=lambda at: len(found[at]))
        raise self._mismatch_error(candidates[nearest], found[nearest])

    def _list_candidates(self) -> list[RecordedExchange]:
        """The next exchange, and those that began before it was over."""
        if not self._left:
            return []
        first = self._left[0]
        return [exchange for exchange in self._left if exchange is first or exchange.sent_at < first.over_at]

    def _find_differences(self, exchange: RecordedExchange, request: HttpRequest) -> Iterator[str]:
        recorded = self._recording.read_request(exchange)
        url = self._masked_url_of(request)
        if (recorded.method, recorded.url) != (request.method, url):
            yield f"the address: recorded {recorded.method} {recorded.url}, sent {request.method} {url}"
        body = self._mask(request.body)
        try:
            sent: Json = codec.decode(body)
        except BadRecord:
            sent = body.decode("utf-8", "replace")
        yield from self._compare_values("$", body_json(recorded), sent)

    def _compare_values(self, path: str, recorded: Json, sent: Json) -> Iterator[str]:
        if recorded == sent or path in _MAY_DIFFER:
            return
        if isinstance(recorded, dict) and isinstance(sent, dict):
            for key in [*recorded, *(key for key in sent if key not in recorded)]:
                yield from self._compare_members(f"{path}.{key}", recorded, sent, key)
        elif isinstance(recorded, list) and isinstance(sent, list):
            for index in range(max(len(recorded), len(sent))):
                yield from self._compare_items(f"{path}[{index}]", recorded, sent, index)
        elif isinstance(recorded, str) and isinstance(sent, str):
            moved = self._names.replace_folders(recorded)
            if moved != sent and not (MASK in moved and _is_equal_when_masked(moved, sent)):
                yield _describe_text_difference(path, moved, sent)
        else:
            yield f"{path}: recorded {_shorten_value(recorded)}, sent {_shorten_value(sent)}"

    def _compare_members(self, path: str, recorded: dict[str, Json], sent: dict[str, Json], key: str) -> Iterator[str]:
        if path in _MAY_DIFFER:
            return
        if key not in sent:
            yield f"{path}: recorded {_shorten_value(recorded[key])}, and not sent"
        elif key not in recorded:
            yield f"{path}: not recorded, and sent {_shorten_value(sent[key])}"
        else:
            yield from self._compare_values(path, recorded[key], sent[key])

    def _compare_items(self, path: str, recorded: list[Json], sent: list[Json], index: int) -> Iterator[str]:
        if index >= len(sent):
            yield f"{path}: recorded {_shorten_value(recorded[index])}, and not sent"
        elif index >= len(recorded):
            yield f"{path}: not recorded, and sent {_shorten_value(sent[index])}"
        else:
            yield from self._compare_values(path, recorded[index], sent[index])

    def _masked_url_of(self, request: HttpRequest) -> str:
        return self._mask(request.url.encode()).decode()

    def _describe_exchange(self, exchange: RecordedExchange) -> str:
        return f"Exchange {exchange.number} of {self._recording.path} (line {exchange.line})"

    def _mismatch_error(self, exchange: RecordedExchange, differences: list[str]) -> StreamBroken:
        shown = "\n".join(f"  {one}" for one in differences[:MOST_SHOWN])
        more = len(differences) - MOST_SHOWN
        rest = f"\n  and {more} more" if more > 0 else ""
        return _playback_error(
            "recording_differs",
            f"The request is not the recorded one. {self._describe_exchange(exchange)} differs in:\n{shown}{rest}\n"
            'Record again, or take the next answer whatever is asked: add "?match=loose" to the model',
        )

    def _used_up_error(self, request: HttpRequest) -> StreamBroken:
        count, path = len(self._recording.exchanges), self._recording.path
        if not self._left:
            said = f"The recording {path} has no further answer: all {count} exchanges in it are used up"
        else:
            said = f"The recording {path} has no further answer from {self._masked_url_of(request)}"
        return _playback_error("recording_exhausted", f"{said}. Record again with what is asked now")


class RecordedAnswer:
    """One answer in the form of the HTTP library."""

    def __init__(self, exchange: RecordedExchange, piece: Callable[[int], bytes], pace: PlaybackPace) -> None:
        assert exchange.head is not None
        self._exchange = exchange
        self._at = exchange.head.t
        self._piece = piece
        self._pace = pace
        self.status = exchange.head.status
        self.headers = [
            (name.encode("latin-1"), value.encode("latin-1", "replace"))
            for name, value in exchange.head.headers.items()
            if name.lower() not in _NOT_REPEATED
        ]

    async def aiter_stream(self) -> AsyncIterator[bytes]:
        """The body in its recorded pieces."""
        for at, place in self._exchange.pieces:
            await self._pace.pause(at - self._at)
            self._at = at
            yield self._piece(place)
        await _raise_recorded_failure(self._exchange)

    async def aclose(self) -> None:
        """Does nothing: a recorded answer has no connection."""


async def _raise_recorded_failure(exchange: RecordedExchange) -> None:
    """End as the recorded exchange did after its last byte."""
    end = exchange.end
    if isinstance(end, FailedLine):
        # Failures are distinguished by the names of their classes.
        raise find_error_class(end.error)(end.reason)
    if isinstance(end, DroppedLine) or end is None:
        # The answer was abandoned at this point: if the host aborted the run then, it will do so again.
        await asyncio.sleep(HELD_SECONDS)
        why = "the recorded agent was stopped here" if end else "the recording ends within this answer"
        raise _playback_error("recording_ends", f"The recorded answer goes no further: {why}")


def _playback_error(code: str, text: str) -> StreamBroken:
    return StreamBroken(Failure(message=text, code=code))


def _is_equal_when_masked(recorded: str, sent: str) -> bool:
    """True if the texts are equal except for keys, which a recording has masked."""
    at = 0
    parts = recorded.split(MASK)
    if not sent.startswith(parts[0]) or not sent.endswith(parts[-1]):
        return False
    for part in parts:
        at = sent.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


def _describe_text_difference(path: str, recorded: str, sent: str) -> str:
    """Two texts from their first difference on."""
    same = next((at for at, (one, other) in enumerate(zip(recorded, sent, strict=False)) if one != other), None)
    at = min(len(recorded), len(sent)) if same is None else same
    begin = max(0, at - 20)
    where = f" at character {at}" if begin else ""
    return f"{path}{where}: recorded {_shorten_value(recorded[begin:])}, sent {_shorten_value(sent[begin:])}"


def _shorten_value(value: Json) -> str:
    text = codec.encode(value).decode()
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
