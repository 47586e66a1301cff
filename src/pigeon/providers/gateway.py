"""The provider that the loop sees: finds the adapter of a request's API, gets its credentials, streams.

One gateway serves one agent. What it keeps between requests (pooled connections, the history cache, the providers of
extensions) belongs to that agent alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from functools import partial
from importlib import import_module
from itertools import count
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from pigeon.agent.inference import (
    CacheRetention,
    Delta,
    Failure,
    Finished,
    Metered,
    ModelMessage,
    ModelRequest,
    OutputFormat,
    Pacing,
    ProviderHooks,
    ToolSpec,
    report_failure,
)
from pigeon.agent.interfaces import ModelProvider
from pigeon.providers.http.client import HttpClient
from pigeon.providers.registry import ModelRegistry, NoKey
from pigeon.providers.request import RequestPolicy, RequestSetup, estimate_context_tokens
from pigeon.wire.base import Json
from pigeon.wire.model import Model

if TYPE_CHECKING:
    from pigeon.providers.history.cache import HistoryCache

ProviderFactory = Callable[[], ModelProvider]


class Gateway:
    """Answers requests for any model of the registry; `extra` has the APIs that need neither HTTP nor credentials."""

    def __init__(
        self,
        registry: ModelRegistry,
        http: HttpClient,
        hooks: ProviderHooks,
        *,
        extra: Mapping[str, ProviderFactory] | None = None,
        policy: RequestPolicy | None = None,
        thinking_budgets: Mapping[str, int] | None = None,
        retention: CacheRetention = "short",
        mask_text: Callable[[str], str] = str,
    ) -> None:
        self._registry = registry
        self._http = http
        self._hooks = hooks
        self._extra = dict(extra or {})
        self._made: dict[str, ModelProvider] = {}
        self._policy = policy or RequestPolicy()
        self._budgets = dict(thinking_budgets or {})
        self._retention: CacheRetention = retention
        self._history: HistoryCache | None = None
        self._not_strict: set[str] = set()
        self._formatless: set[str] = set()
        self._mask_text = mask_text

    def register_api(self, api: str, factory: ProviderFactory) -> None:
        """Replace the provider of an API."""
        self._extra[api] = factory
        self._made.pop(api, None)

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Begin an answer; closing the iterator drops the connection."""
        pacing = self._policy.pacing
        return self._start_stream(request) if pacing is None else self._stream_paced(request, pacing)

    async def _stream_paced(self, request: ModelRequest, pacing: Pacing) -> AsyncIterator[Delta]:
        """Wait for a turn before the request, and again after each refusal that is worth waiting for."""
        provider, expected = request.model.provider, estimate_context_tokens(request)
        for times in count(1):
            await pacing.wait_for_turn(provider, expected)
            deltas, failure, used, is_begun, is_repeated = self._start_stream(request), None, 0, False, False
            try:
                async for delta in deltas:
                    if isinstance(delta, Metered):
                        usage = delta.usage
                        used = usage.input + usage.output + usage.cache_read + usage.cache_write
                    elif isinstance(delta, Finished):
                        failure = delta.failure
                        is_repeated = failure is not None and not is_begun and pacing.should_resend(failure, times)
                    if not is_repeated:
                        is_begun = True
                        yield delta
            finally:
                pacing.on_request_end(provider, expected, used if used or is_repeated else expected, failure)
                if isinstance(deltas, AsyncGenerator):
                    await deltas.aclose()
            if not is_repeated:
                return

    def _start_stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        api = request.model.api
        if api in self._extra:
            if api not in self._made:
                self._made[api] = self._extra[api]()
            return self._made[api].stream(request)
        return self._stream_over_http(request)

    async def warm(self, model: Model | None) -> None:
        """Load what the first request to this model will need."""
        adapter = "" if model is None or model.api in self._extra else _adapter_module_of(model.api)
        if model is not None and adapter:
            await self._http.warm(model.base_url)
            import_module(adapter)

    def convert_ahead(self, model: Model, messages: list[ModelMessage]) -> None:
        """Convert the beginning of a conversation to the form of the model's API before a request needs all of it."""
        adapter = "" if model.api in self._extra else _adapter_module_of(model.api)
        if adapter:
            request = ModelRequest(model=model, system_prompt="", messages=messages, tools=[])
            import_module(adapter).convert_ahead(request, self._ensure_history_cache())

    def find_output_format(self, model: Model, schema: dict[str, Json], beside_tools: bool) -> OutputFormat | None:
        """The schema of an answer in the form of the model's API; None if the API cannot enforce it."""
        from pigeon.providers.output_formats import find_native_format

        return None if model.reference in self._formatless else find_native_format(model, schema, beside_tools)

    def on_format_refused(self, model: Model) -> None:
        """Do not send this model a format again."""
        self._formatless.add(model.reference)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _stream_over_http(self, request: ModelRequest) -> AsyncIterator[Delta]:
        adapter = _adapter_module_of(request.model.api)
        if not adapter:
            yield _finished_with_error(f'Unknown API "{request.model.api}" of {request.model.reference}', "unknown_api")
            return
        try:
            setup = await self._make_setup(request.model)
        except NoKey as error:
            yield _finished_with_error(str(error), "no_api_key")
            return
        if request.cache == "short" and self._retention != "short":
            request = msgspec.structs.replace(request, cache=self._retention)
        try:
            deltas = _stream_from_adapter(import_module(adapter), request, setup)
        except Exception as error:
            why = self._mask_text(report_failure(error).message)
            yield _finished_with_error(
                f"The request to {request.model.reference} cannot be built: {why}", "bad_request"
            )
            return
        try:
            async for delta in deltas:
                yield delta
        finally:
            await deltas.aclose()

    async def _make_setup(self, model: Model) -> RequestSetup:
        access = await self._registry.resolve_access(model)
        return RequestSetup(
            http=self._http,
            hooks=self._hooks,
            access=access,
            policy=self._policy,
            thinking_budgets=self._budgets,
            history=self._ensure_history_cache(),
            mask_text=self._mask_text,
            not_strict=self._not_strict,
            explain=partial(self._explain_failure, model),
        )

    def _explain_failure(self, model: Model, failure: Failure) -> Failure:
        from pigeon.providers.explanations import with_explanation

        origin = self._registry.describe_key_origin(model.provider)
        return with_explanation(failure, model.provider, model.id, origin)

    def _ensure_history_cache(self) -> HistoryCache:
        from pigeon.providers.history.cache import HistoryCache

        if self._history is None:
            self._history = HistoryCache()
        return self._history


