"""Blocks as text: what reaches the terminal is harmless, fits, and stands where it belongs."""

from __future__ import annotations

import re
from itertools import count

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from wcwidth import wcswidth

from pigeon.frontends.terminal.blocks import (
    AnswerText,
    Block,
    ChatHead,
    Notice,
    ShellCard,
    ThinkingText,
    ToolCard,
    UserText,
)
from pigeon.frontends.terminal.painting import Painter
from support.processes import eventually

OWN_SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = st.lists(
    st.one_of(
        st.text(max_size=30),
        st.sampled_from(
            [
                "\x1b[2J",
                "\x1b]0;title\x07",
                "\x1b]8;;http://x\x1b\\",
                "\x1bP+q\x1b\\",
                "\x9b31m",
                "\x1b",
                "\x07",
                "\r",
                "\u202e",
            ]
        ),
        st.sampled_from(["# ", "- ", "1. ", "> ", "```py\n", "\n", "| a | b |\n|---|---|\n", "**", "`", "[x](y)"]),
        st.sampled_from(["日本語", "👩\u200d💻", "❤\ufe0f", "e\u0301", "a" * 90, "word " * 20]),
    ),
    max_size=8,
).map("".join)
WIDTHS = st.integers(20, 130)


def _blocks(text: str) -> list[Block]:
    blocks: list[Block] = [
        UserText(text, 2),
        AnswerText(text),
        ThinkingText(text, 3.0),
        ShellCard(text, text, 1, for_model=False),
        Notice(text, "error"),
        ChatHead("1", text, text, [text]),
    ]
    for name, args in [
        ("bash", {"command": text}),
        ("read", {"path": text, "offset": 3}),
        ("write", {"path": text, "content": text}),
        (text, {text: text}),
    ]:
        for failed in (False, True):
            card = ToolCard("1", name, args, 0.0)
            card.finish(12.0, failed, text)
            blocks.append(card)
    edit = ToolCard("1", "edit", {"path": text}, 0.0)
    edit.finish(0.0, False, text, f" 1 {text}\n-2 {text}\n+2 {text}")
    return [*blocks, edit]


@given(HOSTILE, WIDTHS, st.booleans())
@example(" 000000000000000⺀", 20, False)
@settings(max_examples=25, deadline=None)
def test_no_line_is_wider_than_the_terminal_and_none_ends_with_spaces(text: str, width: int, ascii_only: bool) -> None:
    painter = Painter(None, ascii_only)
    card = ToolCard("1", "bash", {"command": text}, 0.0, text)
    painted = [painter.paint(block, width) for block in _blocks(text)]
    for made in [*painted, painter.paint_live_card(card, 5.0, width), painter.paint_live_markdown(text, width)]:
        for line in made.split("\n"):
            assert 0 <= wcswidth(line) <= width
            assert line == line.rstrip(" ")


@given(HOSTILE, st.sampled_from(["standard", "256", "truecolor"]))
@settings(max_examples=12, deadline=None)
def test_only_our_own_escape_sequences_reach_the_terminal(text: str, colours: str) -> None:
    painter = Painter(colours, show_thinking=True)
    for block in _blocks(text):
        rest = OWN_SEQUENCE.sub("", painter.paint(block, 80))
        assert all(char.isprintable() or char in "\n\u200c\u200d" for char in rest)


@given(HOSTILE)
@settings(max_examples=12, deadline=None)
def test_without_colours_there_is_no_escape_sequence(text: str) -> None:
    painter = Painter(None)
    assert not any("\x1b" in painter.paint(block, 80) for block in _blocks(text))


@given(HOSTILE)
@settings(max_examples=12, deadline=None)
def test_a_block_ends_with_one_blank_line_and_begins_with_none(text: str) -> None:
    painter = Painter(None)
    for block in _blocks(text):
        made = painter.paint(block, 60)
        assert not made or (made.endswith("\n\n") and not made.endswith("\n\n\n"))
        assert not made.startswith("\n")


def paint_lines(block: Block, width: int = 60, **options: bool) -> list[str]:
    lines = Painter(None, **options).paint(block, width).split("\n")
    assert lines[-2:] == ["", ""]
    return lines[:-2]


def finished_card(name: str, args: dict[str, object], output: str, **facts: object) -> ToolCard:
    card = ToolCard("1", name, args, 0.0)  # type: ignore[arg-type]
    card.finish(float(facts.get("seconds", 0.0)), bool(facts.get("failed")), output, facts.get("diff"))  # type: ignore[arg-type]
    return card


def test_a_command_shows_its_time_and_its_last_lines() -> None:
    output = "".join(f"line {number}\n" for number in range(1, 11))
    assert paint_lines(finished_card("bash", {"command": "make\nmake test"}, output, seconds=2.0)) == [
        "● bash make …  2.0 s",
        "  │ … 4 earlier lines",
        *(f"  │ line {number}" for number in range(5, 11)),
    ]


def test_a_command_that_fails_says_so_in_its_first_line() -> None:
    card = finished_card("bash", {"command": "false"}, "oh no\n\n\nCommand exited with code 3", failed=True)
    assert paint_lines(card) == ["✗ bash false  exit code 3", "  │ oh no"]
    card = finished_card("bash", {"command": "make all"}, "Command timed out after 2 seconds", failed=True)
    assert paint_lines(card) == ["✗ bash make all  timed out after 2 seconds"]


