"""What programs write for terminals, as a person would read it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.system.shell.terminal_text import apply_overwrites, remove_sequences


@pytest.mark.parametrize(
    "sequence",
    ["\x1b[31m", "\x1b[2J", "\x1b]0;title\x07", "\x1b]8;;http://x\x1b\\", "\x1bPq#0\x1b\\", "\x1b(B", "\x1bc"],
)
def test_sequences_go_and_the_text_around_them_stays(sequence: str) -> None:
    assert remove_sequences(f"a{sequence}b") == "ab"


def test_of_a_line_that_was_written_over_the_last_state_stays() -> None:
    assert apply_overwrites("10%\r50%\r100%\r\ndone\n") == "100%\ndone\n"


@given(st.text(st.characters(exclude_characters="\x1b\r")))
def test_a_text_without_such_signs_is_left_as_it_is(text: str) -> None:
    assert apply_overwrites(remove_sequences(text)) == text
