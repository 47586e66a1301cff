"""Code, changes and output of commands on a page."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.export.diff_html import count_changed_lines, diff_html, lines_of_change, lines_of_listing, lines_of_patch
from pigeon.export.escaping import to_plain_text
from pigeon.export.highlight import _ENDINGS as LANGUAGES
from pigeon.export.highlight import LONGEST_CODE, LONGEST_LINE, find_language, highlight_code, language_of
from pigeon.export.markdown import TextFormatter
from pigeon.export.terminal import terminal_html
from pigeon.system.shell.terminal_text import apply_overwrites
from support.browser import PageReader

CODES = st.text(st.sampled_from("aif \n\t\"'#/*<>&(){}[]=+-\\0$`:;") | st.characters(), max_size=80)


def text_of(html: str) -> str:
    made = PageReader(f"<html><body><pre>x{html}</pre></body></html>")
    assert made.faults == []
    return made.text[1:]


@pytest.mark.parametrize(
    ("name", "language"),
    [("py", "python"), ("Python", "python"), ("c++", "cpp"), ("sh", "bash"), ("klingon", ""), ("", "")],
)
def test_a_fence_names_its_language_in_the_usual_ways(name: str, language: str) -> None:
    assert find_language(name) == language


@pytest.mark.parametrize(
    ("path", "language"),
    [("src/a.py", "python"), ("/x/Makefile", "make"), ("a.tsx", "typescript"), ("Dockerfile", "docker"), ("a", "")],
)
def test_a_file_has_the_language_of_its_name(path: str, language: str) -> None:
    assert language_of(path) == language


def test_code_in_an_answer_is_coloured_by_classes_alone() -> None:
    made = TextFormatter().format_prose('```python\ndef f(): return "<b>"  # why\n```')
    for piece in ('<span class="k">def </span>', '<span class="f">f</span>', "&lt;b&gt;", '<span class="c"># why'):
        assert piece in made
    assert "style=" not in made


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_language_has_its_lexer(language: str) -> None:
    assert highlight_code("x = 1\n", language) is not None


@given(CODES, st.sampled_from(sorted(LANGUAGES)))
def test_coloured_code_is_the_whole_code_and_nothing_else(code: str, language: str) -> None:
    made = highlight_code(code, language)
    assert made is None or text_of(made) == to_plain_text(code)


def test_long_texts_and_long_lines_stay_plain() -> None:
    assert highlight_code("x = 1\n" * (LONGEST_CODE // 6) + "\n" * (LONGEST_CODE % 6), "python") is not None
    assert highlight_code("x = 1\n" * (LONGEST_CODE // 6 + 1), "python") is None
    assert highlight_code("x" * LONGEST_LINE, "python") is not None
    assert highlight_code("x" * (LONGEST_LINE + 1), "python") is None


def test_a_page_colours_and_formats_only_so_much_and_counts_the_rest() -> None:
    formatter = TextFormatter(most_prose=30, most_code=30)
    assert "<span" in formatter.format_code("x = 1", "python")
    assert "<span" not in formatter.format_code("y = 1" * 9, "python")
    assert "<strong>" in formatter.format_prose("**bold**")
    assert formatter.format_prose("**bold** " * 9) == f'<pre class="text">{"**bold** " * 9}</pre>'
    assert formatter.left_plain == 2


@given(st.text(st.sampled_from("ab .,!-+=1)\n\t\u2028 \x0b\r"), max_size=40))
def test_text_without_markup_is_what_the_formatter_would_have_made_of_it(text: str) -> None:
    quick = TextFormatter().format_prose(text)
    slow = TextFormatter().format_prose(f"{text}\n\n*x*").replace("<p><em>x</em></p>", "")
    if "<p" in quick and "<pre" not in quick:
        assert re.sub(r"\s+", " ", quick).strip() == re.sub(r"\s+", " ", slow).strip()


# --- changes ----------------------------------------------------------------------------------------------------------

PATCH = "--- a\n+++ a\n@@ -7,3 +7,4 @@\n same\n-old <word> here\n+new <word> here\n+more\n same too\n"


def test_a_patch_is_read_with_the_numbers_of_its_lines() -> None:
    lines = lines_of_patch(PATCH)
    assert [(line.sign, line.old, line.new) for line in lines] == [
        ("@", "", ""), (" ", "7", "7"), ("-", "8", ""), ("+", "", "8"), ("+", "", "9"), (" ", "9", "10"),
    ]  # fmt: skip
    assert count_changed_lines(lines) == (2, 1)


def test_a_listing_is_read_alike() -> None:
    lines = lines_of_listing("    ...\n  9 a\n-10 b\n+10 c\n+11 d\n 11 e")
    assert [(line.sign, line.text, line.old, line.new) for line in lines] == [
        ("@", "", "", ""), (" ", "a", "9", "9"), ("-", "b", "10", ""), ("+", "c", "", "10"), ("+", "d", "", "11"),
        (" ", "e", "11", "12"),
    ]  # fmt: skip


def test_the_words_that_differ_are_marked() -> None:
    made = diff_html(lines_of_patch(PATCH))
    assert '<del data-n="8"><b>old</b> &lt;word&gt; here</del>' in made
    assert '<ins data-n="8"><b>new</b> &lt;word&gt; here</ins>' in made
    assert "<b>" not in diff_html(lines_of_patch(PATCH), lambda amount: False)


def test_an_edit_without_a_result_shows_what_was_asked_for() -> None:
    lines = lines_of_change("a\nb\nc", "a\nx\nc")
    assert [line.sign + line.text for line in lines] == [" a", "-b", "+x", " c"]


@given(st.text(st.sampled_from("ab <>&\n+- @\\1,")), st.text(st.sampled_from("ab <>&\n")))
def test_any_change_is_harmless_and_complete(old: str, new: str) -> None:
    for lines in (lines_of_change(old, new), lines_of_patch(old), lines_of_listing(old)):
        made = PageReader(f"<html><body>{diff_html(lines)}</body></html>")
        assert made.faults == []
        for line in lines:
            assert line.text in made.text


# --- terminals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m <x>", '<span class="t-bold fg1">red</span> &lt;x&gt;'),
        ("\x1b[38;5;9mred\x1b[39m", '<span class="fg9">red</span>'),
        ("\x1b[48;2;0;0;0mdark", '<span class="bg0">dark</span>'),
        ("\x1b[38;5;244mgrey", '<span class="fg8">grey</span>'),
        ("\x1b[2J\x1b[Hclear", "clear"),
        ("10%\r50%\r100%\ndone\r\n", "100%\ndone\n"),
        ("\x1b[38mcut \x1b[38;5mshort", "cut short"),
    ],
)
def test_output_is_shown_as_a_terminal_shows_it(text: str, shown: str) -> None:
    assert terminal_html(text) == shown


def test_a_key_with_a_colour_inside_is_masked_all_the_same() -> None:
    made = terminal_html("key: se\x1b[31mcret\x1b[0m", lambda text: text.replace("secret", "***"))
    assert made == "key: ***"


@given(st.text(st.sampled_from("\x1b[]m;:0134589\r\nab<\x07\\H"), max_size=60))
def test_any_output_is_harmless_and_complete(text: str) -> None:
    assert text_of(terminal_html(text)) == to_plain_text(apply_overwrites(text))


@pytest.mark.parametrize("reset", ["\x1b[m", "\x1b[0m", "\x1b[;m"])
def test_colours_of_a_terminal_end_where_they_are_reset(reset: str) -> None:
    shown = terminal_html(f"\x1b[1mbold{reset} plain")
    assert "t-bold" in shown
    assert shown.endswith(" plain")
