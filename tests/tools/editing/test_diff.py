from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.clock import within
from pigeon.tools.editing import changed_lines
from pigeon.tools.editing.changed_lines import Change, find_changes
from pigeon.tools.editing.diff import compare_texts
from pigeon.tools.editing.replacing import edit_content

lines = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n"]), max_size=25)


def rebuilt(old: list[str], new: list[str], changes: list[Change]) -> list[str]:
    result: list[str] = []
    at = 0
    for change in changes:
        assert change.old_start >= at
        result += old[at : change.old_start]
        assert change.new_start == len(result)
        result += new[change.new_start : change.new_end]
        at = change.old_end
    return result + old[at:]


@given(lines, lines)
def test_the_changes_lead_from_one_text_to_the_other(old: list[str], new: list[str]) -> None:
    assert rebuilt(old, new, find_changes(old, new)) == new


many_lines = st.lists(st.sampled_from([*(f"{n}\n" for n in range(30)), "}\n", "\n"]), max_size=60)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(many_lines, many_lines, st.sampled_from([0, 200, 10_000]))
def test_changes_found_with_little_work_lead_there_too(
    monkeypatch: pytest.MonkeyPatch, old: list[str], new: list[str], work: int
) -> None:
    monkeypatch.setattr(changed_lines, "MOST_STEPS", 2)
    monkeypatch.setattr(changed_lines, "MOST_WORK", work)
    assert rebuilt(old, new, find_changes(old, new)) == new


def test_changes_that_are_too_many_for_one_search_stay_small_around_lines_that_occur_once() -> None:
    old = [f"line {n}\n" for n in range(3000)]
    new = [f"new {n}\n" if n == 10 or 2600 <= n < 2900 else line for n, line in enumerate(old)]
    assert find_changes(old, new) == [Change(10, 11, 10, 11), Change(2600, 2900, 2600, 2900)]


def test_changes_that_are_too_many_stay_within_the_lines_that_are_known_to_differ() -> None:
    old = ["same\n"] * 3000
    new = old.copy()
    new[2600:2900], new[10:11] = [f"new {n}\n" for n in range(500)], ["ten\n", "more\n"]
    known = [Change(8, 13, 8, 14), Change(2600, 2900, 2601, 3101)]
    assert find_changes(old, new, known) == [Change(10, 11, 10, 12), Change(2600, 2900, 2601, 3101)]


@pytest.mark.parametrize("variety", [1, 2, 10, 10**9])
def test_no_two_texts_take_long_to_compare(variety: int) -> None:
    old = [f"{n * 7919 % variety}\n" for n in range(100_000)]
    new = [f"{n * 104_729 % (variety + 1)}\n" for n in range(100_000)]
    with within(15):
        assert rebuilt(old, new, find_changes(old, new)) == new


class CountedLine(str):
    """A line that counts how often one is compared with another."""

    __slots__ = ()
    __hash__ = str.__hash__
    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedLine.compared += 1
        return str.__eq__(self, other)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["0"] * 2000, ["0", "1"] * 1000),
        ([str(n % 7) for n in range(40_000)], [str(n % 7) if n % 1000 else "x" for n in range(40_000)]),
    ],
    ids=["many steps", "long stretches of equal lines"],
)
def test_a_search_ends_when_its_work_is_used_up(
    monkeypatch: pytest.MonkeyPatch, old: list[str], new: list[str]
) -> None:
    monkeypatch.setattr(changed_lines, "MOST_WORK", 10_000)
    monkeypatch.setattr(CountedLine, "compared", 0)
    changes = find_changes([CountedLine(line) for line in old], [CountedLine(line) for line in new])
    assert CountedLine.compared < 60_000
    assert rebuilt(old, new, changes) == new


@given(lines, lines)
def test_the_patch_applies(old: list[str], new: list[str]) -> None:
    assert apply_patch(old, compare_texts("".join(old), "".join(new), "f").patch) == new


