"""The provider that the loop sees: finds the adapter of a request's API, gets its credentials, streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

import msgspec

from pigeon.agent.inference import CacheRetention, Delta, Failure, Finished, ModelRequest
from pigeon.providers.connection import Access, Connection, Line, Policy, Tap
from pigeon.providers.http.client import Http
from pigeon.providers.registry import NoKey
from pigeon.wire.model import Model

if TYPE_CHECKING:
    from pigeon.providers.history.cache import Replay

ADAPTERS = {
    "anthropic-messages": "pigeon.providers.anthropic.adapter",
    "openai-completions": "pigeon.providers.openai_chat.adapter",
    "openai-responses": "pigeon.providers.openai_responses.adapter",
    "azure-openai-responses": "pigeon.providers.openai_responses.adapter",
    "google-generative-ai": "pigeon.providers.google.adapter",
}


class Streamer(Protocol):
    """Anything that answers requests by itself, without credentials."""

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Begin an answer."""
        ...


class Keys(Protocol):
    """Where credentials come from."""

    async def access(self, model: Model) -> Access:
        """Key and headers; raises `NoKey`."""
        ...


Factory = Callable[[], Streamer]


class Gateway:
    """Answers requests for any model of the registry."""

    def __init__(
        self,
        registry: Keys,
        http: Http,
        *,
        extra: Mapping[str, Factory] | None = None,
        policy: Policy | None = None,
        thinking_budgets: Mapping[str, int] | None = None,
        retention: CacheRetention = "short",
    ) -> None:
        self._registry = registry
        self._http = http
        self._extra = dict(extra or {})
        self._made: dict[str, Streamer] = {}
        self._policy = policy or Policy()
        self._budgets = dict(thinking_budgets or {})
        self._retention: CacheRetention = retention
        self._replay: Replay | None = None
        self.tap: Tap | None = None

    def add(self, api: str, factory: Factory) -> None:
        """Answer requests for an API in another way from here on."""
        self._extra[api] = factory
        self._made.pop(api, None)

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Begin an answer; closing the iterator drops the connection."""
        api = request.model.api
        if api in self._extra:
            if api not in self._made:
                self._made[api] = self._extra[api]()
            return self._made[api].stream(request)
        return self._over_http(request)

    async def warm(self, model: Model | None) -> None:
        """Load what the first request to this model will need."""
        if model is None or model.api in self._extra or model.api not in ADAPTERS:
            return
        await self._http.warm(model.base_url)
        import_module(ADAPTERS[model.api])

    async def aclose(self) -> None:
        """Close all connections; at the end of the process."""
        await self._http.aclose()

    async def _over_http(self, request: ModelRequest) -> AsyncIterator[Delta]:
        module = ADAPTERS.get(request.model.api)
        if module is None:
            yield _failed(f'Unknown API "{request.model.api}" of {request.model.reference}', "unknown_api")
            return
        try:
            access = await self._registry.access(request.model)
        except NoKey as error:
            yield _failed(str(error), "no_api_key")
            return
        access = msgspec.structs.replace(access, budgets=self._budgets)
        line = Line(http=self._http, policy=self._policy, secrets=access.secrets, tap=self.tap)
        if request.cache == "short" and self._retention != "short":
            request = msgspec.structs.replace(request, cache=self._retention)
        connection = Connection(line=line, access=access, replay=self._told_before())
        try:
            deltas = import_module(module).stream(request, connection)
        except Exception as error:
            yield _failed(f"The request to {request.model.reference} cannot be built: {error}", "bad_request")
            return
        try:
            async for delta in deltas:
                yield delta
        finally:
            await deltas.aclose()

    def _told_before(self) -> Replay:
        if self._replay is None:
            from pigeon.providers.history.cache import Replay

            self._replay = Replay()
        return self._replay


def _failed(text: str, code: str) -> Finished:
    return Finished(stop="error", failure=Failure(message=text, code=code))
