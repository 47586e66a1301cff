"""An answer that goes beyond what models say is broken off, and says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pigeon.agent.answer import AnswerLimits, AnswerStream, AnswerTooLong, Fold
from pigeon.agent.inference import BlockClosed, BlockGrew, BlockKind, BlockOpened, Delta, Finished, ModelRequest, Named
from pigeon.agent.scope import Scope
from pigeon.wire.content import TextContent
from pigeon.wire.events import MessageEnd
from support.model_requests import a_model, a_request

SMALL = AnswerLimits(characters=100, blocks=3)


def a_fold() -> Fold:
    return Fold(a_model(), 17, SMALL)


@pytest.mark.parametrize("kind", ["text", "thinking", "toolCall"])
def test_a_block_grows_to_the_limit_and_not_beyond(kind: BlockKind) -> None:
    fold = a_fold()
    fold.add_delta(BlockOpened(0, kind))
    fold.add_delta(BlockGrew(0, "x" * 100))
    with pytest.raises(AnswerTooLong, match="more than 100 characters"):
        fold.add_delta(BlockGrew(0, "x"))
    fold.close_open_blocks()
    assert len(fold.to_message("error").content) == 1


@pytest.mark.parametrize(
    "flood",
    [
        [BlockClosed(0, "s" * 101)],
        [Named("i" * 101)],
        [Named("i", "m" * 100)],
        [BlockGrew(0, "x" * 60), BlockOpened(1, "text"), BlockGrew(1, "x" * 60)],
        [BlockOpened(1, "toolCall", "i" * 60, "n" * 60)],
        [BlockOpened(at, "text") for at in range(1, 4)],
    ],
)
def test_everything_that_an_answer_keeps_is_counted(flood: list[Delta]) -> None:
    fold = a_fold()
    fold.add_delta(BlockOpened(0, "text"))
    for delta in flood[:-1]:
        fold.add_delta(delta)
    with pytest.raises(AnswerTooLong):
        fold.add_delta(flood[-1])


@pytest.mark.parametrize("fields", [{"call_id": "i" * 5000, "name": "n"}, {"call_id": "i", "name": "n" * 5000}])
def test_a_name_or_id_of_a_call_is_short(fields: dict[str, str]) -> None:
    fold = Fold(a_model(), 17)
    with pytest.raises(AnswerTooLong, match="name or id"):
        fold.add_delta(BlockOpened(0, "toolCall", **fields))


class EndlessModel:
    """Says the same for ever, and remembers that it was dropped."""

    def __init__(self) -> None:
        self.dropped = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        try:
            yield BlockOpened(0, "text")
            while True:
                yield BlockGrew(0, "word ")
        finally:
            self.dropped = True


async def test_an_endless_answer_ends_in_an_error_with_what_was_said() -> None:
    published: list[Any] = []

    async def publish(event: Any) -> None:
        published.append(event)

    async def keep_message(message: Any) -> Any:
        return message

    model = EndlessModel()
    stream = AnswerStream(a_request(a_model()), publish, lambda: 17, keep_message, limits=SMALL)
    message = await stream.stream(model, Scope())
    assert model.dropped
    assert (message.stop_reason, message.content) == ("error", [TextContent(text="word " * 20)])
    assert message.error_message == "The answer was broken off: it has more than 100 characters"
    assert stream.failure is not None
    assert (stream.failure.code, stream.failure.retryable) == ("answer_too_long", False)
    assert isinstance(published[-1], MessageEnd)


async def test_a_fast_answer_leaves_other_tasks_their_turn() -> None:
    class FastModel:
        """Gives deltas without ever waiting, until another task had a turn."""

        def __init__(self) -> None:
            self.heard = False

        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
            yield BlockOpened(0, "text")
            asyncio.get_running_loop().call_soon(self.note_turn)
            while not self.heard:
                yield BlockGrew(0, "")
            yield Finished("stop")

        def note_turn(self) -> None:
            self.heard = True

    async def publish(event: Any) -> None:
        pass

    async def keep_message(message: Any) -> Any:
        return message

    stream = AnswerStream(a_request(a_model()), publish, lambda: 17, keep_message)
    assert (await stream.stream(FastModel(), Scope())).stop_reason == "stop"


async def test_an_answer_that_was_waited_for_is_announced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tasks had their turn meanwhile, so the first delta need not wait for them once more."""
    clock = [0.0]
    monkeypatch.setattr("pigeon.agent.answer.monotonic", lambda: clock[0])
    heard: list[str] = []

    class SlowModel:
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
            clock[0] += 60
            asyncio.get_running_loop().call_soon(heard.append, "other task")
            yield BlockOpened(0, "text")
            yield BlockGrew(0, "x")
            yield Finished("stop")

    async def publish(event: Any) -> None:
        heard.append(type(event).__name__)

    async def keep_message(message: Any) -> Any:
        return message

    stream = AnswerStream(a_request(a_model()), publish, lambda: 17, keep_message)
    await stream.stream(SlowModel(), Scope())
    assert heard == ["MessageStart", "MessageUpdate", "MessageUpdate", "MessageUpdate", "MessageEnd"]
