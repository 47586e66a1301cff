"""Handlers: `hello`, which agrees on dialect and features."""

from __future__ import annotations

from pigeon.dialects.choice import changed_dialect
from pigeon.rpc.host_connection import HostConnection
from pigeon.rpc.lanes import MOST_IN_FLIGHT
from pigeon.rpc.router import handles
from pigeon.wire.answers import Feature, InputLimits, Welcome
from pigeon.wire.base import or_else
from pigeon.wire.commands import Hello
from pigeon.wire.errors import Refusal

NAME = "pigeon"
BUSY = "hello changes the format of events, so it is refused during a run; send it first, or between runs"


@handles(Hello)
def hello(cmd: Hello, connection: HostConnection) -> Welcome:
    """In force from the answer on."""
    form, session = connection.form, connection.session
    before = form.dialect
    wanted = or_else(cmd.features, [str(feature) for feature in _in_force(connection)])
    after = changed_dialect(before, or_else(cmd.dialect, before.name), "deltas" in wanted)
    if session.activity.in_run:
        raise Refusal(BUSY)
    form.turn_to(after, "seq" in wanted)
    if session.queue.interrupt_mode == before.default_interrupt_mode:
        session.queue.set_interrupt_mode(after.default_interrupt_mode)
    session.engine.set_keep_unreadable_images(after.keeps_unreadable_images)
    session.set_full_state(after.full_state)
    attributes, activity = "attribution" in wanted, session.activity
    form.attribute((lambda: activity.run_id if activity.in_run else None) if attributes else None)
    session.prompting.attribute(attributes)
    session.queue.show_items(attributes)
    session.trust.announce("trust" in wanted)
    session.permissions.announce("permissions" in wanted)
    session.tool_servers.announce("mcp" in wanted)
    session.announce_selection("selection" in wanted)
    limits = InputLimits(record_bytes=connection.record_cap, commands_in_flight=MOST_IN_FLIGHT)
    return Welcome(name=NAME, version=after.version, dialect=after.name, features=_in_force(connection), limits=limits)


def _in_force(connection: HostConnection) -> list[Feature]:
    features: list[Feature] = []
    if connection.form.dialect.deltas:
        features.append("deltas")
    if connection.form.numbers:
        features.append("seq")
    if connection.session.trust.announces:
        features.append("trust")
    if connection.session.permissions.announces:
        features.append("permissions")
    if connection.form.attributes:
        features.append("attribution")
    if connection.session.tool_servers.announces:
        features.append("mcp")
    if connection.session.announces_selection:
        features.append("selection")
    return features
