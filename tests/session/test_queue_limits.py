"""The queue takes so many messages, and says so when it is full."""

from __future__ import annotations

import pytest

from pigeon.session.queue import MessageQueue, QueueFull, QueueLimits
from pigeon.session.settings import SessionSettings
from pigeon.wire.content import ImageContent, TextContent
from pigeon.wire.events import Outbound
from pigeon.wire.messages import UserMessage


def said(text: str, image: str = "") -> UserMessage:
    images = [ImageContent(data=image, mime_type="image/png")] if image else []
    return UserMessage(content=[TextContent(text=text), *images], timestamp=1)


def a_queue(posted: list[Outbound], **limits: int) -> MessageQueue:
    return MessageQueue(posted.append, SessionSettings(), QueueLimits(**limits))


async def test_a_full_queue_refuses_and_takes_again_when_there_is_room() -> None:
    posted: list[Outbound] = []
    queue = a_queue(posted, messages=3)
    for number in range(3):
        queue.add(said(f"{number}"), "steering")
    with pytest.raises(QueueFull, match="3 messages wait in it"):
        queue.add(said("too many"), "followUp")
    assert (len(queue), len(posted)) == (3, 3)
    await queue.delivered(queue.next_steering()[0])
    queue.add(said("fits"), "followUp")
    assert len(queue) == 3


def test_large_messages_fill_the_queue_sooner() -> None:
    queue = a_queue([], characters=100)
    queue.add(said("x", image="i" * 90), "steering")
    with pytest.raises(QueueFull):
        queue.add(said("x" * 10), "steering")


def test_one_message_of_any_size_can_wait() -> None:
    queue = a_queue([], characters=100)
    queue.add(said("x" * 1000), "steering")
    assert len(queue) == 1
