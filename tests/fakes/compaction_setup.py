"""A compaction with everything around it: a journal in memory, a model that answers as it is told, and listeners."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from fakes.journal_strategies import empty
from fakes.model_requests import a_model, answered, returned
from fakes.repositories import user
from pigeon.agent.inference import (
    BlockClosed,
    BlockGrew,
    BlockOpened,
    Delta,
    Failure,
    Finished,
    Metered,
    ModelRequest,
)
from pigeon.agent.scope import Scope
from pigeon.session.compaction.compaction import Compaction
from pigeon.session.compaction.summarizer import Summarizer
from pigeon.session.context.transcript import Transcript
from pigeon.session.hooks import NoHooks
from pigeon.session.navigation import Navigation
from pigeon.session.settings import CompactionPolicy, RetryPolicy
from pigeon.tools.catalog import facts_of
from pigeon.wire.content import TextContent, ToolCall, text_of
from pigeon.wire.entries import CompactionEntry
from pigeon.wire.events import CompactionEnd, Outbound
from pigeon.wire.messages import StopReason
from pigeon.wire.model import Cost, Model, Usage

QUICK = RetryPolicy(max_retries=2, base_delay_ms=0)
Reply = str | Failure | tuple[str, StopReason] | Exception | None


class Answers:
    """A provider that gives prepared answers; none means that it says nothing and waits."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.requests: list[ModelRequest] = []
        self.closed = 0
        self.on_last: Callable[[], None] = lambda: None

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self.requests.append(request)
        reply = self.replies.pop(0)
        try:
            if reply is None:
                await asyncio.get_running_loop().create_future()
            if isinstance(reply, Exception):
                raise reply
            if isinstance(reply, Failure):
                yield Finished(stop="error", failure=reply)
                return
            text, stop = reply if isinstance(reply, tuple) else (reply, "stop")
            yield BlockOpened(index=0, kind="text")
            yield BlockGrew(index=0, text=text or "")
            yield BlockClosed(index=0)
            yield Metered(usage=Usage(input=7, output=3, total_tokens=10, cost=Cost()))
            if not self.replies:
                self.on_last()
            yield Finished(stop=stop)
        finally:
            self.closed += 1

    def asked(self, number: int = -1) -> str:
        """What the model was asked to summarize."""
        message = self.requests[number].messages[0]
        return text_of(message.content)


class Models:
    """The model that is in use."""

    def __init__(self, model: Model | None) -> None:
        self.model = model
        self.level = "medium"


class CompactionSetup:
    """Everything that a compaction needs; `told` is what listeners heard."""

    def __init__(
        self,
        *replies: Reply,
        window: int = 10_000,
        hooks: Any = None,
        retries: RetryPolicy | None = QUICK,
        **policy: Any,
    ) -> None:
        self.journal = empty()
        self.answers = Answers(*replies)
        self.told: list[Outbound] = []
        self.models: Any = Models(a_model(context_window=window, max_tokens=4_000, reasoning=True))
        self._transcript = Transcript(self.journal)
        self._summarizer = Summarizer(self.answers, self._publish, retries, facts_of)
        self._hooks = hooks or NoHooks()
        self.compaction = self.with_policy(**policy)
        self.navigation = Navigation(self._transcript, self.models, self._summarizer)
        self.scope = Scope()
        self.on_event: Callable[[Outbound], None] = lambda event: None

    def with_policy(self, **policy: Any) -> Compaction:
        """A compaction of the same conversation with another policy."""
        return Compaction(
            self._transcript,
            self.models,
            self._summarizer,
            self._publish,
            self._hooks,
            CompactionPolicy(**policy),
            enabled=True,
        )

    async def _publish(self, event: Outbound) -> None:
        self.told.append(event)
        self.on_event(event)

    def kinds(self) -> list[str]:
        """The types of what was told."""
        return [str(event.__struct_config__.tag) for event in self.told]

    def say(self, text: str) -> str:
        """The user says something."""
        return self.journal.append_message(user(text)).id

    def answer(self, text: str, tokens: int = 0, **more: Any) -> str:
        """The model answers."""
        return self.journal.append_message(answered(TextContent(text=text), tokens=tokens, **more)).id

    def call(self, name: str, result: str, **arguments: Any) -> tuple[str, str]:
        """The model calls a tool, which gives something back."""
        call = ToolCall(id=f"call_{len(self.journal.lines)}", name=name, arguments=arguments)
        asked = self.journal.append_message(answered(call, stop_reason="toolUse")).id
        return asked, self.journal.append_message(returned(call.id, result)).id


LONG = "lorem ipsum " * 100


def filled(*replies: Any, turns: int = 3, window: int = 10_000, **policy: Any) -> CompactionSetup:
    """A conversation with something to summarize; of its last turn the answer is kept."""
    setup = CompactionSetup(*replies, window=window, **{"keep_tokens": 1, "reserve_tokens": 1_000, **policy})
    for number in range(turns):
        setup.say(f"question {number} {LONG}")
        setup.answer(f"answer {number}")
    return setup


def last(setup: CompactionSetup) -> CompactionEntry:
    """The compaction that was put on record last."""
    entry = setup.journal.branch[-1].entry
    assert isinstance(entry, CompactionEntry)
    return entry


def end(setup: CompactionSetup) -> CompactionEnd:
    """The last thing that was told."""
    event = setup.told[-1]
    assert isinstance(event, CompactionEnd)
    return event
