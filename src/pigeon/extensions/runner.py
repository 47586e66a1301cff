"""The extensions of one process: loaded, bound to a session, asked and told, and let go at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pigeon.extensions.adapters.contributions import Contributions
from pigeon.extensions.adapters.event_forwarding import Ears
from pigeon.extensions.adapters.gate import ExtensionGate, ExtensionVeto
from pigeon.extensions.adapters.hooks import ExtensionHooks
from pigeon.extensions.adapters.session_port import SessionPort
from pigeon.extensions.runtime.discovery import Source
from pigeon.extensions.runtime.dispatcher import Dispatcher, Reports
from pigeon.extensions.runtime.loading import ExtensionLoader
from pigeon.extensions.runtime.session_access import Asks, Binding, LoopBridge
from pigeon.wire.events import Outbound

CLOSE_SECONDS = 1.0


class Runner:
    """All extensions; a session takes their `hooks`, `gate`, `veto` and what they `contributions`. Made on its loop."""

    def __init__(self, cwd: str, mode: str = "rpc", flags: Mapping[str, bool | str] | None = None) -> None:
        self._bridge = LoopBridge()
        self._dispatcher = Dispatcher(Reports())
        self.contributions = Contributions(self._dispatcher)
        self._loader = ExtensionLoader(self._dispatcher, self.contributions, self._bridge, cwd, mode, dict(flags or {}))
        self._binding: Binding | None = None
        self.hooks = ExtensionHooks(self._dispatcher)
        self.veto = ExtensionVeto(self._dispatcher)
        self.gate = ExtensionGate(self._dispatcher, self._checked)
        self._ears = Ears(self._dispatcher, self.hooks)
        self.trust_to_remember: bool | None = None

    async def load(self, sources: Sequence[Source]) -> None:
        """Load extensions; those that fail are reported to the host as soon as there is one."""
        for loaded in await self._loader.take(sources):
            loaded.access.binding = self._binding

    async def project_trust(self, cwd: str) -> bool | None:
        """What the extensions loaded so far say about the project; none if they say nothing."""
        said = await self.hooks.project_trust(cwd)
        if said is None:
            return None
        self.trust_to_remember = bool(said.trusted) if said.remember else None
        return bool(said.trusted)

    def trust(self, trusted: bool) -> None:
        """The decision about the project, for `ctx.project_trusted`."""
        self._loader.trusted = trusted
        for loaded in self._dispatcher.extensions:
            loaded.trust(trusted)

    def known_flags(self) -> set[str]:
        """Names of the options that extensions understand, without dashes."""
        return {name for loaded in self._dispatcher.extensions for name in loaded.extension.registry.flags}

    def bind(self, port: SessionPort, dialogs: Asks, post: Callable[[Outbound], None]) -> None:
        """There is a session: from here on extensions can act, and failures are told."""
        self._binding = Binding(port=port, dialogs=dialogs)
        for loaded in self._dispatcher.extensions:
            loaded.access.binding = self._binding
        self.contributions.bind(port.equipment)
        self._dispatcher.reports.to(post)

    def heard(self, event: Outbound) -> None:
        """An event of the session, for those who listen; returns at once."""
        self._ears.heard(event)

    def room(self) -> None:
        """Extensions never hold the session up."""

    async def close(self) -> None:
        """Say goodbye and let the threads end; one that does not is left behind."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.hooks.session_ending("quit"), CLOSE_SECONDS)
        self._bridge.close()
        self._dispatcher.close()
        self._loader.end()

    def _checked(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        assert self._binding is not None
        return self._binding.port.equipment.checked(tool, arguments)
