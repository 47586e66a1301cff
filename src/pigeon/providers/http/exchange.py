"""One request from first byte to last: send, retry before the stream begins, read events, watch for silence, translate.

Whatever happens, the deltas end in exactly one `Finished`; a failure is data in it. Closing the iterator, or cancelling
the task that reads it, drops the connection at once. Every adapter sends its requests through `stream_exchange`; the
pauses between whole turns are decided elsewhere, in `session/retry`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from math import isfinite
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from pigeon.agent.inference import Delta, Failure, Metered, Named, ProviderHooks
from pigeon.providers.errors import ErrorStyle, StreamBroken, from_exception, from_response, no_events_failure
from pigeon.providers.http.client import HttpResponse
from pigeon.providers.http.recorders import HttpRequest
from pigeon.providers.request import RequestSetup
from pigeon.providers.stream_translator import StreamTranslator
from pigeon.wire import codec

HEAD_BYTES = 400
MAX_EVENT_BYTES = 16 * 1024 * 1024
EMPTY_BYTES_AT_ONCE = 4096
SILENT_TICKS = 50  # ticks in the time that a stream may be silent; after content, it ends up to one tick late
SseEvent = tuple[bytes, bytes]  # its name, which may be empty, and its data
_BOM = b"\xef\xbb\xbf"
_T = TypeVar("_T")


async def stream_exchange(
    setup: RequestSetup, request: HttpRequest, translator: StreamTranslator, style: ErrorStyle
) -> AsyncGenerator[Delta, None]:
    """Send one request and yield the deltas of its answer."""
    watchdog = Watchdog(setup.policy.idle_ms / 1000)
    response: HttpResponse | None = None
    try:
        try:
            response = await _open_response(setup, request, watchdog, style)
            reader = _DeltaReader(response, translator, setup.policy.most_empty_bytes)
            while (batch := await watchdog.wait(reader.read_batch())) is not None:
                if reader.gave_content:
                    watchdog.reset()
                for delta in batch:
                    yield delta
            rest: list[Delta] = []
            finished = translator.finish(rest)
            for delta in rest:
                yield delta
            response.release()
            response = None
            yield finished
        finally:
            watchdog.stop()
            if response is not None:
                await response.drop()
    except StreamBroken as broken:
        yield translator.make_finished_delta("error", _mask_and_explain(broken.failure, setup))
    except Stalled:
        yield translator.make_finished_delta("error", _silence_failure(setup.policy.idle_ms))
    except EventTooLong as error:
        yield translator.make_finished_delta(
            "error", Failure(message=f"The stream cannot be read: {error}", code="malformed_stream")
        )
    except Exception as error:
        yield translator.make_finished_delta("error", _mask_and_explain(from_exception(error), setup))


class _DeltaReader:
    """The body as batches of deltas, one batch for each piece that the network delivered.

    `gave_content` tells whether the last batch contained part of the answer, not just pings, token counts or names.
    """

    def __init__(self, response: HttpResponse, translator: StreamTranslator, most_empty: int) -> None:
        self._most_empty = most_empty
        self._response = response
        self._translator = translator
        self._parser = SseParser()
        self._head = b""
        self._events = 0
        self._empty = 0
        self.gave_content = False
        self._failed: StreamBroken | None = None

    async def read_batch(self) -> list[Delta] | None:
        """The deltas of the next pieces, or None when the stream is over."""
        if self._response.content_type == "application/json" and not self._translator.done:
            return await self._read_whole_answer()
        while self._failed is None and not self._translator.done:
            chunk = await self._response.read_chunk()
            if chunk is None:
                return self._finish_batch()
            if not self._events and len(self._head) < HEAD_BYTES:
                self._head += chunk[:HEAD_BYTES]
            batch = self._translate_events(self._parser.feed(chunk))
            self.gave_content = any(map(_is_content, batch))
            if self.gave_content:
                self._empty = 0
            else:
                await self._count_empty_bytes(len(chunk))
            if batch:
                return batch
        if self._failed is not None:
            raise self._failed
        return None

    async def _count_empty_bytes(self, size: int) -> None:
        """Count bytes without content: if pings come without end, faster than they can be read, everything else gets
        its turn."""
        self._empty += size
        if self._empty > self._most_empty:
            text = f"The provider sent {self._empty} bytes without any content; the request was given up"
            raise StreamBroken(Failure(message=text, code="no_content"))
        if self._empty > EMPTY_BYTES_AT_ONCE:
            await asyncio.sleep(0)

    async def _read_whole_answer(self) -> list[Delta]:
        """Reads an answer that is one JSON object: some servers do not stream although they were asked to."""
        data = await self._response.read_body(MAX_EVENT_BYTES)
        out: list[Delta] = []
        try:
            self._translator.translate_whole_answer(data, out)
        except StreamBroken as broken:
            if broken.failure.code == "malformed_stream":
                raise StreamBroken(no_events_failure(data[:HEAD_BYTES], "JSON")) from None
            raise
        return out

    def _finish_batch(self) -> list[Delta] | None:
        batch = self._translate_events(self._parser.finish())
        if batch:
            return batch
        if self._failed is not None:
            raise self._failed
        if not self._events:
            raise StreamBroken(no_events_failure(self._head, self._response.content_type))
        return None

    def _translate_events(self, events: list[SseEvent]) -> list[Delta]:
        """The deltas of these events; those before a broken event still count, and its error is raised later."""
        out: list[Delta] = []
        take = self._translator.translate_event
        self._events += len(events)
        try:
            for name, data in events:
                if data:
                    take(name, data, out)
        except StreamBroken as broken:
            self._failed = broken
        return out


def _is_content(delta: Delta) -> bool:
    return not isinstance(delta, Metered | Named)


async def _apply_hooks(hooks: ProviderHooks, request: HttpRequest) -> HttpRequest:
    """The request after the changes of extensions."""
    body = await hooks.transform_provider_request(request.body)
    headers = await hooks.transform_provider_headers(dict(request.headers))
    return msgspec.structs.replace(request, headers=headers, body=body)


async def _open_response(
    setup: RequestSetup, request: HttpRequest, watchdog: Watchdog, style: ErrorStyle
) -> HttpResponse:
    """The answer whose body may be read; a transient refusal is retried as often as the policy allows."""
    attempt = 0
    request = await _apply_hooks(setup.hooks, request)
    while True:
        failure: Failure
        try:
            response = await watchdog.wait(setup.http.send(request))
        except (Stalled, StreamBroken):
            raise
        except Exception as error:
            failure = from_exception(error)
        else:
            setup.hooks.on_provider_response(response.status, response.headers)
            if response.is_success and response.content_type != "text/html":
                return response
            try:
                failure = await _read_refusal(response, watchdog, style, setup, request.url)
            finally:
                await response.drop()
        if attempt >= setup.policy.max_retries or not failure.retryable:
            raise StreamBroken(failure)
        pause = _retry_pause_ms(failure, attempt, setup.policy.max_retry_delay_ms)
        await setup.policy.sleep(pause)
        attempt += 1


async def _read_refusal(
    response: HttpResponse, watchdog: Watchdog, style: ErrorStyle, setup: RequestSetup, url: str
) -> Failure:
    # Masked before it is cut to size, which could leave half a key.
    text = (await watchdog.wait(response.read_body())).decode("utf-8", "replace")
    body = setup.mask_text(text).encode("utf-8", "replace")
    if response.is_success:
        return no_events_failure(body, response.content_type)
    return from_response(response.status, response.headers, body, style, urlsplit(url).hostname or "")


def _retry_pause_ms(failure: Failure, attempt: int, cap_ms: int) -> int:
    import random

    asked = failure.retry_after_ms
    if asked is None:
        return int(min(500 * 2**attempt, 8000) * (1 - random.random() / 4))
    if cap_ms and asked > cap_ms:
        text = f"{failure.message} (the server asks to wait {asked} ms, more than the {cap_ms} ms allowed)"
        raise StreamBroken(msgspec.structs.replace(failure, message=text))
    return asked


def _silence_failure(idle_ms: int) -> Failure:
    text = f"The provider sent nothing for {idle_ms / 1000:g} s; the request was given up (httpIdleTimeoutMs)"
    return Failure(message=text, code="idle_timeout", retryable=True)


def _mask_and_explain(failure: Failure, setup: RequestSetup) -> Failure:
    """The failure with its explanation, and without keys: servers repeat the request in their error texts, and
    libraries in their exceptions."""
    return setup.explain(msgspec.structs.replace(failure, message=setup.mask_text(failure.message)))


class EventTooLong(ValueError):
    """One event exceeded the limit without an end."""


class SseParser:
    """Cuts server-sent events out of the bytes as they arrive.

    Lines may end in LF, CR or CRLF, an event may be split anywhere, comments and unknown fields are skipped. The work
    is linear in the bytes fed, whatever the size of the pieces. Written here because the libraries decode to text first
    and cost several times more per event.
    """

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._buffer = bytearray()
        self._limit = limit
        self._after_cr = False
        self._begun = False

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that this piece completes."""
        if not self._begun:
            chunk = self._strip_bom(chunk)
        if self._after_cr or b"\r" in chunk:
            chunk = self._normalize_line_ends(chunk)
        buffer = self._buffer
        scanned = len(buffer) - 1
        buffer += chunk
        end = buffer.rfind(b"\n\n", max(scanned, 0))
        if end < 0:
            if len(buffer) > self._limit:
                raise EventTooLong(f"an event is longer than {self._limit} bytes")
            return []
        complete = bytes(buffer[:end])
        del buffer[: end + 2]
        events: list[SseEvent] = []
        for block in complete.split(b"\n\n"):
            if block:
                _parse_block(block, events)
        return events

    def finish(self) -> list[SseEvent]:
        """The stream is over: an event without its closing blank line still counts."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        events: list[SseEvent] = []
        _parse_block(rest, events)
        return events

    def _strip_bom(self, chunk: bytes) -> bytes:
        held = bytes(self._buffer) + chunk
        self._buffer.clear()
        if len(held) < len(_BOM) and _BOM.startswith(held):
            self._buffer += held
            return b""
        self._begun = True
        return held.removeprefix(_BOM)

    def _normalize_line_ends(self, chunk: bytes) -> bytes:
        if not chunk:
            return chunk
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
            if not chunk:
                return chunk
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _parse_block(block: bytes, events: list[SseEvent]) -> None:
    name = b""
    data: bytes | None = None
    more: list[bytes] = []
    for line in block.split(b"\n"):
        if line.startswith(b"data:"):
            value = line[6:] if line.startswith(b"data: ") else line[5:]
        elif line == b"data":
            value = b""
        else:
            if line.startswith(b"event:"):
                name = line[6:].removeprefix(b" ")
            continue
        if data is None:
            data = value
        else:
            more.append(value)
    if data is not None:
        events.append((name, b"\n".join((data, *more)) if more else data))


class Stalled(Exception):
    """Nothing came within the allowed time."""


class Watchdog:
    """Ends a wait that brings no content for too long; a limit of 0 means never.

    Pings and comments are not content. Silence is counted in ticks of one timer for the whole stream, and only while a
    wait is under way: a slow consumer costs nothing. So a chunk costs two assignments.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit = limit_s
        self._loop = asyncio.get_running_loop()
        self._silent_ticks = 0
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._expired = False

    def reset(self) -> None:
        self._silent_ticks = -1

    async def wait(self, awaitable: Awaitable[_T]) -> _T:
        """Await the next piece; raises `Stalled` when the time without content is used up."""
        if self._limit <= 0:
            return await awaitable
        self._task = asyncio.current_task()
        if self._timer is None:
            self._start_tick()
        try:
            return await awaitable
        except asyncio.CancelledError:
            task = self._task
            if self._expired and task is not None and task.uncancel() == 0:
                raise Stalled from None
            raise
        finally:
            self._task = None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_tick(self) -> None:
        self._timer = self._loop.call_later(self._limit / SILENT_TICKS, self._on_tick)

    def _on_tick(self) -> None:
        self._timer = None
        if self._task is None:
            return
        self._silent_ticks += 1
        if self._silent_ticks >= SILENT_TICKS:
            self._expired = True
            self._task.cancel()
        else:
            self._start_tick()


def encode_body(body: dict[str, Any]) -> bytes:
    """The JSON to send; unpaired surrogates, which no provider accepts, become U+FFFD."""
    try:
        return msgspec.json.encode(body)
    except (UnicodeEncodeError, OverflowError):
        import json

        text = json.dumps(_replace_surrogates(body), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode("utf-8")


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        # A pair that was split into two escapes is joined on its way through UTF-16.
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, float):
        # As msgspec writes NaN and Infinity.
        return value if isfinite(value) else None
    if isinstance(value, msgspec.Raw):
        return codec.decode(bytes(value))
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    return value
