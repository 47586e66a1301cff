"""The connection of a client to a session in this process, and how what they agree on changes the session."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pigeon.dialects.base import Dialect
from pigeon.rpc.connection import Connection
from pigeon.session.session import Session
from pigeon.transport.reader import DEFAULT_CAP
from pigeon.wire.choices import Feature
from pigeon.wire.errors import Refusal
from pigeon.wire.events import CommandsChanged, Outbound


def _change_interrupt_mode(session: Session, before: Dialect, after: Dialect) -> None:
    if session.queue.interrupt_mode == before.default_interrupt_mode:
        session.queue.set_interrupt_mode(after.default_interrupt_mode)


# All that a client changes beyond events and members of records that it is shown, with the reason: its features, and
# the rows of its dialect. What is only another way to show things is done by `Connection`: there is nothing to call.
# One thing is about all clients, so it depends on how the agent was started: with `several_clients` a question or call
# that has ended is cancelled, because other clients may show it still.
BEHAVIOUR_FEATURES: dict[Feature, tuple[str, Callable[[Session], None] | None]] = {
    "permissions": (
        "A run whose last calls were denied ends with the reason `denied`, which other clients do not know: for them "
        "it is `done`. For an unattended agent everybody gets the reason",
        None,
    ),
    "attribution": (
        "Everything that comes during a run has its id, by which a client of several prompts tells them apart; for "
        "others it would be one more member of every line",
        None,
    ),
    "every_delta": (
        "While the client reads slowly, the agent waits for it instead of merging deltas of a block",
        None,
    ),
    "mcp": (
        "Tool servers are connected without a pause, because the client shows how they come up",
        lambda session: session.dependencies.tool_servers.skip_startup_delay(),
    ),
    "trust": (
        "What waits for a decision is announced once more, because the client has not seen it yet",
        lambda session: session.dependencies.trust.reannounce_pending_decision(),
    ),
}
# What `hello` does for a row, with the session, the dialect before and the one from now on. For the dialect that
# comes first, the options of the agent have it (`AgentOptions.for_dialect`).
BEHAVIOUR_ROWS: dict[str, tuple[str, Callable[[Session, Dialect, Dialect], None]]] = {
    "default_interrupt_mode": (
        "Where no command or setting says otherwise, steering interrupts as the clients of the dialect count on",
        _change_interrupt_mode,
    ),
    "keeps_unreadable_images": (
        "Clients of some dialects count on a prompt's data that is no image going to the model as it is",
        lambda session, before, after: session.engine.set_keep_unreadable_images(after.keeps_unreadable_images),
    ),
    "continues_after_failure": (
        "Newer clients count on queued messages being answered after a failed run, older ones on their being kept",
        lambda session, before, after: session.engine.set_continues_after_failure(after.continues_after_failure),
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
        for _, apply in BEHAVIOUR_ROWS.values():
            apply(session, before, dialect)
        for feature in self.features:
            _, change = BEHAVIOUR_FEATURES.get(feature, ("", None))
            if change is not None:
                change(session)

    def _filter_event(self, event: Outbound) -> Outbound | None:
        if isinstance(event, CommandsChanged):
            event = self.dialect.convert_commands(event, self.session.prompting.list_commands)
        return super()._filter_event(event)

    def _active_run(self) -> str | None:
        activity = self.session.activity
        return activity.run_id if activity.is_running else None
