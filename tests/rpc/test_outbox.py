from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.dialects.base import Dialect
from pigeon.dialects.choice import NAMES, make_dialect
from pigeon.rpc.connection import Connection
from pigeon.rpc.outbox import MOST_HELD, SLICE_PIECES, EncodedData, LongAnswer, Outbox
from pigeon.wire.answers import success_response
from pigeon.wire.commands import Hello
from pigeon.wire.events import AgentSettled, TextDelta, TextStart, ThinkingDelta, ToolcallDelta, TurnStart
from support.records import answer_start, update

DELTAS = {"text": TextDelta, "thinking": ThinkingDelta, "call": ToolcallDelta}
STEPS = st.lists(
    st.tuples(st.sampled_from(sorted(DELTAS)), st.integers(0, 1), st.text(max_size=4))
    | st.sampled_from(["full", "room", "event", "answer"]),
    max_size=30,
)


class Tap:
    """A writer that is full when it is records_for to be."""

    def __init__(self) -> None:
        self.is_full = False
        self.is_overfull = False
        self.lines: list[bytes] = []
        self.apart: list[bool] = []
        self.at_once: list[bool] = []
        self._room = asyncio.Event()
        self._room.set()

    def put(self, buffers: Sequence[bytes], apart: bool = False, can_wait: bool = False) -> None:
        self.lines.append(b"".join(buffers))
        self.apart.append(apart)
        self.at_once.append(not can_wait)

    async def wait_for_room(self) -> None:
        await self._room.wait()

    def fill(self) -> None:
        self.is_full = True
        self._room.clear()

    async def drain(self) -> None:
        self.is_full = False
        self._room.set()
        for _ in range(3):
            await asyncio.sleep(0)

    def records(self) -> list[dict[str, Any]]:
        assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in self.lines)
        return [json.loads(line) for line in self.lines]

    def texts(self) -> list[str]:
        return [
            record["assistantMessageEvent"].get("delta", "")
            for record in self.records()
            if record["type"] == "message_update"
        ]


def an_outbox(connection: Connection | None = None) -> tuple[Tap, Outbox]:
    tap: Any = Tap()
    return tap, Outbox(tap, connection or Connection(Dialect("1", deltas=True)))


def text(delta: str, index: int = 0) -> Any:
    return update(TextDelta(content_index=index, delta=delta))


async def test_with_room_every_delta_is_a_line_of_its_own() -> None:
    tap, outbox = an_outbox()
    for piece in ("a", "b", "c"):
        outbox.send_event(text(piece))
        assert outbox.wait_if_full() is None
    assert tap.texts() == ["a", "b", "c"]


async def test_growing_text_goes_out_at_once_and_the_rest_when_the_loop_comes_round() -> None:
    tap, outbox = an_outbox()
    outbox.send_answer(success_response("1", "prompt"))
    outbox.send_event(TurnStart())
    outbox.send_event(update(TextStart(content_index=0)))
    outbox.send_event(text("a"))
    outbox.send_event(TurnStart())
    assert tap.at_once == [False, False, False, True, False]


async def test_deltas_for_a_slow_host_come_together_when_there_is_room() -> None:
    tap, outbox = an_outbox()
    outbox.send_event(text("a"))
    tap.fill()
    for piece in ("b", "c", "d"):
        outbox.send_event(text(piece))
        assert outbox.wait_if_full() is None
    assert tap.texts() == ["a"]
    await tap.drain()
    assert tap.texts() == ["a", "bcd"]
    outbox.send_event(text("e"))
    assert tap.texts() == ["a", "bcd", "e"]


async def test_what_is_held_goes_out_before_anything_that_follows_it() -> None:
    tap, outbox = an_outbox()
    tap.fill()
    outbox.send_event(text("a"))
    outbox.send_event(text("b"))
    outbox.send_event(text("c", index=1))
    outbox.send_event(TurnStart())
    assert tap.texts() == ["ab", "c"]
    assert tap.records()[-1] == {"type": "turn_start"}
    await tap.drain()
    assert tap.texts() == ["ab", "c"]


