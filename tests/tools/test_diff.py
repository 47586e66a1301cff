from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from pigeon.tools.diff import changed_runs, difference

lines = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n"]), max_size=25)


@given(lines, lines)
def test_the_changes_lead_from_one_text_to_the_other(old: list[str], new: list[str]) -> None:
    rebuilt: list[str] = []
    at = 0
    for change in changed_runs(old, new):
        assert change.old_start >= at
        rebuilt += old[at : change.old_start] + new[change.new_start : change.new_end]
        at = change.old_end
    assert rebuilt + old[at:] == new


@given(lines, lines)
def test_the_patch_applies(old: list[str], new: list[str]) -> None:
    assert applied(old, difference("".join(old), "".join(new), "f").patch) == new


def applied(old: list[str], patch: str) -> list[str]:
    result: list[str] = []
    at = 0
    for line in patch.split("\n")[2:-1]:
        if header := re.fullmatch(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@", line):
            start = int(header[1]) - (1 if int(header[2]) else 0)
            result += old[at:start]
            at = start
        elif line[0] == "+":
            result.append(line[1:] + "\n")
        else:
            assert old[at] == line[1:] + "\n"
            at += 1
            if line[0] == " ":
                result.append(line[1:] + "\n")
    return result + old[at:]


def test_the_listing_numbers_lines_and_leaves_out_what_is_far() -> None:
    old = "".join(f"line {n}\n" for n in range(1, 31))
    new = old.replace("line 15\n", "line 15a\nline 15b\n")
    shown = difference(old, new, "f")
    assert shown.listing == (
        "    ...\n 11 line 11\n 12 line 12\n 13 line 13\n 14 line 14\n-15 line 15\n+15 line 15a\n+16 line 15b\n"
        " 16 line 16\n 17 line 17\n 18 line 18\n 19 line 19\n    ..."
    )
    assert shown.first_changed_line == 15
    assert shown.patch.startswith("--- f\n+++ f\n@@ -11,9 +11,10 @@\n line 11\n")


def test_two_changes_that_are_near_share_their_context() -> None:
    old = "".join(f"{n}\n" for n in range(20))
    new = old.replace("5\n", "five\n", 1).replace("11\n", "eleven\n")
    assert difference(old, new, "f").patch.count("@@ -") == 1
    assert "..." not in difference(old, new, "f").listing.split("\n", 1)[1].rsplit("\n", 1)[0]


def test_a_missing_final_newline_is_marked() -> None:
    assert difference("a", "b", "f").patch == (
        "--- f\n+++ f\n@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n"
    )


def test_text_from_nothing() -> None:
    shown = difference("", "a\nb\n", "f")
    assert shown.listing == "+1 a\n+2 b"
    assert "@@ -0,0 +1,2 @@" in shown.patch


def test_other_line_separators_do_not_split_lines() -> None:
    assert difference("a\u2028b\x0cc\n", "a\u2028b\x0cd\n", "f").listing == "-1 a\u2028b\x0cc\n+1 a\u2028b\x0cd"
