"""The extensions of one agent: loaded, bound to its session, called, notified, and released at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence

from pigeon.extensions.adapters.contributions import Contributions
from pigeon.extensions.adapters.event_forwarding import EventForwarding
from pigeon.extensions.adapters.gate import ExtensionGate
from pigeon.extensions.adapters.hooks import ExtensionHooks
from pigeon.extensions.adapters.session_port import SessionPort
from pigeon.extensions.public.events import ProjectTrust
from pigeon.extensions.public.results import Trust
from pigeon.extensions.runtime.discovery import Source
from pigeon.extensions.runtime.dispatcher import Answer, Dispatcher, FailureReports
from pigeon.extensions.runtime.extension_thread import end_process_guard, guard_process
from pigeon.extensions.runtime.loading import ExtensionLoader
from pigeon.extensions.runtime.session_access import SessionBinding
from pigeon.session.host.dialogs import Dialogs
from pigeon.wire.events import Outbound

CLOSE_SECONDS = 1.0


class Runner:
    """All extensions of one agent; a session is built with their `hooks`, their `gate` and their `contributions`.

    Made on the session's loop. Loading comes first, then `trust`, then the session is built and `bind` is called.
    Failures are posted as `extension_error`, from the first load on.
    """

    def __init__(
        self,
        *,
        cwd: str,
        mode: str,
        flags: Mapping[str, bool | str],
        post: Callable[[Outbound], None],
        print_tracebacks: bool = False,
    ) -> None:
        guard_process()
        self._binding = SessionBinding(cwd, mode)
        self._dispatcher = Dispatcher(FailureReports(post))
        self.contributions = Contributions(self._dispatcher, self._binding)
        self.hooks = ExtensionHooks(self._dispatcher)
        self.gate = ExtensionGate(self._dispatcher)
        self._forwarding = EventForwarding(self._dispatcher, self.hooks)
        self._loader = ExtensionLoader(self._dispatcher, self.contributions, self._binding, flags, print_tracebacks)
        self._closed = False

    async def load(self, sources: Sequence[Source]) -> dict[str, str]:
        """Load extensions; a failing one is reported, left out and returned by its path with the reason."""
        return await self._loader.load(sources)

    async def ask_project_trust(self, cwd: str) -> Trust | None:
        """The first answer of an extension from outside the project; called before anything of the project is read."""
        found: list[Trust] = []

        def keep_trust_answer(answer: Answer) -> bool:
            if isinstance(answer.value, Trust):
                found.append(answer.value)
            return bool(found)

        outside = [one for one in self._dispatcher.extensions if one.source.scope != "project"]
        await self._dispatcher.ask_handlers(ProjectTrust, lambda: ProjectTrust(cwd), keep_trust_answer, outside)
        return found[0] if found else None

    def use_folder(self, cwd: str, trusted: bool, harmless: bool) -> None:
        """Note the conversation's new folder, or a decision about it, for `ctx.project_trusted`."""
        self._binding.set_trusted(trusted)

    def list_known_flags(self) -> dict[str, bool]:
        """The names of the options that extensions understand, without dashes, and whether they take a value."""
        flags = (flag for loaded in self._dispatcher.extensions for flag in loaded.extension.registered.flags.values())
        return {flag.name: not isinstance(flag.default, bool) for flag in flags}

    def bind(self, port: SessionPort, dialogs: Dialogs) -> None:
        """Connect the session: from here on extensions can act."""
        self._binding.bind(port, dialogs)

    def forward(self, event: Outbound) -> None:
        """Forward an event of the session to the extensions that listen; returns at once."""
        self._forwarding.forward(event)

    async def close(self) -> None:
        """Give extensions a moment for `session_shutdown` and let their threads end; a blocked one is left behind."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.hooks.on_session_ending("quit"), CLOSE_SECONDS)
        self._binding.bridge.close()
        self._dispatcher.close()
        self._loader.forget_modules()
        end_process_guard()
