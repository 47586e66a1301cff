"""What becomes of a message from the host: it starts a run, waits in a queue, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pigeon.session.activity import Activity
from pigeon.session.model_choice import ModelChoice
from pigeon.session.queue import Kind, MessageQueue
from pigeon.session.runs import Runs
from pigeon.wire.answers import SlashCommand
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.commands import StreamingBehavior
from pigeon.wire.errors import Refusal
from pigeon.wire.images import ImageInput, user_blocks
from pigeon.wire.messages import Attachment, UserMessage

NO_MODEL = (
    "No API key found for the selected model.\n\n"
    "No model is selected. Set a provider's key in the environment (ANTHROPIC_API_KEY, OPENAI_API_KEY, "
    "GEMINI_API_KEY, ...) or describe a provider in {models_file}, then start again or choose one with set_model. "
    "To try Pigeon without a key: pigeon --mode rpc --model demo"
)


class Expander(Protocol):
    """Turns `/name arguments` into the text it stands for."""

    def expand(self, text: str) -> str:
        """The text that goes to the model; unknown names stay as they are."""
        ...

    def commands(self) -> list[SlashCommand]:
        """What can be expanded."""
        ...


class Says:
    """A message from the host, checked and expanded."""

    def __init__(
        self, text: str, images: list[ImageInput] | Absent = ABSENT, attachments: list[Attachment] | Absent = ABSENT
    ) -> None:
        self.text = text
        self.images = images
        self.attachments = attachments


class Prompting:
    """Accepts messages; everything that decides is done before it returns, so nothing can come in between."""

    def __init__(
        self,
        activity: Activity,
        queue: MessageQueue,
        runs: Runs,
        models: ModelChoice,
        expander: Expander,
        now: Callable[[], int],
        models_file: str,
    ) -> None:
        self._activity = activity
        self._queue = queue
        self._runs = runs
        self._models = models
        self._expander = expander
        self._now = now
        self._models_file = models_file

    def prompt(self, says: Says, behavior: StreamingBehavior | Absent = ABSENT) -> None:
        """Start a run, or queue as `behavior` says while one is active; raises when it can do neither."""
        message = self._message(says)
        if self._activity.in_run and not isinstance(behavior, Absent):
            self._queue.add(message, "steering" if behavior == "steer" else "followUp")
            return
        scope = self._activity.begin_run()
        try:
            self._require_model()
        except Refusal:
            self._activity.end()
            raise
        self._runs.start([message], scope)

    def queue(self, says: Says, kind: Kind) -> None:
        """Queue a message, also while nothing runs."""
        self._queue.add(self._message(says), kind)

    def commands(self) -> list[SlashCommand]:
        """The slash commands that a message may begin with."""
        return self._expander.commands()

    def _message(self, says: Says) -> UserMessage:
        blocks = user_blocks(self._expander.expand(says.text), says.images, says.attachments)
        kept = ABSENT if isinstance(says.attachments, Absent) or not says.attachments else says.attachments
        return UserMessage(content=blocks, timestamp=self._now(), attachments=kept)

    def _require_model(self) -> None:
        if self._models.model is None:
            raise Refusal(NO_MODEL.format(models_file=self._models_file))
