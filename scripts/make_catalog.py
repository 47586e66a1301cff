"""Makes the built-in catalogue from the answer of pi 1.5.0 to `get_available_models`.

    pi --mode rpc  # with some text in the variables of all providers, so that all their models are available
    python scripts/make_catalog.py answer.json

The file has the response, or only its list of models. Only facts are taken (ids, names, prices, sizes, abilities, level
names), for the providers of `built_in.py` and the APIs that Pigeon speaks. The output is sorted, so that a new run
shows what changed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from pigeon.providers.apis import APIS  # noqa: E402
from pigeon.providers.catalog.built_in import KNOWN  # noqa: E402

TARGET = ROOT / "src" / "pigeon" / "providers" / "catalog" / "data"
SPOKEN = {api.name for api in APIS.values() if api.adapter}
MISTRAL = {"mistral-conversations": ("openai-completions", "https://api.mistral.ai/v1")}
FLAGS = {
    "allowEmptySignature",
    "cacheControlFormat",
    "chatTemplateArgs",
    "chatTemplateKwargs",
    "forceAdaptiveThinking",
    "maxTokensField",
    "requiresReasoningContentOnAssistantMessages",
    "sendSessionAffinityHeaders",
    "sessionAffinityFormat",
    "supportsCacheControlOnTools",
    "supportsDeveloperRole",
    "supportsEagerToolInputStreaming",
    "supportsLongCacheRetention",
    "supportsReasoningEffort",
    "supportsStore",
    "supportsStrictMode",
    "supportsStrictTools",
    "supportsUsageInStreaming",
    "thinkingFormat",
    "zaiToolStream",
}


def main(file: str) -> None:
    """Write one file for each known provider."""
    answer = json.loads(Path(file).read_text())
    given = spoken(answer["data"]["models"] if isinstance(answer, dict) else answer)
    for provider in KNOWN:
        models = [reduced(raw) for raw in given if raw["provider"] == provider]
        if not models:
            print(f"{provider}: not in the list", file=sys.stderr)  # noqa: T201
            continue
        models.sort(key=lambda model: str(model["id"]))
        (TARGET / f"{provider}.json").write_text(printed(models))
        print(f"{provider}: {len(models)} models")  # noqa: T201


def spoken(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The models of all APIs that Pigeon speaks; those of Azure only by the API that finds their address."""
    found = []
    for raw in given:
        if raw["api"] in MISTRAL:
            api, base_url = MISTRAL[raw["api"]]
            found.append({**raw, "api": api, "baseUrl": base_url})
        elif raw["api"] in SPOKEN and (raw["baseUrl"] or raw["api"] == "azure-openai-responses"):
            found.append(raw)
    return found


def reduced(raw: dict[str, Any]) -> dict[str, Any]:
    """The facts that Pigeon uses."""
    keys = ("id", "name", "api", "baseUrl", "reasoning", "input", "cost", "contextWindow", "maxTokens")
    model = {key: raw[key] for key in keys}
    # A router that picks the model has no price of its own; the list says so with a negative one.
    model["cost"] = {key: max(0, price) if key != "tiers" else price for key, price in raw["cost"].items()}
    if raw.get("thinkingLevelMap"):
        model["thinkingLevelMap"] = raw["thinkingLevelMap"]
    compat = {key: value for key, value in (raw.get("compat") or {}).items() if key in FLAGS}
    if compat:
        model["compat"] = dict(sorted(compat.items()))
    return model


def printed(models: list[dict[str, Any]]) -> str:
    """The file: what all models share once, then a line for each."""
    shared = {
        key: models[0][key]
        for key in ("api", "baseUrl")
        if models and all(model[key] == models[0][key] for model in models)
    }
    lines = [
        json.dumps({k: v for k, v in model.items() if k not in shared}, separators=(",", ":"), ensure_ascii=False)
        for model in models
    ]
    head = json.dumps(shared, separators=(",", ":"))
    return '{"shared":' + head + ',"models":[\n' + ",\n".join(lines) + "\n]}\n"


if __name__ == "__main__":
    main(sys.argv[1])
