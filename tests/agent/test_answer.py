from __future__ import annotations

import asyncio
import gc
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.agent_loop import EventLog, ScriptedProvider, says
from pigeon.agent.answer import ABORT_TEXT, AnswerStream, Fold
from pigeon.agent.inference import BlockClosed, BlockGrew, BlockOpened, Delta, Finished, Metered, Named
from pigeon.agent.scope import Scope
from pigeon.wire.base import ABSENT
from pigeon.wire.content import TextContent, ThinkingContent, ToolCall
from pigeon.wire.errors import UNEXPECTED, Refusal
from pigeon.wire.events import (
    MessageStart,
    MessageUpdate,
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolcallDelta,
    ToolcallEnd,
    ToolcallStart,
)
from pigeon.wire.model import Cost, ModelCost, Usage
from pigeon.wire.partial_json import INCOMPLETE
from support.model_requests import a_model, a_request

JSON_OBJECTS = st.dictionaries(st.text(max_size=4), st.none() | st.integers() | st.text(max_size=8), max_size=3)
TEXTS = st.lists(st.text(max_size=8), max_size=5)
BLOCKS = st.lists(
    st.tuples(st.just("text"), TEXTS)
    | st.tuples(st.just("thinking"), TEXTS)
    | st.tuples(st.just("toolCall"), JSON_OBJECTS.map(lambda value: cut(json.dumps(value), 3))),
    max_size=5,
)


def cut(text: str, length: int) -> list[str]:
    return [text[at : at + length] for at in range(0, len(text), length)]


def a_fold(**facts: Any) -> Fold:
    return Fold(a_model(**facts), 17)


def fold_blocks(fold: Fold, blocks: list[tuple[str, list[str]]], choose: random.Random) -> list[StreamEvent]:
    """Play the blocks through each other, in any order that the rules of a stream allow."""
    left = [list(pieces) for _, pieces in blocks]
    opened, open_ones, events = 0, list[int](), list[StreamEvent]()
    while opened < len(blocks) or open_ones:
        at = choose.choice([*open_ones, None]) if opened < len(blocks) else choose.choice(open_ones)
        if at is None:
            kind: Any = blocks[opened][0]
            events.append(fold.add_delta(BlockOpened(index=opened, kind=kind, call_id=f"c{opened}", name="tool")))
            open_ones.append(opened)
            opened += 1
        elif left[at]:
            events.append(fold.add_delta(BlockGrew(index=at, text=left[at].pop(0))))
        else:
            events.append(fold.add_delta(BlockClosed(index=at)))
            open_ones.remove(at)
    return events


def content_of(kind: str, at: int, text: str) -> Any:
    if kind == "text":
        return TextContent(text=text)
    if kind == "thinking":
        return ThinkingContent(thinking=text)
    return ToolCall(id=f"c{at}", name="tool", arguments=json.loads(text))


@given(BLOCKS, st.randoms(use_true_random=False))
def test_a_message_is_what_its_deltas_say_together(blocks: list[tuple[str, list[str]]], choose: random.Random) -> None:
    fold = a_fold()
    events = fold_blocks(fold, blocks, choose)
    expected = [content_of(kind, at, "".join(pieces)) for at, (kind, pieces) in enumerate(blocks)]
    assert fold.to_message("stop").content == expected
    for at, (_, pieces) in enumerate(blocks):
        own = [event for event in events if event.content_index == at]
        assert isinstance(own[0], TextStart | ThinkingStart | ToolcallStart)
        assert [event.delta for event in own[1:-1]] == pieces
        if isinstance(own[-1], ToolcallEnd):
            assert own[-1].tool_call == expected[at]
        else:
            assert isinstance(own[-1], TextEnd | ThinkingEnd)
            assert own[-1].content == "".join(pieces)


def test_each_kind_of_block_has_its_own_events() -> None:
    fold = a_fold()
    opened = [fold.add_delta(BlockOpened(index=at, kind=kind)) for at, kind in enumerate(("text", "thinking"))]
    opened.append(fold.add_delta(BlockOpened(index=2, kind="toolCall", call_id="c", name="ls")))
    grown = [fold.add_delta(BlockGrew(index=at, text="{}")) for at in range(3)]
    assert opened == [
        TextStart(content_index=0),
        ThinkingStart(content_index=1),
        ToolcallStart(content_index=2, id="c", tool_name="ls"),
    ]
    assert [type(event) for event in grown] == [TextDelta, ThinkingDelta, ToolcallDelta]


def test_a_block_out_of_order_is_refused() -> None:
    with pytest.raises(ValueError, match="block 1 opened out of order"):
        a_fold().add_delta(BlockOpened(index=1, kind="text"))


