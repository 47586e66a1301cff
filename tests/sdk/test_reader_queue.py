"""Events on their way to a reader: in order, put together when it is slow, bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.sdk.reader_queue import MOST_APART, MOST_QUEUED, ReaderQueue
from pigeon.wire.content import TextContent
from pigeon.wire.events import AgentStart, TextDelta, TextEnd, ThinkingDelta, ToolExecutionUpdate, ToolOutcome


def progress(call: str, text: str) -> ToolExecutionUpdate:
    outcome = ToolOutcome(content=[TextContent(text=text)])
    return ToolExecutionUpdate(tool_call_id=call, tool_name="bash", args={}, partial_result=outcome)


async def read_all(queue: ReaderQueue) -> list[Any]:
    return [await queue.get() for _ in range(len(queue))]


async def test_a_reader_that_keeps_up_gets_every_event_as_it_was() -> None:
    queue = ReaderQueue()
    events = [TextDelta(content_index=0, delta=str(at)) for at in range(MOST_APART)]
    for event in events:
        queue.put(event)
    assert await read_all(queue) == events


BLOCKS = st.lists(st.tuples(st.sampled_from([TextDelta, ThinkingDelta]), st.integers(0, 2), st.text(max_size=3)))


@given(BLOCKS)
def test_no_text_is_lost_or_moved_when_deltas_are_put_together(blocks: list[Any]) -> None:
    async def play() -> None:
        queue = ReaderQueue()
        for _ in range(MOST_APART):
            queue.put(AgentStart())
        for kind, index, text in blocks:
            queue.put(kind(content_index=index, delta=text))
        queue.put(TextEnd(content_index=0, content=""))
        read = (await read_all(queue))[MOST_APART:-1]
        assert _joined([(type(one), one.content_index, one.delta) for one in read]) == _joined(blocks)
        assert len(read) <= len(blocks)

    asyncio.run(play())


def _joined(blocks: list[Any]) -> list[Any]:
    """Neighbours of one block as one."""
    made: list[Any] = []
    for kind, index, text in blocks:
        if made and made[-1][:2] == (kind, index):
            made[-1] = (kind, index, made[-1][2] + text)
        else:
            made.append((kind, index, text))
    return made


async def test_older_progress_of_a_call_is_replaced_and_that_of_others_stays() -> None:
    queue = ReaderQueue()
    for _ in range(MOST_APART):
        queue.put(AgentStart())
    for text in ("a", "ab", "abc"):
        queue.put(progress("one", text))
        queue.put(progress("two", text.upper()))
    read = (await read_all(queue))[MOST_APART:]
    assert [(one.tool_call_id, one.partial_result.content[0].text) for one in read] == [("one", "abc"), ("two", "ABC")]


async def test_a_full_queue_gives_something_to_wait_for_until_half_of_it_was_read() -> None:
    queue = ReaderQueue()
    for _ in range(MOST_QUEUED):
        queue.put(AgentStart())
    assert queue.full
    waiting = asyncio.ensure_future(queue.until_room())
    await asyncio.sleep(0)
    while len(queue) >= MOST_QUEUED // 2:
        assert not waiting.done()
        await queue.get()
        await asyncio.sleep(0)
    await waiting


async def test_what_was_queued_is_read_before_the_error_that_closed_it() -> None:
    queue = ReaderQueue()
    queue.put(AgentStart())
    queue.close(LookupError("gone"))
    queue.put(AgentStart())
    assert await queue.get() == AgentStart()
    for _ in range(2):
        with pytest.raises(LookupError, match="gone"):
            await queue.get()


async def test_closing_wakes_a_reader_that_waits() -> None:
    queue = ReaderQueue()
    reading = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.close()
    with pytest.raises(StopAsyncIteration):
        await reading
