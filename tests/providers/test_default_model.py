from __future__ import annotations

import pytest

from pigeon.providers.default_model import default_model_of, find_first_usable_model, format_count, resolve_named_model
from pigeon.wire.errors import StartupError
from pigeon.wire.model import Model
from support.model_requests import a_model


class Shelf:
    def __init__(self, *references: str, keys: tuple[str, ...] = ()) -> None:
        self._models = [
            a_model(provider=reference.split("/")[0], id=reference.split("/", 1)[1], name=reference)
            for reference in references
        ]
        self._keys = keys

    def providers(self) -> list[str]:
        return list(dict.fromkeys(model.provider for model in self._models))

    def all_models(self) -> list[Model]:
        return self._models

    def list_available(self) -> list[Model]:
        return [model for model in self._models if model.provider in self._keys]

    def models_of(self, provider: str) -> list[Model]:
        return [model for model in self._models if model.provider == provider]

    def find_listed(self, provider: str, model_id: str) -> Model | None:
        return next((model for model in self.models_of(provider) if model.id == model_id), None)

    def find(self, provider: str, model_id: str) -> Model | None:
        return self.find_listed(provider, model_id) if self.has_key(provider) else None

    def has_key(self, provider: str) -> bool:
        return provider in self._keys

    def key_source(self, provider: str) -> str:
        return provider.removesuffix("-cn")


SHELF = Shelf(
    "anthropic/claude-opus-4-8",
    "anthropic/claude-sonnet-5",
    "openai/gpt-5.5",
    "azure/gpt-5.5",
    "router/anthropic/claude-sonnet-9",
    keys=("anthropic", "openai"),
)


@pytest.mark.parametrize(
    ("provider", "pattern", "found", "level"),
    [
        ("anthropic", "claude-sonnet-5", "anthropic/claude-sonnet-5", None),
        ("ANTHROPIC", "sonnet:high", "anthropic/claude-sonnet-5", "high"),
        ("anthropic", "anthropic/opus", "anthropic/claude-opus-4-8", None),
        ("openai", None, "openai/gpt-5.5", None),
        (None, "openai/gpt", "openai/gpt-5.5", None),
        (None, "anthropic/claude-sonnet-9", "router/anthropic/claude-sonnet-9", None),
        (None, "gpt-5.5", "openai/gpt-5.5", None),
        (None, "gpt-5.5:low", "openai/gpt-5.5", "low"),
        (None, "sonnet", "anthropic/claude-sonnet-5", None),
        (None, "sonnet-9", "router/anthropic/claude-sonnet-9", None),
        (None, "openai/*:high", "openai/gpt-5.5", "high"),
        ("openai", "gpt-*", "openai/gpt-5.5", None),
        ("openai", "OpenAI/gpt-*", "openai/gpt-5.5", None),
        ("router", "anthropic/*", "router/anthropic/claude-sonnet-9", None),
        (None, "**sonnet-9", "router/anthropic/claude-sonnet-9", None),
    ],
)
def test_what_people_type(provider: str | None, pattern: str | None, found: str, level: str | None) -> None:
    match = resolve_named_model(provider, pattern, SHELF)
    assert match.model is not None
    assert (match.model.reference, match.level, match.warning) == (found, level, None)


def test_without_any_key_the_first_provider_that_has_such_a_model_is_meant() -> None:
    locked = Shelf("anthropic/claude-sonnet-5", "router/~anthropic/claude-sonnet-latest", "router/qwen-4")
    for pattern, found in (("claude", "anthropic/claude-sonnet-5"), ("qwen", "router/qwen-4")):
        match = resolve_named_model(None, pattern, locked)
        assert match.model is not None
        assert match.model.reference == found


def test_an_unknown_id_of_a_known_provider_is_used_with_a_warning() -> None:
    for provider, pattern in (("anthropic", "claude-next:high"), (None, "anthropic/claude-next:high")):
        match = resolve_named_model(provider, pattern, SHELF)
        assert match.model is not None
        assert match.model.reference == "anthropic/claude-next"
        assert match.model.reasoning
        assert match.level == "high"
        assert match.warning is not None


def test_without_a_key_nobody_is_sent_to_a_list_that_is_empty() -> None:
    keyless = Shelf("openai/gpt-5.5")
    for provider, pattern in ((None, "zzz"), ("zzz", "x")):
        with pytest.raises(StartupError, match=r"No provider has a key yet; `pigeon models --all` lists all models\."):
            resolve_named_model(provider, pattern, keyless)


def test_names_that_mean_nothing_are_refused() -> None:
    with pytest.raises(StartupError, match=r'Model "zzz" not found\. Use --list-models'):
        resolve_named_model(None, "zzz", SHELF)
    with pytest.raises(StartupError, match='Unknown provider "zzz"'):
        resolve_named_model("zzz", "x", SHELF)
    with pytest.raises(StartupError, match=r'Model "gpt-5\.5:huge" not found'):
        resolve_named_model(None, "gpt-5.5:huge", SHELF)
    with pytest.raises(StartupError, match=r'Model "openai/z\*" not found'):
        resolve_named_model("openai", "z*", SHELF)


def test_an_ambiguous_id_lists_its_candidates() -> None:
    with pytest.raises(StartupError, match=r"azure/gpt-5\.5, openai/gpt-5\.5\. None of them is"):
        resolve_named_model(None, "gpt-5.5", Shelf("openai/gpt-5.5", "azure/gpt-5.5"))


def test_of_providers_that_share_a_key_the_first_is_meant() -> None:
    shelf = Shelf("moon/k2", "moon-cn/k2", keys=("moon", "moon-cn"))
    assert resolve_named_model(None, "k2", shelf).model == shelf.find_listed("moon", "k2")
    with pytest.raises(StartupError, match="More than one matching provider is authenticated"):
        resolve_named_model(None, "k2", Shelf("moon/k2", "sun/k2", keys=("moon", "sun")))


def test_the_default_of_a_provider() -> None:
    assert default_model_of("anthropic", SHELF) == SHELF.find_listed("anthropic", "claude-opus-4-8")
    assert default_model_of("azure", SHELF) == SHELF.find_listed("azure", "gpt-5.5")
    assert default_model_of("nobody", SHELF) is None
    behind = Shelf("anthropic/other", "anthropic/claude-opus-4-8")
    assert default_model_of("anthropic", behind) == behind.find_listed("anthropic", "claude-opus-4-8")
    without = Shelf("anthropic/other")
    assert default_model_of("anthropic", without) == without.find_listed("anthropic", "other")


def test_the_first_usable_model() -> None:
    first = find_first_usable_model(SHELF)
    assert first is not None
    assert first.reference == "anthropic/claude-opus-4-8"
    local = find_first_usable_model(Shelf("openai/gpt-5.5", "mine/x", keys=("mine",)))
    assert local is not None
    assert local.reference == "mine/x"
    assert find_first_usable_model(Shelf("openai/gpt-5.5")) is None


@pytest.mark.parametrize(
    ("tokens", "shown"),
    [
        (999, "999"),
        (1_000, "1K"),
        (1_500, "1.5K"),
        (999_999, "1000.0K"),
        (1_048_576, "1.0M"),
        (1_000_000, "1M"),
        (1_050_000, "1.1M"),
    ],
)
def test_counts_of_tokens_are_shown_as_round_numbers(tokens: int, shown: str) -> None:
    assert format_count(tokens) == shown
