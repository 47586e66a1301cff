from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.providers.model_patterns import (
    find_exact,
    find_fuzzy,
    is_alias,
    resolve_pattern,
    resolve_scope,
    split_level,
)
from pigeon.system.globs import compile_model_glob
from pigeon.wire.model import Model
from support.model_requests import a_model


def model_named(reference: str, name: str = "") -> Model:
    provider, _, model_id = reference.partition("/")
    return a_model(provider=provider, id=model_id, name=name or model_id)


MODELS = [
    model_named("anthropic/claude-sonnet-4-5", "Claude Sonnet 4.5"),
    model_named("anthropic/claude-sonnet-4-5-20250929"),
    model_named("anthropic/claude-sonnet-4-20250514"),
    model_named("openai/gpt-5.5", "GPT five"),
    model_named("router/openai/gpt-5.5"),
    model_named("router/qwen/qwen3:free"),
    model_named("ollama/llama3:8b"),
    model_named("azure/gpt-5.5"),
]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("anthropic/claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("ANTHROPIC/Claude-Sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("router/openai/gpt-5.5", "router/openai/gpt-5.5"),
        ("qwen/qwen3:free", "router/qwen/qwen3:free"),
        ("llama3:8b", "ollama/llama3:8b"),
        ("gpt-5.5", None),
        ("nothing", None),
    ],
)
def test_complete_names(typed: str, found: str | None) -> None:
    model = find_exact(typed, MODELS)
    assert (model.reference if model else None) == found


def test_parts_of_names_prefer_undated_ids_then_the_highest() -> None:
    sonnet = find_fuzzy("sonnet", MODELS)
    assert sonnet is not None
    assert sonnet.id == "claude-sonnet-4-5"
    five = find_fuzzy("FIVE", MODELS)
    assert five is not None
    assert five.reference == "openai/gpt-5.5"
    assert find_fuzzy("  ", MODELS) is None
    dated = find_fuzzy("sonnet-4-2025", MODELS)
    assert dated is not None
    assert dated.id == "claude-sonnet-4-20250514"


@pytest.mark.parametrize("half", ["ollama", "ollama/", "/llama3:8b", "olla/", "ma/"])
def test_half_of_a_reference_is_no_part_of_a_name(half: str) -> None:
    assert find_fuzzy(half, MODELS) is None
    whole = find_fuzzy("ollama/llama", MODELS)
    assert whole is not None
    assert whole.reference == "ollama/llama3:8b"


def test_what_is_an_alias() -> None:
    assert is_alias("devstral-latest")
    assert is_alias("gpt-5.5")
    assert not is_alias("claude-20250929")


def test_a_level_behind_the_last_colon() -> None:
    match = resolve_pattern("sonnet:high", MODELS, strict=True)
    assert match.model is not None
    assert (match.model.id, match.level) == ("claude-sonnet-4-5", "high")
    tagged = resolve_pattern("llama3:8b:low", MODELS, strict=True)
    assert tagged.model is not None
    assert (tagged.model.id, tagged.level) == ("llama3:8b", "low")
    assert resolve_pattern("llama3:8b", MODELS, strict=True).level is None
    assert split_level("a:b:MAX") == ("a:b", "max")
    assert split_level("a:b") == ("a:b", None)


def test_a_wrong_level_is_no_match_or_a_warning() -> None:
    assert resolve_pattern("sonnet:huge", MODELS, strict=True).model is None
    lenient = resolve_pattern("sonnet:huge", MODELS, strict=False)
    assert lenient.model is not None
    assert lenient.level is None
    assert lenient.warning is not None
    assert '"huge"' in lenient.warning


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("*", "abc", True),
        ("*", "a/b", False),
        ("**", "a/b", True),
        ("a*/b", "axx/b", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("gpt-[45].*", "gpt-5.5", True),
        ("gpt-[!45].*", "gpt-5.5", False),
        ("GPT*", "gpt-5", True),
        ("a.c", "abc", False),
        ("a[", "a[", True),
        ("a[]", "a[]", True),
    ],
)
def test_globs(pattern: str, text: str, fits: bool) -> None:
    assert compile_model_glob(pattern)(text) is fits


@given(st.text(alphabet="ab/*?[]!^-\\{}().&|~", max_size=12), st.text(alphabet="ab/-", max_size=8))
def test_no_glob_breaks(pattern: str, text: str) -> None:
    compile_model_glob(pattern)(text)


def test_a_scope_keeps_its_order_without_repeats_and_names_what_matched_nothing() -> None:
    scope, warnings = resolve_scope(["ollama/*:low", " sonnet:high ", "anthropic/*", "", "zzz", "yyy*"], MODELS)
    assert [(model.reference, level) for model, level in scope] == [
        ("ollama/llama3:8b", "low"),
        ("anthropic/claude-sonnet-4-5", "high"),
        ("anthropic/claude-sonnet-4-5-20250929", None),
        ("anthropic/claude-sonnet-4-20250514", None),
    ]
    assert warnings == ['No models match pattern "zzz"', 'No models match pattern "yyy*"']
