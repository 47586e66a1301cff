"""How an agent starts and ends: what its host calls, in this order.

| call | when |
|---|---|
| `on_host_ready` | there is a host to talk to: reports and extensions may send records |
| `close_extensions` | the session still works, and extensions may look at it for the last time |
| `stop` | the session was closed |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from pigeon.extensions.agent_extensions import ExtensionProviders
from pigeon.providers.gateway import Gateway
from pigeon.resources.resources import Resources
from pigeon.sandbox.control import SandboxControl
from pigeon.session.host.reports import Reports
from pigeon.session.session import Session
from pigeon.workspaces.agent_workspace import AgentWorkspace

if TYPE_CHECKING:
    from pigeon.extensions.runner import Runner


class Lifecycle:
    """The beginning and the end of one agent; other agents of the process are not touched."""

    def __init__(
        self,
        session: Session,
        runner: Runner | None,
        providers: ExtensionProviders,
        gateway: Gateway,
        resources: Resources,
        reports: Reports,
        sandbox: SandboxControl,
        workspace: AgentWorkspace,
    ) -> None:
        self._workspace = workspace
        self._session = session
        self._runner = runner
        self._providers = providers
        self._gateway = gateway
        self._resources = resources
        self._reports = reports
        self._processes = sandbox.processes
        self._sandbox = sandbox
        self._finding: asyncio.Future[None] | None = None

    async def on_host_ready(self, shutdown: Callable[[], None]) -> None:
        """Announce the commands and start the extensions; `shutdown` asks the host to end the agent."""
        session, runner = self._session, self._runner
        self._reports.start_posting(session.bus.post)
        session.announce_commands()
        if runner is not None:
            await self._start_extensions(runner, shutdown)

    async def _start_extensions(self, runner: Runner, shutdown: Callable[[], None]) -> None:
        session = self._session
        from pigeon.extensions.adapters.session_port import make_session_port

        runner.bind(
            make_session_port(session, self._providers.add, self._providers.remove, shutdown),
            session.dependencies.dialogs,
        )
        session.bus.add_announcer(runner.forward)
        await runner.hooks.on_session_started("startup")
        self._finding = asyncio.ensure_future(self._add_extension_resources(runner))

    async def _add_extension_resources(self, runner: Runner) -> None:
        found = await runner.hooks.find_resources(self._session.journal.cwd)
        if self._resources.add_new_paths(found.skills, found.prompts):
            self._session.announce_commands()

    async def close_extensions(self) -> None:
        """Close the extensions while there is still a session for them to read."""
        if self._runner is not None:
            await self._runner.close()

    async def stop(self) -> None:
        """End the agent's processes and connections."""
        await self._workspace.close()
        await self._processes.kill_everything()
        await self._session.dependencies.repository.close_store()
        self._sandbox.close()
        await self._gateway.aclose()
