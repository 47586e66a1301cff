from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from fakes.http_server import HttpServer, plain
from pigeon.app.models import make_gateway, make_registry, resolve_model_options
from pigeon.app.options import AgentOptions
from pigeon.config.credentials import Values
from pigeon.config.layers import Layers
from pigeon.config.settings import Settings
from pigeon.providers.catalog.built_in import list_key_variables
from pigeon.providers.gateway import Gateway
from pigeon.providers.recording.agent_recordings import AgentRecordings
from pigeon.providers.registry import ModelRegistry
from pigeon.providers.request import NoProviderHooks
from pigeon.secrets.redactor import Redactor
from pigeon.system.environment import Environment
from pigeon.system.process.start import ProcessOwner
from pigeon.system.process.variables import tool_environment
from pigeon.wire import codec
from pigeon.wire.errors import StartupError
from pigeon.wire.model import Model
from support.model_requests import a_model, a_request


class Catalog:
    """Two providers of two models each."""

    def providers(self) -> list[str]:
        return ["anthropic", "openai"]

    def models(self, provider: str) -> list[Model]:
        ids = {"anthropic": ["claude-a", "claude-b"], "openai": ["gpt-a", "gpt-b"]}.get(provider, [])
        return [a_model(id=one, name=one, provider=provider, reasoning=True) for one in ids]


BOTH = {"ANTHROPIC_API_KEY": "1", "OPENAI_API_KEY": "2"}
DEFAULT = Settings(default_provider="openai", default_model="gpt-b")


def a_registry(environ: dict[str, str], *problems: str) -> ModelRegistry:
    return ModelRegistry(
        catalog=Catalog(),
        entries={},
        stored=dict,
        environ=environ,
        values=Values(environ, ProcessOwner()),
        problems=problems,
    )


def around(variables: dict[str, str]) -> Environment:
    return Environment(variables=variables, home="/home/pigeon", cwd="/work")


def a_gateway(settings: Settings, environment: Environment) -> Gateway:
    recordings = AgentRecordings("", None, environment, Redactor(), (), print)
    return make_gateway(a_registry(BOTH), settings, environment, NoProviderHooks(), Redactor(), recordings, {})