def test_an_open_block_is_not_part_of_the_message_until_it_is_closed() -> None:
    fold = a_fold()
    fold.add_delta(BlockOpened(index=0, kind="text"))
    fold.add_delta(BlockGrew(index=0, text="half"))
    assert fold.to_message("pending").content == []
    assert fold.close_open_blocks() == [TextEnd(content_index=0, content="half")]
    assert fold.close_open_blocks() == []
    assert fold.to_message("aborted").content == [TextContent(text="half")]


def test_a_tool_call_that_was_cut_off_keeps_what_can_be_read() -> None:
    fold = a_fold()
    fold.add_delta(BlockOpened(index=0, kind="toolCall", call_id="c", name="write"))
    fold.add_delta(BlockGrew(index=0, text='{"path": "a.txt", "content": "hel'))
    fold.close_open_blocks(cut_off=True)
    assert fold.to_message("aborted").content[0].arguments["path"] == "a.txt"
    assert fold.to_message("aborted").content[0].arguments_error is ABSENT


def test_signatures_and_redaction_are_kept() -> None:
    fold = a_fold()
    for at, kind in enumerate(("text", "thinking", "thinking", "toolCall")):
        fold.add_delta(BlockOpened(index=at, kind=kind))
        fold.add_delta(BlockClosed(index=at, signature=f"s{at}", redacted=at == 2))
    text, thought, hidden, call = fold.to_message("stop").content
    assert (text.text_signature, thought.thinking_signature, call.thought_signature) == ("s0", "s1", "s3")
    assert (thought.redacted, hidden.redacted) == (ABSENT, True)


def test_counts_get_the_prices_of_the_model() -> None:
    fold = a_fold(cost=ModelCost(input=3, output=15))
    fold.add_delta(Metered(Usage(input=1_000_000, output=2_000_000, cost=Cost())))
    usage = fold.to_message("stop").usage
    assert (usage.total_tokens, usage.cost.input, usage.cost.output, usage.cost.total) == (3_000_000, 3, 30, 33)


def test_a_rate_counts_for_all_prices() -> None:
    fold = a_fold(cost=ModelCost(input=2, output=4))
    fold.add_delta(Metered(Usage(input=1_000_000, output=1_000_000, cost=Cost()), rate=0.5))
    assert fold.to_message("stop").usage.cost == Cost(input=1, output=2, total=3)


def test_the_message_says_who_answered_when_and_how_it_ended() -> None:
    fold = a_fold(id="m", provider="p", api="a")
    fold.add_delta(Named(response_id="r", response_model="m-2"))
    ended = Finished(stop="error", raw_stop="overloaded")
    message = fold.to_message("error", ended, "too busy")
    assert (message.model, message.provider, message.api, message.timestamp) == ("m", "p", "a", 17)
    assert (message.response_id, message.response_model, message.raw_stop_reason) == ("r", "m-2", "overloaded")
    assert (message.stop_reason, message.error_message) == ("error", "too busy")
    assert fold.to_message("stop").error_message is ABSENT


def opened_calls(*call_ids: str) -> list[str]:
    fold = a_fold()
    for at, call_id in enumerate(call_ids):
        event = fold.add_delta(BlockOpened(index=at, kind="toolCall", call_id=call_id, name="ls"))
        assert isinstance(event, ToolcallStart)
        fold.add_delta(BlockClosed(index=at))
    calls = fold.to_message("toolUse").content
    assert all(isinstance(call, ToolCall) for call in calls)
    return [call.id for call in calls if isinstance(call, ToolCall)]


def test_every_call_of_an_answer_has_an_id_of_its_own() -> None:
    assert opened_calls("a", "b") == ["a", "b"]
    assert opened_calls("a", "a", "a") == ["a", "a_2", "a_3"]
    assert opened_calls("", "") == ["call", "call_2"]
    assert opened_calls("a", "a_2", "a") == ["a", "a_2", "a_3"]


def test_calls_whose_arguments_were_cut_off_are_named() -> None:
    fold = a_fold()
    for at, arguments in enumerate(('{"a": 1}', '{"a": 1', "")):
        fold.add_delta(BlockOpened(index=at, kind="toolCall", call_id=f"c{at}", name="ls"))
        fold.add_delta(BlockGrew(index=at, text=arguments))
    fold.add_delta(BlockClosed(index=0))
    fold.close_open_blocks()
    errors = [call.arguments_error for call in fold.to_message("toolUse").content]
    assert (errors[0], errors[2]) == (ABSENT, ABSENT)
    assert errors[1].startswith(INCOMPLETE)
    assert errors[1].endswith('\n\nReceived arguments:\n{"a": 1')
    assert fold.to_message("toolUse").content[1].arguments == {}


@pytest.mark.parametrize(
    ("counts", "window", "filled"),
    [
        ({"input": 1_000}, 1_000, True),
        ({"input": 500, "cache_read": 490}, 1_000, True),
        ({"input": 989}, 1_000, False),
        ({"input": 1_000, "output": 1}, 1_000, False),
        ({"input": 1_000}, 0, False),
    ],
)
def test_a_prompt_that_took_the_whole_window_is_known(counts: dict[str, int], window: int, filled: bool) -> None:
    fold = a_fold(context_window=window)
    fold.add_delta(Metered(Usage(**counts, cost=Cost())))
    assert fold.is_filled_by_prompt is filled


