from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pigeon.system.shell.output import Capture, Cleaner
from pigeon.system.shell.truncation import OutputLimits


def clean_bytes(data: bytes) -> bytes:
    return Cleaner().feed(data, final=True)


def capture_chunks(*chunks: bytes, limits: OutputLimits | None = None) -> Capture:
    capture = Capture(lambda: None, limits or OutputLimits())
    for chunk in chunks:
        capture.feed(chunk)
    capture.finish()
    return capture


pieces = st.sampled_from(
    [b"plain", b"\n", b"\r", b"\r\n", b"\x1b[31m", b"\x1b]0;title\x07", b"\x1b(B", b"\x1bM", b"\x08", b"\0",
     b"\xc3\xa9", b"\xff", b"\xe6\xbc\xa2", b"\xc2\x85", b"\x1b", b"\x1b[", b"\t"]
)  # fmt: skip


@given(st.lists(pieces, max_size=20), st.lists(st.integers(0, 60), max_size=6))
def test_how_the_stream_is_cut_changes_nothing(parts: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(part for part in parts if part != b"\x08")
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    cleaner = Cleaner()
    streamed = b"".join(cleaner.feed(whole[a:b]) for a, b in pairwise(edges))
    assert streamed + cleaner.feed(b"", final=True) == clean_bytes(whole)


@given(st.binary(max_size=300))
def test_whatever_comes_out_is_printable_utf8(data: bytes) -> None:
    text = clean_bytes(data).decode("utf-8")
    assert all(
        character in "\t\n\r" or (ord(character) >= 0x20 and not 0x7F <= ord(character) < 0xA0) for character in text
    )


def test_colours_titles_and_links_are_taken_out() -> None:
    assert (
        clean_bytes(b"\x1b[1;31mred\x1b[0m \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ \x1b]0;t\x07end") == b"red link end"
    )


def test_overstruck_text_is_read_as_printed_last() -> None:
    assert clean_bytes(b"N\x08NA\x08AM\x08ME\x08E _\x08x") == b"NAME x"


def test_a_sequence_split_between_reads_is_still_taken_out() -> None:
    cleaner = Cleaner()
    assert cleaner.feed(b"a\x1b[3") + cleaner.feed(b"1mb") == b"ab"


def test_an_endless_sequence_does_not_hold_back_the_output() -> None:
    cleaner = Cleaner()
    assert len(cleaner.feed(b"\x1b]" + b"x" * 10_000)) > 5_000


def test_only_the_last_version_of_a_progress_line_is_kept() -> None:
    assert capture_chunks(b"10%\r20%\r", b"100%\ndone\r\n").visible_tail().text == "100%\ndone\n"
    assert capture_chunks(b"one\r\n", b"two\r", b"\nthree").visible_tail().text == "one\ntwo\nthree"


@given(st.lists(st.sampled_from([b"a", b"bb", b"\r", b"\n", b"\r\n", "é".encode()]), max_size=30), st.integers(1, 7))
def test_progress_lines_do_not_depend_on_how_the_stream_is_cut(parts: list[bytes], step: int) -> None:
    whole = b"".join(parts)
    cut = capture_chunks(*(whole[at : at + step] for at in range(0, len(whole), step)))
    assert cut.visible_tail() == capture_chunks(whole).visible_tail()


def test_counts_are_those_of_the_clean_text() -> None:
    shown = capture_chunks(b"\x1b[31m1\x1b[0m\n2\xff\n3\n", limits=OutputLimits(2, 100)).visible_tail()
    assert (shown.total_lines, shown.total_bytes, shown.text) == (3, 9, "2\ufffd\n3")


@given(st.lists(st.sampled_from([b"line\n", "漢字\n".encode(), b"x" * 40, b"\n"]), max_size=60))
def test_memory_stays_small_and_the_tail_right(parts: list[bytes]) -> None:
    limits = OutputLimits(5, 50)
    whole = b"".join(parts)
    capture = capture_chunks(*parts, limits=limits)
    expected = capture_chunks(whole, limits=limits).visible_tail()
    assert capture.visible_tail() == expected
    assert expected.total_bytes == len(whole)
    assert expected.total_lines == len(whole.splitlines())


def test_taking_out_one_sequence_does_not_make_another() -> None:
    cleaner = Cleaner()
    assert cleaner.feed(b"\x1b[\x1b(B") + cleaner.feed(b"plain") == clean_bytes(b"\x1b[\x1b(Bplain") == b"[plain"
