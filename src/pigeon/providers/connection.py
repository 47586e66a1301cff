"""What an adapter sends through: the client, how patient to be, and the texts that must not be shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from pigeon.providers.http.client import Http

IDLE_MS = 300_000


class Policy(Struct, frozen=True):
    """How long to wait and how often to ask again before the stream begins; 0 means no limit, or never."""

    idle_ms: int = IDLE_MS
    max_retries: int = 0
    max_retry_delay_ms: int = 60_000


class Tap(Protocol):
    """Somebody who looks at requests before they are sent, and may change them."""

    async def provider_request(self, payload: Any) -> Any:
        """The body to send."""
        ...

    async def provider_headers(self, headers: dict[str, str]) -> dict[str, str]:
        """The headers to send."""
        ...

    def provider_responded(self, status: int, headers: Mapping[str, str]) -> None:
        """An answer begins."""
        ...


class Line(Struct, frozen=True):
    """The way out of one request."""

    http: Http
    policy: Policy = Policy()
    secrets: tuple[str, ...] = ()
    tap: Tap | None = None
