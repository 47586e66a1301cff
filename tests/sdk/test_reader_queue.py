"""Events on their way to a reader: in order, put together when it is slow, bounded."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.sdk.errors import ReaderTooSlow
from pigeon.sdk.reader_queue import MOST_APART, MOST_BYTES, MOST_DELTAS, MOST_QUEUED, ReaderQueue
from pigeon.wire.content import TextContent
from pigeon.wire.events import (
    AgentSettled,
    AgentStart,
    MessageEnd,
    QueueUpdate,
    TextDelta,
    TextEnd,
    ThinkingDelta,
    ToolExecutionEnd,
    ToolExecutionUpdate,
    ToolOutcome,
)
from pigeon.wire.messages import AssistantMessage
from pigeon.wire.model import Cost, Usage


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
        assert _join_neighbours([(type(one), one.content_index, one.delta) for one in read]) == _join_neighbours(blocks)
        assert len(read) <= len(blocks)

    asyncio.run(play())


def _join_neighbours(blocks: list[Any]) -> list[Any]:
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


async def test_what_is_repeated_later_is_dropped_when_very_much_was_left_unread() -> None:
    queue = ReaderQueue()
    outcome = ToolOutcome(content=[TextContent(text="all")])
    for at in range(MOST_QUEUED // 4):
        queue.put(TextDelta(content_index=0, delta=f"{at}"))
        queue.put(TextEnd(content_index=0, content=f"{at}"))
        queue.put(progress(f"call-{at}", "some"))
        queue.put(ToolExecutionEnd(tool_call_id=f"call-{at}", tool_name="bash", result=outcome, is_error=False))
        queue.put(QueueUpdate(steering=[], follow_up=[f"{at}"]))
    read = await read_all(queue)
    kinds = Counter(type(one) for one in read)
    assert kinds[TextEnd] == kinds[ToolExecutionEnd] == MOST_QUEUED // 4
    assert len(read) < MOST_QUEUED
    assert [one.follow_up for one in read if isinstance(one, QueueUpdate)][-1] == [f"{MOST_QUEUED // 4 - 1}"]
    shown = [one.delta for one in read if isinstance(one, TextDelta)]
    assert len(shown) < MOST_QUEUED // 4


async def test_the_deltas_of_an_answer_stay_if_only_another_answer_is_complete() -> None:
    queue = ReaderQueue()
    queue.put(TextDelta(content_index=0, delta="cut off"))
    queue.put(MessageEnd(message=answer("cut off")))
    queue.put(TextDelta(content_index=0, delta="whole"))
    queue.put(TextEnd(content_index=0, content="whole"))
    for _ in range(MOST_QUEUED):
        queue.put(AgentStart())
    with pytest.raises(ReaderTooSlow):
        await read_until_closed(queue, read := [])
    assert [one.delta for one in read if isinstance(one, TextDelta)] == ["cut off"]


async def test_a_reader_that_does_not_read_gets_an_error_and_holds_a_bounded_number_of_events() -> None:
    queue = ReaderQueue()
    for _ in range(3 * MOST_QUEUED):
        queue.put(AgentStart())
    assert len(queue) <= MOST_QUEUED + 1
    with pytest.raises(ReaderTooSlow, match="left unread"):
        await read_until_closed(queue, read := [])
    assert len(read) <= MOST_QUEUED + 1


async def test_a_reader_that_waits_is_not_slow_however_much_comes_at_once() -> None:
    queue = ReaderQueue()
    reading = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    for _ in range(2 * MOST_QUEUED):
        queue.put(AgentStart())
    await reading
    assert len(await read_all(queue)) == 2 * MOST_QUEUED - 1


async def test_long_lines_are_bounded_by_their_bytes() -> None:
    queue = ReaderQueue()
    for at in range(MOST_APART):
        queue.put(AgentStart(), size=1)
        queue.put(progress("one", f"{at}"), size=MOST_BYTES // MOST_APART // 4)
    for _ in range(10 * MOST_APART):
        queue.put(progress("one", "newest"), size=MOST_BYTES // 4)
    queue.put(AgentStart(), size=MOST_BYTES // 8)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(read_until_closed(queue, []), 0)
    for _ in range(9):
        queue.put(AgentStart(), size=MOST_BYTES // 8)
    with pytest.raises(ReaderTooSlow):
        await read_until_closed(queue, [])


async def test_a_reader_that_reads_is_never_cut_off_however_much_it_has_read() -> None:
    queue = ReaderQueue()
    for _ in range(20):
        queue.put(AgentStart(), size=MOST_BYTES - 1)
        assert await queue.get() == AgentStart()


async def test_only_the_newest_progress_of_a_call_takes_room() -> None:
    queue = ReaderQueue()
    for _ in range(MOST_APART):
        queue.put(AgentStart())
    queue.put(progress("one", "first"), size=1)
    for at in range(20):
        queue.put(progress("one", f"{at}"), size=MOST_BYTES // 2)
    queue.put(AgentStart(), size=MOST_BYTES // 4)
    assert len(await read_all(queue)) == MOST_APART + 2


async def test_progress_that_became_longer_counts_with_its_length() -> None:
    queue = ReaderQueue()
    for _ in range(MOST_APART):
        queue.put(AgentStart())
    queue.put(progress("one", "short"), size=1)
    queue.put(progress("one", "long"), size=MOST_BYTES - 1)
    queue.put(AgentStart(), size=2)
    with pytest.raises(ReaderTooSlow):
        await read_until_closed(queue, [])


async def test_progress_that_becomes_shorter_makes_room() -> None:
    queue = ReaderQueue()
    for _ in range(MOST_APART):
        queue.put(AgentStart())
    for _ in range(20):
        queue.put(progress("one", "long"), size=MOST_BYTES - 1)
        queue.put(progress("one", "short"), size=1)
    queue.put(AgentStart(), size=MOST_BYTES // 2)
    assert len(await read_all(queue)) == MOST_APART + 2


async def test_a_queue_of_one_run_leaves_out_other_runs_and_is_closed_by_their_end() -> None:
    queue = ReaderQueue("2", LookupError("over"))
    queue.put(AgentStart(), "1")
    queue.put(AgentStart(run_id="2"), "2")
    queue.put(TextDelta(content_index=0, delta="of no run"))
    queue.put(AgentSettled(), "1")
    assert await queue.get() == AgentStart(run_id="2")
    assert isinstance(await queue.get(), TextDelta)
    with pytest.raises(LookupError, match="over"):
        await queue.get()


async def read_until_closed(queue: ReaderQueue, read: list[Any]) -> None:
    while True:
        read.append(await queue.get())


def answer(text: str) -> AssistantMessage:
    return AssistantMessage(
        content=[TextContent(text=text)],
        api="scripted",
        provider="scripted",
        model="x",
        usage=Usage(cost=Cost()),
        stop_reason="stop",
        timestamp=0,
    )


async def test_a_reader_of_every_delta_gets_each_as_it_was() -> None:
    queue = ReaderQueue(every_delta=True)
    events: list[Any] = [TextDelta(content_index=0, delta=str(at)) for at in range(2 * MOST_QUEUED)]
    events += [TextEnd(content_index=0, content=""), AgentSettled()]
    for event in events:
        queue.put(event)
    assert await read_all(queue) == events


async def test_a_reader_of_every_delta_that_leaves_too_much_unread_is_told_and_misses_none_before() -> None:
    queue = ReaderQueue(every_delta=True)
    deltas = [TextDelta(content_index=0, delta=str(at)) for at in range(MOST_DELTAS)]
    for delta in deltas:
        queue.put(delta)
    queue.put(TextEnd(content_index=0, content=""))
    queue.put(TextDelta(content_index=1, delta="too late"))
    assert len(queue) == MOST_DELTAS + 1
    read: list[Any] = []
    with pytest.raises(ReaderTooSlow):
        await read_until_closed(queue, read)
    assert read[:-1] == deltas


async def test_long_deltas_count_with_their_length_where_there_are_no_lines() -> None:
    queue = ReaderQueue(every_delta=True)
    long = TextDelta(content_index=0, delta="x" * (MOST_BYTES // 8))
    for _ in range(9):
        queue.put(long)
    read: list[Any] = []
    with pytest.raises(ReaderTooSlow):
        await read_until_closed(queue, read)
    assert read == [long] * 9


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
