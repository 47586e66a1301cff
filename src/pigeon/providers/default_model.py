"""Which model to begin with, and the list of all of them for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from pigeon.providers.catalog.built_in import KNOWN
from pigeon.providers.model_patterns import (
    GLOB_SIGNS,
    Match,
    exact,
    fuzzy,
    resolved,
    resolved_by,
    scope_of,
    split_level,
    with_id,
)
from pigeon.wire.errors import StartupError
from pigeon.wire.model import Model


class Shelf(Protocol):
    """The models to choose from."""

    def providers(self) -> list[str]:
        """All provider ids."""
        ...

    def all(self) -> list[Model]:
        """Every model, usable or not."""
        ...

    def available(self) -> list[Model]:
        """The models with credentials."""
        ...

    def of(self, provider: str) -> list[Model]:
        """The models of one provider."""
        ...

    def find(self, provider: str, model_id: str) -> Model | None:
        """One model, if it can be used."""
        ...

    def lookup(self, provider: str, model_id: str) -> Model | None:
        """One model, usable or not."""
        ...

    def has_key(self, provider: str) -> bool:
        """True if credentials are configured."""
        ...


def named_model(provider: str | None, pattern: str | None, shelf: Shelf) -> Match:
    """What `--provider` and `--model` mean; raises `StartupError` when they mean nothing."""
    name = (pattern or "").strip()
    if any(sign in name for sign in GLOB_SIGNS):
        return _first_of(f"{_provider_id(provider, shelf)}/{name}" if provider else name, shelf)
    if provider:
        return _of_provider(_provider_id(provider, shelf), name, shelf)
    head, slash, rest = name.partition("/")
    known = _known(head, shelf) if slash else None
    if known is not None:
        match = _within(known, rest, shelf)
        if match.model is not None:
            return match
    match = _anywhere(name, shelf)
    if match.model is not None:
        return match
    if known is not None and rest:
        return _invented(known, rest, shelf)
    raise _not_found(name)


def _first_of(pattern: str, shelf: Shelf) -> Match:
    """A glob means the first model that it fits, one that can be used if there is any."""
    for models in (shelf.available(), shelf.all()):
        found, _ = scope_of([pattern], models)
        if found:
            return Match(model=found[0].model, level=found[0].level)
    raise _not_found(pattern)


def _not_found(name: str) -> StartupError:
    return StartupError(f'Model "{name}" not found. Use --list-models to see available models.')


def _provider_id(name: str, shelf: Shelf) -> str:
    known = _known(name, shelf)
    if known is None:
        raise StartupError(f'Unknown provider "{name}". Use --list-models to see available providers/models.')
    return known


def _known(name: str, shelf: Shelf) -> str | None:
    return next((known for known in shelf.providers() if known.lower() == name.lower()), None)


def _of_provider(provider: str, name: str, shelf: Shelf) -> Match:
    if not name:
        model = default_of(provider, shelf)
        if model is None:
            raise StartupError(f'Provider "{provider}" has no models. Use --list-models to see available models.')
        return Match(model=model)
    match = _within(provider, name, shelf)
    if match.model is None and name.lower().startswith(f"{provider.lower()}/"):
        match = _within(provider, name[len(provider) + 1 :], shelf)
    return match if match.model is not None else _invented(provider, name, shelf)


def _within(provider: str, name: str, shelf: Shelf) -> Match:
    direct = shelf.lookup(provider, name)
    if direct is not None:
        return Match(model=direct)
    return resolved(name, shelf.of(provider), strict=True) if name else Match()


def _anywhere(name: str, shelf: Shelf) -> Match:
    """Complete names count everywhere; parts of names first among the models that can be used."""
    models = shelf.all()

    def find(text: str) -> Model | None:
        found = exact(text, models)
        if found is not None:
            return found
        same = with_id(text, models)
        if same:
            return _only_usable(text, same, shelf)
        return fuzzy(text, shelf.available()) or fuzzy(text, models)

    return resolved_by(name, find, strict=True)


def _only_usable(name: str, models: Sequence[Model], shelf: Shelf) -> Model:
    usable = [model for model in models if shelf.has_key(model.provider)]
    if len(usable) == 1:
        return usable[0]
    candidates = ", ".join(model.reference for model in usable or models)
    raise StartupError(f'Model "{name}" is offered by several providers; say which: {candidates}')


def _invented(provider: str, name: str, shelf: Shelf) -> Match:
    """A model that the lists do not know yet: like the provider's default, with this id."""
    template = default_of(provider, shelf)
    if template is None:
        raise _not_found(name)
    model_id, level = split_level(name)
    reasoning = template.reasoning or (level is not None and level != "off")
    model = msgspec.structs.replace(template, id=model_id, name=model_id, reasoning=reasoning)
    warning = f'Model "{model_id}" is not in the list of provider "{provider}"; it is used as it is'
    return Match(model=model, level=level, warning=warning)


def default_of(provider: str, shelf: Shelf) -> Model | None:
    """The model that a provider stands for."""
    known = KNOWN.get(provider)
    if known is not None:
        model = shelf.lookup(provider, known.default)
        if model is not None:
            return model
    return next(iter(shelf.of(provider)), None)


def first_usable(shelf: Shelf) -> Model | None:
    """The default of the first provider with credentials, else the first model with credentials."""
    for provider, known in KNOWN.items():
        if shelf.has_key(provider):
            model = shelf.lookup(provider, known.default)
            if model is not None:
                return model
    return next(iter(shelf.available()), None)


def model_table(models: Sequence[Model], search: str = "") -> str:
    """The answer to `--list-models`."""
    words = search.lower().split()
    shown = [model for model in models if all(word in f"{model.reference} {model.name}".lower() for word in words)]
    if not shown:
        if words:
            return f'No models matching "{search}"'
        return "No models available. Set a provider's API key in the environment, auth.json or models.json."
    rows = [("provider", "model", "context", "max-out", "thinking", "images")]
    for model in sorted(shown, key=lambda model: (model.provider, model.id)):
        rows.append(
            (
                model.provider,
                model.id,
                _short(model.context_window),
                _short(model.max_tokens),
                "yes" if model.reasoning else "no",
                "yes" if "image" in model.input else "no",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _short(tokens: int) -> str:
    if tokens >= 1_000_000:
        return f"{round(tokens / 1_000_000, 1):g}M"
    return f"{round(tokens / 1000, 1):g}K" if tokens >= 1000 else str(tokens)