def test_why_a_tool_failed_is_never_cut_short() -> None:
    card = finished_card("read", {"path": "x"}, "ENOENT: no such file or directory, access 'x'", failed=True)
    assert paint_lines(card, 30) == ["✗ read x", "  │ ENOENT: no such file or", "  │ directory, access 'x'"]


def test_an_edit_shows_what_changed_with_numbers_and_counts() -> None:
    diff = "   ...\n 1 a\n 2 b\n 3 c\n-4 d\n+4 D\n+5 E\n 5 f\n 6 \n 7 h\n   ..."
    assert paint_lines(finished_card("edit", {"path": "x.py"}, "Successfully …", diff=diff)) == [
        "● edit x.py  +2 -1",
        "  │  2 b",
        "  │  3 c",
        "  │ -4 d",
        "  │ +4 D",
        "  │ +5 E",
        "  │  5 f",
    ]


def test_what_was_written_is_shown_with_numbers() -> None:
    card = finished_card("write", {"path": "x.py", "content": "one\n\nthree\n"}, "Successfully wrote to x.py")
    assert paint_lines(card) == ["● write x.py  3 lines", "  │ 1 one", "  │ 2", "  │ 3 three"]


@pytest.mark.parametrize(
    ("args", "output", "note"),
    [
        ({}, "a\nb\n", "2 lines"),
        ({"offset": 10}, "a\nb\n", "lines 10-11"),
        ({"limit": 2}, "a\nb\n\n[7 more lines in file. Use offset=3 to continue.]", "lines 1-2"),
        ({}, "Read image file [image/png]", "image/png"),
        ({}, "", "0 lines"),
    ],
)
def test_of_what_was_read_only_the_range_is_shown(args: dict[str, object], output: str, note: str) -> None:
    assert paint_lines(finished_card("read", {"path": "x", **args}, output)) == [f"● read x  {note}"]


def test_a_thought_is_folded_to_a_line_that_begins_with_its_words() -> None:
    thought = ThinkingText("First I look\nat the files. Then I change one of them.", 4.0)
    assert paint_lines(thought, 40) == ["✻ Thought for 4.0 s: First I look at th…"]
    assert paint_lines(thought, 40, show_thinking=True) == [
        "✻ Thought for 4.0 s",
        "  First I look",
        "  at the files. Then I change one of",
        "  them.",
    ]


def test_code_is_not_indented_and_a_full_line_loses_nothing() -> None:
    code = "def f():\n    return 'a long line that does not fit'"
    lines = Painter("standard").paint(AnswerText(f"```python\n{code}\n```"), 30)
    plain = OWN_SEQUENCE.sub("", lines).removesuffix("\n\n")
    assert plain.replace("\n", "") == code.replace("\n", "")
    assert plain.startswith("def f():\n    return")


def test_headings_lists_and_quotes_stand_on_the_left_with_one_blank_line_between_them() -> None:
    text = "# Title\n\n\n\nText\n- a\n  - b\n\n\n3. c\n4. d\n\n> quote\n\n---"
    assert paint_lines(AnswerText(text), ascii_only=True) == [
        *("# Title", "", "Text", "", "- a", "  - b", "", "3. c", "4. d", "", "> quote", "", "-" * 20),
    ]


def test_a_table_that_fits_is_aligned_and_one_that_does_not_becomes_a_list_of_rows() -> None:
    table = AnswerText("| name | count |\n|---|--:|\n| 日本 | 5 |\n| a name | 12,345 |")
    assert paint_lines(table, 30) == ["name     count", "──────  ──────", "日本         5", "a name  12,345"]
    wide = AnswerText("| a | b | c |\n|---|---|---|\n| one two three four | five six seven | eight nine ten |")
    assert paint_lines(wide, 24) == ["a: one two three four", "b: five six seven", "c: eight nine ten"]


def test_signs_of_other_scripts_stay_and_invisible_ones_go() -> None:
    assert paint_lines(
        Notice("a\u00a0b \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 ❤\ufe0f 👩\u200d💻 \u202eabc")
    ) == ["· a b \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 ❤ 👩💻 \ufffdabc"]


def test_styles_are_those_of_the_terminal_itself() -> None:
    painter = Painter("256")
    assert painter.paint(ThinkingText("Hm", None), 60) == "\x1b[2m✻ Thought: Hm\x1b[0m\n\n"
    assert painter.paint(Notice("No", "error"), 60) == "\x1b[31m✗ \x1b[0m\x1b[31mNo\x1b[0m\n\n"
    assert painter.paint(AnswerText("a `b` **c**"), 60) == "a \x1b[36mb\x1b[0m \x1b[1mc\x1b[0m\n\n"
    assert painter.paint(AnswerText("# a"), 60) == "\x1b[1;4ma\x1b[0m\n\n"


def test_code_that_grows_does_not_wait_for_its_colours() -> None:
    painter = Painter("256")
    code = "```zig\nconst a = 1;"
    first = painter.paint_live_markdown(code, 80)
    assert "const a = 1;" in first
    assert "\x1b[" not in first
    more = count()

    def is_coloured() -> bool:
        # What has not changed is not painted again.
        return "\x1b[" in painter.paint_live_markdown(f"{code}\nconst b = {next(more)};", 80)

    assert eventually(is_coloured)
