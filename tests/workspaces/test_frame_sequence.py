"""Frames to a machine elsewhere: those that were not received are sent again, and no more are made than there is room
for."""

from __future__ import annotations

import asyncio

from pigeon.workspaces.remote.frames import MOST_UNRECEIVED, FrameSequence
from pigeon.workspaces.remote.messages import Ping

HALF = bytes(MOST_UNRECEIVED // 2)


async def test_there_is_room_until_too_much_is_unreceived_and_again_when_it_was_received() -> None:
    frames = FrameSequence()
    await asyncio.wait_for(frames.wait_for_room(), 30)
    sent = [frames.make_frame(Ping(), HALF)]
    assert frames.has_room
    sent.append(frames.make_frame(Ping(), HALF))
    assert not frames.has_room
    waiting = asyncio.ensure_future(frames.wait_for_room())
    frames.confirm(0)
    await asyncio.sleep(0)
    assert (waiting.done(), frames.list_unreceived()) == (False, sent)
    frames.confirm(1)
    await asyncio.wait_for(waiting, 30)
    assert frames.list_unreceived() == sent[1:]


async def test_who_waits_for_room_goes_on_when_the_other_side_is_given_up() -> None:
    frames = FrameSequence()
    for _ in range(3):
        frames.make_frame(Ping(), HALF)
    waiting = asyncio.ensure_future(frames.wait_for_room())
    await asyncio.sleep(0)
    frames.give_up()
    await asyncio.wait_for(waiting, 30)
    assert frames.list_unreceived() == []


def test_a_frame_that_has_come_before_or_out_of_order_is_not_admitted() -> None:
    frames = FrameSequence()
    assert [frames.admit(number, 10) for number in (2, 1, 1, 2, 4, 3)] == [False, True, False, True, False, True]
    assert frames.received == 3


def test_what_was_received_is_confirmed_from_time_to_time_and_with_each_frame() -> None:
    frames = FrameSequence()
    assert frames.admit(1, 1 << 20)
    assert frames.must_confirm
    frames.make_frame(Ping())
    assert not frames.must_confirm
