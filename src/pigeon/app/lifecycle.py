"""When an agent starts, warms up, is left and ends: the calls of its host, in this order.

| call | when |
|---|---|
| `on_host_ready` | there is a host: reports and extensions may send records |
| `warm_up` | the first answer was sent, and there is time before the first prompt |
| `release_idle` | a run has settled, and the host wants nothing kept for the next one |
| `should_drain` | the host went away: whether a run that is under way is finished first |
| `close_extensions` | the session still works, and extensions may read it for the last time |
| `stop` | the session was closed |
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pigeon.extensions.agent_extensions import ExtensionProviders
from pigeon.providers.demo.api import DEMO
from pigeon.providers.gateway import Gateway
from pigeon.resources.resources import Resources
from pigeon.sandbox.control import SandboxControl
from pigeon.session.host.reports import Reports
from pigeon.session.session import Session

if TYPE_CHECKING:
    from pigeon.extensions.runner import Runner

# Entries read in one step: a few milliseconds. Each step compares what is converted already, so very long conversations
# are not converted to their end.
READ_AHEAD = 200
CONVERTED_AHEAD = 20_000
# If one step takes longer, each would convert the same again, as for a long row of messages without an answer.
LONGEST_STEP = 0.05


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
        *,
        drain: bool,
    ) -> None:
        self._session = session
        self._runner = runner
        self._providers = providers
        self._gateway = gateway
        self._resources = resources
        self._reports = reports
        self._processes = sandbox.processes
        self._sandbox = sandbox
        self._drain = drain
        self._finding: asyncio.Future[None] | None = None

    async def on_host_ready(self, shutdown: Callable[[], None]) -> None:
        """Announce the commands and start the extensions; `shutdown` asks the host to end the agent."""
        session, runner = self._session, self._runner
        self._reports.connect(session.bus.post)
        session.announce_commands()
        if runner is None:
            return
        from pigeon.extensions.adapters.session_port import make_session_port

        runner.bind(
            make_session_port(session, self._providers.add, self._providers.remove, shutdown),
            session.dependencies.dialogs,
        )
        session.bus.set_announcer(runner.forward)
        await runner.hooks.on_session_started("startup")
        self._finding = asyncio.ensure_future(self._add_extension_resources(runner))

    async def _add_extension_resources(self, runner: Runner) -> None:
        found = await runner.hooks.find_resources(self._session.journal.cwd)
        if self._resources.add_new_paths(found.skills, found.prompts):
            self._session.announce_commands()

    async def warm_up(self) -> None:
        """Load what the first request will need: the HTTP client, then the files of the system prompt, then the names
        of tool servers, which are connected a little later."""
        await self._gateway.warm(self._session.models.model)
        self._session.engine.warm_up()
        self._session.dependencies.tool_servers.start_connecting()
        await self._parse_and_convert_ahead()

    async def _parse_and_convert_ahead(self) -> None:
        """Parse and convert a long conversation in small steps before the first prompt of the host."""
        session, transcript = self._session, self._session.transcript
        for _ in range(0, len(session.visible_entries.lines), READ_AHEAD):
            if session.activity.is_busy or not transcript.parse_more_ahead(READ_AHEAD):
                break
            await asyncio.sleep(0)
        journal, model, messages = transcript.journal, session.models.model, transcript.model_messages
        for end in range(READ_AHEAD, min(len(messages), CONVERTED_AHEAD), READ_AHEAD):
            # A run does the rest itself; after a change of conversation or model it would be wasted.
            unchanged = transcript.journal is journal and session.models.model is model
            if model is None or session.activity.is_busy or not unchanged:
                return
            began = time.monotonic()
            self._gateway.convert_ahead(model, messages[:end])
            if time.monotonic() - began > LONGEST_STEP:
                return
            await asyncio.sleep(0)

    def release_idle(self) -> None:
        """Release the processes that are only kept so that the next command starts faster."""
        self._processes.release_when_idle()

    def should_drain(self) -> bool:
        """True if a run is finished after the host has gone; with the demo, because people try it with piped input."""
        model = self._session.models.model
        return self._drain or (model is not None and model.provider == DEMO.name)

    async def close_extensions(self) -> None:
        """Close the extensions while there is still a session for them to read."""
        if self._runner is not None:
            await self._runner.close()

    async def stop(self) -> None:
        """End the agent's processes and connections."""
        await self._processes.kill_everything()
        self._sandbox.close()
        await self._gateway.aclose()
