"""The message so far is never built anew, and still is what a fold over the deltas gives, whatever the deltas are."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pigeon.wire.content import ToolCall
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
from support.records import answer_start, dialect_for, records_for, update
from support.strategies import json_objects

Block = tuple[str, list[str]]
TEXT = st.text(max_size=12)
ARGUMENTS = json_objects(size=20)


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    """The text in pieces, some of them empty."""
    places = sorted(cut % (len(text) + 1) for cut in cuts)
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def events_of_blocks(blocks: list[Block]) -> list[StreamEvent]:
    """The events of an answer with these blocks of text and thinking."""
    events: list[StreamEvent] = []
    for index, (kind, pieces) in enumerate(blocks):
        thinks = kind == "thinking"
        start, delta, end = (ThinkingStart, ThinkingDelta, ThinkingEnd) if thinks else (TextStart, TextDelta, TextEnd)
        events.append(start(content_index=index))
        events += [delta(content_index=index, delta=piece) for piece in pieces]
        events.append(end(content_index=index, content="".join(pieces)))
    return events


@given(st.lists(st.tuples(st.sampled_from(["text", "thinking"]), st.lists(TEXT, max_size=5)), max_size=4))
def test_text_and_thinking_grow_as_a_fold_says(blocks: list[Block]) -> None:
    dialect = dialect_for("pi")
    records_for(dialect, answer_start())
    folded: list[dict[str, Any]] = []
    for event in events_of_blocks(blocks):
        (record,) = records_for(dialect, update(event))
        if isinstance(event, TextStart | ThinkingStart):
            kind = "text" if isinstance(event, TextStart) else "thinking"
            folded.append({"type": kind, kind: ""})
        elif isinstance(event, TextDelta | ThinkingDelta):
            last = folded[event.content_index]
            last[last["type"]] += event.delta
        assert record["message"]["content"] == folded
        assert record["assistantMessageEvent"]["partial"] == record["message"]


def test_the_message_so_far_has_the_tokens_counted_so_far() -> None:
    dialect = dialect_for("pi")
    records_for(dialect, answer_start(), update(TextStart(content_index=0), output=1))
    for output in (2, 3):
        (record,) = records_for(dialect, update(TextDelta(content_index=0, delta="x"), input=7, output=output))
        assert (record["message"]["usage"]["input"], record["message"]["usage"]["output"]) == (7, output)
        assert record["assistantMessageEvent"]["partial"]["usage"] == record["usage"] == record["message"]["usage"]
    assert record["message"]["content"] == [{"type": "text", "text": "xx"}]


@given(ARGUMENTS, st.lists(st.integers(min_value=0), max_size=5), st.booleans())
def test_arguments_of_a_call_are_an_object_all_the_way(
    arguments: dict[str, Any], cuts: list[int], spaced: bool
) -> None:
    dialect = dialect_for("omp")
    text = json.dumps(arguments, indent=1 if spaced else None, ensure_ascii=spaced)
    records_for(dialect, answer_start(), update(ToolcallStart(content_index=0, id="c", tool_name="bash")))
    for piece in pieces_of(text, cuts):
        (record,) = records_for(dialect, update(ToolcallDelta(content_index=0, delta=piece)))
        (block,) = record["message"]["content"]
        assert (block["type"], block["id"], block["name"]) == ("toolCall", "c", "bash")
        assert set(block["arguments"]) <= set(arguments)
    call = ToolCall(id="c", name="bash", arguments=arguments)
    (record,) = records_for(dialect, update(ToolcallEnd(content_index=0, tool_call=call)))
    assert record["message"]["content"][0]["arguments"] == arguments
    assert record["assistantMessageEvent"]["toolCall"]["arguments"] == arguments
