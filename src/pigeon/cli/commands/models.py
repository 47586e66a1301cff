"""`pigeon models`: which models there are, what they cost, and which of them have a key. `--list-models` is the same in
the form of pi, which programs read, and `omp models` in that of oh-my-pi."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pigeon.app.models import make_registry
from pigeon.config.models_file import find_models_file
from pigeon.frontends.call import CommandCall
from pigeon.frontends.printing import did_you_mean, format_table, print_line, print_to_stderr
from pigeon.providers.default_model import format_count
from pigeon.providers.registry import ModelRegistry
from pigeon.secrets.redactor import Redactor
from pigeon.system.environment import Environment
from pigeon.transport import exit_codes
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.model import Model, levels_of, plain_number

COLUMNS = ("provider", "model", "context", "max-out", "thinking", "images")
NONE_AVAILABLE = "No models available. Set a provider's API key in the environment, auth.json or models.json."
NO_KEY = (
    "No model is available: no provider has a key.\n"
    "  Set one:          export ANTHROPIC_API_KEY=…  (or OPENAI_API_KEY, GEMINI_API_KEY, …)\n"
    "  Your own server:  describe it in {file}\n"
    "  All models:       pigeon models --all\n"
    "  Without a key:    pigeon demo"
)


def run_models(call: CommandCall) -> int:
    """Print the models; returns 1 if there is none, with advice on stderr."""
    registry = _make_registry(call.environment)
    words = [word.lower() for given in call.words for word in given.split()]
    every = registry.all_models() if words or call.has_option("all") else registry.list_available()
    shown = sorted(
        _find_matching(every, words),
        key=lambda model: (not registry.has_key(model.provider), model.provider, model.id),
    )
    if call.has_option("json"):
        import json

        print_line(json.dumps([_to_object(model, registry) for model in shown], indent=2))
    elif shown:
        print_line(_format_models_table(shown, registry))
    _print_problems(registry)
    if shown:
        return exit_codes.OK
    if not call.has_option("json"):
        meant = "".join(
            did_you_mean(word, _collect_search_words(every)) for word in words if not _find_matching(every, [word])
        )
        nothing = f'No model matches "{" ".join(call.words)}".{meant} `pigeon models --all` lists all.'
        print_to_stderr(nothing if words else NO_KEY.format(file=find_models_file(call.environment.agent_dir())))
    return exit_codes.FAILED


def _format_models_table(models: Sequence[Model], registry: ModelRegistry) -> str:
    rows = [
        (
            *_model_row(model),
            f"{model.cost.input:g}/{model.cost.output:g}",
            "yes" if registry.has_key(model.provider) else "no key",
        )
        for model in models
    ]
    return format_table([(*COLUMNS, "$ in/out", "key"), *rows])


def _model_row(model: Model) -> tuple[str, ...]:
    return (
        model.provider,
        model.id,
        format_count(model.context_window),
        format_count(model.max_tokens),
        "yes" if model.reasoning else "no",
        "yes" if "image" in model.input else "no",
    )


def _find_matching(models: Sequence[Model], words: Sequence[str]) -> list[Model]:
    return [model for model in models if all(word in f"{model.reference} {model.name}".lower() for word in words)]


def _collect_search_words(models: Sequence[Model]) -> set[str]:
    """The words that people search for: providers, ids and their parts."""
    known = {name for model in models for name in (model.provider, model.id.lower())}
    return known | {part for name in known for part in re.split(r"[^a-z0-9.]+", name) if len(part) > 2}


def _to_object(model: Model, registry: ModelRegistry) -> dict[str, Json]:
    return {
        "provider": model.provider,
        "id": model.id,
        "name": model.name,
        "contextWindow": model.context_window,
        "maxTokens": model.max_tokens,
        "reasoning": model.reasoning,
        "input": list(model.input),
        "cost": {"input": plain_number(model.cost.input), "output": plain_number(model.cost.output)},
        "hasKey": registry.has_key(model.provider),
    }


def run_family_models(call: CommandCall) -> int:
    """Print the usable models as oh-my-pi does: a table for each provider, or one object in one line."""
    pattern = call.word_at(0).strip().lower()
    if call.action == "find" and not pattern:
        print_to_stderr("omp models find needs a text to look for: omp models find PATTERN")
        return exit_codes.FAILED
    registry = _make_registry(call.environment)
    available = registry.list_available() if call.options["kind"] in (None, "chat", "all") else []
    shown = sorted(
        _find_like_family(available, pattern, names_provider=call.action != "find"),
        key=lambda model: (model.provider, model.id),
    )
    if call.has_option("json"):
        print_line(codec.encode({"models": [_to_family_object(model) for model in shown]}).decode())
    elif shown:
        print_line("\n\n".join(_format_family_table(shown, provider) for provider in _list_providers(shown)))
    else:
        print_line(f'No models matching "{call.word_at(0)}"' if pattern else NONE_AVAILABLE)
    _print_problems(registry)
    return exit_codes.OK


def _find_like_family(models: Sequence[Model], pattern: str, names_provider: bool) -> Sequence[Model]:
    """The models of the provider that the pattern names, else all that contain it."""
    named = [model for model in models if model.provider.lower() == pattern] if names_provider else []
    return named or [one for one in models if any(pattern in text.lower() for text in (one.reference, one.name))]


def _list_providers(models: Sequence[Model]) -> list[str]:
    return list(dict.fromkeys(model.provider for model in models))


def _format_family_table(models: Sequence[Model], provider: str) -> str:
    rows = [
        (
            model.id,
            format_count(model.context_window),
            format_count(model.max_tokens),
            ",".join(_list_efforts(model)) or "-",
            "yes" if "image" in model.input else "no",
        )
        for model in models
        if model.provider == provider
    ]
    return f"{provider} ({len(rows)})\n{format_table([COLUMNS[1:], *rows])}"


def _list_efforts(model: Model) -> list[str]:
    return [level for level in levels_of(model) if level != "off"]


def _to_family_object(model: Model) -> dict[str, Json]:
    return {
        "provider": model.provider,
        "kind": "chat",
        "id": model.id,
        "selector": model.reference,
        "name": model.name,
        "contextWindow": model.context_window,
        "maxTokens": model.max_tokens,
        "reasoning": model.reasoning,
        "thinking": [*_list_efforts(model)] if model.reasoning else None,
        "input": list(model.input),
        "cost": {name: plain_number(price) for name, price in codec.to_plain(model.cost).items() if name != "tiers"},
    }


def print_models(search: str, environment: Environment) -> int:
    """Print the usable models in pi's form, with errors in files on stderr."""
    registry = _make_registry(environment)
    print_line(_format_search_result(registry.list_available(), search))
    _print_problems(registry)
    return exit_codes.OK


def _format_search_result(models: Sequence[Model], search: str) -> str:
    shown = _find_matching(models, search.lower().split())
    if shown:
        return format_table(
            [COLUMNS, *(_model_row(model) for model in sorted(shown, key=lambda one: (one.provider, one.id)))]
        )
    if search.split():
        return f'No models matching "{search}"'
    return NONE_AVAILABLE


def _make_registry(environment: Environment) -> ModelRegistry:
    folder = environment.agent_dir()
    return make_registry(folder, environment.variables, environment.cwd or "/", None, Redactor())


def _print_problems(registry: ModelRegistry) -> None:
    for problem in registry.find_problems():
        print_to_stderr(f"pigeon: {problem}")
