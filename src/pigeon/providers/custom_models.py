"""The models of one provider: built-in ones, and what an entry of `models.json` adds, replaces and overrides.

Pure functions of plain data for `registry`, which has read and checked the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pigeon.wire import codec
from pigeon.wire.base import ABSENT, merge_objects, value_or_default
from pigeon.wire.model import Model, ModelCost

CONTEXT_WINDOW = 128_000
MAX_TOKENS = 16_384
Headers = dict[str, str | None]
_PLAIN = {
    "name": "name",
    "reasoning": "reasoning",
    "input": "input",
    "contextWindow": "context_window",
    "maxTokens": "max_tokens",
}
_MERGED = {
    "thinkingLevelMap": "thinking_level_map",
    "compat": "compat",
    "inputLimits": "input_limits",
    "promptCache": "prompt_cache",
    "samplingParams": "sampling_params",
    "samplingParamsByThinkingLevel": "sampling_params_by_thinking_level",
}


class UnusableEntry(Exception):
    """An entry that cannot become a model; the text names what is missing."""


class ProviderModels(msgspec.Struct):
    """The models of one provider in their order, and the configured headers, which are not part of a `Model`."""

    models: dict[str, Model]
    headers: Headers
    model_headers: dict[str, Headers]


def build_provider_models(provider: str, built_in: list[Model], entry: Mapping[str, Any]) -> ProviderModels:
    """A provider's models: built-in ones re-targeted, custom ones added or replaced, overrides last."""
    models = {model.id: _retarget_model(model, entry) for model in built_in}
    model_headers: dict[str, Headers] = {}
    sibling = next(iter(models.values()), None)
    for raw in entry.get("models", ()):
        model = _build_custom_model(provider, entry, raw, models.get(raw["id"], sibling))
        models[model.id] = model
        sibling = sibling or model
        model_headers[model.id] = dict(raw.get("headers", {}))
    for model_id, patch in entry.get("modelOverrides", {}).items():
        if model_id in models:
            models[model_id] = patch_model(models[model_id], patch)
            model_headers[model_id] = {**model_headers.get(model_id, {}), **patch.get("headers", {})}
    return ProviderModels(models=models, headers=dict(entry.get("headers", {})), model_headers=model_headers)


def _retarget_model(model: Model, entry: Mapping[str, Any]) -> Model:
    changes: dict[str, Any] = {}
    if "baseUrl" in entry:
        changes["base_url"] = entry["baseUrl"]
    if "compat" in entry:
        changes["compat"] = merge_objects(value_or_default(model.compat, {}), entry["compat"])
    return msgspec.structs.replace(model, **changes) if changes else model


def _build_custom_model(
    provider: str, entry: Mapping[str, Any], raw: Mapping[str, Any], sibling: Model | None
) -> Model:
    api = raw.get("api") or entry.get("api") or (sibling.api if sibling else "")
    base_url = raw.get("baseUrl") or entry.get("baseUrl") or (sibling.base_url if sibling else "")
    for name, value in (("api", api), ("baseUrl", base_url)):
        if not value:
            raise UnusableEntry(f'model "{raw["id"]}" has no "{name}": set it on the model or on the provider')
    compat = merge_objects(entry.get("compat", {}), raw.get("compat", {}))
    return Model(
        id=raw["id"],
        name=raw.get("name", raw["id"]),
        api=api,
        provider=provider,
        base_url=base_url,
        reasoning=raw.get("reasoning", False),
        input=raw.get("input", ["text"]),
        cost=_parse_prices(raw.get("cost", {})),
        context_window=raw.get("contextWindow", CONTEXT_WINDOW),
        max_tokens=raw.get("maxTokens", MAX_TOKENS),
        thinking_level_map=raw.get("thinkingLevelMap", ABSENT),
        compat=compat or ABSENT,
        input_limits=raw.get("inputLimits", ABSENT),
        prompt_cache=raw.get("promptCache", ABSENT),
        sampling_params=raw.get("samplingParams", ABSENT),
        sampling_params_by_thinking_level=raw.get("samplingParamsByThinkingLevel", ABSENT),
    )


def patch_model(model: Model, patch: Mapping[str, Any]) -> Model:
    """The model with some facts replaced; maps are merged key by key."""
    changes: dict[str, Any] = {ours: patch[theirs] for theirs, ours in _PLAIN.items() if theirs in patch}
    for theirs, ours in _MERGED.items():
        if theirs in patch:
            changes[ours] = merge_objects(value_or_default(getattr(model, ours), {}), patch[theirs])
    if "cost" in patch:
        prices = {**msgspec.to_builtins(model.cost), **patch["cost"]}
        changes["cost"] = _parse_prices(prices)
    return msgspec.structs.replace(model, **changes)


def _parse_prices(given: Any) -> ModelCost:
    codec.prepare_type(ModelCost)
    return msgspec.convert(given, ModelCost)
