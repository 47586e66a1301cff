"""Messages that come from neither the host nor the model: extensions speak up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pigeon.agent.interfaces import Spoken
from pigeon.session.activity import Activity
from pigeon.session.bus import Bus
from pigeon.session.queue import MessageQueue
from pigeon.session.runs import Runs
from pigeon.wire.errors import SessionBusy
from pigeon.wire.events import MessageEnd, MessageStart
from pigeon.wire.messages import CustomMessage, UserMessage

DeliverAs = Literal["steer", "followUp", "nextTurn"]


class Interjections:
    """Puts a message where it does no harm: never between a tool call and its result."""

    def __init__(
        self, activity: Activity, queue: MessageQueue, runs: Runs, bus: Bus, require_model: Callable[[], None]
    ) -> None:
        self._activity = activity
        self._queue = queue
        self._runs = runs
        self._bus = bus
        self._require_model = require_model
        self._asides: list[CustomMessage] = []
        self._next_turn: list[CustomMessage] = []

    def say(self, message: CustomMessage, trigger_turn: bool, deliver_as: DeliverAs) -> None:
        """Say it now, at the next break, or with the next prompt."""
        if deliver_as == "nextTurn":
            self._next_turn.append(message)
        elif not self._activity.in_run:
            if trigger_turn:
                self._start(message)
            else:
                self._tell(message)
        elif trigger_turn:
            self._queue.add(message, "followUp" if deliver_as == "followUp" else "steering")
        else:
            self._asides.append(message)

    def ask(self, message: UserMessage, deliver_as: Literal["steer", "followUp"] | None) -> None:
        """Prompt as a user would; raises while a run is active and nobody said how to queue."""
        if not self._activity.in_run:
            self._start(message)
        elif deliver_as is None:
            raise SessionBusy
        else:
            self._queue.add(message, "followUp" if deliver_as == "followUp" else "steering")

    def take_next_turn(self) -> list[Spoken]:
        """What waited for this prompt."""
        waiting, self._next_turn = self._next_turn, []
        return list(waiting)

    def settle(self) -> None:
        """The run is over: say what was said beside it."""
        asides, self._asides = self._asides, []
        for message in asides:
            self._tell(message)

    def _start(self, message: Spoken) -> None:
        self._require_model()
        self._runs.start([message], self._activity.begin_run())

    def _tell(self, message: CustomMessage) -> None:
        self._bus.post(MessageStart(message=message))
        self._bus.post(MessageEnd(message=message))
