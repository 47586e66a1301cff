"""The tap of all exchanges with model servers: what is shown of each, to whom, and what may answer in a server's place.

`HttpClient` shows every exchange to its recorders as it happens: `--trace` and `--verbose` (`frontends/observing`), and
`--record` (`providers/recording/writer`). A recording answers requests in the form of `RawAnswer`, below everything
that reads answers, so that a replayed answer goes the way of a real one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

MASK = "***"
KEY_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "set-cookie"}
)


class HttpRequest(Struct, frozen=True):
    """A request that is ready to be sent."""

    url: str
    headers: dict[str, str]
    body: bytes
    method: str = "POST"


class ExchangeRecorder(Protocol):
    """What is shown every exchange with a server, as it happens; each has a number of its own."""

    def sent(self, request: HttpRequest) -> int:
        """A request is about to leave; returns the number of the exchange."""
        ...

    def answered(self, number: int, status: int, headers: Mapping[str, str]) -> None:
        """The head of the answer has come."""
        ...

    def received(self, number: int, piece: bytes | None) -> None:
        """A piece of the body has come; none at its end."""
        ...

    def failed(self, number: int, error: Exception) -> None:
        """There is no answer, or it breaks off here."""
        ...

    def dropped(self, number: int) -> None:
        """We let go of the answer before its end."""
        ...

    def closed(self) -> None:
        """There will be no further exchange."""
        ...


class RawAnswer(Protocol):
    """An answer as the HTTP library has it."""

    @property
    def status(self) -> int:
        """The status code."""
        ...

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """The header lines."""
        ...

    def aiter_stream(self) -> AsyncIterator[bytes]:
        """The body in pieces."""
        ...

    async def aclose(self) -> None:
        """Close the connection, or give it back if the body was read to its end."""
        ...


class AnswerSource(Protocol):
    """What answers in place of the network."""

    async def answer(self, request: HttpRequest) -> RawAnswer:
        """The answer to a request; raises what a network would."""
        ...

    def close(self) -> None:
        """Nothing more is asked."""
        ...


class ShownExchange:
    """Shows one exchange to all recorders, and its end once."""

    def __init__(self, recorders: Sequence[ExchangeRecorder], request: HttpRequest) -> None:
        self._shown = [(recorder, recorder.sent(request)) for recorder in recorders]
        self._over = False

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of the answer has come."""
        for recorder, number in self._shown:
            recorder.answered(number, status, headers)

    def received(self, piece: bytes | None) -> None:
        """A piece of the body has come, or its end."""
        if not self._over:
            self._over = piece is None
            for recorder, number in self._shown:
                recorder.received(number, piece)

    def failed(self, error: Exception) -> None:
        """There is no answer, or it breaks off."""
        if not self._over:
            self._over = True
            for recorder, number in self._shown:
                recorder.failed(number, error)

    def dropped(self) -> None:
        """We let go of it."""
        if not self._over:
            self._over = True
            for recorder, number in self._shown:
                recorder.dropped(number)


def shown_headers(headers: Mapping[str, str], mask_text: Callable[[str], str]) -> dict[str, str]:
    """Headers without keys."""
    return {name: MASK if name.lower() in KEY_HEADERS else mask_text(value) for name, value in headers.items()}
