"""Models for a session: the registry, the way to them, and which one to begin with."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Struct

from pigeon.agent.inference import CacheRetention, ProviderHooks
from pigeon.app.built_in import DEMO, SCRIPTED, built_in_model, demo, scripted
from pigeon.app.environment import Environment
from pigeon.app.options import AgentOptions
from pigeon.config.auth_file import AuthFile
from pigeon.config.models_file import read_models_file
from pigeon.config.settings import ProviderRetrySettings, Settings
from pigeon.config.values import Values
from pigeon.providers.catalog.built_in import BuiltInCatalog
from pigeon.providers.gateway import Gateway, ProviderFactory
from pigeon.providers.http.client import HttpClient
from pigeon.providers.registry import ModelRegistry
from pigeon.providers.request import RequestPolicy
from pigeon.session.dependencies import ScopedModel
from pigeon.system.process.start import ProcessOwner
from pigeon.wire.base import Absent, or_else
from pigeon.wire.errors import StartupError
from pigeon.wire.model import LEVELS, Model, ThinkingLevel


class Choice(Struct):
    """What the options and settings come to."""

    model: Model | None
    thinking: ThinkingLevel
    explicit: bool
    built_in: Model | None
    scoped: list[ScopedModel]
    problems: list[str]


def registry_of(folder: str, environment: Mapping[str, str], cwd: str, processes: ProcessOwner) -> ModelRegistry:
    """All models this user has; commands that print keys run in `cwd` as processes of this owner."""
    file = read_models_file(os.path.join(folder, "models.json"))
    auth = AuthFile(os.path.join(folder, "auth.json"))
    problems = [problem for problem in (file.problem, auth.problem) if problem]
    return ModelRegistry(
        catalog=BuiltInCatalog(),
        entries=file.providers,
        stored=auth.get,
        environ=environment,
        values=Values(environment, processes, cwd),
        problems=problems,
    )


def gateway_of(registry: ModelRegistry, settings: Settings, environment: Environment, hooks: ProviderHooks) -> Gateway:
    """The way to all models, built-in ones included."""
    retry = or_else(settings.retry.provider, ProviderRetrySettings())
    policy = RequestPolicy(
        idle_ms=or_else(retry.timeout_ms, settings.http_idle_timeout_ms),
        max_retries=retry.max_retries,
        max_retry_delay_ms=retry.max_retry_delay_ms,
    )
    budgets = or_else(settings.thinking_budgets, {})
    extra: dict[str, ProviderFactory] = {SCRIPTED: partial(scripted, environment), DEMO: demo}
    return Gateway(
        registry,
        HttpClient(environment.variables, proxy=or_else(settings.http_proxy, "")),
        hooks,
        extra=extra,
        policy=policy,
        thinking_budgets=budgets or None,
        retention=_retention(environment.variables),
    )


def _retention(environment: Mapping[str, str]) -> CacheRetention:
    kinds: dict[str | None, CacheRetention] = {"none": "none", "long": "long"}
    return kinds.get(environment.get("PIGEON_CACHE_RETENTION") or environment.get("PI_CACHE_RETENTION"), "short")


def choose(options: AgentOptions, environment: Environment, settings: Settings, registry: ModelRegistry) -> Choice:
    """The model to begin with; raises `StartupError` when one was named that does not exist."""
    choice = Choice(None, settings.default_thinking_level, False, built_in_model(options, environment), [], [])
    _scope(choice, options, settings, registry)
    if choice.built_in is not None:
        choice.model, choice.explicit = choice.built_in, True
    elif options.model or options.provider:
        _named(choice, options, registry)
    else:
        _default(choice, settings, registry)
    if choice.model is not None and not isinstance(settings.model_thinking_levels, Absent) and not choice.explicit:
        choice.thinking = settings.model_thinking_levels.get(choice.model.reference, choice.thinking)
    asked = next((level for level in LEVELS if level == options.thinking), None)
    if asked is not None:
        choice.thinking = asked
    elif options.thinking:
        choice.problems.append(f'unknown thinking level "{options.thinking}" is ignored')
    _use_key(choice, options, registry)
    return choice


def _scope(choice: Choice, options: AgentOptions, settings: Settings, registry: ModelRegistry) -> None:
    patterns: Sequence[str] = options.models or or_else(settings.enabled_models, [])
    if patterns:
        from pigeon.providers.model_patterns import scope_of

        scoped, warnings = scope_of([pattern.strip() for pattern in patterns], registry.available())
        choice.scoped = [ScopedModel(model, level) for model, level in scoped]
        choice.problems.extend(warnings)


def _named(choice: Choice, options: AgentOptions, registry: ModelRegistry) -> None:
    direct = registry.lookup(options.provider, options.model) if options.provider and options.model else None
    choice.explicit = True
    if direct is not None:
        choice.model = direct
        return
    from pigeon.providers.default_model import named_model

    try:
        match = named_model(options.provider, options.model, registry)
    except StartupError as error:
        raise StartupError("\n".join([str(error), *registry.problems()])) from None
    choice.model = match.model
    choice.thinking = match.level or choice.thinking
    if match.warning:
        choice.problems.append(match.warning)


def _default(choice: Choice, settings: Settings, registry: ModelRegistry) -> None:
    preferred = None
    if not isinstance(settings.default_provider, Absent) and not isinstance(settings.default_model, Absent):
        preferred = (settings.default_provider, settings.default_model)
    if choice.scoped:
        saved = [entry for entry in choice.scoped if (entry.model.provider, entry.model.id) == preferred]
        chosen = (saved or choice.scoped)[0]
        choice.model, choice.thinking = chosen.model, chosen.level or choice.thinking
        return
    choice.model = registry.find(*preferred) if preferred else None
    if choice.model is None:
        from pigeon.providers.default_model import first_usable

        choice.model = first_usable(registry)


def _use_key(choice: Choice, options: AgentOptions, registry: ModelRegistry) -> None:
    if not options.api_key:
        return
    if choice.model is None:
        raise StartupError("--api-key requires a model to be specified via --model, --provider/--model, or --models")
    registry.use_key(choice.model.provider, options.api_key)
