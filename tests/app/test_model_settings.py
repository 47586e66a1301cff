"""Every way to write a model into settings, for a model that can be used and for one that cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pigeon.app.models import resolve_model_options
from pigeon.app.options import AgentOptions
from pigeon.config.credentials import Values
from pigeon.config.layers import Layers
from pigeon.providers.registry import ModelRegistry
from pigeon.session.model_choice import ModelOptions
from pigeon.system.environment import Environment
from pigeon.wire.model import Model
from support.model_requests import a_model

MODELS = {
    "anthropic": ["claude-a", "claude-b", "shared"],
    "openai": ["gpt-a", "gpt-b", "shared"],
    "openrouter": ["openai/gpt-b", "vendor/x:high"],
}
KEYS = {"ANTHROPIC_API_KEY": "1", "OPENAI_API_KEY": "2", "OPENROUTER_API_KEY": "3"}
PAIR = ("defaultProvider", "defaultModel")
# What a person writes to mean openai/gpt-b, and the thinking level that follows.
WAYS: list[tuple[dict[str, str], str]] = [
    ({"defaultModel": "gpt-b"}, "medium"),
    ({"defaultModel": " gpt-b "}, "medium"),
    ({"defaultModel": "GPT-B"}, "medium"),
    ({"defaultModel": "openai/gpt-b"}, "medium"),
    ({"defaultModel": "openai/gpt-b:high"}, "high"),
    ({"defaultModel": "gpt-b:low"}, "low"),
    ({"defaultProvider": "openai", "defaultModel": "gpt-b"}, "medium"),
    ({"defaultProvider": "openai", "defaultModel": "gpt-b:high"}, "high"),
    ({"defaultProvider": "openai", "defaultModel": "openai/gpt-b"}, "medium"),
    # A changed `defaultModel` beside the provider of an earlier one.
    ({"defaultProvider": "anthropic", "defaultModel": "openai/gpt-b:high"}, "high"),
    ({"defaultProvider": "", "defaultModel": "gpt-b"}, "medium"),
]


class Catalog:
    def providers(self) -> list[str]:
        return list(MODELS)

    def models(self, provider: str) -> list[Model]:
        return [a_model(id=one, name=one, provider=provider, reasoning=True) for one in MODELS.get(provider, [])]


class Chosen:
    """What files of settings come to, with these keys."""

    def __init__(self, root: Path, user: dict[str, Any], project: dict[str, Any] | None, keys: dict[str, str]) -> None:
        self.user, self.project = root / "user" / "settings.json", root / "project" / "settings.json"
        self.problems: list[str] = []
        for file, content in ((self.user, user), (self.project, project)):
            file.parent.mkdir(exist_ok=True)
            if content is not None:
                file.write_text(json.dumps(content))
        layers = Layers(str(self.user.parent), self.problems.append)
        layers.load_project_settings([str(self.project.parent)])
        registry = ModelRegistry(catalog=Catalog(), entries={}, stored=dict, environ=keys, values=Values(keys, None))
        self.options: ModelOptions = resolve_model_options(
            AgentOptions(), Environment(variables=keys, home="/h", cwd="/w"), layers, registry, self.problems.append
        )

    @property
    def model(self) -> str | None:
        return None if self.options.model is None else self.options.model.reference

    @property
    def told(self) -> str:
        return "\n".join([self.options.problem, *self.problems])


def without(*variables: str) -> dict[str, str]:
    return {name: value for name, value in KEYS.items() if name not in variables}


@pytest.mark.parametrize("in_project", [False, True])
@pytest.mark.parametrize(("written", "level"), WAYS)
def test_every_way_to_write_a_model_means_it(
    tmp_path: Path, written: dict[str, str], level: str, in_project: bool
) -> None:
    earlier = dict(zip(PAIR, ("anthropic", "claude-a"), strict=True))
    user, project = (earlier, written) if in_project else (written, None)
    chosen = Chosen(tmp_path, user, project, KEYS)
    assert (chosen.model, chosen.options.thinking, chosen.told) == ("openai/gpt-b", level, "")
    assert not chosen.options.explicit


@pytest.mark.parametrize("in_project", [False, True])
@pytest.mark.parametrize("written", [written for written, _ in WAYS])
def test_a_model_without_a_key_is_named_with_its_setting_file_and_remedy(
    tmp_path: Path, written: dict[str, str], in_project: bool
) -> None:
    chosen = Chosen(tmp_path, {} if in_project else written, written if in_project else None, without("OPENAI_API_KEY"))
    file = chosen.project if in_project else chosen.user
    assert chosen.model == "openai/gpt-b"
    assert f'defaultModel "{written["defaultModel"].strip()}" in {file} cannot be used' in chosen.options.problem
    assert "set OPENAI_API_KEY" in chosen.options.problem


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ({"defaultModel": "nonsense"}, 'model "nonsense" not found'),
        ({"defaultModel": "recorded/x.jsonl"}, "only --model replays a recording"),
        ({"defaultProvider": "nobody", "defaultModel": "x"}, 'unknown provider "nobody"'),
        ({"defaultProvider": "nobody"}, 'unknown provider "nobody"'),
        ({"defaultProvider": "nobody", "defaultModel": "gpt-b"}, 'model of openai, but defaultProvider is "nobody"'),
        ({"defaultProvider": "anthropic", "defaultModel": "gpt-b"}, "is a model of openai, but defaultProvider is"),
        ({"defaultProvider": "anthropic", "defaultModel": "gpt-b:high"}, "is a model of openai, but defaultProvider"),
        ({"defaultModel": "shared"}, "ambiguous across providers: anthropic/shared, openai/shared"),
    ],
)
def test_a_name_that_means_no_model_chooses_none(tmp_path: Path, written: dict[str, str], reason: str) -> None:
    chosen = Chosen(tmp_path, written, None, KEYS)
    assert chosen.model is None
    assert reason in chosen.options.problem
    assert str(chosen.user) in chosen.options.problem
    assert any(key in chosen.options.problem for key in written)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ({"defaultProvider": "openai"}, "openai/gpt-a"),
        ({"defaultProvider": "openrouter", "defaultModel": "openai/gpt-b"}, "openrouter/openai/gpt-b"),
        ({"defaultProvider": "openrouter", "defaultModel": "vendor/x:high"}, "openrouter/vendor/x:high"),
        ({"defaultModel": "anthropic/claude-new"}, "anthropic/claude-new"),
        ({"defaultModel": "demo"}, "demo/guide"),
        ({"defaultModel": "demo/guide"}, "demo/guide"),
        ({"defaultModel": ""}, "anthropic/claude-a"),
        ({}, "anthropic/claude-a"),
    ],
)
def test_providers_with_slashes_new_models_and_the_demo(tmp_path: Path, written: dict[str, str], found: str) -> None:
    chosen = Chosen(tmp_path, written, None, KEYS)
    assert (chosen.model, chosen.options.problem) == (found, "")
    assert any("claude-new" in problem for problem in chosen.problems) == ("claude-new" in found)


def test_the_one_usable_provider_of_an_id_is_meant_and_without_any_key_the_usual_one(tmp_path: Path) -> None:
    assert Chosen(tmp_path, {"defaultModel": "shared"}, None, {"OPENAI_API_KEY": "2"}).model == "openai/shared"
    usual = Chosen(tmp_path, {"defaultModel": "shared"}, None, {})
    assert usual.model == "anthropic/shared"
    assert "set ANTHROPIC_API_KEY" in usual.options.problem


def test_a_project_may_name_a_model_of_another_provider(tmp_path: Path) -> None:
    user = {"defaultProvider": "anthropic", "defaultModel": "claude-a"}
    assert Chosen(tmp_path, user, {"defaultModel": "gpt-b"}, KEYS).model == "openai/gpt-b"
    assert Chosen(tmp_path, user, {"defaultModel": "claude-b"}, KEYS).model == "anthropic/claude-b"
    # A provider alone means its default model: the id in the other file is of the other provider.
    assert Chosen(tmp_path, user, {"defaultProvider": "openai"}, KEYS).model == "openai/gpt-a"
