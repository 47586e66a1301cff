from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pigeon.system.shell.truncation import (
    OutputLimits,
    count_lines,
    human_size,
    tail_within,
    truncate_to_head,
    truncate_to_tail,
    utf8_size_of,
)

texts = st.text(alphabet=st.sampled_from("ab\n\né漢😀"), max_size=200)
limits = st.builds(OutputLimits, lines=st.integers(1, 12), bytes=st.integers(1, 60))


@given(texts, limits)
def test_the_head_is_a_start_of_the_text_within_the_limits(text: str, limits: OutputLimits) -> None:
    shown = truncate_to_head(text, limits)
    assert text.startswith(shown.text)
    assert utf8_size_of(shown.text) <= limits.bytes or not shown.is_truncated
    assert count_lines(shown.text + "\n" * shown.is_truncated) <= max(limits.lines, 1)
    assert shown.is_truncated == (shown.text != text)
    if shown.is_truncated:
        assert shown.output_bytes == utf8_size_of(shown.text)
        assert text[len(shown.text) :].startswith("\n") or shown.first_line_exceeds_limit


@given(texts, limits)
def test_the_tail_is_an_end_of_the_text_within_the_limits(text: str, limits: OutputLimits) -> None:
    shown = truncate_to_tail(text, limits)
    assert text.removesuffix("\n").endswith(shown.text) or shown.text == text
    assert shown.is_truncated == (shown.text != text)
    if shown.is_truncated:
        assert utf8_size_of(shown.text) <= limits.bytes
        assert shown.output_lines <= limits.lines
        assert shown.output_bytes == utf8_size_of(shown.text)
        assert shown.total_lines == count_lines(text)
        assert shown.total_bytes == utf8_size_of(text)


@given(st.text(alphabet=st.sampled_from("aé漢😀"), max_size=60), st.integers(0, 80))
def test_a_cut_never_falls_into_a_character(text: str, size: int) -> None:
    end = tail_within(text, size)
    assert text.endswith(end)
    assert utf8_size_of(end) <= size
    assert len(end) == len(text) or utf8_size_of(text[len(text) - len(end) - 1 :]) > size


def test_a_final_newline_is_not_another_line() -> None:
    assert count_lines("a\nb\n") == count_lines("a\nb") == 2
    assert count_lines("") == 0
    assert truncate_to_tail("a\nb\n", OutputLimits(2, 100)).is_truncated is False


def test_a_single_line_over_the_limit_shows_its_end_or_nothing() -> None:
    long = "x" * 10 + "é"
    assert truncate_to_tail(long, OutputLimits(5, 5)).text == "xxxé"
    assert truncate_to_tail(long, OutputLimits(5, 5)).last_line_partial
    assert truncate_to_head(long, OutputLimits(5, 5)).text == ""
    assert truncate_to_head(long, OutputLimits(5, 5)).first_line_exceeds_limit


def test_the_record_does_not_repeat_the_text() -> None:
    record = truncate_to_tail("a\nb\nc\n", OutputLimits(2, 100)).to_record()
    assert record == {
        "truncated": True,
        "truncatedBy": "lines",
        "totalLines": 3,
        "totalBytes": 6,
        "outputLines": 2,
        "outputBytes": 3,
        "lastLinePartial": False,
        "firstLineExceedsLimit": False,
        "maxLines": 2,
        "maxBytes": 100,
    }


def test_sizes_are_written_with_one_decimal() -> None:
    assert [human_size(n) for n in (512, 51200, 1_310_720)] == ["512B", "50.0KB", "1.2MB"]
