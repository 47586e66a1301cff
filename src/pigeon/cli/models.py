"""Models for a session: the registry, the two built-in models, and which one to begin with."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from pigeon.cli.args import Options
from pigeon.config.auth_file import AuthFile
from pigeon.config.models_file import read_models_file
from pigeon.config.settings import ProviderRetrySettings, Settings
from pigeon.config.values import Values
from pigeon.providers.catalog.built_in import BuiltInCatalog
from pigeon.providers.gateway import Gateway, Streamer
from pigeon.providers.http import Http
from pigeon.providers.line import Policy
from pigeon.providers.registry import ModelRegistry
from pigeon.wire.base import Absent, or_else
from pigeon.wire.errors import StartupError
from pigeon.wire.model import LEVELS, Model, ThinkingLevel

DEMO = "demo"
SCRIPTED = "scripted"


class Offer:
    """The models that a host can choose: those with credentials, and a built-in one that was asked for by name."""

    def __init__(self, registry: ModelRegistry, built_in: Model | None) -> None:
        self._registry = registry
        self._built_in = [built_in] if built_in else []

    def available(self) -> list[Model]:
        """Models that can be used now."""
        return [*self._built_in, *self._registry.available()]

    def find(self, provider: str, model_id: str) -> Model | None:
        """One of them."""
        for model in self._built_in:
            if (model.provider, model.id) == (provider, model_id):
                return model
        return self._registry.find(provider, model_id)


class Choice(Struct):
    """What the options and settings come to."""

    model: Model | None
    thinking: ThinkingLevel
    explicit: bool
    problems: list[str]


def registry_of(folder: str, environment: Mapping[str, str]) -> ModelRegistry:
    """All models this user has."""
    file = read_models_file(os.path.join(folder, "models.json"))
    auth = AuthFile(os.path.join(folder, "auth.json"))
    problems = [problem for problem in (file.problem, auth.problem) if problem]
    return ModelRegistry(
        catalog=BuiltInCatalog(),
        entries=file.providers,
        stored=auth.get,
        environ=environment,
        values=Values(environment),
        problems=problems,
    )


def gateway_of(registry: ModelRegistry, settings: Settings) -> Gateway:
    """The way to all models, built-in ones included."""
    retry = or_else(settings.retry.provider, ProviderRetrySettings())
    policy = Policy(
        idle_ms=settings.http_idle_timeout_ms,
        max_retries=retry.max_retries,
        max_retry_delay_ms=retry.max_retry_delay_ms,
    )
    budgets = or_else(settings.thinking_budgets, {})
    extra = {SCRIPTED: _scripted, DEMO: _demo}
    return Gateway(registry, Http(user_agent="pigeon"), extra=extra, policy=policy, thinking_budgets=budgets or None)


def built_in_model(options: Options) -> Model | None:
    """The demo or a script, if that is what was asked for."""
    asked = f"{options.provider}/{options.model}" if options.provider and options.model else options.model or ""
    if asked in (DEMO, f"{DEMO}/guide") or (options.provider == DEMO and not options.model):
        from pigeon.providers.demo import demo_model

        return demo_model()
    if asked.startswith(f"{SCRIPTED}/"):
        from pigeon.providers.scripted import scripted_model

        return scripted_model(asked.removeprefix(f"{SCRIPTED}/"))
    return None


def choose(options: Options, settings: Settings, registry: ModelRegistry, built_in: Model | None) -> Choice:
    """The model to begin with; raises `StartupError` when one was named that does not exist."""
    problems: list[str] = []
    thinking = settings.default_thinking_level
    if options.thinking in LEVELS:
        thinking = options.thinking
    elif options.thinking:
        problems.append(f'unknown thinking level "{options.thinking}" is ignored')
    if built_in is not None:
        return Choice(built_in, thinking, explicit=True, problems=problems)
    if options.model or options.provider:
        model, level = _named(options.provider, options.model or "", registry)
        return Choice(model, level or thinking, explicit=True, problems=problems)
    return Choice(_default(settings, registry), thinking, explicit=False, problems=problems)


def _named(provider: str | None, name: str, registry: ModelRegistry) -> tuple[Model, ThinkingLevel | None]:
    if provider and (model := registry.lookup(provider, name)):
        return model, None
    if not provider and "/" in name:
        head, _, tail = name.partition("/")
        if model := registry.lookup(head, tail):
            return model, None
    raise StartupError(f'Model "{name}" not found. Use --list-models to see available models.')


def _default(settings: Settings, registry: ModelRegistry) -> Model | None:
    if not isinstance(settings.default_provider, Absent) and not isinstance(settings.default_model, Absent):
        model = registry.find(settings.default_provider, settings.default_model)
        if model is not None:
            return model
    available = registry.available()
    return available[0] if available else None


def _scripted() -> Streamer:
    from pigeon.providers.scripted import ScriptedModel

    return ScriptedModel()


def _demo() -> Streamer:
    from pigeon.providers.demo import DemoModel

    return DemoModel()