async def test_the_merged_update_has_the_newest_counts() -> None:
    tap, outbox = an_outbox()
    tap.fill()
    outbox.send_event(update(TextDelta(content_index=0, delta="a"), output=1))
    outbox.send_event(update(TextDelta(content_index=0, delta="b"), output=2))
    await tap.drain()
    (record,) = tap.records()
    assert (record["usage"]["output"], record["assistantMessageEvent"]["delta"]) == (2, "ab")


async def test_the_agent_waits_for_a_slow_host_when_it_cannot_merge() -> None:
    tap, outbox = an_outbox()
    assert not outbox.send_event(TurnStart())
    tap.fill()
    assert outbox.send_event(TurnStart())
    waiting = outbox.wait_if_full()
    assert waiting is not None
    await tap.drain()
    await waiting


async def test_a_host_of_every_delta_gets_each_and_is_waited_for() -> None:
    tap, outbox = an_outbox(Connection(Dialect("1", deltas=True), ["every_delta"]))
    tap.fill()
    assert outbox.send_event(text("a"))
    waiting = outbox.wait_if_full()
    assert waiting is not None
    outbox.send_event(text("b"))
    await tap.drain()
    await waiting
    assert tap.texts() == ["a", "b"]


async def test_what_is_held_is_bounded() -> None:
    tap, outbox = an_outbox()
    tap.fill()
    outbox.send_event(text("x" * (MOST_HELD - 1)))
    assert outbox.wait_if_full() is None
    outbox.send_event(text("y"))
    waiting = outbox.wait_if_full()
    assert waiting is not None
    await tap.drain()
    await waiting
    assert tap.texts() == ["x" * (MOST_HELD - 1) + "y"]


async def test_only_growing_text_is_held() -> None:
    tap, outbox = an_outbox()
    tap.fill()
    outbox.send_event(update(TextStart(content_index=0)))
    assert [record["assistantMessageEvent"]["type"] for record in tap.records()] == ["text_start"]


async def test_a_change_of_dialect_lets_go_of_what_is_held_and_the_next_answer_is_plain() -> None:
    connection = Connection(Dialect("1", deltas=True))
    tap, outbox = an_outbox(connection)
    tap.fill()
    outbox.send_event(text("a"))
    connection.handle_hello(Hello(dialect="companion", features=["seq"]))
    outbox.send_answer(success_response("hello", {"x": 1}, 7))
    assert tap.texts() == ["a"]
    assert tap.records()[-1] == {"id": 7, "type": "response", "command": "hello", "success": True, "data": {"x": 1}}
    await tap.drain()


async def test_events_are_numbered_without_gaps_and_answers_are_not() -> None:
    tap, outbox = an_outbox(Connection(Dialect("1", deltas=True), ["seq"]))
    for event in (TurnStart(), text("a"), AgentSettled()):
        outbox.send_event(event)
        outbox.send_answer(success_response("abort"))
    records = tap.records()
    assert [record["seq"] for record in records if record["type"] != "response"] == [1, 2, 3]
    assert not any("seq" in record for record in records if record["type"] == "response")


async def test_settled_stands_apart() -> None:
    tap, outbox = an_outbox()
    outbox.send_event(TurnStart())
    outbox.send_event(AgentSettled())
    assert tap.apart == [False, True]


@pytest.mark.parametrize("name", NAMES)
async def test_no_dialect_loses_text_to_a_slow_host(name: str) -> None:
    tap, outbox = an_outbox(Connection(make_dialect(name, "1", {})))
    outbox.send_event(answer_start())
    outbox.send_event(update(TextStart(content_index=0)))
    tap.fill()
    for piece in ("a", "b"):
        outbox.send_event(text(piece))
    await tap.drain()
    outbox.send_event(text("c"))
    assert "".join(tap.texts()) == "abc"


