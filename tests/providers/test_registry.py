from __future__ import annotations

from typing import Any

import pytest

from pigeon.config.credentials import Values
from pigeon.config.models_file import parse_models_file
from pigeon.providers.registry import ModelRegistry, NoKey
from pigeon.system.process.start import ProcessOwner
from pigeon.wire import codec
from pigeon.wire.model import Model
from support.model_requests import a_model

CUSTOM = {"baseUrl": "http://here/v1", "api": "openai-completions", "apiKey": "literal", "models": [{"id": "x"}]}


class Catalog:
    """Two known providers, and a note of which was read."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def providers(self) -> list[str]:
        return ["anthropic", "openai"]

    def models(self, provider: str) -> list[Model]:
        self.read.append(provider)
        if provider not in self.providers():
            return []
        ids = {"anthropic": ["claude-opus-4-8", "claude-x"], "openai": ["gpt-5.5"]}[provider]
        return [
            a_model(id=one, provider=provider, base_url=f"https://{provider}", compat={"a": {"b": 1}}) for one in ids
        ]


def registry(
    entries: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
    stored: dict[str, Any] | None = None,
    catalog: Catalog | None = None,
) -> ModelRegistry:
    environ = env or {}
    file = parse_models_file(codec.encode({"providers": entries or {}}))
    assert file.problem is None, file.problem
    return ModelRegistry(
        catalog=catalog or Catalog(),
        entries=file.providers,
        stored=lambda: stored or {},
        environ=environ,
        values=Values(environ, ProcessOwner()),
    )


def names(models: list[Model]) -> list[str]:
    return [model.reference for model in models]


def test_a_custom_model_has_its_defaults() -> None:
    model = registry({"mine": CUSTOM}).find_usable("mine", "x")
    assert model is not None
    assert codec.to_plain(model) == {
        "id": "x",
        "name": "x",
        "api": "openai-completions",
        "provider": "mine",
        "baseUrl": "http://here/v1",
        "reasoning": False,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": 128_000,
        "maxTokens": 16_384,
    }


def test_only_providers_with_credentials_are_available() -> None:
    models = registry({"mine": CUSTOM, "unset": {**CUSTOM, "apiKey": "$NOPE"}}, {"OPENAI_API_KEY": "k"})
    assert names(models.list_available()) == ["openai/gpt-5.5", "mine/x"]
    assert names(models.all_models()) == [
        "anthropic/claude-opus-4-8",
        "anthropic/claude-x",
        "openai/gpt-5.5",
        "mine/x",
        "unset/x",
    ]
    assert models.find_usable("unset", "x") is None
    assert models.find_listed("unset", "x") is not None
    assert models.find_usable("nobody", "x") is None


def test_the_catalogue_is_only_read_for_whom_it_is_needed() -> None:
    catalog = Catalog()
    models = registry({"mine": CUSTOM}, {"OPENAI_API_KEY": "k"}, catalog=catalog)
    models.find_usable("mine", "x")
    assert catalog.read == ["mine"]
    models.list_available()
    assert catalog.read == ["mine", "openai"]


def test_entries_retarget_extend_and_override_built_in_models() -> None:
    models = registry(
        {
            "anthropic": {
                "baseUrl": "http://proxy",
                "compat": {"a": {"c": 2}},
                "models": [{"id": "claude-x", "contextWindow": 5}, {"id": "new"}],
                "modelOverrides": {
                    "claude-opus-4-8": {"name": "Big", "cost": {"input": 99}, "compat": {"a": {"d": 3}}},
                    "unknown": {"name": "nobody"},
                },
            }
        },
        {"ANTHROPIC_API_KEY": "k"},
    )
    assert models.find_problems() == []
    big, changed, new = models.list_available()
    assert (big.name, big.base_url, big.cost.input, big.cost.output) == ("Big", "http://proxy", 99, 15)
    assert big.compat == {"a": {"b": 1, "c": 2, "d": 3}}
    assert (changed.id, changed.context_window, changed.api) == ("claude-x", 5, "anthropic-messages")
    assert (new.id, new.base_url) == ("new", "http://proxy")


def test_a_model_without_a_place_is_a_problem_and_the_rest_goes_on() -> None:
    models = registry(
        {"mine": {"apiKey": "k", "models": [{"id": "x"}]}, "openai": {"models": [{"id": "y", "api": ""}]}}
    )
    [problem] = models.find_problems()
    assert '"mine"' in problem
    assert '"api"' in problem
    assert models.all_models()


async def test_keys_come_from_runtime_then_stored_then_file_then_environment() -> None:
    env = {"ANTHROPIC_API_KEY": "from-env"}
    entries = {"anthropic": {"apiKey": "from-file"}}
    stored = {"anthropic": {"type": "api_key", "key": "from-store"}}
    model = a_model(provider="anthropic")
    assert (await registry({}, env).resolve_access(model)).key == "from-env"
    assert (await registry(entries, env).resolve_access(model)).key == "from-file"
    models = registry(entries, env, stored)
    assert (await models.resolve_access(model)).key == "from-store"
    models.use_key("anthropic", "from-runtime")
    assert (await models.resolve_access(model)).key == "from-runtime"


async def test_a_stored_credential_owns_its_provider() -> None:
    stored = {"anthropic": {"type": "api_key", "key": "$GONE"}}
    models = registry({}, {"ANTHROPIC_API_KEY": "from-env"}, stored)
    assert models.list_available() == []
    with pytest.raises(NoKey):
        await models.resolve_access(a_model(provider="anthropic"))


async def test_a_stored_credential_brings_its_own_variables() -> None:
    stored = {"openai": {"type": "api_key", "env": {"OPENAI_API_KEY": "own", "REGION": "eu"}}}
    models = registry({}, {"REGION": "us"}, stored)
    access = await models.resolve_access(a_model(provider="openai"))
    assert access.key == "own"
    assert access.env["REGION"] == "eu"
    named = {"openai": {"type": "api_key", "key": "$MY", "env": {"MY": "mine"}}}
    assert (await registry({}, {}, named).resolve_access(a_model(provider="openai"))).key == "mine"


async def test_bearer_tokens_go_out_as_such() -> None:
    access = await registry({}, {"ANTHROPIC_AUTH_TOKEN": "t"}).resolve_access(a_model(provider="anthropic"))
    assert (access.key, access.bearer) == ("t", True)
    login = {"anthropic": {"type": "oauth", "access": "a", "refresh": "r", "expires": 99_999_999_999_999}}
    access = await registry({}, {}, login).resolve_access(a_model(provider="anthropic"))
    assert (access.key, access.bearer) == ("a", True)


async def test_an_expired_login_says_so() -> None:
    login = {"anthropic": {"type": "oauth", "access": "a", "expires": 1}}
    models = registry({}, {"ANTHROPIC_API_KEY": "k"}, login)
    assert not models.has_key("anthropic")
    with pytest.raises(NoKey, match="expired"):
        await models.resolve_access(a_model(provider="anthropic"))


async def test_headers_are_resolved_for_each_request_and_stay_out_of_the_model() -> None:
    env = {"TEAM": "blue"}
    entries = {
        "mine": {
            **CUSTOM,
            "authHeader": True,
            "headers": {"X-Team": "$TEAM", "X-Gone": "$NOPE", "X-Both": "provider", "Accept": None},
            "models": [{"id": "x", "headers": {"X-Both": "model"}}],
            "modelOverrides": {"x": {"headers": {"X-Late": "yes"}}},
        }
    }
    models = registry(entries, env)
    model = models.find_usable("mine", "x")
    assert model is not None
    access = await models.resolve_access(model)
    assert access.headers == {
        "x-team": "blue",
        "x-both": "model",
        "accept": None,
        "x-late": "yes",
        "authorization": "Bearer literal",
    }
    env["TEAM"] = "red"
    assert (await models.resolve_access(model)).headers["x-team"] == "red"
    assert "literal" not in codec.encode(model).decode()
    assert "Team" not in codec.encode(model).decode()


async def test_a_header_may_be_the_credential() -> None:
    entry = {key: value for key, value in CUSTOM.items() if key != "apiKey"}
    models = registry({"mine": {**entry, "headers": {"Authorization": "Bearer $T"}}}, {"T": "tok"})
    [model] = models.list_available()
    assert (await models.resolve_access(model)).headers["authorization"] == "Bearer tok"


async def test_a_missing_key_says_what_to_do() -> None:
    for provider, entries, words in (
        ("anthropic", {}, "ANTHROPIC_API_KEY"),
        ("mine", {"mine": {**CUSTOM, "apiKey": "$NOPE"}}, "models.json"),
        ("other", {"other": {**CUSTOM, "apiKey": None}}, "apiKey"),
    ):
        with pytest.raises(NoKey, match=words) as caught:
            await registry(entries).resolve_access(a_model(provider=provider))
        assert str(caught.value).startswith(f"No API key for {provider}/m-1")


def test_every_key_is_told_before_it_is_used_and_the_variables_it_comes_from_are_known() -> None:
    told: list[tuple[str, str]] = []
    values = Values({"A_KEY": "value-of-a", "TEAM": "value-of-team", "OPENAI_API_KEY": "known"}, ProcessOwner())
    made = ModelRegistry(
        catalog=Catalog(),
        entries={"mine": {"apiKey": "$A_KEY", "headers": {"X-Team": "${TEAM}"}, "baseUrl": "https://u:p@h"}},
        stored=lambda: {"other": {"key": "!pass show $PASS_NAME", "env": {"OWN": "value-of-own"}}},
        environ={"OPENAI_API_KEY": "known"},
        values=values,
        hold=told.extend,
    )
    assert made.list_key_variables() >= {"A_KEY", "TEAM", "PASS_NAME", "OPENAI_API_KEY"}
    secrets = dict(made.find_secrets())
    assert {"key $A_KEY": "value-of-a", "X-Team $TEAM": "value-of-team", "address": "https://u:p@h"}.items() <= (
        secrets.items()
    )
    assert secrets["OWN"] == "value-of-own"
    assert secrets["$OPENAI_API_KEY"] == "known"
    made.use_key("mine", "given")
    made.put_entry("late", {"apiKey": "of-an-extension"})
    assert {("key", "given"), ("key", "of-an-extension")} <= set(told)


def test_what_is_stored_is_read_once_for_the_whole_list() -> None:
    read = []
    models = ModelRegistry(
        catalog=Catalog(),
        entries={name: CUSTOM for name in ("one", "two", "three")},
        stored=lambda: read.append(1) or {"two": {"type": "api_key", "key": "k"}},
        environ={},
        values=Values({}, ProcessOwner()),
    )
    assert names(models.list_available()) == ["one/x", "two/x", "three/x"]
    assert len(read) == 1
