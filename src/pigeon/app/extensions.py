"""Extensions and trust: the user's extensions are loaded, the project is trusted or not, then its own are loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pigeon.app.environment import Environment
from pigeon.app.options import AgentOptions
from pigeon.app.reports import Reports
from pigeon.config.layers import Layers
from pigeon.config.paths import project_dirs
from pigeon.config.trust_file import remember, saved_decision
from pigeon.extensions.runtime.discovery import Source, named, project_sources, user_sources
from pigeon.guard.trust import guarded, is_trusted
from pigeon.providers.gateway import Gateway
from pigeon.providers.registry import ModelRegistry
from pigeon.wire.base import or_else

if TYPE_CHECKING:
    from pigeon.agent.interfaces import ModelProvider
    from pigeon.extensions.runner import Runner

DEBUG = "PIGEON_DEBUG_EXTENSIONS"


class LoadedExtensions(Struct, frozen=True):
    """What was loaded, and whether the project may be read."""

    runner: Runner | None
    trusted: bool


class ExtensionSetup:
    """Loads extensions in the two steps that trust asks for."""

    def __init__(
        self,
        options: AgentOptions,
        environment: Environment,
        layers: Layers,
        agent_dir: str,
        cwd: str,
        reports: Reports,
    ) -> None:
        self._options = options
        self._environment = environment
        self._layers = layers
        self._agent_dir = agent_dir
        self._cwd = cwd
        self._reports = reports
        self._runner: Runner | None = None

    async def load(self) -> LoadedExtensions:
        """The user's extensions first, then the decision, then the project's."""
        home = self._environment.home
        sources = named(self._options.extensions, self._cwd, home)
        if not self._options.no_extensions:
            sources += user_sources(self._agent_dir, or_else(self._layers.settings.extensions, []), home)
        await self._load(sources)
        trusted = await self._trusted()
        if trusted:
            folders = project_dirs(self._cwd)
            self._layers.add_project(folders)
            if not self._options.no_extensions:
                await self._load(project_sources(folders))
        if self._runner is not None:
            self._runner.trust(trusted)
        return LoadedExtensions(self._runner, trusted)

    async def _load(self, sources: list[Source]) -> None:
        if not sources:
            return
        if self._runner is None:
            from pigeon.extensions.runner import Runner

            self._runner = Runner(
                cwd=self._cwd,
                mode="rpc",
                flags=self._options.flags,
                post=self._reports.post,
                print_tracebacks=bool(self._environment.variables.get(DEBUG)),
            )
        await self._runner.load(sources)

    def _needs_trust(self) -> bool:
        folders = [*project_dirs(self._cwd), os.path.join(self._cwd, ".omp")]
        return bool(guarded(self._cwd, folders, self._environment.home))

    async def _trusted(self) -> bool:
        option = self._options.trust_project
        if not self._needs_trust():
            return option is not False
        vote = await self._runner.project_trust(self._cwd) if self._runner is not None else None
        saved, problem = saved_decision(self._agent_dir, self._cwd)
        trusted = is_trusted(
            option=option,
            vote=None if vote is None else bool(vote.trusted),
            saved=saved,
            default=self._layers.settings.default_project_trust,
        )
        if vote is not None and vote.remember:
            problem = remember(self._agent_dir, self._cwd, bool(vote.trusted)) or problem
        if problem:
            self._reports.at_start(problem)
        return trusted


class ExtensionProviders:
    """Puts providers of extensions into the registry, and into the gateway if they answer by themselves."""

    def __init__(self, registry: ModelRegistry, gateway: Gateway) -> None:
        self._registry = registry
        self._gateway = gateway

    def add(self, name: str, entry: Mapping[str, Any], provider: ModelProvider | None) -> None:
        """A provider in the form of `models.json`."""
        self._registry.put_entry(name, entry)
        if provider is not None:
            self._gateway.add(name, lambda: provider)

    def remove(self, name: str) -> None:
        """Forget a provider that was added."""
        self._registry.put_entry(name, None)
