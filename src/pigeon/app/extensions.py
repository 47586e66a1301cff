"""Extensions and trust: decided before anything of the project is read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from pigeon.app.environment import Environment
from pigeon.app.options import AgentOptions
from pigeon.config.layers import Layers
from pigeon.config.paths import project_dirs
from pigeon.config.trust_file import remember, saved_decision
from pigeon.extensions.runtime.discovery import Source, named, project_sources, user_sources
from pigeon.guard.trust import decision, guarded
from pigeon.wire.base import or_else

if TYPE_CHECKING:
    from pigeon.extensions.runner import Runner


class Extended(Struct):
    """What was loaded, and whether the project may be read."""

    runner: Runner | None
    trusted: bool
    problems: list[str]


class Extending:
    """Loads extensions in the two steps that trust asks for."""

    def __init__(
        self, options: AgentOptions, environment: Environment, layers: Layers, agent_dir: str, cwd: str
    ) -> None:
        self._options = options
        self._environment = environment
        self._layers = layers
        self._agent_dir = agent_dir
        self._cwd = cwd
        self._runner: Runner | None = None

    async def extend(self) -> Extended:
        """The user's extensions first, then the decision, then the project's."""
        sources = named(self._options.extensions, self._cwd)
        if not self._options.no_extensions:
            sources += user_sources(self._agent_dir, or_else(self._layers.settings.extensions, []))
        await self._load(sources)
        trusted, problems = await self._trusted()
        if trusted:
            folders = project_dirs(self._cwd)
            self._layers.add_project(folders)
            if not self._options.no_extensions:
                await self._load(project_sources(folders))
        if self._runner is not None:
            self._runner.trust(trusted)
        return Extended(self._runner, trusted, problems)

    async def _load(self, sources: list[Source]) -> None:
        if not sources:
            return
        if self._runner is None:
            from pigeon.extensions.runner import Runner

            self._runner = Runner(cwd=self._cwd, mode="rpc", flags=dict(self._options.flags))
        await self._runner.load(sources)

    def _needs_trust(self) -> bool:
        folders = [*project_dirs(self._cwd), os.path.join(self._cwd, ".omp")]
        return bool(guarded(self._cwd, folders, self._environment.home))

    async def _trusted(self) -> tuple[bool, list[str]]:
        option = self._options.trust_project
        needed = self._needs_trust()
        if not needed:
            return option is not False, []
        vote = await self._runner.project_trust(self._cwd) if self._runner is not None else None
        saved, problem = saved_decision(self._agent_dir, self._cwd)
        trust = decision(
            needed=needed,
            option=option,
            vote=vote,
            saved=saved,
            default=self._layers.settings.default_project_trust,
        )
        if self._runner is not None and self._runner.trust_to_remember is not None:
            problem = remember(self._agent_dir, self._cwd, self._runner.trust_to_remember) or problem
        return trust.trusted, [problem] if problem else []
