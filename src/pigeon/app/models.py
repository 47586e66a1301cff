"""The models of an agent: all there are, the way to them, and what it begins with.

Two need no key and exist only when they are named: the demo, and scripts for the tests of hosts.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from pigeon.agent.inference import CacheRetention, ProviderHooks
from pigeon.agent.interfaces import ModelProvider
from pigeon.app.environment import Environment
from pigeon.app.options import AgentOptions
from pigeon.config.credentials import AuthFile, Values
from pigeon.config.models_file import read_models_file
from pigeon.config.settings import ProviderRetrySettings, Settings
from pigeon.providers.catalog.built_in import BuiltInCatalog, current_name, current_reference
from pigeon.providers.demo.api import DEMO, GUIDE
from pigeon.providers.gateway import Gateway, ProviderFactory
from pigeon.providers.http.client import HttpClient
from pigeon.providers.http.recorders import AnswerSource, ExchangeRecorder
from pigeon.providers.recording.setup import RECORDED, asked_model
from pigeon.providers.registry import ModelRegistry
from pigeon.providers.request import RequestPolicy
from pigeon.providers.scripted.api import SCRIPTED
from pigeon.secrets.redactor import Redactor, is_secret
from pigeon.session.model_choice import ModelOptions, ScopedModel
from pigeon.system.clock import sleep_ms
from pigeon.system.process.start import ProcessOwner
from pigeon.trust.trust_file import programs_path
from pigeon.wire.base import Absent, or_else
from pigeon.wire.errors import StartupError
from pigeon.wire.model import LEVELS, Model, ThinkingLevel

# Models that are files of this machine begin like this.
FILE_MODELS = (f"{SCRIPTED.name}/", f"{RECORDED}/")
Report = Callable[[str], None]
Found = tuple[Model | None, ThinkingLevel | None]


class AvailableModels:
    """The models that a host can choose: those with credentials, and a built-in one that was asked for.

    The demo can also be chosen where it was not: it is not listed, but found by its name.
    """

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
        if (provider, model_id) == (DEMO.name, GUIDE):
            from pigeon.providers.demo.model import demo_model

            return demo_model()
        return self._registry.find(provider, model_id)


class RecordedCatalog:
    """The models of a recording."""

    def __init__(self, models: Sequence[Model]) -> None:
        self._models: dict[str, list[Model]] = {}
        for model in models:
            self._models.setdefault(model.provider, []).append(model)

    def providers(self) -> list[str]:
        """Their providers."""
        return list(self._models)

    def models(self, provider: str) -> list[Model]:
        """Those of one provider."""
        return self._models.get(provider, [])


def registry_of(
    folder: str,
    environment: Mapping[str, str],
    cwd: str,
    processes: ProcessOwner | None,
    redactor: Redactor,
    recorded: Sequence[Model] | None = None,
) -> ModelRegistry:
    """All models this user has, or only the recorded ones; commands that print keys run in `cwd` as processes of this
    owner, and not at all without one.

    The redactor learns every key from here on, also those in the environment.
    """
    if recorded is None:
        registry = _users_registry(folder, environment, cwd, processes, redactor)
    else:
        registry = ModelRegistry(
            catalog=RecordedCatalog(recorded), entries={}, stored=dict, environ={}, values=Values({}, processes, cwd)
        )
        for provider in registry.providers():
            registry.use_key(provider, RECORDED)
    redactor.ask(registry.secrets, registry.variables)
    # By name, because an extension may take a variable away meanwhile.
    redactor.ask(lambda: [(name, environment.get(name, "")) for name in list(environment) if is_secret(name)])
    redactor.ask(lambda: [("proxy", _address(environment.get(name, ""))) for name in filter(_is_proxy, environment)])
    return registry


def _users_registry(
    folder: str, environment: Mapping[str, str], cwd: str, processes: ProcessOwner | None, redactor: Redactor
) -> ModelRegistry:
    file = read_models_file(os.path.join(folder, "models.json"))
    auth = AuthFile(os.path.join(folder, "auth.json"))
    problems = [problem for problem in (file.problem, auth.problem) if problem]
    return ModelRegistry(
        catalog=BuiltInCatalog(),
        entries=file.providers,
        stored=auth.all,
        environ=environment,
        values=Values(environment, processes, cwd, search_path=partial(programs_path, folder)),
        problems=problems,
        hold=redactor.learn,
    )


def _is_proxy(variable: str) -> bool:
    return variable.upper().endswith("_PROXY")


def _address(proxy: str) -> str:
    return proxy if "://" in proxy else f"http://{proxy}"


def gateway_of(
    registry: ModelRegistry,
    settings: Settings,
    environment: Environment,
    hooks: ProviderHooks,
    redactor: Redactor,
    recorders: Sequence[ExchangeRecorder] = (),
    answers: AnswerSource | None = None,
    sleep: Callable[[float], Awaitable[None]] = sleep_ms,
) -> Gateway:
    """The way to all models, built-in ones included.

    The recorders are shown every exchange. With `answers` there is no network. `sleep` waits between two attempts.
    """
    proxy = or_else(settings.http_proxy, "")
    redactor.ask(lambda: [("proxy", _address(proxy))])
    retry = or_else(settings.retry.provider, ProviderRetrySettings())
    idle = or_else(retry.timeout_ms, settings.http_idle_timeout_ms)
    policy = RequestPolicy(
        idle_ms=0 if idle == "disabled" else idle,
        # Agents that share what providers allow send nothing without asking: what is repeated is a new request.
        max_retries=retry.max_retries if environment.pacing is None else 0,
        max_retry_delay_ms=retry.max_retry_delay_ms,
        sleep=sleep,
        new_id=environment.ids.request_id,
        pacing=environment.pacing,
    )
    budgets = or_else(settings.thinking_budgets, {})
    extra: dict[str, ProviderFactory] = {SCRIPTED.name: partial(_scripted, environment), DEMO.name: _demo}
    return Gateway(
        registry,
        HttpClient(environment.variables, proxy=proxy, recorders=recorders, answers=answers),
        hooks,
        extra=extra,
        policy=policy,
        thinking_budgets=budgets or None,
        retention=_retention(environment.variables),
        mask_text=redactor.mask_text,
    )


def _retention(environment: Mapping[str, str]) -> CacheRetention:
    kinds: dict[str | None, CacheRetention] = {"none": "none", "long": "long"}
    return kinds.get(environment.get("PIGEON_CACHE_RETENTION") or environment.get("PI_CACHE_RETENTION"), "short")


def model_options(
    options: AgentOptions, environment: Environment, settings: Settings, registry: ModelRegistry, report: Report
) -> ModelOptions:
    """What the agent begins with; raises `StartupError` when a model was named that does not exist."""
    built_in = _built_in_model(options, environment)
    scoped = _scoped(options, settings, registry, report)
    explicit = bool(built_in or options.model or options.provider)
    if built_in is not None:
        found: Found = built_in, None
    elif explicit:
        found = _named(options, registry, report)
    else:
        found = _default(scoped, settings, registry)
    model, level = found
    asked = _asked_level(options, report) or (level if explicit else None)
    if options.api_key:
        _use_key(options.api_key, model, registry)
    return ModelOptions(
        source=AvailableModels(registry, built_in),
        model=model,
        thinking=asked or level or settings.default_thinking_level,
        scoped=scoped,
        explicit=explicit,
        explicit_level=asked is not None,
    )


def _scoped(
    options: AgentOptions, settings: Settings, registry: ModelRegistry, report: Report
) -> Sequence[ScopedModel]:
    patterns: Sequence[str] = options.models or or_else(settings.enabled_models, [])
    if not patterns:
        return ()
    from pigeon.providers.model_patterns import scope_of

    scoped, warnings = scope_of([pattern.strip() for pattern in patterns], registry.available())
    for warning in warnings:
        report(warning)
    return [ScopedModel(model, level) for model, level in scoped]


def _named(options: AgentOptions, registry: ModelRegistry, report: Report) -> Found:
    direct = registry.lookup(options.provider, options.model) if options.provider and options.model else None
    if direct is not None:
        return direct, None
    from pigeon.providers.default_model import named_model

    try:
        match = named_model(options.provider, options.model, registry)
    except StartupError as error:
        raise StartupError("\n".join([str(error), *registry.problems()])) from None
    if match.warning:
        report(match.warning)
    return match.model, match.level


def _default(scoped: Sequence[ScopedModel], settings: Settings, registry: ModelRegistry) -> Found:
    levels = {current_reference(name): one for name, one in or_else(settings.model_thinking_levels, {}).items()}

    def own_level(model: Model | None, otherwise: ThinkingLevel | None) -> ThinkingLevel | None:
        return levels.get(model.reference, otherwise) if model is not None else None

    preferred = None
    if not isinstance(settings.default_provider, Absent) and not isinstance(settings.default_model, Absent):
        preferred = (current_name(settings.default_provider), settings.default_model)
    if scoped:
        saved = [entry for entry in scoped if (entry.model.provider, entry.model.id) == preferred]
        chosen = (saved or scoped)[0]
        return chosen.model, own_level(chosen.model, chosen.level)
    model = registry.find(*preferred) if preferred else None
    if model is None:
        from pigeon.providers.default_model import first_usable

        model = first_usable(registry)
    return model, own_level(model, None)


def _asked_level(options: AgentOptions, report: Report) -> ThinkingLevel | None:
    asked = next((level for level in LEVELS if level == options.thinking), None)
    if asked is None and options.thinking:
        report(f'unknown thinking level "{options.thinking}" is ignored')
    return asked


def _use_key(key: str, model: Model | None, registry: ModelRegistry) -> None:
    if model is None:
        raise StartupError("--api-key requires a model to be specified via --model, --provider/--model, or --models")
    registry.use_key(model.provider, key)


def _built_in_model(options: AgentOptions, environment: Environment) -> Model | None:
    """The demo or a script, if that is what the options name."""
    asked = asked_model(options)
    if asked in (DEMO.name, f"{DEMO.name}/{GUIDE}") or (options.provider == DEMO.name and not options.model):
        from pigeon.providers.demo.model import demo_model

        return demo_model()
    if asked.startswith(f"{SCRIPTED.name}/"):
        from pigeon.providers.scripted.model import scripted_model

        return scripted_model(asked.removeprefix(f"{SCRIPTED.name}/"), environment.absolute)
    return None


def _scripted(environment: Environment) -> ModelProvider:
    """Plays scripts; imported when first needed."""
    from pigeon.providers.scripted.model import ScriptedModel

    return ScriptedModel(environment.absolute)


def _demo() -> ModelProvider:
    """The demo; imported when first needed."""
    from pigeon.providers.demo.model import DemoModel

    return DemoModel()
