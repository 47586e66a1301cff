"""Text of models and programs on its way to a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.frontends.cleaning import clean_text

ZWJ, ZWNJ = "\u200d", "\u200c"


@pytest.mark.parametrize(
    "text", [f"\u0645\u06cc{ZWNJ}\u062e\u0648\u0627\u0647\u0645", f"\u0915\u094d{ZWJ}\u0937", f"a{ZWJ}b"]
)
def test_a_joiner_behind_a_letter_or_mark_stays(text: str) -> None:
    assert clean_text(text) == text


@pytest.mark.parametrize("text", [f"{ZWJ}é", f"é 1{ZWNJ}", f"é {ZWJ}b", f"é-{ZWNJ}{ZWNJ}c"])
def test_a_joiner_behind_anything_else_is_left_out(text: str) -> None:
    assert clean_text(text) == text.replace(ZWJ, "").replace(ZWNJ, "")


@given(st.text())
def test_nothing_that_is_cleaned_moves_the_cursor(text: str) -> None:
    cleaned = clean_text(text)
    assert not {"\x1b", "\r", "\x08", "\x9b", "\x07"} & set(cleaned)
