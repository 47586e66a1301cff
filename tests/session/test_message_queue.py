"""The queue of messages: what is delivered when, what hosts are told of it, and what may be taken back."""

from __future__ import annotations

from typing import Any

import pytest

from pigeon.session.queue import MessageQueue, QueueFull, QueueLimits
from pigeon.session.settings import SessionSettings
from pigeon.wire.content import text_of
from pigeon.wire.errors import Refusal
from pigeon.wire.events import Outbound, QueueUpdate
from support.sessions import user


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
    assert (texts(queue.peek_steering()), texts(queue.peek_follow_ups())) == (now, later)
    assert (queue.steering_mode, queue.follow_up_mode) == (steering, follow_up)
    changed = Told().fill()
    changed.set_steering_mode(steering)
    changed.set_follow_up_mode(follow_up)
    assert (texts(changed.peek_steering()), texts(changed.peek_follow_ups())) == (now, later)


def test_every_change_is_told_whole() -> None:
    told = Told()
    queue = told.fill()
    assert told.updates == ["|f1", "s1|f1", "s1,s2|f1", "s1,s2|f1,f2"]
    assert len(queue) == 4


async def test_a_delivered_message_leaves_the_queue_and_nothing_else_does() -> None:
    told = Told()
    queue = told.fill()
    (item,) = queue.peek_steering()
    assert queue.try_reserve_item(item)
    await queue.mark_delivered(item)
    assert not queue.try_reserve_item(item)
    assert told.updates[-1] == "s2|f1,f2"
    assert texts(queue.peek_steering()) == ["s2"]
    await queue.mark_delivered(item)
    assert len(queue) == 3


def test_what_is_taken_back_is_given_to_the_host_and_no_longer_waits() -> None:
    told = Told()
    queue = told.fill()
    waiting = [*queue.peek_steering(), *queue.peek_follow_ups()]
    assert queue.clear() == (["s1", "s2"], ["f1", "f2"])
    assert [queue.try_reserve_item(item) for item in waiting] == [False, False]
    assert (len(queue), told.updates[-1]) == (0, "|")
    assert queue.clear() == ([], [])
    assert told.updates[-2:] == ["|", "|"], "the host asked, so it is told"


@pytest.mark.parametrize(
    ("mode", "kind", "interrupts"),
    [("immediate", "steering", True), ("immediate", "followUp", False), ("wait", "steering", False)],
)
def test_only_steering_interrupts_and_only_where_the_mode_says_so(mode: Any, kind: Any, interrupts: bool) -> None:
    queue = Told(interrupt_mode=mode).queue
    assert not queue.should_interrupt()
    queue.add(user("x"), kind)
    assert (queue.should_interrupt(), queue.interrupt_mode) == (interrupts, mode)
    queue.set_interrupt_mode("wait" if mode == "immediate" else "immediate")
    assert queue.should_interrupt() == (mode == "wait" and kind == "steering")


async def test_a_message_that_is_being_delivered_cannot_be_taken_back_before_the_run_ends() -> None:
    told = Told()
    queue = told.fill()
    (item,) = queue.peek_steering()
    assert queue.try_reserve_item(item)
    for change in (queue.remove, queue.promote_to_steering, lambda id: queue.edit(id, user("late"))):
        with pytest.raises(Refusal, match="delivered or taken back"):
            change(item.id)
    assert queue.clear() == (["s2"], ["f1", "f2"])
    assert told.updates[-1] == "s1|"
    queue.pop_run_prompts()
    assert queue.remove(item.id).text == "s1"
    assert not queue.try_reserve_item(item)


def test_an_edited_message_must_have_room() -> None:
    queue = MessageQueue(lambda event: None, SessionSettings(), QueueLimits(messages=2, characters=10))
    queue.add(user("12345"), "followUp")
    queue.add(user("12345"), "steering")
    (item,) = queue.peek_steering()
    with pytest.raises(QueueFull):
        queue.edit(item.id, user("123456"))
    assert queue.edit(item.id, user("54321")).text == "54321"
    with pytest.raises(QueueFull):
        queue.add(user(""), "steering")


def test_a_promoted_message_is_the_next_steering_message_wherever_it_waited() -> None:
    told = Told()
    queue = told.fill()
    (last,) = queue.peek_follow_ups()
    queue.promote_to_steering(last.id)
    assert told.updates[-1] == "f1,s1,s2|f2"
    assert texts(queue.peek_steering()) == ["f1"]
