"""Blocks are written in their order, and a long one holds nothing up."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pigeon.frontends.terminal.blocks import AnswerText, Block, Notice, ToolCard
from pigeon.frontends.terminal.painting import Painter
from pigeon.frontends.terminal.screen.block_queue import LONGEST_AT_ONCE, PIECE_CHARACTERS, BlockQueue

LONG = "word " * LONGEST_AT_ONCE


class SlowPainter(Painter):
    """Paints long blocks only when it may; says in which threads it painted."""

    def __init__(self) -> None:
        super().__init__(None)
        self.may = threading.Event()
        self.threads: list[int] = []

    def paint(self, block: Block, width: int) -> str:
        self.threads.append(threading.get_ident())
        if isinstance(block, AnswerText):
            assert self.may.wait(20)
        return super().paint(block, width)


def all_of(queue: BlockQueue) -> str:
    text = ""
    while queue.has_text:
        text += queue.pop_text()
    return text


@pytest.fixture
def painter() -> SlowPainter:
    return SlowPainter()


def nothing() -> None:
    """Nothing is drawn here."""


async def test_a_short_block_is_painted_at_once(painter: SlowPainter) -> None:
    queue = BlockQueue(painter, nothing)
    queue.add(Notice("short"), 80)
    assert not queue.is_painting
    assert "short" in queue.pop_text()
    assert painter.threads == [threading.get_ident()]


async def test_the_event_loop_goes_on_while_a_long_block_is_painted(painter: SlowPainter) -> None:
    queue = BlockQueue(painter, nothing)
    queue.add(AnswerText(LONG), 80)
    await asyncio.sleep(0)
    assert queue.is_painting
    assert not queue.has_text
    painter.may.set()
    await queue.wait_until_painted()
    assert all_of(queue).split() == LONG.split()
    assert threading.get_ident() not in painter.threads


async def test_what_comes_behind_a_long_block_is_written_behind_it(painter: SlowPainter) -> None:
    queue = BlockQueue(painter, nothing)
    queue.add(Notice("first"), 80)
    queue.add(AnswerText(f"second {LONG}"), 80)
    queue.add(Notice("third"), 80)
    queue.add_lines("fourth\n")
    painter.may.set()
    await queue.wait_until_painted()
    found = [word for word in all_of(queue).split() if word in ("first", "second", "third", "fourth")]
    assert found == ["first", "second", "third", "fourth"]


async def test_a_block_that_cannot_be_painted_takes_no_other_with_it(painter: SlowPainter) -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, about: faults.append(about["exception"]))
    queue = BlockQueue(painter, nothing)
    queue.add(Notice(LONG, "no such kind"), 80)  # type: ignore[arg-type]
    queue.add(Notice("after it"), 80)
    await queue.wait_until_painted()
    assert [type(fault) for fault in faults] == [KeyError]
    assert "after it" in all_of(queue)


async def test_a_long_text_is_given_out_in_pieces_of_whole_lines() -> None:
    queue = BlockQueue(Painter(None), nothing)
    lines = "".join(f"line {number}\n" for number in range(PIECE_CHARACTERS))
    queue.add_lines(lines)
    pieces = []
    while queue.has_text:
        pieces.append(queue.pop_text())
    assert len(pieces) > 5
    assert all(piece.endswith("\n") and len(piece) <= PIECE_CHARACTERS + 20 for piece in pieces)
    assert "".join(pieces) == lines


async def test_what_a_tool_was_given_counts_too(painter: SlowPainter) -> None:
    queue = BlockQueue(painter, nothing)
    queue.add(ToolCard("1", "write", {"path": "a", "content": LONG}, 0.0, seconds=0.0), 80)
    assert queue.is_painting
    await queue.wait_until_painted()


async def test_what_is_painted_while_a_piece_is_taken_is_not_lost(painter: SlowPainter) -> None:
    queue = BlockQueue(painter, nothing)
    queue.add(Notice("before"), 80)
    queue.add(AnswerText(LONG), 80)
    await asyncio.sleep(0)
    assert "before" in queue.pop_text()
    painter.may.set()
    await queue.wait_until_painted()
    assert "word" in all_of(queue)


async def test_who_draws_is_told_when_nothing_is_being_painted_any_more(painter: SlowPainter) -> None:
    told: list[bool] = []
    queue = BlockQueue(painter, lambda: told.append(queue.is_painting))
    queue.add(AnswerText(LONG), 80)
    painter.may.set()
    await queue.wait_until_painted()
    assert told[0], "the text is drawn while other blocks are painted"
    assert not told[-1]
