"""What becomes of a message from the host: it starts a run, waits in a queue, or is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from pigeon.agent.interfaces import Spoken
from pigeon.agent.scope import Scope
from pigeon.session.activity import Activity
from pigeon.session.hooks import Hooks, NoHooks, PromptInput
from pigeon.session.model_choice import ModelChoice
from pigeon.session.queue import MessageQueue, QueueKind
from pigeon.wire.answers import SlashCommand
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.commands import StreamingBehavior
from pigeon.wire.content import Attachment, ImageContent, ImageInput, TextContent, text_of, user_blocks
from pigeon.wire.errors import Aborted, Refusal
from pigeon.wire.messages import UserMessage

if TYPE_CHECKING:
    from pigeon.session.conduct import Conduct
    from pigeon.session.runs import Runs

ABORTED_BEFORE = "The prompt was aborted before it started"
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


class Driver(Protocol):
    """What starts runs."""

    activity: Activity
    runs: Runs
    conduct: Conduct

    def system_prompt(self) -> str:
        """What the model is told about its job now."""
        ...


class Surroundings(Protocol):
    """What messages are seen by and expanded with."""

    @property
    def hooks(self) -> Hooks:
        """Who may change or take a message."""
        ...

    @property
    def expander(self) -> Expander:
        """What `/name` stands for."""
        ...

    @property
    def now(self) -> Callable[[], int]:
        """The clock."""
        ...

    @property
    def models_file(self) -> str:
        """Where providers can be described."""
        ...


class HostMessage:
    """A message from the host, checked and expanded."""

    def __init__(
        self, text: str, images: list[ImageInput] | Absent = ABSENT, attachments: list[Attachment] | Absent = ABSENT
    ) -> None:
        self.text = text
        self.images = images
        self.attachments = attachments


class Prompting:
    """Accepts messages. The run is reserved before anything can come in between; without extensions all is decided
    before `prompt` returns."""

    def __init__(self, work: Driver, queue: MessageQueue, models: ModelChoice, parts: Surroundings) -> None:
        self._work = work
        self._activity = work.activity
        self._queue = queue
        self._models = models
        self._hooks = parts.hooks
        self._expander = parts.expander
        self._now = parts.now
        self._models_file = parts.models_file
        self._commands: set[asyncio.Future[bool]] = set()
        self.also_said: Callable[[], list[Spoken]] = list

    def prompt(self, says: HostMessage, behavior: StreamingBehavior | Absent = ABSENT) -> Awaitable[None] | None:
        """Start a run, or queue as `behavior` says while one is active; raises when it can do neither."""
        if self._hooks.has_command(says.text):
            self._run_command(says.text)
            return None
        if isinstance(self._hooks, NoHooks):
            self._accept(self._message(says), behavior)
            return None
        return self._through_hooks(says, behavior, self._reserved(behavior))

    def queue(self, says: HostMessage, kind: QueueKind) -> Awaitable[None] | None:
        """Queue a message, also while nothing runs."""
        if self._hooks.has_command(says.text):
            name = says.text.split(None, 1)[0]
            raise Refusal(f'Extension command "{name}" cannot be queued. Send it with prompt, which runs it at once.')
        if isinstance(self._hooks, NoHooks):
            self._queue.add(self._message(says), kind)
            return None
        return self._queue_through_hooks(says, kind)

    def commands(self) -> list[SlashCommand]:
        """The slash commands that a message may begin with."""
        return [*self._hooks.commands(), *self._expander.commands()]

    async def commands_done(self) -> None:
        """Wait until no command of an extension runs."""
        while self._commands:
            await asyncio.wait(set(self._commands))

    def _run_command(self, text: str) -> None:
        """In the background: it may ask the host something, who may be waiting for our answer first."""
        task = asyncio.ensure_future(self._hooks.command(text))
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)

    def _accept(self, message: UserMessage, behavior: StreamingBehavior | Absent) -> None:
        scope = self._reserved(behavior)
        if scope is None:
            self._queue.add(message, "followUp" if behavior == "followUp" else "steering")
        else:
            self._start(message, scope)

    def _reserved(self, behavior: StreamingBehavior | Absent) -> Scope | None:
        """The scope of a new run; none if the message joins the one that is active."""
        if self._activity.in_run and not isinstance(behavior, Absent):
            return None
        scope = self._activity.begin_run()
        try:
            self.require_model()
        except Refusal:
            self._activity.end()
            raise
        return scope

    def _start(self, message: UserMessage, scope: Scope) -> None:
        self._work.runs.start([message, *self.also_said()], scope)

    async def _through_hooks(
        self, says: HostMessage, behavior: StreamingBehavior | Absent, scope: Scope | None
    ) -> None:
        try:
            message = await self._heard(says, None if isinstance(behavior, Absent) else behavior, scope)
            if message is None or scope is None:
                if message is not None:
                    self._queue.add(message, "followUp" if behavior == "followUp" else "steering")
                if scope is not None:
                    self._activity.end()
                return
            await self._begin(message, scope)
        except Aborted:
            self._activity.end()
            raise Refusal(ABORTED_BEFORE) from None
        except Refusal:
            if scope is not None:
                self._activity.end()
            raise

    async def _begin(self, message: UserMessage, scope: Scope) -> None:
        prompt = self._work.system_prompt()
        asked = self._hooks.before_agent_start(text_of(message.content), images_of(message), prompt)
        opening = await scope.wait(asked)
        self._work.conduct.prompt_of_run = opening.system_prompt
        self._work.runs.start([message, *self.also_said(), *opening.messages], scope)

    async def _queue_through_hooks(self, says: HostMessage, kind: QueueKind) -> None:
        message = await self._heard(says, "steer" if kind == "steering" else "followUp", None)
        if message is not None:
            self._queue.add(message, kind)

    async def _heard(
        self, says: HostMessage, behavior: StreamingBehavior | None, scope: Scope | None
    ) -> UserMessage | None:
        """The message after the extensions had a look; none if one of them took it."""
        blocks = user_blocks(says.text, says.images, says.attachments)
        said = PromptInput(text=says.text, images=[b for b in blocks if isinstance(b, ImageContent)], behavior=behavior)
        asked = self._hooks.input(said)
        heard = await (asked if scope is None else scope.wait(asked))
        if heard is None:
            return None
        documents = [block for block in blocks[1:] if isinstance(block, TextContent)]
        text = TextContent(text=self._expander.expand(heard.text))
        return UserMessage(
            content=[text, *documents, *heard.images], timestamp=self._now(), attachments=_kept(says.attachments)
        )

    def _message(self, says: HostMessage) -> UserMessage:
        blocks = user_blocks(self._expander.expand(says.text), says.images, says.attachments)
        return UserMessage(content=blocks, timestamp=self._now(), attachments=_kept(says.attachments))

    def require_model(self) -> None:
        """Raise, saying what to do, if there is no model to ask."""
        if self._models.model is None:
            raise Refusal(NO_MODEL.format(models_file=self._models_file))


def images_of(message: UserMessage) -> list[ImageContent]:
    """The images of a message."""
    if isinstance(message.content, str):
        return []
    return [block for block in message.content if isinstance(block, ImageContent)]


def _kept(attachments: list[Attachment] | Absent) -> list[Attachment] | Absent:
    return ABSENT if isinstance(attachments, Absent) or not attachments else attachments
