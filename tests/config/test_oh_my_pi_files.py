"""The files of oh-my-pi as settings and models: what a member of theirs comes to here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from pigeon.config.layers import Layers
from pigeon.config.models_file import find_models_file, parse_models_file, read_models_file
from pigeon.config.oh_my_pi import convert_settings, to_template
from pigeon.wire.errors import BadRecord
from support.strategies import json_values, words

VARIABLES = {"MYKEY": "sk-1", "EMPTY": ""}
PROVIDER = """
providers:
  gateway:
    baseUrl: https://example.com/v1
    api: openai-completions
    {more}
    models:
      - id: one
"""


def provider_with(more: str) -> dict[str, Any]:
    file = parse_models_file(PROVIDER.replace("{more}", more).encode(), "/x/models.yml", VARIABLES)
    assert file.problem is None
    return file.providers["gateway"]


@pytest.mark.parametrize(
    ("text", "template"),
    [
        ("sk-literal", "sk-literal"),
        ("MYKEY", "$MYKEY"),
        ("EMPTY", "EMPTY"),
        ("OPENAI_API_KEY", "$OPENAI_API_KEY"),
        ("!pass show key", "!pass show key"),
        ("a$b${c}", "a$$b$${c}"),
    ],
)
def test_a_key_is_a_text_a_variable_or_a_command(text: str, template: str) -> None:
    assert to_template(text, VARIABLES) == template
    assert provider_with(f"apiKey: '{text}'")["apiKey"] == template
    assert provider_with(f"headers: {{X-Key: '{text}'}}")["headers"] == {"X-Key": template}


def test_a_server_without_keys_gets_one_that_says_so() -> None:
    assert provider_with("auth: none")["apiKey"] == "N/A"
    assert "apiKey" not in provider_with("auth: oauth")


@pytest.mark.parametrize(
    ("thinking", "supported"),
    [
        ("{mode: effort, efforts: [low, high]}", {"low": "low", "high": "high"}),
        ("{mode: effort, levels: [max]}", {"max": "max"}),
        ("{mode: budget, minLevel: low, maxLevel: high}", {"low": "low", "medium": "medium", "high": "high"}),
        ("{mode: effort, efforts: [low], effortMap: {low: little}}", {"low": "little"}),
    ],
)
def test_the_efforts_of_a_model_are_its_levels(thinking: str, supported: dict[str, str]) -> None:
    text = PROVIDER.replace("{more}", "apiKey: k") + f"        thinking: {thinking}\n"
    (model,) = parse_models_file(text.encode(), "models.yaml").providers["gateway"]["models"]
    assert {level: word for level, word in model["thinkingLevelMap"].items() if word} == supported
    assert set(model["thinkingLevelMap"]) == {"minimal", "low", "medium", "high", "xhigh", "max"}


def test_strict_tools_can_be_turned_off() -> None:
    made = provider_with("compat: {supportsStore: false}\n    disableStrictTools: true")
    assert made["compat"] == {"supportsStore": False, "supportsStrictMode": False}


def test_models_that_would_be_looked_up_on_a_server_are_reported() -> None:
    text = "providers: {mine: {baseUrl: http://x, api: openai-completions, discovery: {type: ollama}}}"
    file = parse_models_file(text.encode(), "/x/models.yml")
    assert file.problem is None
    (note,) = file.notes
    assert note.startswith('/x/models.yml: provider "mine": ')


def test_the_file_of_oh_my_pi_counts_alone_and_an_empty_one_too(tmp_path: Path) -> None:
    assert find_models_file(str(tmp_path)) == str(tmp_path / "models.json")
    (tmp_path / "models.json").write_text("{")
    (tmp_path / "models.yaml").write_text("")
    assert find_models_file(str(tmp_path)) == str(tmp_path / "models.yaml")
    (tmp_path / "models.yml").write_text("providers:\n  # none\n")
    assert find_models_file(str(tmp_path)) == str(tmp_path / "models.yml")
    assert read_models_file(str(tmp_path / "models.yml")).providers == {}
    assert read_models_file(str(tmp_path / "models.yaml")).problem is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("providers:\n  x:\n    baseUrl: [a\n", "in line 4"),
        ("providers: 7", '"providers" must be an object'),
        ("- a", "the file must be an object"),
        ("providers: {x: {models: 7, baseUrl: y}}", '"providers.x.models" must be an array'),
        ("providers: {x: {baseUrl: y, models: [{id: m, thinking: {mode: effort}}]}}", '"thinking" needs "efforts"'),
    ],
)
def test_a_broken_file_of_models_says_what_is_wrong_and_where(text: str, named: str) -> None:
    file = parse_models_file(text.encode(), "/x/models.yml")
    assert file.providers == {}
    assert file.problem is not None
    assert file.problem.startswith("/x/models.yml: ")
    assert named in file.problem


@pytest.mark.parametrize(
    ("roles", "model"),
    [
        ({"default": "fake/one"}, "fake/one"),
        ({"default": "fake/one:high"}, "fake/one:high"),
        ({"default": "fake/one:auto"}, "fake/one"),
        ({"default": "ollama/gemma4:31b"}, "ollama/gemma4:31b"),
        ({"default": "@smol", "smol": "fake/two:low"}, "fake/two:low"),
        ({"default": "pi/smol:max", "smol": "fake/two:low"}, "fake/two:max"),
        ({"default": ["fake/one", "fake/two"]}, "fake/one"),
        ({"default": " fake/one , fake/two"}, "fake/one"),
        ({"smol": "fake/two"}, None),
        ({"default": "@default"}, None),
        ({"default": 7}, None),
        ([], None),
        (None, None),
    ],
)
def test_the_default_role_is_the_default_model(roles: Any, model: str | None) -> None:
    assert convert_settings({"modelRoles": roles}, str, str).get("defaultModel") == model


@pytest.mark.parametrize(
    ("roles", "reported"),
    [
        ({"default": "fake/one"}, []),
        ({"default": "a/b,c/d"}, ["modelRoles.default lists several models; the first one, a/b, is used"]),
        ({"default": "@default"}, ["modelRoles.default is ignored: it stands for itself"]),
        ([], ["modelRoles is ignored: it must be an object of roles with their models"]),
    ],
)
def test_roles_that_cannot_be_followed_to_the_end_are_reported(roles: Any, reported: list[str]) -> None:
    told: list[str] = []
    convert_settings({"modelRoles": roles}, told.append, told.append)
    assert told == reported


def test_settings_that_mean_the_same_are_taken_over_and_others_are_not() -> None:
    theirs = {
        "steeringMode": "all", "shellPath": "/bin/zsh", "theme": "dark", "thinkingBudgets": {"low": 1},
        "compaction": {"enabled": False, "strategy": "handoff"}, "retry": {"maxRetries": 7, "maxDelayMs": 1},
        "tools": {"approvalMode": "write", "maxTimeout": 3}, "defaultThinkingLevel": "high",
        "enabledModels": ["a/*", {"path": "/x", "models": ["b"]}], "extensions": ["x.ts"], "todo": {"enabled": True},
    }  # fmt: skip
    assert convert_settings(theirs, print, print) == {
        "steeringMode": "all", "shellPath": "/bin/zsh", "thinkingBudgets": {"low": 1},
        "compaction": {"enabled": False}, "retry": {"maxRetries": 7}, "tools": {"approvalMode": "write"},
        "defaultThinkingLevel": "high", "enabledModels": ["a/*"],
    }  # fmt: skip
    assert convert_settings({"defaultThinkingLevel": "auto"}, print, print) == {}


def layers_of(folder: Path, text: str, own: str | None = None) -> tuple[Layers, list[str]]:
    (folder / "config.yml").write_text(text)
    if own is not None:
        (folder / "settings.json").write_text(own)
    told: list[str] = []
    return Layers(str(folder), told.append), told


def test_what_is_set_here_counts_more_than_what_was_set_there(tmp_path: Path) -> None:
    text = "modelRoles: {default: fake/one}\nretry: {maxRetries: 7, baseDelayMs: 9}\ntheme: dark\n"
    layers, told = layers_of(tmp_path, text, '{"retry": {"maxRetries": 1}}')
    assert layers.settings.default_model == "fake/one"
    assert (layers.settings.retry.max_retries, layers.settings.retry.base_delay_ms) == (1, 9)
    assert layers.place_of("defaultModel") == str(tmp_path / "config.yml")
    assert (told, layers.doubts) == ([], [])
    assert layers_of(tmp_path, text, '{"defaultModel": "two"}')[0].settings.default_model == "two"
    project = tmp_path / "project"
    project.mkdir()
    (project / "settings.json").write_text('{"defaultModel": "three"}')
    assert layers.load_project_settings([str(project)]).default_model == "three"
    assert layers.load_project_settings([]).default_model == "fake/one"


def test_policies_of_tools_are_permission_rules_beside_those_of_the_user(tmp_path: Path) -> None:
    text = "tools:\n  approval: {bash: prompt, write: Deny, read: allow}\n"
    layers, _ = layers_of(tmp_path, text, '{"permissions": {"deny": ["edit"]}}')
    assert layers.user_permissions == {"ask": ["bash"], "deny": ["write", "edit"], "allow": ["read"]}
    assert layers.doubts == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tools:\n  approval: {bash: [\n", "in line 3"),
        ("- a\n", "keys and values"),
        ("tools: {approval: {bash: maybe}}", "tools.approval.bash must be allow, deny or prompt"),
        ("tools: {approval: all}", "tools.approval must be an object"),
    ],
)
def test_a_file_whose_rules_may_be_missing_is_a_doubt_that_stays(tmp_path: Path, text: str, named: str) -> None:
    layers, _ = layers_of(tmp_path, text)
    (doubt,) = layers.doubts
    assert doubt.startswith(str(tmp_path / "config.yml"))
    assert named in doubt
    layers.load_project_settings([])
    assert layers.doubts == [doubt]


def test_without_such_a_file_nothing_of_yaml_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("yaml", "pigeon.config.oh_my_pi", "pigeon.config.yaml_reading"):
        monkeypatch.setitem(sys.modules, name, None)
    assert Layers(str(tmp_path), print).doubts == []
    assert read_models_file(find_models_file(str(tmp_path))).problem is None
    (tmp_path / "config.yml").write_text("{}")
    with pytest.raises(ImportError):
        Layers(str(tmp_path), print)


NAMES = words("modelRoles", "default", "smol", "tools", "approval", "retry", "enabledModels", "providers", "thinking")


@given(json_values(keys=NAMES, size=20))
def test_no_contents_raise_anything_but_a_refusal(value: Any) -> None:
    try:
        convert_settings(value, str, str)
    except BadRecord:
        assert not isinstance(value, dict)
