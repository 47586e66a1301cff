"""Messages that wait: steering for the next break, follow-ups for the end. Each item has an id of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pigeon.agent.interfaces import Queued, Spoken
from pigeon.system import ids
from pigeon.wire.commands import QueueMode
from pigeon.wire.content import text_of
from pigeon.wire.events import Outbound, QueueUpdate

QueueKind = Literal["steering", "followUp"]


class QueuedMessage:
    """One waiting message."""

    def __init__(self, message: Spoken, kind: QueueKind) -> None:
        self.id = ids.request_id()
        self.message = message
        self.kind: QueueKind = kind

    @property
    def text(self) -> str:
        """Its text, as hosts are shown it."""
        return text_of(self.message.content)


class MessageQueue:
    """Both queues; every change is posted whole."""

    def __init__(self, post: Callable[[Outbound], None]) -> None:
        self._post = post
        self._items: dict[str, QueuedMessage] = {}
        self.steering_mode: QueueMode = "one-at-a-time"
        self.follow_up_mode: QueueMode = "one-at-a-time"

    def __len__(self) -> int:
        return len(self._items)

    def add(self, message: Spoken, kind: QueueKind) -> None:
        """Put a message at the end of its queue."""
        item = QueuedMessage(message, kind)
        self._items[item.id] = item
        self._announce()

    def clear(self) -> tuple[list[str], list[str]]:
        """Empty both queues and announce it; returns their texts."""
        texts = self._texts("steering"), self._texts("followUp")
        self._items.clear()
        self._announce()
        return texts

    def drop(self) -> None:
        """Empty both queues, telling only if there was something in them."""
        if self._items:
            self.clear()

    def steering_waits(self) -> bool:
        """True if a steering message is queued."""
        return any(item.kind == "steering" for item in self._items.values())

    def next_steering(self) -> list[Queued]:
        """What steering delivers now, by its mode."""
        return self._next("steering", self.steering_mode)

    def next_follow_ups(self) -> list[Queued]:
        """What follow-ups deliver now, by their mode."""
        return self._next("followUp", self.follow_up_mode)

    def still_waits(self, item: Queued) -> bool:
        """False if the item was taken back in the meantime."""
        return isinstance(item, QueuedMessage) and item.id in self._items

    async def delivered(self, item: Queued) -> None:
        """The item is being said: it leaves the queue."""
        assert isinstance(item, QueuedMessage)
        self._items.pop(item.id, None)
        self._announce()

    def _next(self, kind: QueueKind, mode: QueueMode) -> list[Queued]:
        waiting: list[Queued] = [item for item in self._items.values() if item.kind == kind]
        return waiting if mode == "all" else waiting[:1]

    def _texts(self, kind: QueueKind) -> list[str]:
        return [item.text for item in self._items.values() if item.kind == kind]

    def _announce(self) -> None:
        self._post(QueueUpdate(steering=self._texts("steering"), follow_up=self._texts("followUp")))