def _stream_from_adapter(
    adapter: ModuleType, request: ModelRequest, setup: RequestSetup
) -> AsyncGenerator[Delta, None]:
    """The adapter's answer; tools that providers refuse are sent in a different form."""
    if all(map(_is_plain, request.tools)):
        deltas: AsyncGenerator[Delta, None] = adapter.stream(request, setup)
        return deltas
    from pigeon.providers.tool_specs import restore_own_names, to_sent_tools

    tools, own_names = to_sent_tools(request.tools)
    return restore_own_names(adapter.stream(msgspec.structs.replace(request, tools=tools), setup), own_names)


def _is_plain(tool: ToolSpec) -> bool:
    """True for a tool that every API accepts; the common case, decided from the top level alone."""
    name, schema = tool.name.replace("-", "_"), tool.parameters
    keys = {"type", "properties", "required", "additionalProperties", "description", "title", "$schema", "$defs"}
    is_object = schema.get("type") == "object" and isinstance(schema.get("properties"), dict) and schema.keys() <= keys
    return is_object and len(name) <= 64 and name.isascii() and name.isidentifier()


def _finished_with_error(text: str, code: str) -> Finished:
    return Finished(stop="error", failure=Failure(message=text, code=code))


def _adapter_module_of(api: str) -> str:
    """The module of an API's adapter; empty if there is none."""
    from pigeon.providers.apis import find_api

    return find_api(api).adapter
