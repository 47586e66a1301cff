"""Extensions of an agent: those of the user are loaded first and may vote on trust, then those of a trusted project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pigeon.extensions.runtime.discovery import Source, find_named_sources, find_project_sources, find_user_sources
from pigeon.providers.gateway import Gateway
from pigeon.providers.registry import ModelRegistry
from pigeon.session.host.reports import Reports
from pigeon.wire.base import Json
from pigeon.wire.errors import StartupError

if TYPE_CHECKING:
    from pigeon.agent.interfaces import ModelProvider
    from pigeon.extensions.public.results import Trust
    from pigeon.extensions.runner import Runner

MOST_NAMED = 10
FOREIGN = (
    "Not loaded: {}. Pigeon runs extensions in Python, and these belong to another agent: what they add (commands, "
    "tools, approval before tools run) is missing."
)


class ExtensionOptions(Struct, frozen=True, kw_only=True):
    """The extensions that options name, whether others are loaded, and the options that only extensions know."""

    named: tuple[str, ...] = ()
    only_named: bool = False
    flags: Mapping[str, bool | str] = {}


class AgentExtensions:
    """Loads extensions in the two steps that trust requires; `runner` is None while there is nothing to load."""

    def __init__(
        self,
        options: ExtensionOptions,
        agent_dir: str,
        cwd: str,
        home: str,
        reports: Reports,
        *,
        print_tracebacks: bool,
    ) -> None:
        self._options = options
        self._agent_dir = agent_dir
        self._cwd = cwd
        self._home = home
        self._print_tracebacks = print_tracebacks
        self._reports = reports
        self.runner: Runner | None = None
        self._foreign: list[str] = []

    async def load_user_extensions(self, listed: Sequence[str], packages: Json) -> None:
        """Load the extensions named on the command line, those in the user's folder, and those listed in the user's
        settings.

        Raises `StartupError` if one of the first kind fails to load, because it may be meant to guard the agent.
        Extensions of other agents, with all their packages, are only named in a notice: clients of those agents bring
        them along.
        """
        failed = await self._load(find_named_sources(self._options.named, self._cwd, self._home))
        if failed:
            raise StartupError("\n".join(f'Failed to load extension "{path}": {why}' for path, why in failed.items()))
        if not self._options.only_named:
            await self._load(find_user_sources(self._agent_dir, listed, self._home))
            self._foreign.extend(_package_names(packages))

    async def load_project_extensions(self, folders: Sequence[str]) -> None:
        """Load the extensions in a project's folders; only for a trusted project."""
        if not self._options.only_named:
            await self._load(find_project_sources(folders))
        if self._foreign:
            found = list(dict.fromkeys(self._foreign))
            more = [f"{len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
            self._reports.show_info(FOREIGN.format(", ".join([*found[:MOST_NAMED], *more])))

    async def ask_extensions_about_trust(self, cwd: str) -> Trust | None:
        """The vote of the loaded extensions on trusting a folder."""
        return None if self.runner is None else await self.runner.ask_project_trust(cwd)

    async def close(self) -> None:
        """Close the extensions, whose threads must not outlive a failed start."""
        if self.runner is not None:
            await self.runner.close()

    async def _load(self, sources: list[Source]) -> dict[str, str]:
        """Load extensions; returns those that failed, with the reason."""
        self._foreign.extend(source.path for source in sources if source.is_foreign)
        sources = [source for source in sources if not source.is_foreign]
        if not sources:
            return {}
        if self.runner is None:
            from pigeon.extensions.runner import Runner

            self.runner = Runner(
                cwd=self._cwd,
                mode="rpc",
                flags=self._options.flags,
                post=self._reports.post,
                print_tracebacks=self._print_tracebacks,
            )
        return await self.runner.load(sources)


def _package_names(packages: Json) -> list[str]:
    """The packages in a settings file of another agent: names, or records that have one."""
    listed = packages if isinstance(packages, list) else []
    names = [item.get("source") if isinstance(item, dict) else item for item in listed]
    return [name for name in names if isinstance(name, str)]


class ExtensionProviders:
    """Adds providers of extensions to the registry, and to the gateway if they are not HTTP services."""

    def __init__(self, registry: ModelRegistry, gateway: Gateway) -> None:
        self._registry = registry
        self._gateway = gateway

    def add(self, name: str, entry: Mapping[str, Any], provider: ModelProvider | None) -> None:
        """Add a provider in the form of `models.json`."""
        self._registry.put_entry(name, entry)
        if provider is not None:
            self._gateway.register_api(name, lambda: provider)

    def remove(self, name: str) -> None:
        """Remove a provider that was added."""
        self._registry.put_entry(name, None)