def play_steps(*steps: Any, scope: Scope | None = None) -> tuple[AnswerStream, EventLog, ScriptedProvider, Scope]:
    heard, provider = EventLog(), ScriptedProvider(list(steps))
    stream = AnswerStream(a_request(a_model(context_window=100)), heard, lambda: 17, keep_message)
    return stream, heard, provider, scope or Scope()


async def keep_message(message: Any) -> Any:
    return message


async def test_an_answer_of_nothing_but_the_length_is_an_overflow_if_the_prompt_has_filled_the_window() -> None:
    full = Metered(Usage(input=100, cost=Cost()))
    stream, _, provider, scope = play_steps(full, Finished(stop="length", raw_stop="max_tokens"))
    message = await stream.stream(provider, scope)
    assert (message.stop_reason, message.raw_stop_reason) == ("error", "max_tokens")
    assert stream.failure is not None
    assert (stream.failure.overflow, stream.failure.code) == (True, "context_full")
    stream, _, provider, scope = play_steps(*says("half")[:-1], Finished(stop="length"))
    assert (await stream.stream(provider, scope)).stop_reason == "length"
    assert stream.failure is None


async def test_an_error_of_a_stream_that_was_cancelled_is_an_abort() -> None:
    scope = Scope()

    async def wait_for_cancel() -> None:
        asyncio.get_running_loop().call_soon(scope.cancel)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            raise OSError("the connection is gone") from None

    stream, heard, provider, _ = play_steps(wait_for_cancel, scope=scope)
    message = await stream.stream(provider, scope)
    assert (message.stop_reason, message.error_message) == ("aborted", ABORT_TEXT)
    assert heard.outline() == ["message_start assistant", "message_end assistant"]


async def test_the_message_begins_with_the_first_count_or_block_and_once() -> None:
    early = Metered(Usage(input=5, cost=Cost()))
    stream, heard, provider, scope = play_steps(Named(response_id="r"), early, early, *says("hi"))
    await stream.stream(provider, scope)
    (start,) = heard.of(MessageStart)
    assert (start.message.stop_reason, start.message.usage.input) == ("pending", 5)
    assert [update.usage.input for update in heard.of(MessageUpdate)] == [5, 5, 5]


async def test_a_defect_shows_its_insides_on_stderr_alone(capsys: pytest.CaptureFixture[str]) -> None:
    for error in (ValueError(), KeyError("bad"), UnboundLocalError("cannot access local variable 'x'")):
        stream, _, provider, scope = play_steps(error)
        assert (await stream.stream(provider, scope)).error_message == UNEXPECTED
        assert type(error).__name__ in capsys.readouterr().err


async def test_a_failure_that_was_raised_on_purpose_is_told_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    stream, _, provider, scope = play_steps(Refusal("set the address"))
    assert (await stream.stream(provider, scope)).error_message == "set the address"
    assert not capsys.readouterr().err


async def test_a_provider_is_let_go_of_at_once_while_the_host_reads_slowly() -> None:
    scope, reading = Scope(), asyncio.Event()
    heard, provider = EventLog(), ScriptedProvider(says("one", "two"))

    async def slowly(event: Any) -> None:
        await heard(event)
        if isinstance(event, MessageUpdate) and not reading.is_set():
            scope.cancel()
            for _ in range(5):
                await asyncio.sleep(0)
            reading.set()
            dropped.append(provider.dropped)

    dropped: list[int] = []
    stream = AnswerStream(a_request(a_model()), slowly, lambda: 17, keep_message)
    message = await stream.stream(provider, scope)
    assert (message.stop_reason, dropped) == ("aborted", [1])


async def test_an_abort_lets_go_of_a_provider_once_however_long_that_takes(caplog: pytest.LogCaptureFixture) -> None:
    scope, closed = Scope(), list[int]()

    class SlowToClose:
        async def stream(self, request: Any) -> AsyncIterator[Delta]:
            try:
                for delta in says("one", "two"):
                    yield delta
            finally:
                for _ in range(5):
                    await asyncio.sleep(0)
                closed.append(1)

    async def at_once(event: Any) -> None:
        if isinstance(event, MessageUpdate):
            scope.cancel()

    stream = AnswerStream(a_request(a_model()), at_once, lambda: 17, keep_message)
    message = await stream.stream(SlowToClose(), scope)
    assert (message.stop_reason, message.error_message, closed) == ("aborted", ABORT_TEXT, [1])
    await asyncio.sleep(0)
    del stream
    gc.collect()
    assert caplog.messages == [], "no failure that is found only when its task is thrown away"
