from __future__ import annotations

import os
from urllib.parse import urlsplit

import pytest

from pigeon.providers.apis import APIS
from pigeon.providers.catalog.built_in import DATA, KNOWN, BuiltInCatalog, list_key_variables
from pigeon.providers.openai_chat.compat import chat_compat_of
from pigeon.wire.model import LEVELS, levels_of

CATALOG = BuiltInCatalog()


@pytest.mark.parametrize("provider", CATALOG.providers())
def test_every_model_of_a_provider_is_usable_data(provider: str) -> None:
    models = CATALOG.models(provider)
    assert models
    assert len({model.id for model in models}) == len(models)
    for model in models:
        assert model.provider == provider
        assert APIS[model.api].adapter
        assert model.base_url == "" if provider.startswith("azure") else urlsplit(model.base_url).scheme == "https"
        assert set(model.input) <= {"text", "image"}
        assert "text" in model.input
        assert model.context_window > 0
        assert model.max_tokens > 0
        assert min(model.cost.input, model.cost.output, model.cost.cache_read, model.cost.cache_write) >= 0
        assert set(levels_of(model)) <= set(LEVELS)
        if model.api == "openai-completions":
            chat_compat_of(model)


@pytest.mark.parametrize("provider", list(KNOWN))
def test_every_default_is_in_the_list(provider: str) -> None:
    assert KNOWN[provider].default in {model.id for model in CATALOG.models(provider)}


def test_the_data_stays_small() -> None:
    assert sum(entry.stat().st_size for entry in os.scandir(DATA)) < 500_000
    assert {entry.name for entry in os.scandir(DATA)} == {f"{provider}.json" for provider in KNOWN}


def test_an_unknown_provider_has_no_models() -> None:
    assert CATALOG.models("../../etc/passwd") == []


def test_the_variables_with_keys_are_known() -> None:
    assert {"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY"} <= list_key_variables()


def test_the_agents_of_a_process_share_the_models() -> None:
    ours, theirs = CATALOG.models("openai"), BuiltInCatalog().models("openai")
    assert ours is not theirs
    assert all(one is other for one, other in zip(ours, theirs, strict=True))
