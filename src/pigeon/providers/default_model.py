"""Which model to begin with, from `--provider` and `--model` or by default; and the table of `--list-models`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pigeon.providers.catalog.built_in import KNOWN, to_current_provider_name, to_current_reference
from pigeon.providers.model_patterns import (
    GLOB_SIGNS,
    ModelMatch,
    find_by_id,
    find_exact,
    find_fuzzy,
    resolve_pattern,
    resolve_pattern_by,
    resolve_scope,
    split_level,
)
from pigeon.providers.registry import ModelRegistry
from pigeon.wire.errors import StartupError
from pigeon.wire.model import Model


class ModelNotFound(StartupError):
    """No model has the name, or several have it: the `reason`, and after that what to do at the command line."""

    def __init__(self, reason: str, advice: str, candidates: Sequence[Model] = ()) -> None:
        super().__init__(f"{reason}. {advice}")
        self.reason = reason
        self.candidates = candidates


def resolve_named_model(provider: str | None, pattern: str | None, registry: ModelRegistry) -> ModelMatch:
    """The model that `--provider` and `--model` mean; raises `StartupError` if they match none."""
    name = (pattern or "").strip()
    if not provider:
        name = to_current_reference(name)
    if any(sign in name for sign in GLOB_SIGNS):
        return _first_glob_match(
            _resolve_glob_in_provider(_require_provider(provider, registry), name, registry) if provider else name,
            registry,
        )
    if provider:
        return _resolve_in_provider(_require_provider(provider, registry), name, registry)
    known, rest = _split_provider(name, registry)
    if known is not None:
        match = _match_in_provider(known, rest, registry)
        if match.model is not None:
            return match
    match = _resolve_anywhere(name, registry)
    if match.model is not None:
        return match
    if known is not None and rest:
        return _build_unlisted_model(known, rest, registry)
    raise _not_found_error(name, registry)


def resolve_default_model(
    provider: str, name: str, registry: ModelRegistry, *, provider_is_hint: bool = False
) -> ModelMatch:
    """The model that the settings `defaultProvider` and `defaultModel` mean; raises `ModelNotFound`.

    Like `--provider` and `--model`, except for two ways in which settings come about without a person who chooses: the
    model may name its own provider, and the id of another provider's model is no new model of this one. A provider from
    another file is a hint.
    """
    if not provider:
        return _resolve_without_provider(name, registry)
    known = _find_provider(to_current_provider_name(provider), registry)
    if known is not None and name:
        model_id, level = split_level(name)
        for text, wanted in ((name, None), (model_id, level)):
            listed = registry.find_listed(known, text)
            if listed is not None:
                return ModelMatch(model=listed, level=wanted)
    if name and _split_provider(to_current_reference(name), registry)[0] is not None:
        return _resolve_without_provider(name, registry)
    elsewhere = find_by_id(name, registry.all_models()) or find_by_id(split_level(name)[0], registry.all_models())
    if elsewhere and all(model.provider != known for model in elsewhere):
        if provider_is_hint:
            return _resolve_without_provider(name, registry)
        owners = " and ".join(sorted({model.provider for model in elsewhere}))
        raise ModelNotFound(
            f'"{name}" is a model of {owners}, but defaultProvider is "{provider}"',
            f"Use {elsewhere[0].reference}.",
        )
    return resolve_named_model(provider, name, registry)


def _resolve_without_provider(name: str, registry: ModelRegistry) -> ModelMatch:
    try:
        return resolve_named_model(None, name, registry)
    except ModelNotFound as error:
        if not error.candidates or any(registry.has_key(model.provider) for model in error.candidates):
            raise
        # Several providers have it, and none can be used yet: the most usual one says which key is missing.
        return ModelMatch(model=error.candidates[0], level=split_level(name)[1])


def _split_provider(name: str, registry: ModelRegistry) -> tuple[str | None, str]:
    """The provider that a reference begins with, and the rest. The longest matching name counts, because names of
    providers may contain a slash."""
    lower = name.lower()
    known = [provider for provider in registry.providers() if lower.startswith(f"{provider.lower()}/")]
    longest = max(known, key=len, default=None)
    return longest, name[len(longest) + 1 :] if longest is not None else ""


def _resolve_glob_in_provider(provider: str, pattern: str, registry: ModelRegistry) -> str:
    """Resolve a glob among the models of one provider, whose name it may contain."""
    named, _ = _split_provider(to_current_reference(pattern), registry)
    return to_current_reference(pattern) if named == provider else f"{provider}/{pattern}"


def _first_glob_match(pattern: str, registry: ModelRegistry) -> ModelMatch:
    """The first model that a glob matches, preferably a usable one."""
    for models in (registry.list_available(), registry.all_models()):
        found, _ = resolve_scope([pattern], models)
        if found:
            model, level = found[0]
            return ModelMatch(model=model, level=level)
    raise _not_found_error(pattern, registry)


def _not_found_error(name: str, registry: ModelRegistry) -> ModelNotFound:
    return ModelNotFound(f'Model "{name}" not found', _advise_list("models", registry))


def _advise_list(what: str, registry: ModelRegistry) -> str:
    """Where to look; without a key `--list-models` is empty."""
    if any(map(registry.has_key, registry.providers())):
        return f"Use --list-models to see available {what}."
    return "No provider has a key yet; `pigeon models --all` lists all models."


def _require_provider(name: str, registry: ModelRegistry) -> str:
    known = _find_provider(to_current_provider_name(name), registry)
    if known is None:
        raise ModelNotFound(f'Unknown provider "{name}"', _advise_list("providers/models", registry))
    return known


def _find_provider(name: str, registry: ModelRegistry) -> str | None:
    return next((known for known in registry.providers() if known.lower() == name.lower()), None)


def _resolve_in_provider(provider: str, name: str, registry: ModelRegistry) -> ModelMatch:
    if not name:
        model = default_model_of(provider, registry)
        if model is None:
            raise ModelNotFound(f'Provider "{provider}" has no models', _advise_list("models", registry))
        return ModelMatch(model=model)
    match = _match_in_provider(provider, name, registry)
    named, rest = _split_provider(to_current_reference(name), registry)
    if match.model is None and named == provider and rest:
        name = rest
        match = _match_in_provider(provider, name, registry)
    return match if match.model is not None else _build_unlisted_model(provider, name, registry)


def _match_in_provider(provider: str, name: str, registry: ModelRegistry) -> ModelMatch:
    direct = registry.find_listed(provider, name)
    if direct is not None:
        return ModelMatch(model=direct)
    return resolve_pattern(name, registry.models_of(provider), strict=True) if name else ModelMatch()


def _resolve_anywhere(name: str, registry: ModelRegistry) -> ModelMatch:
    """Complete names match all models; parts of names match usable models first."""
    models = registry.all_models()

    def find_model(text: str) -> Model | None:
        found = find_exact(text, models)
        if found is not None:
            return found
        same = find_by_id(text, models)
        if same:
            return _require_one_usable(text, same, registry)
        return find_fuzzy(text, registry.list_available()) or _match_in_first_provider(text, registry)

    return resolve_pattern_by(name, find_model, strict=True)


def _match_in_first_provider(text: str, registry: ModelRegistry) -> Model | None:
    """If no provider has a key, choose the model of the most usual provider: "claude" is Anthropic's, not that of a
    reseller."""
    found = (find_fuzzy(text, registry.models_of(provider)) for provider in registry.providers())
    return next((model for model in found if model is not None), None)


def _require_one_usable(name: str, models: Sequence[Model], registry: ModelRegistry) -> Model:
    usable = [model for model in models if registry.has_key(model.provider)]
    if len(usable) == 1:
        return usable[0]
    if usable and len({registry.key_source(model.provider) for model in usable}) == 1:
        return usable[0]  # one subscription under several names: the first is the ordinary one
    candidates = ", ".join(sorted(model.reference for model in usable or models))
    have = "More than one matching provider is authenticated." if usable else "None of them is authenticated."
    raise ModelNotFound(
        f'Model "{name}" is ambiguous across providers: {candidates}',
        f"{have} Use --provider or provider/model.",
        candidates=usable or models,
    )


def _build_unlisted_model(provider: str, name: str, registry: ModelRegistry) -> ModelMatch:
    """A model that is not listed yet: like the provider's default, with this id."""
    template = default_model_of(provider, registry)
    if template is None:
        raise _not_found_error(name, registry)
    model_id, level = split_level(name)
    reasoning = template.reasoning or (level is not None and level != "off")
    model = msgspec.structs.replace(template, id=model_id, name=model_id, reasoning=reasoning)
    warning = f'Model "{model_id}" is not in the list of provider "{provider}"; it is used as it is'
    return ModelMatch(model=model, level=level, warning=warning)


def default_model_of(provider: str, registry: ModelRegistry) -> Model | None:
    """The default model of a provider."""
    known = KNOWN.get(provider)
    if known is not None:
        model = registry.find_listed(provider, known.default)
        if model is not None:
            return model
    return next(iter(registry.models_of(provider)), None)


def find_first_usable_model(registry: ModelRegistry) -> Model | None:
    """The default of the first provider with credentials, else the first model with credentials."""
    for provider, known in KNOWN.items():
        if registry.has_key(provider):
            model = registry.find_listed(provider, known.default)
            if model is not None:
                return model
    return next(iter(registry.list_available()), None)


def format_count(tokens: int) -> str:
    """A token count in thousands or millions, with a decimal if it is not round."""
    for unit, name in ((1_000_000, "M"), (1000, "K")):
        if tokens >= unit:
            return f"{tokens / unit:.{0 if tokens % unit == 0 else 1}f}{name}"
    return str(tokens)
