"""What the adapters of all APIs share while an answer arrives: the state of a translation, token counts, decoding.

Decoding runs at full speed while the server keeps to its API, and field by field when it does not. Only broken JSON, or
an unreadable value in a field that carries the model's output, breaks the stream. Any other field with null or a value
of a wrong kind counts as absent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from pigeon.agent.inference import BlockKind, BlockOpened, Delta, Failure, Finished, Metered, Named
from pigeon.providers.errors import StreamBroken, malformed_stream_error
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.errors import BadRecord
from pigeon.wire.messages import StopReason
from pigeon.wire.model import Cost, Usage

_T = TypeVar("_T")
MOST_HELD = 4_000_000
LONGEST_STOP = 200
_UNREADABLE = object()


class StreamTranslator(ABC):
    """Turns the events of one answer into deltas; an API subclasses it, `http/exchange` drives it.

    `done` means that the stream needs no further event. `raw_stop` is the stop reason as the provider sent it. A
    translation counts what it keeps for later (signatures, calls without a name) with `count_held_characters`, since no
    delta shows it.
    """

    def __init__(self, most_held: int = MOST_HELD) -> None:
        self._most_held = most_held
        self._held = 0
        self.done = False
        self.raw_stop: str | Absent = ABSENT
        self._name = Named()
        self._blocks = 0

    @abstractmethod
    def translate_event(self, name: bytes, data: bytes, out: list[Delta]) -> None:
        """Append the deltas of one event; raises `StreamBroken` if the answer cannot continue."""

    @abstractmethod
    def finish(self, out: list[Delta]) -> Finished:
        """Close open blocks at the end of the stream; raises `StreamBroken` if it ended too early."""

    def translate_whole_answer(self, data: bytes, out: list[Delta]) -> None:
        """Append the deltas of an answer that came as one JSON object: a single event, unless an API overrides it."""
        self.translate_event(b"", data, out)
        self.done = True

    def report_id_and_model(self, out: list[Delta], response_id: str | None, model: str | None, asked: str) -> None:
        """Report the answer's id, and its model if that is not the requested one, once each becomes known."""
        known = self._name
        name = Named(response_id or known.response_id, model if model and model != asked else known.response_model)
        if name != known:
            self._name = name
            out.append(name)

    def open_block(self, out: list[Delta], kind: BlockKind, call_id: str = "", name: str = "") -> int:
        """Begin a block and return its index."""
        index = self._blocks
        self._blocks = index + 1
        out.append(BlockOpened(index, kind, call_id, name))
        return index

    def count_held_characters(self, size: int) -> None:
        """Count characters that are kept for later; raises `StreamBroken` when they are too many."""
        self._held += size
        if self._held > self._most_held:
            text = f"The answer was broken off: it has more than {self._most_held} characters of data beside its text"
            raise StreamBroken(Failure(message=text, code="answer_too_long"))

    def make_finished_delta(self, stop: StopReason, failure: Failure | None = None) -> Finished:
        """The last delta, with the stop reason as the provider sent it."""
        raw = self.raw_stop[:LONGEST_STOP] if isinstance(self.raw_stop, str) else self.raw_stop
        return Finished(stop, failure, raw)


def make_metered_delta(
    *, sent: int, output: int, cache_read: int = 0, cache_write: int = 0, rate: float = 1, **more: int | Absent
) -> Metered:
    """Token counts as a delta; negative counts are a provider's mistake and become zero."""
    fresh, cached, written, said = (max(0, count) for count in (sent, cache_read, cache_write, output))
    return Metered(
        Usage(
            input=fresh,
            output=said,
            cache_read=cached,
            cache_write=written,
            total_tokens=fresh + cached + written + said,
            cost=Cost(),
            cache_write_1h=more.get("cache_write_1h", ABSENT),
            reasoning=more.get("reasoning", ABSENT),
        ),
        rate,
    )


def decode_event(decoder: msgspec.json.Decoder[_T], kind: Any, data: bytes, what: str | bytes) -> _T:
    """One event as a record; a record lists in `needed` the fields whose errors are never ignored.

    `what` is the subject of an error: a text, or the name of the event as it came.
    """
    # Short events cannot be nested deeply.
    problem = codec.shape_error(data) if len(data) > codec.MOST_LEVELS else None
    if problem is not None:
        raise malformed_stream_error(_event_label(what), f"the JSON {problem}")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        reason = str(error)
    try:
        value: _T = _to_record(kind, codec.decode(data))
    except msgspec.ValidationError as error:
        raise malformed_stream_error(_event_label(what), f"{error} in {_decode_beginning(data)}") from None
    except (BadRecord, UnicodeError, RecursionError):
        raise malformed_stream_error(_event_label(what), f"{reason} in {_decode_beginning(data)}") from None
    return value


def _decode_beginning(data: bytes) -> str:
    return data[:120].decode("utf-8", "replace")


def _event_label(what: str | bytes) -> str:
    return what if isinstance(what, str) else f"The event {what[:80].decode('utf-8', 'replace') or '(unnamed)'}"


def _to_record(kind: Any, value: Any) -> Any:
    """Converts field by field, so that one of them cannot spoil the others."""
    if not isinstance(value, dict):
        raise msgspec.ValidationError("Expected an object")
    given: dict[str, Any] = {}
    for name, key, type_, needed in _fields(kind):
        if key not in value:
            continue
        found = _salvage_value(type_, value[key])
        if found is not _UNREADABLE:
            given[name] = found
        elif needed and value[key]:
            raise msgspec.ValidationError(f"`{key}` has a value of a wrong kind")
    return kind(**given)


@cache
def _fields(kind: Any) -> list[tuple[str, str, Any, bool]]:
    needed = getattr(kind, "needed", ())
    return [(one.name, one.encode_name, one.type, one.name in needed) for one in msgspec.structs.fields(kind)]


def _salvage_value(kind: Any, value: Any) -> Any:
    """As much of a value as can be read."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        pass
    for option in get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,):
        if isinstance(value, dict) and isinstance(option, type) and issubclass(option, Struct):
            return _to_record(option, value)
        if isinstance(value, list) and get_origin(option) is list:
            items = (_salvage_value(get_args(option)[0], one) for one in value)
            return [item for item in items if item is not _UNREADABLE]
    return _UNREADABLE
