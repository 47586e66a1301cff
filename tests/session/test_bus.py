"""The bus: who is called for an event, in which order, and whom a publisher waits for."""

from __future__ import annotations

import asyncio

from pigeon.session.bus import Bus
from pigeon.wire.events import AgentStart, Outbound, TurnStart


def test_recorders_are_called_before_announcers() -> None:
    bus, calls = Bus(), list[str]()
    bus.add_announcer(lambda event: calls.append("announcer"))
    bus.add_recorder(lambda event: calls.append("recorder"))
    bus.post(AgentStart())
    assert calls == ["recorder", "announcer"]


def test_an_announcer_of_one_kind_is_called_for_no_other() -> None:
    bus, seen = Bus(), list[Outbound]()
    bus.add_announcer(seen.append, kind=AgentStart)
    bus.post(TurnStart())
    bus.post(AgentStart())
    assert seen == [AgentStart()]


async def test_a_publisher_waits_only_for_a_listener_that_is_behind() -> None:
    bus, room, is_behind = Bus(), asyncio.Event(), False

    async def wait_for_room() -> None:
        await room.wait()

    bus.add_announcer(lambda event: is_behind, wait_for_room)
    await asyncio.wait_for(bus.publish(AgentStart()), 1)
    is_behind = True
    bus.post(AgentStart())
    publishing = asyncio.ensure_future(bus.publish(AgentStart()))
    await asyncio.sleep(0)
    assert not publishing.done()
    room.set()
    await publishing