pieces = st.lists(st.sampled_from(["x", "\n", "x\n", ""]), max_size=6).map("".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces, st.lists(st.tuples(pieces, pieces), min_size=1, max_size=4), st.sampled_from(["\n", "\r\n"]))
def test_the_patch_of_several_edits_applies_however_little_work_is_done(
    monkeypatch: pytest.MonkeyPatch, start: str, rows: list[tuple[str, str]], end: str
) -> None:
    monkeypatch.setattr(changed_lines, "MOST_STEPS", 0)
    monkeypatch.setattr(changed_lines, "MOST_WORK", 0)
    old = start + "".join(f"<{n}>{between}" for n, (_, between) in enumerate(rows))
    edits = [{"oldText": f"<{n}>", "newText": new} for n, (new, _) in enumerate(rows)]
    edited, changes = edit_content(old.replace("\n", end).encode(), edits, "f")
    expected = edited.decode().replace("\r\n", "\n")
    assert "".join(apply_patch(old.splitlines(keepends=True), changes.patch)) == expected


def apply_patch(old: list[str], patch: str) -> list[str]:
    result: list[str] = []
    at = 0
    last = ""
    for line in patch.split("\n")[2:-1]:
        if header := re.fullmatch(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@", line):
            start = int(header[1]) - (1 if int(header[2]) else 0)
            result += old[at:start]
            at = start
        elif line[0] == "+":
            result.append(line[1:] + "\n")
        elif line[0] == "\\":
            if last != "-":
                result[-1] = result[-1].removesuffix("\n")
        else:
            assert old[at].removesuffix("\n") == line[1:]
            at += 1
            if line[0] == " ":
                result.append(line[1:] + "\n")
        last = line[0]
    return result + old[at:]


def test_the_listing_numbers_lines_and_leaves_out_what_is_far() -> None:
    old = "".join(f"line {n}\n" for n in range(1, 31))
    new = old.replace("line 15\n", "line 15a\nline 15b\n")
    shown = compare_texts(old, new, "f")
    assert shown.listing == (
        "    ...\n 11 line 11\n 12 line 12\n 13 line 13\n 14 line 14\n-15 line 15\n+15 line 15a\n+16 line 15b\n"
        " 16 line 16\n 17 line 17\n 18 line 18\n 19 line 19\n    ..."
    )
    assert shown.first_changed_line == 15
    assert shown.patch.startswith("--- f\n+++ f\n@@ -11,9 +11,10 @@\n line 11\n")


def test_two_changes_that_are_near_share_their_context() -> None:
    old = "".join(f"{n}\n" for n in range(20))
    new = old.replace("5\n", "five\n", 1).replace("11\n", "eleven\n")
    assert compare_texts(old, new, "f").patch.count("@@ -") == 1
    assert "..." not in compare_texts(old, new, "f").listing.split("\n", 1)[1].rsplit("\n", 1)[0]


def test_a_missing_final_newline_is_marked() -> None:
    assert compare_texts("a", "b", "f").patch == (
        "--- f\n+++ f\n@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n"
    )


def test_text_from_nothing() -> None:
    shown = compare_texts("", "a\nb\n", "f")
    assert shown.listing == "+1 a\n+2 b"
    assert "@@ -0,0 +1,2 @@" in shown.patch


def test_other_line_separators_do_not_split_lines() -> None:
    assert compare_texts("a\u2028b\x0cc\n", "a\u2028b\x0cd\n", "f").listing == "-1 a\u2028b\x0cc\n+1 a\u2028b\x0cd"


def test_a_long_line_is_cut_where_it_differs() -> None:
    shown = compare_texts("a" * 5_000_000 + "\n", "a" * 4_000_000 + "B" + "a" * 10 + "\n", "f")
    removed, added = shown.listing.split("\n")
    assert removed.startswith("-1 [truncated] ...aaa")
    assert removed.endswith("aaa... [truncated]")
    assert added.startswith("+1 [truncated] ...aaa")
    assert added.endswith("aaaBaaaaaaaaaa")
    assert len(shown.listing) < 5000
    assert shown.patch is None


def test_lines_of_ordinary_length_are_shown_whole() -> None:
    assert compare_texts("", "x" * 2000, "f").listing == f"+1 {'x' * 2000}"
    assert compare_texts("", "x" * 2001, "f").listing == f"+1 {'x' * 2000}... [truncated]"


def test_a_long_listing_is_cut_between_lines() -> None:
    listing = compare_texts("", "".join(f"{'x' * 999}\n" for _ in range(1000)), "f").listing
    assert len(listing) < 100_100
    assert listing.split("\n")[-2:] == [f"+  99 {'x' * 999}", " ... (cut)"]
