"""The model that an agent begins with if none is named at the start: that of the settings, or else the first usable
one.

A model of the settings is never replaced silently. One that has no key yet is chosen, as it is when `--model` names it,
and a setting that means no model leaves the agent without one; `problem` is the sentence for the person either way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from pigeon.config.layers import Layers
from pigeon.providers.catalog.built_in import to_current_provider_name
from pigeon.providers.local_models import RECORDED, find_local_model
from pigeon.providers.registry import ModelRegistry
from pigeon.session.model_choice import ScopedModel
from pigeon.wire.base import value_or_default
from pigeon.wire.model import Model, ThinkingLevel

NAME_ANOTHER = "choose another with: pigeon config set defaultModel PROVIDER/MODEL"
Report = Callable[[str], None]


class DefaultModel(Struct, frozen=True):
    """The model to begin with and its own thinking level; `problem` is why it cannot be used, empty if it can.

    `setting` names the setting and its file, empty if the settings name no model; `needs_no_key` is true for the demo
    and for scripts.
    """

    model: Model | None = None
    level: ThinkingLevel | None = None
    problem: str = ""
    setting: str = ""
    needs_no_key: bool = False


def find_default_model(
    layers: Layers,
    registry: ModelRegistry,
    absolute: Callable[[str], str],
    scoped: Sequence[ScopedModel],
    levels: Mapping[str, ThinkingLevel],
    report: Report,
    *,
    scope_is_option: bool = False,
) -> DefaultModel:
    """The model of the settings; of the `scoped` ones, if there are any; or the first one that has a key.

    `levels` are those of the settings, by model; `absolute` resolves paths. With `scope_is_option`, the scope was given
    at the start and takes precedence over the settings.
    """
    configured = find_configured_model(layers, registry, absolute, report)
    if scoped:
        return _choose_in_scope(configured, scoped, levels, layers, report, scope_is_option)
    if configured.setting:
        model = configured.model
        return configured if model is None else _with_level(configured, levels.get(model.reference))
    from pigeon.providers.default_model import find_first_usable_model

    first = find_first_usable_model(registry)
    return DefaultModel(first, None if first is None else levels.get(first.reference))


def _with_level(found: DefaultModel, level: ThinkingLevel | None) -> DefaultModel:
    return DefaultModel(found.model, found.level or level, found.problem, found.setting, found.needs_no_key)


def _choose_in_scope(
    configured: DefaultModel,
    scoped: Sequence[ScopedModel],
    levels: Mapping[str, ThinkingLevel],
    layers: Layers,
    report: Report,
    scope_is_option: bool,
) -> DefaultModel:
    """The model of the settings if the scope has it; otherwise the first one of the scope, and a reason for that."""
    wanted = configured.model
    same = [one for one in scoped if wanted is not None and one.model.reference == wanted.reference]
    chosen = (same or scoped)[0]
    if configured.setting and not same and not scope_is_option:
        left_out = f"{configured.setting} is not among the enabledModels in {layers.place_of('enabledModels')}; add it"
        report(f"{configured.problem or left_out}. Until then {chosen.model.reference} is used")
    level = levels.get(chosen.model.reference, chosen.level)
    return DefaultModel(chosen.model, (configured.level if same else None) or level)


def find_configured_model(
    layers: Layers, registry: ModelRegistry, absolute: Callable[[str], str], report: Report
) -> DefaultModel:
    """What `defaultModel` and `defaultProvider` mean: nothing if neither is set."""
    settings = layers.settings
    provider = value_or_default(settings.default_provider, "").strip()
    name = value_or_default(settings.default_model, "").strip()
    if not provider and not name:
        return DefaultModel()
    key, value = ("defaultModel", name) if name else ("defaultProvider", provider)
    setting = f'{key} "{value}" in {layers.place_of(key)}'
    listed = registry.find_listed(to_current_provider_name(provider), name) if provider and name else None
    local = None if listed is not None else find_local_model(name, absolute)
    if local is not None:
        return DefaultModel(local, setting=setting, needs_no_key=True)
    if name.startswith(f"{RECORDED}/"):
        return DefaultModel(problem=f"{setting} cannot be used: only --model replays a recording", setting=setting)
    level: ThinkingLevel | None = None
    if listed is None:
        from pigeon.providers.default_model import ModelNotFound, resolve_default_model

        is_hint = layers.place_of("defaultProvider") != layers.place_of("defaultModel")
        try:
            match = resolve_default_model(provider, name, registry, provider_is_hint=is_hint)
        except ModelNotFound as error:
            why = _begin_small(error.reason)
            problem = f"{setting} cannot be used: {why}; {NAME_ANOTHER} (`pigeon models --all` lists them)"
            return DefaultModel(problem=problem, setting=setting)
        listed, level = match.model, match.level
        if match.warning:
            report(f"{setting}: {match.warning}")
    assert listed is not None
    problem = ""
    if not registry.has_key(listed.provider):
        why = _begin_small(registry.describe_missing_key(listed))
        problem = f"{setting} cannot be used, because there is {why}; or {NAME_ANOTHER}"
    return DefaultModel(listed, level, problem, setting)


def _begin_small(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
