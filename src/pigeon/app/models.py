"""The models of an agent: the registry, the gateway, and the initial choice."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pigeon.agent.inference import CacheRetention, Pacing, ProviderHooks
from pigeon.app.default_model import DefaultModel, find_default_model
from pigeon.app.options import AgentOptions
from pigeon.config.agent_database import StoredCredentials
from pigeon.config.credentials import Values
from pigeon.config.layers import Layers
from pigeon.config.models_file import find_models_file, read_models_file
from pigeon.config.settings import ProviderRetrySettings, Settings
from pigeon.providers.catalog.built_in import (
    BuiltInCatalog,
    list_key_variables,
    to_current_reference,
)
from pigeon.providers.gateway import Gateway
from pigeon.providers.http.client import HttpClient
from pigeon.providers.local_models import (
    RECORDED,
    AvailableModels,
    RecordedCatalog,
    find_local_model,
    list_local_providers,
)
from pigeon.providers.recording.agent_recordings import AgentRecordings
from pigeon.providers.registry import ModelRegistry, NamedFiles
from pigeon.providers.request import RequestPolicy
from pigeon.sandbox.written_folders import filter_programs_path
from pigeon.secrets.redactor import Redactor
from pigeon.session.model_choice import ModelOptions, ScopedModel
from pigeon.system.environment import Environment
from pigeon.system.process.start import ProcessOwner
from pigeon.system.process.variables import is_proxy
from pigeon.wire.base import value_or_default
from pigeon.wire.errors import StartupError
from pigeon.wire.model import LEVELS, Model, ThinkingLevel

Report = Callable[[str], None]


def make_registry(
    folder: str,
    environment: Mapping[str, str],
    cwd: str,
    processes: ProcessOwner | None,
    redactor: Redactor,
    recorded: Sequence[Model] | None = None,
) -> ModelRegistry:
    """All models this user has, or only the recorded ones; commands that print keys run in `cwd` as processes of this
    owner, and not at all without one.

    The redactor learns every key from here on, including those in the environment.
    """
    if recorded is None:
        registry = _make_user_registry(folder, environment, cwd, processes, redactor)
    else:
        registry = ModelRegistry(
            catalog=RecordedCatalog(recorded), entries={}, stored=dict, environ={}, values=Values({}, processes, cwd)
        )
        for provider in registry.providers():
            registry.use_key(provider, RECORDED)
    redactor.add_source(registry.find_secrets, registry.list_key_variables, of_providers=True)
    redactor.add_variables_source(environment, list_key_variables())
    return registry


def list_secret_variables(folder: str, variables: Mapping[str, str]) -> set[str]:
    """The variables that hold keys of model providers: by their name, because the user's files refer to them, or
    because a key stands in their value."""
    redactor = Redactor()
    make_registry(folder, variables, "/", None, redactor)
    return _find_secret_variables(redactor, variables)


def _find_secret_variables(redactor: Redactor, variables: Mapping[str, str]) -> set[str]:
    named = {name for name in variables if redactor.is_secret_variable(name)}
    others = [name for name in variables if name not in named and not is_proxy(name)]
    # Hardly ever is there one, and one search of all texts is as fast as that of one.
    if not redactor.has_provider_key("\0".join(variables[name] for name in others)):
        return named
    return named | {name for name in others if redactor.has_provider_key(variables[name])}


def _make_user_registry(
    folder: str, environment: Mapping[str, str], cwd: str, processes: ProcessOwner | None, redactor: Redactor
) -> ModelRegistry:
    path = find_models_file(folder)
    file = read_models_file(path, environment)
    stored = StoredCredentials(folder)
    problems = [*file.notes, *([file.problem] if file.problem else []), *stored.find_problems()]
    return ModelRegistry(
        catalog=BuiltInCatalog(),
        entries=file.providers,
        stored=stored.read_all,
        environ=environment,
        values=Values(
            environment,
            processes,
            cwd,
            search_path=partial(filter_programs_path, folder),
            list_secret_variables=partial(_find_secret_variables, redactor, environment),
        ),
        problems=problems,
        files=NamedFiles(os.path.basename(path), stored.name_file),
        hold=partial(redactor.learn_keys, of_providers=True),
    )


def make_gateway(
    registry: ModelRegistry,
    settings: Settings,
    environment: Environment,
    hooks: ProviderHooks,
    redactor: Redactor,
    recordings: AgentRecordings,
    folders: dict[str, str],
    pacing: Pacing | None = None,
) -> Gateway:
    """The way to all models, built-in ones included.

    Recorders see every exchange; a replaying agent in these folders has no network.
    """
    proxy = value_or_default(settings.http_proxy, "")
    redactor.add_proxy_source(proxy)
    retry = value_or_default(settings.retry.provider, ProviderRetrySettings())
    idle = value_or_default(retry.timeout_ms, settings.http_idle_timeout_ms)
    policy = RequestPolicy(
        idle_ms=0 if idle == "disabled" else idle,
        # With shared limits, nothing is sent without a turn: each retry is a new request.
        max_retries=retry.max_retries if pacing is None else 0,
        max_retry_delay_ms=retry.max_retry_delay_ms,
        sleep=recordings.sleep,
        new_id=environment.ids.request_id,
        pacing=pacing,
    )
    answers = recordings.make_answer_source(folders)
    http = HttpClient(environment.variables, proxy=proxy, recorders=recordings.recorders, answers=answers)
    budgets = value_or_default(settings.thinking_budgets, {})
    return Gateway(
        registry,
        http,
        hooks,
        extra=list_local_providers(environment.absolute_path),
        policy=policy,
        thinking_budgets=budgets or None,
        retention=_read_cache_retention(environment.variables),
        mask_text=redactor.mask_text,
    )


def _read_cache_retention(environment: Mapping[str, str]) -> CacheRetention:
    kinds: dict[str | None, CacheRetention] = {"none": "none", "long": "long"}
    return kinds.get(environment.get("PIGEON_CACHE_RETENTION") or environment.get("PI_CACHE_RETENTION"), "short")


def resolve_model_options(
    options: AgentOptions, environment: Environment, layers: Layers, registry: ModelRegistry, report: Report
) -> ModelOptions:
    """The initial models; raises `StartupError` if a model that the options name does not exist."""
    settings = layers.settings
    scoped = _find_scoped_models(options, settings, registry, report)
    explicit = bool(options.model or options.provider)
    found = (
        _find_model_of_options(options, environment, registry, report)
        if explicit
        else find_default_model(
            layers,
            registry,
            environment.absolute_path,
            scoped,
            _read_levels(settings),
            report,
            scope_is_option=bool(options.models),
        )
    )
    model, problem = found.model, found.problem
    asked = _resolve_asked_level(options, report) or (found.level if explicit else None)
    if options.api_key:
        if model is None:
            raise StartupError(
                problem or "--api-key requires a model to be specified via --model, --provider/--model, or --models"
            )
        registry.use_key(model.provider, options.api_key)
        problem = ""
    return ModelOptions(
        source=AvailableModels(registry, model if found.needs_no_key else None),
        model=model,
        thinking=asked or found.level or settings.default_thinking_level,
        scoped=scoped,
        explicit=explicit,
        explicit_level=asked is not None,
        problem=problem,
    )


def _find_scoped_models(
    options: AgentOptions, settings: Settings, registry: ModelRegistry, report: Report
) -> Sequence[ScopedModel]:
    patterns: Sequence[str] = options.models or value_or_default(settings.enabled_models, [])
    if not patterns:
        return ()
    from pigeon.providers.model_patterns import resolve_scope

    scoped, warnings = resolve_scope([pattern.strip() for pattern in patterns], registry.list_available())
    for warning in warnings:
        report(warning)
    return [ScopedModel(model, level) for model, level in scoped]


def _find_model_of_options(
    options: AgentOptions, environment: Environment, registry: ModelRegistry, report: Report
) -> DefaultModel:
    local = find_local_model(options.model_reference, environment.absolute_path)
    if local is not None:
        return DefaultModel(local, needs_no_key=True)
    direct = registry.find_listed(options.provider, options.model) if options.provider and options.model else None
    if direct is not None:
        return DefaultModel(direct)
    from pigeon.providers.default_model import resolve_named_model

    try:
        match = resolve_named_model(options.provider, options.model, registry)
    except StartupError as error:
        raise StartupError("\n".join([str(error), *registry.find_problems()])) from None
    if match.warning:
        report(match.warning)
    return DefaultModel(match.model, match.level)


def find_usable_model(name: str, registry: ModelRegistry, environment: Environment) -> Model | None:
    """The model that a name means, as `--model` reads it; None if there is none, or no key for it."""
    local = find_local_model(name, environment.absolute_path)
    if local is not None:
        return local
    from pigeon.providers.default_model import resolve_named_model

    try:
        model = resolve_named_model(None, name, registry).model
    except StartupError:
        return None
    return None if model is None else registry.find_usable(model.provider, model.id)


def _read_levels(settings: Settings) -> dict[str, ThinkingLevel]:
    """The thinking levels of the settings, by model."""
    named = value_or_default(settings.model_thinking_levels, {})
    return {to_current_reference(name): level for name, level in named.items()}


def _resolve_asked_level(options: AgentOptions, report: Report) -> ThinkingLevel | None:
    asked = next((level for level in LEVELS if level == options.thinking), None)
    if asked is None and options.thinking:
        report(f'unknown thinking level "{options.thinking}" is ignored')
    return asked
