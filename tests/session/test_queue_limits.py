"""The queue takes so many messages, and says so when it is full."""

from __future__ import annotations

import asyncio

import pytest

from fakes.clock import virtually
from pigeon.session.queue import TOLD_AT_ONCE, MessageQueue, QueueFull, QueueLimits
from pigeon.session.settings import SessionSettings
from pigeon.wire.content import ImageContent, TextContent
from pigeon.wire.events import Outbound, QueueUpdate
from pigeon.wire.messages import UserMessage


def user_message(text: str, image: str = "") -> UserMessage:
    images = [ImageContent(data=image, mime_type="image/png")] if image else []
    return UserMessage(content=[TextContent(text=text), *images], timestamp=1)


def a_queue(posted: list[Outbound], **limits: int) -> MessageQueue:
    return MessageQueue(posted.append, SessionSettings(), QueueLimits(**limits))


async def test_a_full_queue_refuses_and_takes_again_when_there_is_room() -> None:
    posted: list[Outbound] = []
    queue = a_queue(posted, messages=3)
    for number in range(3):
        queue.add(user_message(f"{number}"), "steering")
    with pytest.raises(QueueFull, match="3 messages wait in it"):
        queue.add(user_message("too many"), "followUp")
    assert (len(queue), len(posted)) == (3, 3)
    await queue.mark_delivered(queue.peek_steering()[0])
    queue.add(user_message("fits"), "followUp")
    assert len(queue) == 3


def test_large_messages_fill_the_queue_sooner() -> None:
    queue = a_queue([], characters=100)
    queue.add(user_message("x", image="i" * 90), "steering")
    with pytest.raises(QueueFull):
        queue.add(user_message("x" * 10), "steering")


def test_one_message_of_any_size_can_wait() -> None:
    queue = a_queue([], characters=100)
    queue.add(user_message("x" * 1000), "steering")
    assert len(queue) == 1


def test_a_long_queue_is_told_now_and_then_and_always_as_it_is_in_the_end() -> None:
    posted: list[Outbound] = []

    async def fill() -> None:
        queue = a_queue(posted)
        for number in range(1000):
            queue.add(user_message(f"{number} " + "x" * 1400), "followUp")
        assert posted_characters(posted) < 10 * TOLD_AT_ONCE
        await asyncio.sleep(60)
        assert len(last(posted).follow_up) == 1000
        for _ in range(500):
            await queue.mark_delivered(queue.peek_follow_ups()[0])
        await asyncio.sleep(60)
        assert len(last(posted).follow_up) == 500
        assert posted_characters(posted) < 5_000_000
        queue.add(user_message("one more"), "followUp")
        queue.clear()
        assert (last(posted).steering, last(posted).follow_up) == ([], [])
        told = len(posted)
        await asyncio.sleep(60)
        assert len(posted) == told

    virtually(fill())


def test_a_short_queue_is_told_at_each_change() -> None:
    posted: list[Outbound] = []
    queue = a_queue(posted)
    for number in range(100):
        queue.add(user_message("x" * 100), "steering")
        assert len(last(posted).steering) == number + 1


def last(posted: list[Outbound]) -> QueueUpdate:
    assert isinstance(posted[-1], QueueUpdate)
    return posted[-1]


def posted_characters(posted: list[Outbound]) -> int:
    return sum(len(text) for event in posted if isinstance(event, QueueUpdate) for text in event.follow_up)
