"""The connection of a client to a session in this process, and how what they agree on changes the session."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pigeon.dialects.base import Dialect
from pigeon.rpc.connection import Connection
from pigeon.session.session import CommandsChanged, Session
from pigeon.session.settings import HostDefaults
from pigeon.transport.reader import DEFAULT_CAP
from pigeon.wire.answers import Feature
from pigeon.wire.errors import Refusal
from pigeon.wire.events import AvailableCommandsUpdate, Outbound

# Features that do more than show events and members of records: the reason, and the function to call when a client
# requests one.
BEHAVIOUR_FEATURES: dict[Feature, tuple[str, Callable[[Session], None]]] = {
    "permissions": (
        "A run whose last calls were denied ends with the reason `denied`, which other clients do not know: for them "
        "it is `done` (`Connection`). For an unattended agent everybody gets the reason",
        lambda session: None,
    ),
    "mcp": (
        "Tool servers are connected without a pause, because the client shows how they come up",
        lambda session: session.dependencies.tool_servers.skip_start_pause(),
    ),
    "trust": (
        "What waits for a decision is announced once more, because the client has not seen it yet",
        lambda session: session.dependencies.trust.announce_waiting(),
    ),
}
BUSY = "hello changes the format of events, so it is refused during a run; send it first, or between runs"


class SessionConnection(Connection):
    """The subject of commands that are about the connection as well as the session."""

    def __init__(
        self,
        session: Session,
        dialect: Dialect,
        mask: Callable[[bytes], bytes] = lambda data: data,
        count: int = 0,
        record_cap: int = DEFAULT_CAP,
        fixed_dialect: str = "",
    ) -> None:
        super().__init__(dialect, (), mask, count, record_cap, session.dependencies.settings.unattended, fixed_dialect)
        self.session = session

    def _use_dialect(self, dialect: Dialect, features: Iterable[str]) -> None:
        session, before = self.session, self.dialect
        if session.activity.is_running:
            raise Refusal(BUSY)
        super()._use_dialect(dialect, features)
        # A dialect also changes defaults, to what its clients expect if nothing else is set.
        session.change_host_defaults(_defaults_of(before), _defaults_of(dialect))
        for feature in self.features:
            if feature in BEHAVIOUR_FEATURES:
                _, change = BEHAVIOUR_FEATURES[feature]
                change(session)

    def _filter_event(self, event: Outbound) -> Outbound | None:
        if isinstance(event, CommandsChanged) and self.dialect.full_state:
            event = AvailableCommandsUpdate(commands=self.session.prompting.available_commands())
        return super()._filter_event(event)

    def _active_run(self) -> str | None:
        activity = self.session.activity
        return activity.run_id if activity.is_running else None


def _defaults_of(dialect: Dialect) -> HostDefaults:
    return HostDefaults(dialect.default_interrupt_mode, dialect.keeps_unreadable_images)
