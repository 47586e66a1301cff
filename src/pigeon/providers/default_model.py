"""Which model to begin with, from `--provider` and `--model` or by default; and the table of `--list-models`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pigeon.providers.catalog.built_in import KNOWN, current_name, current_reference
from pigeon.providers.model_patterns import (
    GLOB_SIGNS,
    ModelMatch,
    exact,
    fuzzy,
    resolved,
    resolved_by,
    scope_of,
    split_level,
    with_id,
)
from pigeon.providers.registry import ModelRegistry
from pigeon.wire.errors import StartupError
from pigeon.wire.model import Model


def named_model(provider: str | None, pattern: str | None, registry: ModelRegistry) -> ModelMatch:
    """What `--provider` and `--model` mean; raises `StartupError` when they mean nothing."""
    name = (pattern or "").strip()
    if not provider:
        name = current_reference(name)
    if any(sign in name for sign in GLOB_SIGNS):
        return _first_of(
            _within_provider(_provider_id(provider, registry), name, registry) if provider else name, registry
        )
    if provider:
        return _of_provider(_provider_id(provider, registry), name, registry)
    known, rest = _with_provider(name, registry)
    if known is not None:
        match = _within(known, rest, registry)
        if match.model is not None:
            return match
    match = _anywhere(name, registry)
    if match.model is not None:
        return match
    if known is not None and rest:
        return _invented(known, rest, registry)
    raise _not_found(name)


def _with_provider(name: str, registry: ModelRegistry) -> tuple[str | None, str]:
    """The provider that a reference begins with, and what stands behind it. Of several, the longest name is meant,
    because names of providers may have a slash of their own."""
    lower = name.lower()
    known = [provider for provider in registry.providers() if lower.startswith(f"{provider.lower()}/")]
    longest = max(known, key=len, default=None)
    return longest, name[len(longest) + 1 :] if longest is not None else ""


def _within_provider(provider: str, pattern: str, registry: ModelRegistry) -> str:
    """A glob among the models of one provider, which it may name itself."""
    named, _ = _with_provider(current_reference(pattern), registry)
    return current_reference(pattern) if named == provider else f"{provider}/{pattern}"


def _first_of(pattern: str, registry: ModelRegistry) -> ModelMatch:
    """A glob means the first model that it fits, one that can be used if there is any."""
    for models in (registry.available(), registry.all()):
        found, _ = scope_of([pattern], models)
        if found:
            model, level = found[0]
            return ModelMatch(model=model, level=level)
    raise _not_found(pattern)


def _not_found(name: str) -> StartupError:
    return StartupError(f'Model "{name}" not found. Use --list-models to see available models.')


def _provider_id(name: str, registry: ModelRegistry) -> str:
    known = _known(current_name(name), registry)
    if known is None:
        raise StartupError(f'Unknown provider "{name}". Use --list-models to see available providers/models.')
    return known


def _known(name: str, registry: ModelRegistry) -> str | None:
    return next((known for known in registry.providers() if known.lower() == name.lower()), None)


def _of_provider(provider: str, name: str, registry: ModelRegistry) -> ModelMatch:
    if not name:
        model = default_of(provider, registry)
        if model is None:
            raise StartupError(f'Provider "{provider}" has no models. Use --list-models to see available models.')
        return ModelMatch(model=model)
    match = _within(provider, name, registry)
    named, rest = _with_provider(current_reference(name), registry)
    if match.model is None and named == provider and rest:
        name = rest
        match = _within(provider, name, registry)
    return match if match.model is not None else _invented(provider, name, registry)


def _within(provider: str, name: str, registry: ModelRegistry) -> ModelMatch:
    direct = registry.lookup(provider, name)
    if direct is not None:
        return ModelMatch(model=direct)
    return resolved(name, registry.of(provider), strict=True) if name else ModelMatch()


def _anywhere(name: str, registry: ModelRegistry) -> ModelMatch:
    """Complete names count everywhere; parts of names first among the models that can be used."""
    models = registry.all()

    def find(text: str) -> Model | None:
        found = exact(text, models)
        if found is not None:
            return found
        same = with_id(text, models)
        if same:
            return _only_usable(text, same, registry)
        return fuzzy(text, registry.available()) or _of_first_provider(text, registry)

    return resolved_by(name, find, strict=True)


def _of_first_provider(text: str, registry: ModelRegistry) -> Model | None:
    """Without a key for any of them, the model is meant that the most usual provider has: "claude" is Anthropic's, not
    that of one who sells it too."""
    found = (fuzzy(text, registry.of(provider)) for provider in registry.providers())
    return next((model for model in found if model is not None), None)


def _only_usable(name: str, models: Sequence[Model], registry: ModelRegistry) -> Model:
    usable = [model for model in models if registry.has_key(model.provider)]
    if len(usable) == 1:
        return usable[0]
    if usable and len({registry.key_source(model.provider) for model in usable}) == 1:
        return usable[0]  # one subscription under several names: the first is the ordinary one
    candidates = ", ".join(sorted(model.reference for model in usable or models))
    have = "More than one matching provider is authenticated." if usable else "None of them is authenticated."
    raise StartupError(
        f'Model "{name}" is ambiguous across providers: {candidates}. {have} Use --provider or provider/model.'
    )


def _invented(provider: str, name: str, registry: ModelRegistry) -> ModelMatch:
    """A model that the lists do not know yet: like the provider's default, with this id."""
    template = default_of(provider, registry)
    if template is None:
        raise _not_found(name)
    model_id, level = split_level(name)
    reasoning = template.reasoning or (level is not None and level != "off")
    model = msgspec.structs.replace(template, id=model_id, name=model_id, reasoning=reasoning)
    warning = f'Model "{model_id}" is not in the list of provider "{provider}"; it is used as it is'
    return ModelMatch(model=model, level=level, warning=warning)


def default_of(provider: str, registry: ModelRegistry) -> Model | None:
    """The model that a provider stands for."""
    known = KNOWN.get(provider)
    if known is not None:
        model = registry.lookup(provider, known.default)
        if model is not None:
            return model
    return next(iter(registry.of(provider)), None)


def first_usable(registry: ModelRegistry) -> Model | None:
    """The default of the first provider with credentials, else the first model with credentials."""
    for provider, known in KNOWN.items():
        if registry.has_key(provider):
            model = registry.lookup(provider, known.default)
            if model is not None:
                return model
    return next(iter(registry.available()), None)


def short_count(tokens: int) -> str:
    """A round number of thousands or millions as it is, another one with a decimal."""
    for unit, name in ((1_000_000, "M"), (1000, "K")):
        if tokens >= unit:
            return f"{tokens / unit:.{0 if tokens % unit == 0 else 1}f}{name}"
    return str(tokens)
