"""The queue of messages: what is delivered when, what hosts are told of it, and what may be taken back."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.repositories import user
from pigeon.session.queue import MessageQueue
from pigeon.session.settings import SessionSettings
from pigeon.wire.content import text_of
from pigeon.wire.events import Outbound, QueueUpdate


class Told:
    """A queue, and every update of it as `steering|follow-ups`."""

    def __init__(self, **settings: Any) -> None:
        self.updates: list[str] = []
        self.queue = MessageQueue(self._post, SessionSettings(**settings))

    def _post(self, event: Outbound) -> None:
        assert isinstance(event, QueueUpdate)
        self.updates.append(f"{','.join(event.steering)}|{','.join(event.follow_up)}")

    def fill(self) -> MessageQueue:
        for text, kind in (("f1", "followUp"), ("s1", "steering"), ("s2", "steering"), ("f2", "followUp")):
            self.queue.add(user(text), kind)  # type: ignore[arg-type]
        return self.queue


def texts(items: Any) -> list[str]:
    return [text_of(item.message.content) for item in items]


@pytest.mark.parametrize(
    ("steering", "follow_up", "now", "later"),
    [
        ("one-at-a-time", "one-at-a-time", ["s1"], ["f1"]),
        ("all", "one-at-a-time", ["s1", "s2"], ["f1"]),
        ("one-at-a-time", "all", ["s1"], ["f1", "f2"]),
    ],
)
def test_each_queue_delivers_by_its_own_mode(steering: Any, follow_up: Any, now: list[str], later: list[str]) -> None:
    queue = Told(steering_mode=steering, follow_up_mode=follow_up).fill()
    assert (texts(queue.next_steering()), texts(queue.next_follow_ups())) == (now, later)
    assert (queue.steering_mode, queue.follow_up_mode) == (steering, follow_up)
    changed = Told().fill()
    changed.set_steering_mode(steering)
    changed.set_follow_up_mode(follow_up)
    assert (texts(changed.next_steering()), texts(changed.next_follow_ups())) == (now, later)


def test_every_change_is_told_whole() -> None:
    told = Told()
    queue = told.fill()
    assert told.updates == ["|f1", "s1|f1", "s1,s2|f1", "s1,s2|f1,f2"]
    assert len(queue) == 4


async def test_a_delivered_message_leaves_the_queue_and_nothing_else_does() -> None:
    told = Told()
    queue = told.fill()
    (item,) = queue.next_steering()
    assert queue.still_waits(item)
    await queue.delivered(item)
    assert not queue.still_waits(item)
    assert told.updates[-1] == "s2|f1,f2"
    assert texts(queue.next_steering()) == ["s2"]
    await queue.delivered(item)
    assert len(queue) == 3


def test_what_is_taken_back_is_given_to_the_host_and_no_longer_waits() -> None:
    told = Told()
    queue = told.fill()
    waiting = [*queue.next_steering(), *queue.next_follow_ups()]
    assert queue.clear() == (["s1", "s2"], ["f1", "f2"])
    assert [queue.still_waits(item) for item in waiting] == [False, False]
    assert (len(queue), told.updates[-1]) == (0, "|")
    assert queue.clear() == ([], [])
    assert told.updates[-2:] == ["|", "|"], "the host asked, so it is told"


def test_an_empty_queue_is_dropped_without_a_word() -> None:
    told = Told()
    told.queue.drop()
    assert told.updates == []
    told.fill().drop()
    assert (len(told.queue), told.updates[-1]) == (0, "|")


@pytest.mark.parametrize(
    ("mode", "kind", "interrupts"),
    [("immediate", "steering", True), ("immediate", "followUp", False), ("wait", "steering", False)],
)
def test_only_steering_interrupts_and_only_where_the_mode_says_so(mode: Any, kind: Any, interrupts: bool) -> None:
    queue = Told(interrupt_mode=mode).queue
    assert not queue.interrupts()
    queue.add(user("x"), kind)
    assert (queue.interrupts(), queue.interrupt_mode) == (interrupts, mode)
    queue.set_interrupt_mode("wait" if mode == "immediate" else "immediate")
    assert queue.interrupts() == (mode == "wait" and kind == "steering")