@given(STEPS)
def test_no_character_is_lost_or_moved(steps: list[Any]) -> None:
    async def story() -> tuple[Tap, list[tuple[str, int, str]]]:
        tap, outbox = an_outbox()
        expected: list[tuple[str, int, str]] = []
        for step in steps:
            if step == "full":
                tap.fill()
            elif step == "room":
                await tap.drain()
            elif step == "event":
                outbox.send_event(TurnStart())
                expected.append(("turn_start", 0, ""))
            elif step == "answer":
                outbox.send_answer(success_response("abort"))
            else:
                kind, index, piece = step
                outbox.send_event(update(DELTAS[kind](content_index=index, delta=piece)))
                expected.append((f"{kind}", index, piece))
        await tap.drain()
        return tap, expected

    tap, expected = asyncio.run(story())
    assert merge_neighbours(
        [_comparable_record(record) for record in tap.records() if record["type"] != "response"]
    ) == merge_neighbours(expected)
    if "full" not in steps:
        assert len(tap.lines) == len(steps) - steps.count("room")


def _comparable_record(record: dict[str, Any]) -> tuple[str, int, str]:
    event = record.get("assistantMessageEvent")
    if event is None:
        return record["type"], 0, ""
    kind = event["type"].removesuffix("_delta").removeprefix("tool")
    return kind, event["contentIndex"], event["delta"]


def merge_neighbours(seen: list[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
    """Neighbours of one block put together."""
    result: list[tuple[str, int, str]] = []
    for kind, index, piece in seen:
        if result and kind != "turn_start" and result[-1][:2] == (kind, index):
            result[-1] = (kind, index, result[-1][2] + piece)
        else:
            result.append((kind, index, piece))
    return result


def numbers(count: int, made: list[int]) -> LongAnswer:
    """The data of an answer: a list of numbers, and a note of each that was made."""

    def pieces() -> Iterator[bytes]:
        yield b"[0"
        for number in range(1, count):
            made.append(number)
            yield b",%d" % number
        yield b"]"

    return LongAnswer(pieces())


async def test_a_short_answer_is_made_at_once_and_a_long_one_in_slices_between_other_work() -> None:
    tap, made = Tap(), list[int]()
    writer: Any = tap
    outbox = Outbox(writer, Connection(Dialect()))
    assert isinstance(outbox.encode_answer(numbers(10, made)), EncodedData)
    made.clear()
    waiting = outbox.encode_answer(numbers(4 * SLICE_PIECES, made))
    assert not isinstance(waiting, EncodedData)
    assert len(made) < SLICE_PIECES
    work = asyncio.ensure_future(waiting)
    turns = 0
    while not work.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 4
    outbox.send_answer(success_response("get_entries", work.result(), id="x"))
    assert tap.records()[-1]["data"] == list(range(4 * SLICE_PIECES))


async def test_long_answers_are_made_one_after_the_other_and_not_ahead_of_a_host_that_does_not_read() -> None:
    tap, made = Tap(), list[int]()
    writer: Any = tap
    outbox = Outbox(writer, Connection(Dialect()))
    tap.fill()
    both = [outbox.encode_answer(numbers(2 * SLICE_PIECES, made)) for _ in range(2)]
    work = [asyncio.ensure_future(one) for one in both if not isinstance(one, EncodedData)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert made == []
    await tap.drain()
    while not work[0].done():
        assert made == sorted(made)
        await asyncio.sleep(0)
    await work[1]
    assert len(made) == 2 * (2 * SLICE_PIECES - 1)


async def test_every_piece_of_a_long_answer_is_masked() -> None:
    tap = Tap()
    writer: Any = tap
    outbox = Outbox(writer, Connection(Dialect(), mask=lambda line: line.replace(b"secret", b"***")))
    pieces = [b'["secret"', *[b',"secret"'] * 3 * SLICE_PIECES, b"]"]
    data = outbox.encode_answer(LongAnswer(iter(pieces)))
    outbox.send_answer(success_response("get_entries", data if isinstance(data, EncodedData) else await data))
    assert set(tap.records()[0]["data"]) == {"***"}
