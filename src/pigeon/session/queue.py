"""The message queue: steering messages wait for the next break of a run, follow-ups for its end. `OpenPrompts` holds
the accepted prompts that have not ended, whether they wait here or are part of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable

from msgspec import Struct

from pigeon.agent.interfaces import QueuedItem, Spoken
from pigeon.session.settings import SessionSettings
from pigeon.system.ids import RANDOM_IDS
from pigeon.wire.answers import QueueItem, QueueKind
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.commands import InterruptMode, QueueMode
from pigeon.wire.content import ImageContent, TextContent, UserBlock, text_of
from pigeon.wire.errors import Refusal
from pigeon.wire.events import Outbound, PromptError, PromptResult, PromptStatus, QueueUpdate
from pigeon.wire.messages import UserMessage

TOLD_AT_ONCE = 16 * 1024
TOLD_PER_SECOND = 2_000_000
SHORTEST_PAUSE = 0.1


class QueueLimits(Struct, frozen=True):
    """The most that may wait: messages, and characters of their texts and images together.

    All of it is kept in memory and sent to the host as a whole.
    """

    messages: int = 1000
    characters: int = 64_000_000


class QueueFull(Refusal): ...


class OpenPrompt:
    """An accepted prompt of the host: the id of its command, whether it wants an output, and whether the model has seen
    it."""

    __slots__ = ("delivered", "error", "id", "wants_output")

    def __init__(self, id: Json | Absent = ABSENT, wants_output: bool = False) -> None:
        self.id = id
        self.wants_output = wants_output
        self.delivered = False
        self.error: PromptError | Absent = ABSENT

    def mark_delivered(self) -> None:
        self.delivered = True

    def mark_failed(self, error: PromptError) -> None:
        """Its run failed, and goes on with what was queued after it."""
        self.error = error


class OpenPrompts:
    """The accepted prompts that have not ended; `prompt_result` is posted exactly once for each.

    A prompt ends with its run, even if it still waits in the queue then because the run was stopped or failed: a host
    that waits for its end must not wait for another prompt. Its message stays in the queue.
    """

    def __init__(self, post: Callable[[Outbound], None]) -> None:
        self._post = post
        self._open: list[OpenPrompt] = []

    def add(self, prompt: OpenPrompt) -> None:
        """Add an accepted prompt, which starts a run or waits in the queue."""
        self._open.append(prompt)

    def pop_all(self, kept: Container[OpenPrompt] = ()) -> list[OpenPrompt]:
        """Remove the prompts that end now, all but those to keep; the caller posts their results."""
        taken = [prompt for prompt in self._open if prompt not in kept]
        self._open = [prompt for prompt in self._open if prompt in kept]
        return taken

    def mark_delivered_failed(self, error: PromptError) -> None:
        """The prompts that the model has seen so far have failed, whatever becomes of the others."""
        for prompt in self._open:
            if prompt.delivered and isinstance(prompt.error, Absent):
                prompt.mark_failed(error)

    def post_results(
        self,
        prompts: list[OpenPrompt],
        status: PromptStatus,
        settled: bool,
        error: PromptError | Absent = ABSENT,
        run_id: str | Absent = ABSENT,
        output: Json | Absent = ABSENT,
    ) -> None:
        """Post the results of removed prompts; a prompt that the model never saw is not completed."""
        for prompt in prompts:
            ended: PromptStatus = "aborted" if status == "completed" and not prompt.delivered else status
            has_failed_before = not isinstance(prompt.error, Absent)
            if has_failed_before:
                ended = "error"
            self._post(
                PromptResult(
                    id=prompt.id,
                    agent_invoked=prompt.delivered,
                    status=ended,
                    session_settled=settled,
                    error=(prompt.error or error) if ended == "error" else ABSENT,
                    run_id=run_id,
                    output=output if prompt.wants_output and not has_failed_before else ABSENT,
                )
            )

    def withdraw(self, prompts: list[OpenPrompt]) -> None:
        """Remove prompts whose messages were taken out of the queue during the run."""
        gone = [prompt for prompt in prompts if prompt in self._open]
        self._open = [prompt for prompt in self._open if prompt not in gone]
        self.post_results(gone, "aborted", settled=False)


class KeptMessage(Struct, frozen=True):
    """A waiting message in a form that another process can restore."""

    id: str
    kind: QueueKind
    message: Spoken


class QueuedMessage:
    """One waiting message, and its prompt if it was one."""

    def __init__(self, id: str, message: Spoken, kind: QueueKind, prompt: OpenPrompt | None = None) -> None:
        self.id = id
        self.kind: QueueKind = kind
        self.prompt = prompt
        self.is_held = False
        self.set_message(message)

    def hold(self, held: bool) -> None:
        """Keep the message for the next run, or no longer."""
        self.is_held = held

    def set_message(self, message: Spoken) -> None:
        """Replace the message to deliver."""
        self.message = message
        self.size = sum(_character_count_of(block) for block in _blocks(message))
        self.text_size = len(self.text)

    def promote_to_steering(self) -> None:
        self.kind = "steering"

    def to_item(self) -> QueueItem:
        client_id = self.message.client_message_id if isinstance(self.message, UserMessage) else ABSENT
        return QueueItem(id=self.id, queue=self.kind, text=self.text, client_message_id=client_id)

    @property
    def text(self) -> str:
        return text_of(self.message.content)


class MessageQueue:
    """Both queues; every change is posted whole."""

    def __init__(
        self,
        post: Callable[[Outbound], None],
        settings: SessionSettings,
        limits: QueueLimits | None = None,
        new_id: Callable[[], str] = RANDOM_IDS.request_id,
    ) -> None:
        self._post = post
        self._new_id = new_id
        self.prompts = OpenPrompts(post)
        self._limits = limits or QueueLimits()
        self._items: dict[str, QueuedMessage] = {}
        self._taken: set[str] = set()
        self._saying: QueuedMessage | None = None
        self._holds_new = False
        self._promised: KeptMessage | None = None
        self._steering_mode = settings.steering_mode
        self._follow_up_mode = settings.follow_up_mode
        self._interrupt_mode = settings.interrupt_mode
        self._quiet_until = 0.0
        self._later: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._items)

    def kept_messages(self) -> list[KeptMessage]:
        """The waiting messages, preceded by the one being delivered, which may not be recorded yet, and with the prompt
        that begins the next run in its place."""
        saying = [] if self._saying is None else [self._saying]
        items = (*saying, *sorted(self._items.values(), key=lambda item: item.is_held))
        kept = [KeptMessage(item.id, item.kind, item.message) for item in items]
        if self._promised is not None:
            kept.insert(sum(not item.is_held for item in items), self._promised)
        return kept

    def restore(self, messages: Iterable[KeptMessage]) -> None:
        """Queue messages that an earlier process accepted, and announce them."""
        self._items.update((one.id, QueuedMessage(one.id, one.message, one.kind)) for one in messages)
        self._announce()

    def add(self, message: Spoken, kind: QueueKind) -> None:
        """Append a message to its queue; raises `QueueFull`."""
        self.put(QueuedMessage(self._new_id(), message, kind))

    def put(self, item: QueuedMessage) -> None:
        """Like `add` for an item; a prompt of the host ends with the run that takes it out of the queue."""
        self._check_room(item.size, len(self._items) + 1)
        item.hold(self._holds_new)
        self._items[item.id] = item
        self._announce()
        if item.prompt is not None:
            self.prompts.add(item.prompt)

    def edit(self, id: str, message: Spoken) -> QueueItem:
        """Replace the waiting message; raises `Refusal` if it is not waiting any more."""
        item = self.find_waiting(id)
        self._check_room(sum(_character_count_of(block) for block in _blocks(message)) - item.size, len(self._items))
        item.set_message(message)
        self._announce()
        return item.to_item()

    def remove(self, id: str) -> QueueItem:
        """Remove one message; raises `Refusal` if it is not waiting any more."""
        item = self.find_waiting(id)
        del self._items[id]
        self._announce()
        if item.prompt is not None:
            self.prompts.withdraw([item.prompt])
        return item.to_item()

    def promote_to_steering(self, id: str) -> QueueItem:
        """Make a message the first steering message; raises `Refusal` if it is not waiting any more."""
        item = self.find_waiting(id)
        item.promote_to_steering()
        self._items = {id: item, **self._items}
        self._announce()
        return item.to_item()

    def find_waiting(self, id: str) -> QueuedMessage:
        """The message with this id; raises `Refusal` if it is not waiting any more."""
        item = self._items.get(id)
        if item is None or id in self._taken:
            raise Refusal(
                f'No message with the id "{id[:200]}" waits in the queue: it was delivered or taken back', "not_found"
            )
        return item

    def _check_room(self, size: int, count: int) -> None:
        size += sum(waiting.size for waiting in self._items.values())
        if count > self._limits.messages or (self._items and size > self._limits.characters):
            raise QueueFull(
                f"The queue is full: {len(self._items)} messages wait in it. Send the message again when some of them "
                "were delivered, or clear the queue."
            )

    def clear(self) -> tuple[list[str], list[str]]:
        """Empty both queues, except for what is being delivered, and announce it; returns the removed texts."""
        gone = [item for item in self._items.values() if item.id not in self._taken]
        texts = _texts(gone, "steering"), _texts(gone, "followUp")
        prompts = [item.prompt for item in gone if item.prompt is not None]
        self._items = {id: item for id, item in self._items.items() if id in self._taken}
        self._announce()
        self.prompts.withdraw(prompts)
        return texts

    @property
    def steering_mode(self) -> QueueMode:
        return self._steering_mode

    def set_steering_mode(self, mode: QueueMode) -> None:
        """Takes effect at the next break of a run."""
        self._steering_mode = mode

    @property
    def follow_up_mode(self) -> QueueMode:
        return self._follow_up_mode

    def set_follow_up_mode(self, mode: QueueMode) -> None:
        """Takes effect at the next end of a run."""
        self._follow_up_mode = mode

    @property
    def interrupt_mode(self) -> InterruptMode:
        """Whether steering skips tool calls that have not started, or waits for the end of the turn."""
        return self._interrupt_mode

    def set_interrupt_mode(self, mode: InterruptMode) -> None:
        """Takes effect at the next tool call."""
        self._interrupt_mode = mode

    def should_interrupt(self) -> bool:
        """True if a queued steering message skips tool calls that have not started."""
        return self._interrupt_mode == "immediate" and bool(self._list_deliverable("steering"))

    @property
    def has_deliverable(self) -> bool:
        """True if a message waits that is not kept for the next run."""
        return any(not item.is_held for item in self._items.values())

    def hold_new_messages(self) -> None:
        """Keep what is queued from here on for the next run: a prompt that was sent before it begins that run."""
        self._holds_new = True

    def promise_next_prompt(self, message: Spoken) -> None:
        """The prompt that begins the next run was accepted: a process that takes over has to know it."""
        self._promised = KeptMessage(self._new_id(), "followUp", message)

    def release_held_messages(self) -> None:
        """The next run has begun, or will not begin."""
        self._holds_new = False
        self._promised = None
        for item in self._items.values():
            item.hold(False)

    def peek_steering(self) -> list[QueuedItem]:
        """The steering messages to deliver now, by their mode."""
        return self._next_items("steering", self._steering_mode)

    def peek_follow_ups(self) -> list[QueuedItem]:
        """The follow-ups to deliver now, by their mode."""
        return self._next_items("followUp", self._follow_up_mode)

    def try_reserve_item(self, item: QueuedItem) -> bool:
        """Reserve an item, so that it cannot be removed any more; returns False if it was removed before."""
        if item.id in self._items:
            self._taken.add(item.id)
        return item.id in self._items

    async def mark_delivered(self, item: QueuedItem) -> None:
        """Remove an item that is being delivered from the queue."""
        self._taken.discard(item.id)
        waiting = self._saying = self._items.pop(item.id, None)
        if waiting is not None and waiting.prompt is not None:
            waiting.prompt.mark_delivered()
        self._announce()

    def pop_run_prompts(self) -> list[OpenPrompt]:
        """The prompts that end with the run; messages it has not delivered can be removed again."""
        self._taken.clear()
        self._saying = None
        return self.prompts.pop_all([item.prompt for item in self._items.values() if item.is_held and item.prompt])

    def _next_items(self, kind: QueueKind, mode: QueueMode) -> list[QueuedItem]:
        waiting = self._list_deliverable(kind)
        return waiting if mode == "all" else waiting[:1]

    def _list_deliverable(self, kind: QueueKind) -> list[QueuedItem]:
        return [item for item in self._items.values() if item.kind == kind and not item.is_held]

    def _announce(self) -> None:
        size = sum(item.text_size for item in self._items.values())
        if size <= TOLD_AT_ONCE:
            self._post_update()
            return
        loop = asyncio.get_running_loop()
        if self._later is None and loop.time() >= self._quiet_until:
            self._quiet_until = loop.time() + SHORTEST_PAUSE + size / TOLD_PER_SECOND
            self._post_update()
        elif self._later is None:
            self._later = loop.call_at(self._quiet_until, self._post_delayed_update)

    def _post_delayed_update(self) -> None:
        self._later = None
        self._announce()

    def _post_update(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        items = self._items.values()
        listed = [item.to_item() for item in items]
        self._post(QueueUpdate(steering=_texts(items, "steering"), follow_up=_texts(items, "followUp"), items=listed))


def _texts(items: Iterable[QueuedMessage], kind: QueueKind) -> list[str]:
    return [item.text for item in items if item.kind == kind]


def _blocks(message: Spoken) -> list[UserBlock]:
    content = message.content
    return [TextContent(text=content)] if isinstance(content, str) else content


def _character_count_of(block: UserBlock) -> int:
    return len(block.data if isinstance(block, ImageContent) else block.text)
