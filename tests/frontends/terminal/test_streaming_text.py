"""Markdown that arrives in pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pigeon.frontends.terminal.streaming_text import LONGEST_LINE, StreamingText

LINES = st.sampled_from(
    [
        "",
        "text",
        "- item",
        "1. first",
        "  indented",
        "```",
        "```python",
        "~~~",
        "# Title",
        "| a | b |",
        "> quote",
        "\t",
        "x",
    ]
)
TEXTS = st.one_of(st.text(), st.lists(LINES).map("\n".join))


def parts(text: str, sizes: list[int]) -> list[str]:
    pieces = []
    while text:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[:size])
        text = text[size:]
    return pieces


@given(TEXTS, st.lists(st.integers(1, 9), min_size=1))
def test_the_finished_parts_and_the_rest_are_the_text(text: str, sizes: list[int]) -> None:
    streaming = StreamingText()
    finished = ""
    for piece in parts(text, sizes):
        finished += streaming.add_and_take_finished(piece)
        assert finished + streaming.tail == text[: len(finished + streaming.tail)]
    assert finished + streaming.flush() == text
    assert not streaming.has_unfinished


@given(TEXTS, st.lists(st.integers(1, 9), min_size=1))
def test_where_it_is_cut_does_not_depend_on_the_pieces(text: str, sizes: list[int]) -> None:
    whole, pieces = StreamingText(), StreamingText()
    assert "".join(pieces.add_and_take_finished(piece) for piece in parts(text, sizes)) == whole.add_and_take_finished(
        text
    )


@given(TEXTS)
def test_a_fence_is_never_cut(text: str) -> None:
    streaming = StreamingText()
    streaming.add_and_take_finished("```\n" + text.replace("`", "'"))
    assert streaming.add_and_take_finished("\n\nmore\n") == ""


def test_blocks_are_finished_when_the_next_one_begins() -> None:
    streaming = StreamingText()
    assert streaming.add_and_take_finished("One.\n\nTwo") == ""
    assert streaming.add_and_take_finished(".\n") == "One.\n\n"
    assert streaming.add_and_take_finished("\n- a\n\n- b\n") == "Two.\n\n"
    assert streaming.tail == "- a\n\n- b\n"


@given(st.integers(1, 30), st.lists(st.integers(0, 3 * LONGEST_LINE), max_size=40))
def test_what_is_drawn_of_it_is_bounded(most: int, lengths: list[int]) -> None:
    streaming = StreamingText()
    streaming.add_and_take_finished("```\n" + "\n".join("x" * length for length in lengths))
    lines, before = streaming.tail_lines(most)
    assert len(lines) <= most
    assert before + len(lines) == len(lengths) + 1 or not lengths
    assert all(len(line) <= LONGEST_LINE for line in lines)
