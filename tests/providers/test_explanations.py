"""Each way in which a model server fails, in the words of each API, as a person is told about it."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.http_server import APIS, Cut, HttpServer, Reply, plain, sse
from fakes.network_peers import BareServer
from pigeon.agent.inference import Failure
from pigeon.config.credentials import Values
from pigeon.providers.catalog.built_in import BuiltInCatalog
from pigeon.providers.errors import classify_failure
from pigeon.providers.explanations import KeyOrigin, explain_answer, explain_failure, explain_text
from pigeon.providers.gateway import Gateway
from pigeon.providers.http.client import HttpClient
from pigeon.providers.registry import ModelRegistry, NamedFiles
from pigeon.providers.request import NoProviderHooks, RequestPolicy
from pigeon.system.process.start import ProcessOwner
from support.model_requests import a_model, a_request, assistant_message, collect_answer

KEY = "sk-test-0123456789abcdef"
DATA = Path(__file__).parent / "data"
PROVIDERS = {
    "anthropic-messages": ("anthropic", "Anthropic", "ANTHROPIC_API_KEY"),
    "openai-completions": ("groq", "Groq", "GROQ_API_KEY"),
    "openai-responses": ("openai", "OpenAI", "OPENAI_API_KEY"),
    "google-generative-ai": ("google", "Google Gemini", "GEMINI_API_KEY"),
}
# Per failure: the status, the code and the message, by API where they differ; what the sentence begins with, and what
# it says to do. "{name}" and "{key}" are those of the provider.
FAILURES: dict[str, tuple[dict[str, tuple[int, str, str]], str, str]] = {
    "a wrong key": (
        {
            "anthropic-messages": (401, "authentication_error", "invalid x-api-key"),
            "openai-completions": (401, "invalid_api_key", "Invalid API Key"),
            "openai-responses": (401, "invalid_api_key", "Incorrect API key provided: sk-t***cdef."),
            "google-generative-ai": (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
        },
        "{name} refused the API key from the variable {key} (",
        "set that to a valid key, and start Pigeon again",
    ),
    "no permission": (
        {
            "": (403, "permission_error", "Your key does not have permission to use the specified resource."),
            "google-generative-ai": (403, "PERMISSION_DENIED", "The caller does not have permission"),
        },
        "{name} does not let the API key from the variable {key} use m-1 (403: ",
        "choose another model or another key",
    ),
    "no such model": (
        {
            "anthropic-messages": (404, "not_found_error", "model: m-1"),
            "openai-completions": (404, "model_not_found", "The model `m-1` does not exist"),
            "openai-responses": (400, "model_not_found", "The requested model 'm-1' does not exist."),
            "google-generative-ai": (404, "NOT_FOUND", "models/m-1 is not found for API version v1beta"),
        },
        "{name} does not have the model m-1 (40",
        "choose another model (`pigeon models` lists them)",
    ),
    "a context that is too long": (
        {
            "anthropic-messages": (400, "invalid_request_error", "prompt is too long: 213462 tokens > 200000 maximum"),
            "": (400, "context_length_exceeded", "This model's maximum context length is 8192 tokens."),
            "google-generative-ai": (
                400,
                "INVALID_ARGUMENT",
                "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            ),
        },
        "The conversation is too long for m-1 (400: ",
        "compact it, begin a new one, or choose a model with a larger context",
    ),
    "no credit": (
        {
            "anthropic-messages": (
                400,
                "invalid_request_error",
                "Your credit balance is too low to access the Anthropic API.",
            ),
            "": (429, "insufficient_quota", "You exceeded your current quota, please check your plan."),
            "google-generative-ai": (429, "RESOURCE_EXHAUSTED", "You exceeded your current quota."),
        },
        "The account of the API key from the variable {key} at {name} has no credit left or has used up its quota (4",
        "check its plan and billing there, or choose another model",
    ),
    "too many requests": (
        {
            "": (429, "rate_limit_error", "Number of requests has exceeded your rate limit"),
            "google-generative-ai": (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted"),
        },
        "{name} gets too many requests with the API key from the variable {key} (429: ",
        "wait a moment, or choose another model",
    ),
    "an overload": (
        {
            "anthropic-messages": (529, "overloaded_error", "Overloaded"),
            "": (503, "service_unavailable", "The model is overloaded. Please try again later."),
            "google-generative-ai": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
        },
        "{name} is overloaded (5",
        "wait a moment and try again, or choose another model",
    ),
    "a failure of the server": (
        {"": (500, "api_error", "Internal server error")},
        "{name} has failed (500: Internal server error)",
        "try again in a moment, or choose another model",
    ),
    "a bad request": (
        {"": (400, "invalid_request_error", "tools.0.name: String should match pattern")},
        "{name} refused the request to m-1 (400: tools.0.name: String should match pattern)",
        "",
    ),
}


def refusal_of(api: str, status: int, code: str, message: str) -> Reply:
    error: dict[str, Any] = {"message": message}
    if api == "anthropic-messages":
        return plain(status, {"type": "error", "error": {"type": code, **error}, "request_id": "req_1"})
    if api == "google-generative-ai":
        return plain(status, {"error": {"code": status, "status": code, **error}})
    return plain(status, {"error": {"type": "invalid_request_error", "param": None, "code": code, **error}})


async def fail(
    api: str, url: str, *, provider: str = "", stored: dict[str, Any] | None = None, **environment: str
) -> Failure:
    """How a request of a user with a key in the environment fails."""
    known, _, variable = PROVIDERS[api]
    variables = {variable: KEY, **environment}
    entry = {"baseUrl": url, "api": api, "apiKey": KEY, "models": [{"id": "m-1"}]}
    registry = ModelRegistry(
        catalog=BuiltInCatalog(),
        entries={provider: entry} if provider else {},
        stored=lambda: stored or {},
        environ=variables,
        values=Values(variables, ProcessOwner()),
    )
    http = HttpClient(variables)
    gateway = Gateway(registry, http, NoProviderHooks(), policy=RequestPolicy(idle_ms=5000))
    try:
        answer = await collect_answer(
            gateway.stream(a_request(a_model(api=api, provider=provider or known, base_url=url)))
        )
    finally:
        await http.aclose()
    return answer.failure


def require_sentence(explanation: str) -> None:
    assert re.fullmatch(r"[A-Z][^\n{}]{20,500}[^.\s]", explanation), explanation
    assert KEY not in explanation


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("what", FAILURES)
async def test_a_refusal_names_the_key_its_origin_and_what_to_do(api: str, what: str) -> None:
    said, begins, remedy = FAILURES[what]
    status, code, message = said.get(api) or said[""]
    async with HttpServer([refusal_of(api, status, code, message)]) as server:
        failure = await fail(api, server.url)
    provider, name, variable = PROVIDERS[api]
    sentence = failure.explanation
    require_sentence(sentence)
    assert sentence.startswith(begins.format(name=name, key=variable)), sentence
    assert sentence.endswith(remedy), sentence
    # The words of the server stay what hosts, session files and retries go by.
    assert failure.message.startswith(f"{status} ")
    assert message.rstrip(".") in failure.message
    # A session file has only them, and they are enough.
    origin = KeyOrigin(f"from the variable {variable}", "set that to a valid key, and start Pigeon again")
    assert explain_text(failure.message, provider, "m-1", origin) == sentence


IN_A_STREAM = {
    "anthropic-messages": sse({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    "openai-completions": sse({"error": {"code": 503, "message": "The model is overloaded"}}),
    "openai-responses": sse({"type": "error", "code": "server_is_overloaded", "message": "overloaded"}),
    "google-generative-ai": sse({"error": {"code": 503, "status": "UNAVAILABLE", "message": "model is overloaded"}}),
}


@pytest.mark.parametrize("api", APIS)
async def test_an_overload_inside_a_stream_is_explained_too(api: str) -> None:
    async with HttpServer([Reply(IN_A_STREAM[api])]) as server:
        failure = await fail(api, server.url)
    require_sentence(failure.explanation)
    assert failure.explanation.startswith(f"{PROVIDERS[api][1]} is overloaded (")
    assert failure.retryable


async def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@pytest.mark.parametrize("api", APIS)
async def test_a_server_that_is_not_running_is_named_with_what_to_do(api: str) -> None:
    port = await free_port()
    failure = await fail(api, f"http://127.0.0.1:{port}", provider="mine")
    require_sentence(failure.explanation)
    assert failure.explanation == (
        f'The provider "mine" cannot be reached, because nothing accepts connections at 127.0.0.1:{port}: start the '
        'server, or correct its "baseUrl" in models.json'
    )
    assert failure.message.startswith(f"Connection failed: 127.0.0.1:{port}: ")
    assert explain_text(failure.message, "mine", "m-1") == failure.explanation


@pytest.mark.parametrize("api", APIS)
async def test_a_name_that_cannot_be_resolved_is_a_matter_of_the_network(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any, **more: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", refuse)
    failure = await fail(api, "http://api.models.invalid")
    require_sentence(failure.explanation)
    assert failure.explanation == (
        f"{PROVIDERS[api][1]} cannot be reached, because the name api.models.invalid cannot be resolved: check your "
        "network connection; where a proxy is needed, set HTTPS_PROXY"
    )


@pytest.mark.parametrize("api", APIS)
async def test_an_untrusted_certificate_says_how_to_trust_one(api: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(DATA / "localhost.cert.pem", DATA / "localhost.key.pem")
    async with HttpServer([], ssl=context) as server:
        failure = await fail(api, server.url)
    require_sentence(failure.explanation)
    assert "its certificate is not trusted (127.0.0.1: " in failure.explanation
    assert "SSL_CERT_FILE" in failure.explanation
    assert failure.message.startswith("TLS failed: ")


@pytest.mark.parametrize("api", APIS)
async def test_a_proxy_that_refuses_or_is_not_there_is_named_as_the_proxy(api: str) -> None:
    async with HttpServer([plain(502, {})]) as proxy:
        refused = await fail(api, "https://models.invalid", HTTPS_PROXY=proxy.url)
    port = await free_port()
    absent = await fail(api, "https://models.invalid", HTTPS_PROXY=f"http://127.0.0.1:{port}")
    for failure, why in ((refused, "502"), (absent, f"127.0.0.1:{port}: ")):
        require_sentence(failure.explanation)
        assert re.search(r"because (?:the proxy|there is no connection to the proxy)", failure.explanation)
        assert why in failure.explanation
        assert failure.explanation.endswith("check HTTPS_PROXY and the setting httpProxy")


async def test_a_proxy_that_requires_a_login_says_where_to_put_it() -> None:
    for url in ("https://models.invalid", "http://models.invalid"):
        async with HttpServer([plain(407, {})]) as proxy:
            failure = await fail("anthropic-messages", url, ALL_PROXY=proxy.url)
        require_sentence(failure.explanation)
        assert "because the proxy requires a login (407" in failure.explanation


@pytest.mark.parametrize("api", APIS)
async def test_a_connection_that_breaks_and_a_page_instead_of_an_answer_are_explained(api: str) -> None:
    async with HttpServer([Reply([b": wait\n\n", Cut()])] * 2) as server:
        broken = await fail(api, server.url)
    page = Reply([b"<html><title>Log in to the network</title></html>"], content_type="text/html")
    async with HttpServer([page]) as server:
        login = await fail(api, server.url)
    require_sentence(broken.explanation)
    require_sentence(login.explanation)
    assert broken.explanation.startswith(f"The connection to {PROVIDERS[api][1]} broke (")
    assert login.explanation.startswith(
        f"{PROVIDERS[api][1]} sent something other than a model's answer (an HTML page: Log in"
    )


async def test_garbage_instead_of_http_is_explained() -> None:
    async with BareServer() as server:
        asking = asyncio.ensure_future(fail("anthropic-messages", f"http://127.0.0.1:{server.port}"))
        peer = await server.accept()
        await peer.request()
        await peer.send(b"nonsense\r\n\r\n")
        failure = await asking
    require_sentence(failure.explanation)


ORIGINS: list[tuple[dict[str, Any], dict[str, Any], str, str, str]] = [
    # what auth.json and models.json have, and --api-key; where the sentence says the key came from, and what to do
    ({}, {}, "", "from the variable ANTHROPIC_API_KEY", "set that to a valid key, and start Pigeon again"),
    ({}, {}, "given", "given at the start (--api-key)", "give a valid one"),
    ({"type": "api_key", "key": "k"}, {}, "", "from auth.json", "replace it there with a valid one"),
    (
        {"type": "api_key", "key": "$TEAM_KEY"},
        {},
        "",
        "from the variable TEAM_KEY, which auth.json names",
        "set that to a valid key, and start Pigeon again",
    ),
    ({"type": "api_key", "key": "!pass show"}, {}, "", "from the command in auth.json", "have it print a valid key"),
    (
        {"type": "oauth", "access": "t", "expires": 9e15},
        {},
        "",
        "of the login in auth.json",
        "log in again, or store an API key there instead",
    ),
    (
        {"type": "api_key", "env": {"ANTHROPIC_API_KEY": "k"}},
        {},
        "",
        "from ANTHROPIC_API_KEY in auth.json",
        "replace it there with a valid one",
    ),
    ({}, {"apiKey": "k"}, "", "from models.json", "replace it there with a valid one"),
]


@pytest.mark.parametrize(("stored", "entry", "given_key", "where", "remedy"), ORIGINS)
def test_the_origin_of_a_key_is_the_one_that_has_precedence(
    stored: dict[str, Any], entry: dict[str, Any], given_key: str, where: str, remedy: str
) -> None:
    variables = {"ANTHROPIC_API_KEY": KEY}
    registry = ModelRegistry(
        catalog=BuiltInCatalog(),
        entries={"anthropic": entry} if entry else {},
        stored=lambda: {"anthropic": stored} if stored else {},
        environ=variables,
        values=Values(variables, ProcessOwner()),
    )
    if given_key:
        registry.use_key("anthropic", given_key)
    assert registry.describe_key_origin("anthropic") == KeyOrigin(where, remedy)


OTHER_FILES = [
    ({"type": "api_key", "key": "k"}, {}, "from agent.db", "store a valid one in auth.json"),
    (
        {"type": "oauth", "access": "t", "expires": 9e15},
        {},
        "of the login in agent.db",
        "log in again, or store an API key in auth.json instead",
    ),
    ({}, {"apiKey": "k"}, "from models.yml", "replace it there with a valid one"),
    ({}, {"headers": {"x-api-key": "k"}}, "of the headers in models.yml", "correct it there"),
]


@pytest.mark.parametrize(("stored", "entry", "where", "remedy"), OTHER_FILES)
def test_the_files_of_oh_my_pi_are_named_where_these_are_used(
    stored: dict[str, Any], entry: dict[str, Any], where: str, remedy: str
) -> None:
    registry = ModelRegistry(
        catalog=BuiltInCatalog(),
        entries={"anthropic": entry} if entry else {},
        stored=lambda: {"anthropic": stored} if stored else {},
        environ={},
        values=Values({}, ProcessOwner()),
        files=NamedFiles("models.yml", lambda provider: "agent.db"),
    )
    origin = registry.describe_key_origin("anthropic")
    assert (origin.where, origin.remedy) == (where, remedy)
    assert explain_text("404 nothing here", "own", "m", origin).endswith('or correct its "baseUrl" in models.yml')


def test_an_address_where_nothing_is_known_is_no_matter_of_the_model_alone() -> None:
    assert explain_text("404 nothing here", "openai", "m").endswith('or correct its "baseUrl" in models.json')
    assert explain_text("404 no such model", "openai", "m").endswith("(`pigeon models` lists them)")


def test_a_wait_that_the_server_asks_for_is_named() -> None:
    failure = classify_failure("429 slow down", status=429, retry_after_ms=42_000)
    assert "(429: slow down): wait 42 s, or choose another model" in explain_failure(failure, "openai", "m")


def test_texts_for_people_are_left_as_they_are() -> None:
    for text in (
        "No API key for openai/gpt-5: set OPENAI_API_KEY, pass --api-key, or store a key in auth.json",
        "The provider sent nothing for 300 s; the request was given up (httpIdleTimeoutMs)",
        "The conversation fills the model's context: there was no room for an answer",
        "The model refused to answer: it says so",
    ):
        message = assistant_message(stop_reason="error", error_message=text)
        assert explain_text(text, "openai", "gpt-5") == ""
        assert explain_answer(message) == text
    assert explain_answer(assistant_message(stop_reason="aborted", error_message="401 {}")) == "401 {}"
    assert explain_answer(assistant_message()) == ""


@given(
    st.text(max_size=300), st.sampled_from(["", "401 ", "529 {", "Connection failed: ", '400 {"error":{"message":"'])
)
def test_any_text_of_a_server_becomes_at_most_one_line(text: str, begins: str) -> None:
    sentence = explain_text(begins + text, "openai", "gpt-5")
    assert "\n" not in sentence
    assert len(sentence) < 700


def test_an_object_that_was_cut_off_still_gives_its_message() -> None:
    cut = '400 {"error":{"message":"tools: too many \\"tools\\"' + "x" * 4000
    assert explain_text(cut, "openai", "gpt-5").startswith("OpenAI refused the request to gpt-5 (400: tools: too many")
