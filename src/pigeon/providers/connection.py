"""What an adapter sends through: the client, how patient to be, and the texts that must not be shown.

What one request may use: the key, extra headers, and the user's thinking budgets. Never part of a `Model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from pigeon.wire.base import Absent
from pigeon.wire.model import Model

if TYPE_CHECKING:
    from pigeon.providers.history.cache import Replay
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


class Access(Struct, frozen=True):
    """Credentials of one request; a header of None removes a default one."""

    key: str = ""
    bearer: bool = False
    headers: dict[str, str | None] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    budgets: dict[str, int] = field(default_factory=dict)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that no message may show."""
        return tuple({text for text in (self.key, *self.headers.values()) if text})


class Connection(Struct, frozen=True):
    """An adapter's way out: the line, the credentials, and what was told before."""

    line: Line
    access: Access
    replay: Replay | None = None


def merged(defaults: dict[str, str], extra: dict[str, str | None]) -> dict[str, str]:
    """Headers by lower-case name, the extra ones winning."""
    headers = {name.lower(): value for name, value in defaults.items()}
    for name, value in extra.items():
        if value is None:
            headers.pop(name.lower(), None)
        else:
            headers[name.lower()] = value
    return headers


def compat_of(model: Model) -> dict[str, Any]:
    """The model's compat flags as they were configured."""
    return {} if isinstance(model.compat, Absent) else model.compat


def mapped_level(model: Model, level: str, default: str | None) -> str | None:
    """What the provider calls a thinking level: the model's map, else the default."""
    levels = {} if isinstance(model.thinking_level_map, Absent) else model.thinking_level_map
    return levels.get(level, default)


def endpoint(base_url: str, path: str) -> str:
    """The base URL with a path behind it, one slash between."""
    return f"{base_url.rstrip('/')}/{path}"
