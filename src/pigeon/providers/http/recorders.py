"""The tap of all exchanges with model servers: who sees which parts of each, and who may answer in a server's place.

`HttpClient` shows every exchange to its recorders as it happens: `--trace` and `--verbose` (`frontends/observing`), and
`--record` (`providers/recording/writer`). A recording answers requests in the form of `RawAnswer`, below everything
that reads answers, so that a replayed answer is processed like a real one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from pigeon.providers.apis import KEY_HEADERS

MASK = "***"
SECRET_HEADERS = KEY_HEADERS | {"proxy-authorization", "cookie", "set-cookie"}


class HttpRequest(Struct, frozen=True):
    """A request that is ready to be sent."""

    url: str
    headers: dict[str, str]
    body: bytes
    method: str = "POST"


class ExchangeRecorder(Protocol):
    """Sees every exchange with a server as it happens; each has its own number."""

    def on_request_start(self, request: HttpRequest) -> int:
        """Called before a request leaves; returns the number of the exchange."""
        ...

    def on_response_started(self, number: int, status: int, headers: Mapping[str, str]) -> None:
        """Called when the head of the response has arrived."""
        ...

    def on_body_piece(self, number: int, piece: bytes | None) -> None: ...

    def on_exchange_failed(self, number: int, error: Exception) -> None:
        """Called when there is no response, or when it breaks off."""
        ...

    def on_response_dropped(self, number: int) -> None:
        """Called when the agent stopped reading the response before its end."""
        ...

    def on_client_closed(self) -> None:
        """Called when there will be no further exchange."""
        ...


class RawAnswer(Protocol):
    """A response as the HTTP library delivers it."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]: ...

    def aiter_stream(self) -> AsyncIterator[bytes]:
        """Yields the body in the pieces in which it arrives."""
        ...

    async def aclose(self) -> None:
        """Close the connection, or return it to the pool if the body was read to its end."""
        ...


class AnswerSource(Protocol):
    """Answers requests in place of the network."""

    async def answer(self, request: HttpRequest) -> RawAnswer:
        """The response to a request; raises what a network would."""
        ...

    def close(self) -> None:
        """Called once, when no further request will be made."""
        ...


class ShownExchange:
    """Shows one exchange to all recorders, and its end once."""

    def __init__(self, recorders: Sequence[ExchangeRecorder], request: HttpRequest) -> None:
        self._shown = [(recorder, recorder.on_request_start(request)) for recorder in recorders]
        self._over = False

    def on_response_started(self, status: int, headers: Mapping[str, str]) -> None:
        for recorder, number in self._shown:
            recorder.on_response_started(number, status, headers)

    def on_body_piece(self, piece: bytes | None) -> None:
        """Show a piece of the body, or None for its end."""
        if not self._over:
            self._over = piece is None
            for recorder, number in self._shown:
                recorder.on_body_piece(number, piece)

    def on_exchange_failed(self, error: Exception) -> None:
        if not self._over:
            self._over = True
            for recorder, number in self._shown:
                recorder.on_exchange_failed(number, error)

    def on_response_dropped(self) -> None:
        if not self._over:
            self._over = True
            for recorder, number in self._shown:
                recorder.on_response_dropped(number)


def mask_headers(headers: Mapping[str, str], mask_text: Callable[[str], str]) -> dict[str, str]:
    """Returns the headers with all keys in them masked."""
    return {name: MASK if name.lower() in SECRET_HEADERS else mask_text(value) for name, value in headers.items()}
