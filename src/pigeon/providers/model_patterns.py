"""From typed text to a model: `provider/id:level`, a part of a name, or globs for a list.

Pure functions over lists of models. The full text is always tried before a `:level` is cut off, because ids may contain
colons.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from pigeon.providers.catalog.built_in import to_current_reference
from pigeon.wire.model import LEVELS, Model, ThinkingLevel

GLOB_SIGNS = "*?["
LeveledModel = tuple[Model, ThinkingLevel | None]  # a model of a list, with its own level if the list names one
LeveledModels = tuple[Sequence[Model], ThinkingLevel | None]
_DATED = re.compile(r"-\d{8}$")


class ModelMatch(Struct):
    """A model or None, the requested level, and a warning for the user."""

    model: Model | None = None
    level: ThinkingLevel | None = None
    warning: str | None = None


def find_exact(text: str, models: Sequence[Model]) -> Model | None:
    """The model with this complete name: `provider/id`, or an id that only one provider has."""
    wanted = text.strip().lower()
    same = [model for model in models if model.reference.lower() == wanted]
    if same:
        # Names of providers may contain a slash: the longest match counts.
        return max(same, key=lambda model: len(model.provider))
    same_id = find_by_id(wanted, models)
    return same_id[0] if len(same_id) == 1 else None


def find_by_id(text: str, models: Iterable[Model]) -> list[Model]:
    """All models of this id, of any provider."""
    wanted = text.strip().lower()
    return [model for model in models if model.id.lower() == wanted]


def find_fuzzy(text: str, models: Iterable[Model]) -> Model | None:
    """The best model whose id or name contains the text: undated ids first, then the highest.

    If the text has a slash, its beginning may also match the end of a provider's name.
    """
    wanted = text.strip().lower()
    if not wanted:
        return None
    provider, _, part = wanted.partition("/")
    named = [(model, model.reference.lower() if provider and part else "") for model in models]
    found = [
        model
        for model, reference in named
        if wanted in model.id.lower() or wanted in model.name.lower() or wanted in reference
    ]
    aliases = [model for model in found if is_alias(model.id)]
    return max(aliases or found, key=lambda model: model.id, default=None)


def is_alias(model_id: str) -> bool:
    """True for an id that always means the newest version."""
    return model_id.endswith("-latest") or _DATED.search(model_id) is None


def parse_level(text: str) -> ThinkingLevel | None:
    """The thinking level of this name."""
    return next((level for level in LEVELS if level == text.strip().lower()), None)


def split_level(text: str) -> tuple[str, ThinkingLevel | None]:
    """The text without its level, and the level, if it ends in one."""
    head, colon, tail = text.rpartition(":")
    level = parse_level(tail) if colon else None
    return (head, level) if level else (text, None)


def resolve_pattern(pattern: str, models: Sequence[Model], *, strict: bool) -> ModelMatch:
    """Resolve one reference; with `strict`, a wrong `:level` is no match instead of a warning."""
    return resolve_pattern_by(pattern, lambda text: find_exact(text, models) or find_fuzzy(text, models), strict=strict)


def resolve_pattern_by(pattern: str, find: Callable[[str], Model | None], *, strict: bool) -> ModelMatch:
    """The same with another way to find a model."""
    model = find(pattern)
    if model is not None or ":" not in pattern:
        return ModelMatch(model=model)
    head, _, tail = pattern.rpartition(":")
    level = parse_level(tail)
    if level is None and strict:
        return ModelMatch()
    inner = resolve_pattern_by(head, find, strict=strict)
    if inner.model is None or level is not None:
        return ModelMatch(model=inner.model, level=level, warning=inner.warning)
    warning = f'"{tail}" in "{pattern}" is not a thinking level ({", ".join(LEVELS)}); the default is used'
    return ModelMatch(model=inner.model, warning=warning)


def resolve_scope(patterns: Iterable[str], models: Sequence[Model]) -> tuple[list[LeveledModel], list[str]]:
    """The models of a list in its order, each once, and the patterns that matched nothing or more than was probably
    meant."""
    out: list[LeveledModel] = []
    warnings: list[str] = []
    seen: set[tuple[str, str]] = set()
    for raw in patterns:
        pattern = to_current_reference(raw.strip())
        if not pattern:
            continue
        found, warning = _match_pattern(pattern, models)
        if warning:
            warnings.append(warning)
        for model, level in found:
            if (model.provider, model.id) not in seen:
                seen.add((model.provider, model.id))
                out.append((model, level))
    return out, warnings


def _match_pattern(pattern: str, models: Sequence[Model]) -> tuple[list[LeveledModel], str | None]:
    if any(sign in pattern for sign in GLOB_SIGNS):
        from pigeon.system.globs import compile_model_glob

        text, level = split_level(pattern)
        matches = compile_model_glob(text)
        found = [model for model in models if matches(model.reference) or matches(model.id)]
        return [(model, level) for model in found], None if found else _no_match_warning(pattern)
    same, level = _match_every_provider(pattern, models)
    if same:
        providers = ", ".join(sorted(model.provider for model in same))
        warning = f'Pattern "{pattern}" matches several providers: {providers}. Use provider/id to choose one.'
        return [(model, level) for model in same], warning
    match = resolve_pattern(pattern, models, strict=False)
    if match.model is None:
        return [], _no_match_warning(pattern)
    return [(match.model, match.level)], match.warning


def _match_every_provider(pattern: str, models: Sequence[Model]) -> LeveledModels:
    """The models with exactly this id at several providers, with the level at the end of the pattern."""
    head, level = split_level(pattern)
    for text, wanted in ((pattern, None), (head, level)):
        same = [] if find_exact(text, models) else find_by_id(text, models)
        if same:
            return same, wanted
    return [], None


def _no_match_warning(pattern: str) -> str:
    return f'No models match pattern "{pattern}"'