def layers_of(settings: Settings) -> Layers:
    """These settings as those of a user."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "settings.json").write_bytes(codec.encode(settings))
        return Layers(folder, print)


class Chosen:
    """What options and settings come to, and what was reported."""

    def __init__(self, options: dict[str, Any], settings: Settings, registry: ModelRegistry) -> None:
        self.problems: list[str] = []
        self.options = resolve_model_options(
            AgentOptions(**options), around({}), layers_of(settings), registry, self.problems.append
        )
        self.model, self.thinking, self.explicit = self.options.model, self.options.thinking, self.options.explicit


def make_choice(settings: Settings | None = None, environ: dict[str, str] = BOTH, **options: Any) -> Chosen:
    return Chosen(options, settings or Settings(), a_registry(environ))


def reference(choice: Chosen) -> str | None:
    return choice.model.reference if choice.model else None


def scope(choice: Chosen) -> list[tuple[str, str | None]]:
    return [(entry.model.reference, entry.level) for entry in choice.options.scoped]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"model": "anthropic/claude-b"}, "anthropic/claude-b"),
        ({"provider": "anthropic", "model": "claude-a"}, "anthropic/claude-a"),
        ({"model": "claude-b", "models": ("gpt-a",)}, "anthropic/claude-b"),
        ({"models": ("claude-a", "gpt-a")}, "anthropic/claude-a"),
        ({"models": ("claude-a", "gpt-b")}, "openai/gpt-b"),
        ({"models": ("claude-*",)}, "anthropic/claude-a"),
        ({}, "openai/gpt-b"),
    ],
)
def test_a_named_model_comes_before_the_scope_and_the_scope_before_the_settings(
    options: dict[str, Any], found: str
) -> None:
    assert reference(make_choice(**options, settings=DEFAULT)) == found


def test_the_scope_is_the_option_or_else_the_settings() -> None:
    settings = Settings(enabled_models=["gpt-a:high", "claude-b"])
    assert scope(make_choice(settings=settings)) == [("openai/gpt-a", "high"), ("anthropic/claude-b", None)]
    assert scope(make_choice(models=("claude-a",), settings=settings)) == [("anthropic/claude-a", None)]
    assert scope(make_choice()) == []


def test_a_scope_stays_for_cycling_when_a_model_is_named() -> None:
    choice = make_choice(model="claude-b", models=("gpt-a", "gpt-b"))
    assert [name for name, _ in scope(choice)] == ["openai/gpt-a", "openai/gpt-b"]
    assert choice.explicit


def test_a_pattern_that_matches_nothing_is_told_and_the_others_count() -> None:
    choice = make_choice(models=("nothing", "gpt-a"))
    assert reference(choice) == "openai/gpt-a"
    assert any("nothing" in problem for problem in choice.problems)


def test_a_default_without_a_key_is_not_replaced() -> None:
    choice = make_choice(settings=DEFAULT, environ={"ANTHROPIC_API_KEY": "1"})
    assert reference(choice) == "openai/gpt-b"
    assert "there is no API key for openai/gpt-b: set OPENAI_API_KEY" in choice.options.problem


def test_a_default_outside_the_scope_of_the_settings_is_reported() -> None:
    outside = Settings(default_model="openai/gpt-b", enabled_models=["gpt-a"])
    choice = make_choice(settings=outside)
    assert reference(choice) == "openai/gpt-a"
    (problem,) = choice.problems
    assert "is not among the enabledModels" in problem
    assert problem.endswith("Until then openai/gpt-a is used")
    # A scope that is an option comes before the settings.
    assert make_choice(settings=outside, models=("claude-a",)).problems == []


async def test_a_key_that_is_an_option_is_for_the_default_model() -> None:
    registry = a_registry({"ANTHROPIC_API_KEY": "1"})
    choice = Chosen({"api_key": "k"}, DEFAULT, registry)
    assert choice.model is not None
    assert (choice.options.problem, (await registry.resolve_access(choice.model)).key) == ("", "k")


def test_without_any_key_there_is_no_model_and_that_is_no_error() -> None:
    assert reference(make_choice(environ={})) is None


def test_a_model_may_be_named_before_it_has_a_key() -> None:
    assert reference(make_choice(model="anthropic/claude-a", environ={})) == "anthropic/claude-a"


@pytest.mark.parametrize("options", [{"model": "nonsense"}, {"provider": "nobody", "model": "x"}])
def test_a_name_that_means_nothing_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(StartupError, match="--list-models"):
        make_choice(**options)


def test_a_name_that_is_not_found_comes_with_what_is_wrong_with_the_files() -> None:
    with pytest.raises(StartupError, match=r"not found(?s:.*)models.json is broken"):
        Chosen({"model": "a/a1"}, Settings(), a_registry({}, "models.json is broken"))


@pytest.mark.parametrize(
    ("environ", "retention"),
    [
        ({}, "short"),
        ({"PI_CACHE_RETENTION": "long"}, "long"),
        ({"PI_CACHE_RETENTION": "long", "PIGEON_CACHE_RETENTION": "none"}, "none"),
        ({"PI_CACHE_RETENTION": "eternal"}, "short"),
    ],
)
async def test_the_environment_says_how_long_providers_keep_a_prompt(environ: dict[str, str], retention: str) -> None:
    async with HttpServer([plain(400, {})]) as server:
        model = a_model(provider="anthropic", base_url=server.url)
        gateway = a_gateway(Settings(), around(environ))
        assert [delta async for delta in gateway.stream(a_request(model))]
        await gateway.aclose()
    marks = {"short": {"type": "ephemeral"}, "long": {"type": "ephemeral", "ttl": "1h"}, "none": None}
    assert server.body["system"][0].get("cache_control") == marks[retention]


async def test_the_settings_may_name_a_proxy() -> None:
    async with HttpServer([plain(400, {})]) as proxy:
        model = a_model(provider="anthropic", base_url="http://models.invalid")
        gateway = a_gateway(Settings(http_proxy=proxy.url), around({}))
        assert [delta async for delta in gateway.stream(a_request(model))]
        await gateway.aclose()
    assert proxy.requests[0].path == "http://models.invalid/v1/messages"


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ({}, "low"),
        ({"model": "claude-a"}, "low"),
        ({"model": "claude-a:high"}, "high"),
        ({"model": "claude-a:high", "thinking": "minimal"}, "minimal"),
        ({"models": ("gpt-a:high",)}, "high"),
        ({"models": ("gpt-a:high",), "thinking": "off"}, "off"),
    ],
)
def test_thinking_is_the_option_then_the_name_then_the_settings(options: dict[str, Any], level: str) -> None:
    assert make_choice(**options, settings=Settings(default_thinking_level="low")).thinking == level


def test_a_model_has_its_own_level_in_the_settings() -> None:
    own = Settings(default_provider="openai", default_model="gpt-b", model_thinking_levels={"openai/gpt-b": "high"})
    assert make_choice(settings=own).thinking == "high"
    assert make_choice(thinking="low", settings=own).thinking == "low"


def test_a_level_that_nobody_knows_is_told_and_ignored() -> None:
    choice = make_choice(thinking="hard")
    assert choice.thinking == "medium"
    assert choice.problems == ['unknown thinking level "hard" is ignored']


def test_a_key_needs_a_model() -> None:
    with pytest.raises(StartupError, match="--api-key requires a model"):
        make_choice(api_key="k", environ={})


async def test_a_key_is_for_the_provider_of_the_chosen_model() -> None:
    registry = a_registry({})
    choice = Chosen({"model": "openai/gpt-a", "api_key": "k"}, Settings(), registry)
    assert choice.model is not None
    assert (await registry.resolve_access(choice.model)).key == "k"
    assert not registry.has_key("anthropic")


@pytest.mark.parametrize(
    ("options", "provider"),
    [
        ({"model": "demo"}, "demo"),
        ({"provider": "demo"}, "demo"),
        ({"model": "scripted/hello"}, "scripted"),
        ({"provider": "scripted", "model": "hello"}, "scripted"),
    ],
)
def test_built_in_models_need_no_key_and_win(options: dict[str, Any], provider: str) -> None:
    choice = make_choice(**options, settings=DEFAULT, environ={})
    assert choice.model is not None
    assert (choice.model.provider, choice.explicit) == (provider, True)


def test_the_key_of_every_known_provider_is_masked_and_kept_from_commands(tmp_path: Path) -> None:
    names = sorted(list_key_variables())
    keys = {name: f"canary-{number}-{'x' * 20}" for number, name in enumerate((*names, names[0].lower()))}
    redactor = Redactor()
    make_registry(str(tmp_path), keys, str(tmp_path), None, redactor)
    redactor.learn_from_sources()
    shown = redactor.mask("\n".join(keys.values()).encode()).decode()
    assert "canary" not in shown
    assert tool_environment(keys, also_secret=redactor.list_key_variables()).keys().isdisjoint(keys)
