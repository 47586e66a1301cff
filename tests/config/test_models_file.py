from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.config.models_file import parse_models_file, read_models_file
from support.strategies import json_values, words

PROVIDER = {"baseUrl": "http://x", "api": "openai-completions", "apiKey": "k", "models": [{"id": "m"}]}


def parse_models(value: Any) -> Any:
    return parse_models_file(json.dumps(value).encode(), "models.json")


def test_a_file_is_read_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    path.write_text(json.dumps({"providers": {"p": PROVIDER}}))
    file = read_models_file(str(path))
    assert file.problem is None
    assert file.providers == {"p": {**PROVIDER, "modelOverrides": {}}}


def test_a_missing_file_is_empty(tmp_path: Path) -> None:
    assert read_models_file(str(tmp_path / "none.json")).providers == {}


def test_an_unreadable_file_is_a_problem_that_names_it(tmp_path: Path) -> None:
    file = read_models_file(str(tmp_path))
    assert file.problem is not None
    assert str(tmp_path) in file.problem


def test_comments_trailing_commas_and_a_mark_are_tolerated() -> None:
    text = """\ufeff// mine
    { /* all
         of them */ "providers": {
        "p": { "baseUrl": "http://x//y", "apiKey": "a,} // b", "headers": {"a": "/* no */",}, // here
        /* end */ },
    } }"""
    file = parse_models_file(text.encode())
    assert file.problem is None
    assert file.providers["p"]["baseUrl"] == "http://x//y"
    assert file.providers["p"]["apiKey"] == "a,} // b"
    assert file.providers["p"]["headers"] == {"a": "/* no */"}


def test_an_empty_file_is_empty() -> None:
    for data in (b"", b"  \n", b"{}", b'{"providers":{}}'):
        assert parse_models_file(data) == parse_models_file(b"{}")


def test_null_counts_as_absent_except_in_maps() -> None:
    file = parse_models({"providers": {"p": {**PROVIDER, "name": None, "headers": {"x": None}}}})
    assert file.problem is None
    assert "name" not in file.providers["p"]
    assert file.providers["p"]["headers"] == {"x": None}


def test_unknown_keys_are_no_reason_to_refuse() -> None:
    assert parse_models({"$schema": "x", "providers": {"p": {**PROVIDER, "someday": 1}}}).problem is None


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ([], "the file"),
        ({"providers": []}, '"providers"'),
        ({"providers": {"p": 1}}, '"providers.p"'),
        ({"providers": {"p": {}}}, '"providers.p"'),
        ({"providers": {"p": {"baseUrl": 1}}}, '"providers.p.baseUrl"'),
        ({"providers": {"p": {**PROVIDER, "models": {}}}}, '"providers.p.models"'),
        ({"providers": {"p": {**PROVIDER, "models": [{}]}}}, '"providers.p.models[0].id"'),
        ({"providers": {"p": {**PROVIDER, "models": [{"id": ""}]}}}, '"providers.p.models[0].id"'),
        (
            {"providers": {"p": {**PROVIDER, "models": [{"id": "m", "contextWindow": "big"}]}}},
            '"providers.p.models[0].contextWindow"',
        ),
        (
            {"providers": {"p": {**PROVIDER, "models": [{"id": "m", "maxTokens": 0}]}}},
            '"providers.p.models[0].maxTokens"',
        ),
        (
            {"providers": {"p": {**PROVIDER, "models": [{"id": "m", "cost": {"input": "x"}}]}}},
            '"providers.p.models[0].cost.input"',
        ),
        (
            {"providers": {"p": {**PROVIDER, "modelOverrides": {"m": {"reasoning": "yes"}}}}},
            '"providers.p.modelOverrides.m.reasoning"',
        ),
        ({"providers": {"p": {**PROVIDER, "headers": {"x": 1}}}}, '"providers.p.headers'),
    ],
)
def test_a_wrong_field_voids_the_file_and_is_named(value: Any, field: str) -> None:
    file = parse_models(value)
    assert file.providers == {}
    assert file.problem is not None
    assert file.problem.startswith("models.json: ")
    assert field in file.problem


def test_broken_json_says_so() -> None:
    for data in (b"{", b"{'a': 1}", b"// only a remark\n{"):
        problem = parse_models_file(data).problem
        assert problem is not None
        assert "JSON" in problem


@given(st.binary(max_size=120))
def test_no_bytes_raise(data: bytes) -> None:
    parse_models_file(data)


NAMES = words("providers", "p", "models", "id", "apiKey", "modelOverrides", "cost", "headers")


@given(json_values(keys=NAMES, size=20))
def test_no_json_raises(value: Any) -> None:
    parse_models(value)
