from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from fakes.http_server import Hold, HttpServer, Reply, plain, sse
from pigeon.agent.inference import Delta, Finished, ModelRequest
from pigeon.agent.interfaces import ModelProvider
from pigeon.config.credentials import Values
from pigeon.providers.api import Api
from pigeon.providers.apis import APIS
from pigeon.providers.catalog.built_in import BuiltInCatalog
from pigeon.providers.explanations import KeyOrigin
from pigeon.providers.gateway import Gateway
from pigeon.providers.http.client import HttpClient
from pigeon.providers.registry import ModelRegistry, NoKey
from pigeon.providers.request import Access, NoProviderHooks, RequestPolicy
from pigeon.system.process.start import ProcessOwner
from pigeon.wire.model import Model
from support.model_requests import a_model, a_request, assistant_message, collect_answer, text_block, user_message

CHUNKS = sse({"id": "c", "choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}, "[DONE]")
SERVED = [api.name for api in APIS.values() if api.adapter]


class Keys:
    async def resolve_access(self, model: Model) -> Access:
        if model.provider == "nobody":
            raise NoKey("No API key for nobody/m-1")
        return Access(key="k")

    def describe_key_origin(self, provider: str) -> KeyOrigin:
        return KeyOrigin()


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    http = HttpClient({})
    yield Gateway(Keys(), http, NoProviderHooks())
    await http.aclose()


async def test_the_adapter_is_chosen_by_the_models_api(gateway: Gateway) -> None:
    async with HttpServer([Reply(CHUNKS), *(plain(400, {}) for _ in SERVED)]) as server:
        for api in ("openai-completions", *SERVED):
            answer = await collect_answer(gateway.stream(a_request(a_model(api=api, base_url=server.url))))
            assert (answer.end.stop == "stop") == (len(server.requests) == 1)
        assert [request.path.split("?")[0] for request in server.requests][1:] == [
            "/v1/messages",
            "/chat/completions",
            "/responses",
            "/responses",
            "/models/m-1:streamGenerateContent",
        ]


async def test_an_unknown_api_and_a_missing_key_are_failures_not_exceptions(gateway: Gateway) -> None:
    unknown = await collect_answer(gateway.stream(a_request(a_model(api="telepathy"))))
    assert unknown.failure.code == "unknown_api"
    assert "telepathy" in unknown.failure.message
    missing = await collect_answer(gateway.stream(a_request(a_model(provider="nobody"))))
    assert (missing.failure.code, missing.failure.message) == ("no_api_key", "No API key for nobody/m-1")


async def test_a_request_that_cannot_be_built_is_a_failure(gateway: Gateway) -> None:
    model = a_model(api="openai-completions", compat={"supportsStore": ["what"]})
    broken = await collect_answer(gateway.stream(a_request(model)))
    assert broken.failure.code == "bad_request"
    assert "supportsStore" in broken.failure.message


async def test_other_adapters_are_made_once_and_asked_directly() -> None:
    made = []

    class Echo:
        def __init__(self) -> None:
            made.append(self)

        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
            yield Finished(stop="stop")

    gateway = Gateway(Keys(), HttpClient({}), NoProviderHooks(), extra={"echo": Echo})
    for _ in range(2):
        assert (await collect_answer(gateway.stream(a_request(a_model(api="echo"))))).end.stop == "stop"
    assert len(made) == 1


async def test_hooks_see_each_request_and_may_change_it() -> None:
    class Changing(NoProviderHooks):
        seen: ClassVar[list[object]] = []

        async def transform_provider_request(self, body: bytes) -> bytes:
            return body.replace(b'"m-1"', b'"m-2"')

        async def transform_provider_headers(self, headers: dict[str, str]) -> dict[str, str]:
            return {**headers, "x-team": "birds"}

        def on_provider_response(self, status: int, headers: Mapping[str, str]) -> None:
            self.seen.append((status, headers["content-type"]))

    http = HttpClient({})
    hooks = Changing()
    gateway = Gateway(Keys(), http, hooks, policy=RequestPolicy(max_retries=1))
    async with HttpServer([plain(503, {}, retry_after="0"), Reply(CHUNKS)]) as server:
        model = a_model(api="openai-completions", base_url=server.url)
        assert (await collect_answer(gateway.stream(a_request(model)))).texts == ["hi"]
        assert [request.body["model"] for request in server.requests] == ["m-2", "m-2"]
        assert [request.headers["x-team"] for request in server.requests] == ["birds", "birds"]
    assert hooks.seen == [(503, "application/json"), (200, "text/event-stream")]
    await http.aclose()


async def test_cancelling_reaches_the_connection(gateway: Gateway) -> None:
    hold = Hold()
    async with HttpServer([Reply([CHUNKS[0], hold])]) as server:
        request = a_request(a_model(api="openai-completions", base_url=server.url))
        task = asyncio.ensure_future(collect_answer(gateway.stream(request)))
        await hold.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(30):
            await server.requests[0].gone.wait()


def a_gateway(url: str, variables: dict[str, str]) -> tuple[Gateway, Model]:
    registry = ModelRegistry(
        catalog=BuiltInCatalog(),
        entries={"anthropic": {"baseUrl": url}},
        stored=dict,
        environ=variables,
        values=Values(variables, ProcessOwner()),
    )
    model = registry.list_available()[0]
    return Gateway(registry, HttpClient(variables), NoProviderHooks()), model


async def test_two_agents_of_one_process_share_neither_keys_nor_proxies_nor_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of-the-process")
    refusals = [plain(400, {}) for _ in range(4)]
    async with HttpServer(refusals[:2]) as server, HttpServer(refusals[2:]) as proxy:
        agents = [
            a_gateway(server.url, {"ANTHROPIC_API_KEY": "one", "NO_PROXY": "127.0.0.1"}),
            a_gateway("http://models.invalid", {"ANTHROPIC_API_KEY": "two", "HTTP_PROXY": proxy.url}),
        ]
        history = [user_message("hi"), assistant_message(text_block("hello")), user_message("more")]
        for number in range(2):
            for agent, (gateway, model) in enumerate(agents):
                # The same objects for both, as if one conversation had been given to two agents.
                messages = [*history, assistant_message(text_block(f"{number}")), user_message(f"agent {agent}")]
                assert (await collect_answer(gateway.stream(a_request(model, *messages)))).failure.status == 400
        for gateway, _ in agents:
            await gateway.aclose()
    assert [request.headers["x-api-key"] for request in server.requests] == ["one", "one"]
    assert [request.headers["x-api-key"] for request in proxy.requests] == ["two", "two"]
    assert [request.path for request in proxy.requests] == ["http://models.invalid/v1/messages"] * 2
    for agent, requests in enumerate((server.requests, proxy.requests)):
        assert [request.body["messages"][-1]["content"][0]["text"] for request in requests] == [f"agent {agent}"] * 2


async def test_warming_loads_what_the_first_request_to_a_server_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Noting(HttpClient):
        warmed: ClassVar[list[str]] = []

        async def warm(self, base_url: str = "") -> None:
            self.warmed.append(base_url)

    def never() -> ModelProvider:
        raise AssertionError("made before it is asked")

    adapter = f"adapter_{uuid.uuid4().hex}"
    (tmp_path / f"{adapter}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(APIS, "pigeon-post", Api(name="pigeon-post", adapter=adapter))
    gateway = Gateway(Keys(), Noting({}), NoProviderHooks(), extra={"google-generative-ai": never})
    for model in (None, a_model(api="google-generative-ai"), a_model(api="telepathy")):
        await gateway.warm(model)
        assert Noting.warmed == []
    await gateway.warm(a_model(api="pigeon-post", base_url="http://loft"))
    assert Noting.warmed == ["http://loft"]
    assert adapter in sys.modules


def test_nothing_heavy_is_loaded_before_the_first_request() -> None:
    code = (
        "import sys\n"
        "import pigeon.providers.gateway, pigeon.providers.registry, pigeon.providers.catalog.built_in\n"
        "import pigeon.config.models_file, pigeon.config.credentials\n"
        "heavy = {'email', 'yaml', 'http.client', 'pigeon.providers.anthropic.adapter'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
