from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.model_requests import a_model
from pigeon.agent.answer import Fold
from pigeon.agent.inference import BlockClosed, BlockGrew, BlockOpened, Finished, Metered, Named
from pigeon.wire.base import ABSENT
from pigeon.wire.content import TextContent, ThinkingContent, ToolCall
from pigeon.wire.events import (
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


def folded(fold: Fold, blocks: list[tuple[str, list[str]]], choose: random.Random) -> list[StreamEvent]:
    """Play the blocks through each other, in any order that the rules of a stream allow."""
    left = [list(pieces) for _, pieces in blocks]
    opened, open_ones, events = 0, list[int](), list[StreamEvent]()
    while opened < len(blocks) or open_ones:
        at = choose.choice([*open_ones, None]) if opened < len(blocks) else choose.choice(open_ones)
        if at is None:
            kind: Any = blocks[opened][0]
            events.append(fold.take(BlockOpened(index=opened, kind=kind, call_id=f"c{opened}", name="tool")))
            open_ones.append(opened)
            opened += 1
        elif left[at]:
            events.append(fold.take(BlockGrew(index=at, text=left[at].pop(0))))
        else:
            events.append(fold.take(BlockClosed(index=at)))
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
    events = folded(fold, blocks, choose)
    expected = [content_of(kind, at, "".join(pieces)) for at, (kind, pieces) in enumerate(blocks)]
    assert fold.message("stop").content == expected
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
    opened = [fold.take(BlockOpened(index=at, kind=kind)) for at, kind in enumerate(("text", "thinking"))]
    opened.append(fold.take(BlockOpened(index=2, kind="toolCall", call_id="c", name="ls")))
    grown = [fold.take(BlockGrew(index=at, text="{}")) for at in range(3)]
    assert opened == [
        TextStart(content_index=0),
        ThinkingStart(content_index=1),
        ToolcallStart(content_index=2, id="c", tool_name="ls"),
    ]
    assert [type(event) for event in grown] == [TextDelta, ThinkingDelta, ToolcallDelta]


def test_a_block_out_of_order_is_refused() -> None:
    with pytest.raises(ValueError, match="block 1 opened out of order"):
        a_fold().take(BlockOpened(index=1, kind="text"))


def test_an_open_block_is_not_part_of_the_message_until_it_is_closed() -> None:
    fold = a_fold()
    fold.take(BlockOpened(index=0, kind="text"))
    fold.take(BlockGrew(index=0, text="half"))
    assert fold.message("pending").content == []
    assert fold.close_open() == [TextEnd(content_index=0, content="half")]
    assert fold.close_open() == []
    assert fold.message("aborted").content == [TextContent(text="half")]


def test_a_tool_call_that_was_cut_off_keeps_what_can_be_read() -> None:
    fold = a_fold()
    fold.take(BlockOpened(index=0, kind="toolCall", call_id="c", name="write"))
    fold.take(BlockGrew(index=0, text='{"path": "a.txt", "content": "hel'))
    fold.close_open()
    assert fold.message("length").content[0].arguments["path"] == "a.txt"


def test_signatures_and_redaction_are_kept() -> None:
    fold = a_fold()
    for at, kind in enumerate(("text", "thinking", "thinking", "toolCall")):
        fold.take(BlockOpened(index=at, kind=kind))
        fold.take(BlockClosed(index=at, signature=f"s{at}", redacted=at == 2))
    text, thought, hidden, call = fold.message("stop").content
    assert (text.text_signature, thought.thinking_signature, call.thought_signature) == ("s0", "s1", "s3")
    assert (thought.redacted, hidden.redacted) == (ABSENT, True)


def test_counts_get_the_prices_of_the_model() -> None:
    fold = a_fold(cost=ModelCost(input=3, output=15))
    fold.take(Metered(Usage(input=1_000_000, output=2_000_000, cost=Cost())))
    usage = fold.message("stop").usage
    assert (usage.total_tokens, usage.cost.input, usage.cost.output, usage.cost.total) == (3_000_000, 3, 30, 33)


def test_a_rate_counts_for_all_prices() -> None:
    fold = a_fold(cost=ModelCost(input=2, output=4))
    fold.take(Metered(Usage(input=1_000_000, output=1_000_000, cost=Cost()), rate=0.5))
    assert fold.message("stop").usage.cost == Cost(input=1, output=2, total=3)


def test_the_message_says_who_answered_when_and_how_it_ended() -> None:
    fold = a_fold(id="m", provider="p", api="a")
    fold.take(Named(response_id="r", response_model="m-2"))
    ended = Finished(stop="error", raw_stop="overloaded")
    message = fold.message("error", ended, "too busy")
    assert (message.model, message.provider, message.api, message.timestamp) == ("m", "p", "a", 17)
    assert (message.response_id, message.response_model, message.raw_stop_reason) == ("r", "m-2", "overloaded")
    assert (message.stop_reason, message.error_message) == ("error", "too busy")
    assert fold.message("stop").error_message is ABSENT
