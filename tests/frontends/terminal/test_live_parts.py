"""What still changes of a transcript besides the answer: the thought, and what runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pigeon.frontends.terminal.blocks import ThinkingText, ToolCard
from pigeon.frontends.terminal.live_parts import RunningCards, StreamingThought


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@given(st.lists(st.text(max_size=10)), st.integers(1, 40))
def test_the_tail_of_a_thought_is_the_end_of_its_pieces(pieces: list[str], most: int) -> None:
    thought = StreamingThought(lambda: 0.0)
    thought.begin()
    for piece in pieces:
        thought.add(piece)
    assert thought.tail(most) == "".join(pieces)[-most:]


def test_a_thought_ends_once_with_its_duration() -> None:
    clock = Clock()
    thought = StreamingThought(clock)
    thought.begin()
    thought.add("Hm")
    clock.seconds = 3.0
    assert thought.is_open
    assert thought.end() == ThinkingText("Hm", 3.0)
    assert (thought.is_open, thought.end(), thought.tail(5)) == (False, None, "")


def test_the_whole_thought_replaces_its_pieces_and_a_blank_one_is_none() -> None:
    thought = StreamingThought(lambda: 0.0)
    thought.begin()
    thought.add("H")
    assert thought.end("Hm.") == ThinkingText("Hm.", 0.0)
    thought.begin()
    thought.add(" \n")
    assert thought.end() is None


def test_calls_that_are_still_running_fail_with_what_they_have_written() -> None:
    clock = Clock()
    cards = RunningCards(clock)
    for call_id in ("1", "2"):
        cards.add_call(ToolCard(call_id, "bash", {}, clock()))
    done = cards.end_call("1", False, "whole", None)
    running = cards.find_call("2")
    assert done is not None
    assert running is not None
    running.update_output("half")
    clock.seconds = 2.0
    assert cards.fail_calls() == [running]
    assert (done.output, done.failed, running.output, running.failed, running.seconds) == (
        "whole", False, "half", True, 2.0,
    )  # fmt: skip
    assert (cards.all, cards.has_calls, cards.last_output) == ([], False, "whole")
    assert cards.end_call("2", False, "late", None) is None
    assert cards.last_output == "whole"


def test_a_command_of_the_person_ends_once_and_outlives_the_calls() -> None:
    clock = Clock()
    cards = RunningCards(clock)
    clock.seconds = 1.0
    card = cards.begin_shell("ls")
    assert cards.fail_calls() == []
    assert (cards.all, cards.shell_since) == ([card], 1.0)
    cards.end_shell(card, "a.txt")
    cards.end_shell(card, "again")
    assert (cards.all, cards.shell_since, cards.last_output, card.output) == ([], None, "a.txt", "a.txt")
