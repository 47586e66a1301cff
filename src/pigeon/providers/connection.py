"""What an adapter gets besides the request: the client, timeouts, hooks, credentials, the history cache.

`Gateway` makes one `Connection` per request; the adapters build the request with it, and `http/exchange` sends that.
Below it stand the few facts of a model that every adapter looks up in the same way. Credentials live here and in the
registry, and are never part of a `Model`, which hosts see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from pigeon.agent.inference import ProviderHooks
from pigeon.wire.base import or_else
from pigeon.wire.model import Model

if TYPE_CHECKING:
    from pigeon.providers.history.cache import HistoryCache
    from pigeon.providers.http.client import HttpClient

IDLE_MS = 300_000


class RequestPolicy(Struct, frozen=True):
    """How long to wait and how often to ask again before the stream begins; 0 means no limit, or never."""

    idle_ms: int = IDLE_MS
    max_retries: int = 0
    max_retry_delay_ms: int = 60_000


class Access(Struct, frozen=True):
    """Credentials of one request; a header of None removes a default one, `env` has the variables of this provider."""

    key: str = ""
    bearer: bool = False
    headers: dict[str, str | None] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that no message may show."""
        return tuple({text for text in (self.key, *self.headers.values()) if text})


class Connection(Struct, frozen=True):
    """Everything one request goes out with; without a cache the whole history is converted anew."""

    http: HttpClient
    hooks: ProviderHooks
    access: Access
    policy: RequestPolicy = RequestPolicy()
    thinking_budgets: Mapping[str, int] = field(default_factory=dict)
    history: HistoryCache | None = None


def request_headers(own: Mapping[str, str], configured: Mapping[str, str | None]) -> dict[str, str]:
    """The headers of a request for an event stream, by lower-case name.

    The adapter's own ones come on top of what every request says, the configured ones on top of those; a configured one
    of None takes another away.
    """
    headers = {"content-type": "application/json", "accept": "text/event-stream", **own}
    for name, value in configured.items():
        if value is None:
            headers.pop(name.lower(), None)
        else:
            headers[name.lower()] = value
    return headers


def compat_of(model: Model) -> dict[str, Any]:
    """The model's compat flags as they were configured."""
    return or_else(model.compat, {})


def mapped_level(model: Model, level: str, default: str | None) -> str | None:
    """What the provider calls a thinking level: the model's map, else the default."""
    return or_else(model.thinking_level_map, {}).get(level, default)


def endpoint(base_url: str, path: str) -> str:
    """The base URL with a path behind it, one slash between."""
    return f"{base_url.rstrip('/')}/{path}"
