from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fakes.tool_run import FakeRun, call_for_failure, call_for_text, call_tool, paths_in
from pigeon.tools.edit import EditTool
from pigeon.tools.editing.replacing import edit_content
from pigeon.wire.errors import Aborted, ToolFailed


@pytest.fixture
def edit(tmp_path: Path) -> EditTool:
    return EditTool(paths_in(tmp_path))


def replace_pairs(data: bytes, *pairs: tuple[str, str]) -> bytes:
    return edit_content(data, [{"oldText": old, "newText": new} for old, new in pairs], "f")[0]


async def test_the_result_says_how_many_blocks_and_shows_the_difference(edit: EditTool, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("# demo\nprint('one')\nprint('end')\n")
    outcome = await call_tool(edit, path="code.py", edits=[{"oldText": "print('one')", "newText": "print('two')"}])
    assert outcome.content[0].text == "Successfully replaced 1 block(s) in code.py."
    assert outcome.details == {
        "diff": " 1 # demo\n-2 print('one')\n+2 print('two')\n 3 print('end')",
        "firstChangedLine": 2,
        "patch": "--- code.py\n+++ code.py\n@@ -1,3 +1,3 @@\n # demo\n-print('one')\n+print('two')\n print('end')\n",
    }
    assert (tmp_path / "code.py").read_text() == "# demo\nprint('two')\nprint('end')\n"


@pytest.mark.parametrize(
    "arguments",
    [
        {"edits": [{"oldText": "a", "newText": "b"}]},
        {"edits": {"oldText": "a", "newText": "b"}},
        {"edits": '[{"oldText": "a", "newText": "b"}]'},
        {"oldText": "a", "newText": "b"},
    ],
)
async def test_older_and_sloppy_argument_forms_are_understood(
    edit: EditTool, tmp_path: Path, arguments: dict[str, object]
) -> None:
    (tmp_path / "x").write_text("a")
    await call_tool(edit, path="x", **arguments)
    assert (tmp_path / "x").read_text() == "b"


async def test_edits_that_are_a_text_but_no_json_are_refused_and_the_file_stays(edit: EditTool, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a")
    for wrong in ('[{"oldText": "a",', "replace a by b", "[]", "7"):
        failure = await call_for_failure(edit, path="x", edits=wrong)
        assert "edits" in failure.text
        assert (tmp_path / "x").read_text() == "a"


async def test_a_top_level_edit_is_one_more(edit: EditTool, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a c")
    shown = await call_for_text(edit, path="x", edits=[{"oldText": "a", "newText": "b"}], oldText="c", newText="d")
    assert shown == "Successfully replaced 2 block(s) in x."
    assert (tmp_path / "x").read_text() == "b d"


async def test_errors_name_the_path_and_the_edit(edit: EditTool, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("one two two\n")
    assert (await call_for_failure(edit, path="x", oldText="three", newText="")).text == (
        "Could not find the exact text in x. The old text must match exactly including all whitespace and newlines."
    )
    assert (await call_for_failure(edit, path="x", oldText="two", newText="")).text.startswith(
        "Found 2 occurrences of oldText in x."
    )
    assert "must not be empty in x" in (await call_for_failure(edit, path="x", oldText="", newText="y")).text
    assert "No changes made to x" in (await call_for_failure(edit, path="x", oldText="one", newText="one")).text
    several = [{"oldText": "one", "newText": "1"}, {"oldText": "nine", "newText": "9"}]
    assert "edits[1].oldText in x" in (await call_for_failure(edit, path="x", edits=several)).text
    overlapping = [{"oldText": "one two", "newText": "1"}, {"oldText": "two two", "newText": "2"}]
    assert "edits[0] and edits[1] overlap in x" in (await call_for_failure(edit, path="x", edits=overlapping)).text
    assert (tmp_path / "x").read_text() == "one two two\n"


async def test_what_cannot_be_edited_is_an_error_with_its_code(edit: EditTool, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert (await call_for_failure(edit, path="gone", oldText="a", newText="b")).text == (
        "Could not edit file: gone. Error code: ENOENT."
    )
    assert "EISDIR" in (await call_for_failure(edit, path=".", oldText="a", newText="b")).text
    assert (await call_for_failure(edit, path="pipe", oldText="a", newText="b")).text == (
        f"Could not edit file: pipe. Not a regular file: {tmp_path}/pipe is a named pipe"
    )


async def test_an_aborted_edit_changes_nothing(edit: EditTool, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a")
    run = FakeRun()
    run.scope.cancel()
    with pytest.raises(Aborted):
        await call_tool(edit, run, path="x", oldText="a", newText="b")
    assert (tmp_path / "x").read_text() == "a"


async def test_the_mode_stays(edit: EditTool, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a")
    (tmp_path / "x").chmod(0o711)
    await call_tool(edit, path="x", oldText="a", newText="b")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o711


def test_all_edits_are_found_in_the_file_as_it_was() -> None:
    assert replace_pairs(b"a b", ("a", "b"), ("b", "a")) == b"b a"
    assert replace_pairs(b"ab", ("a", "1"), ("b", "2")) == b"12"


def test_byte_order_mark_and_foreign_bytes_stay() -> None:
    assert replace_pairs(b"\xef\xbb\xbfcaf\xe9 one\n", ("one", "two")) == b"\xef\xbb\xbfcaf\xe9 two\n"


def test_line_ends_stay_and_new_lines_end_as_their_neighbours() -> None:
    assert replace_pairs(b"a\r\nb\nc\r\n", ("b", "B")) == b"a\r\nB\nc\r\n"
    assert replace_pairs(b"a\r\nb\r\nc\r\n", ("a\nb", "a\nx\nb")) == b"a\r\nx\r\nb\r\nc\r\n"
    assert replace_pairs(b"a\nb\r\nc", ("a\nb\nc", "a\nB\nc")) == b"a\nB\r\nc"
    assert replace_pairs(b"x\n", ("x", "y\r\nz")) == b"y\nz\n"
    assert replace_pairs(b"one\rtwo\r", ("one\ntwo", "one\n2")) == b"one\r2\r"


def test_lone_carriage_returns_do_not_make_the_line_ends_of_a_file_that_has_others() -> None:
    assert replace_pairs(b"bar 10%\r20%\nfoo\n", ("bar", "title\nbar")) == b"title\nbar 10%\r20%\nfoo\n"
    assert replace_pairs(b"bar 10%\r20%\r\nfoo\r\n", ("bar", "title\nbar")) == b"title\r\nbar 10%\r20%\r\nfoo\r\n"
    assert replace_pairs(b"one\rtwo\r", ("two", "2\n3")) == b"one\r2\r3\r"


def test_a_new_line_behind_a_lone_carriage_return_is_a_line_of_its_own() -> None:
    assert replace_pairs(b"10%\r20%\nend\n", ("20%", "\n20%")) == b"10%\r\r\n20%\nend\n"
    assert replace_pairs(b"10%\rab\nend\n", ("a", "\nA"), ("b", "\nB")) == b"10%\r\r\nA\nB\nend\n"


def test_shared_lines_of_old_and_new_keep_their_own_bytes() -> None:
    assert replace_pairs("say “hi”  \nold\nbye\n".encode(), ('say "hi"\nold\n', 'say "hi"\nnew\n')) == (
        "say “hi”  \nnew\nbye\n".encode()
    )


def test_look_alikes_are_found_when_nothing_is_equal() -> None:
    assert replace_pairs("a “quoted” \u2013 word\n".encode(), ('"quoted" - word', "plain")) == b"a plain\n"
    assert replace_pairs("non\u00a0breaking   \nnext\n".encode(), ("non breaking\nnext", "x")) == b"x\n"
    assert replace_pairs("e\u0301clair\n".encode(), ("\u00e9clair", "cake")) == b"cake\n"


@pytest.mark.parametrize("content", ["if abc:\n", "total = value_old\n"])
def test_a_space_at_the_end_is_not_overlooked_within_a_word(content: str) -> None:
    old = "if a " if content.startswith("if") else "total = value "
    with pytest.raises(ToolFailed):
        replace_pairs(content.encode(), (old, "x "))
    assert replace_pairs(b"if a\n", ("if a ", "if b")) == b"if b\n"


def test_a_match_within_a_ligature_keeps_the_other_half() -> None:
    assert replace_pairs("\ufb01ne\n".encode(), ("ine", "INE")) == b"fINE\n"


def test_equal_text_counts_before_look_alikes() -> None:
    assert replace_pairs('say "hi"\nsay “hi”\n'.encode(), ('say "hi"', "bye")) == "bye\nsay “hi”\n".encode()


def test_two_look_alikes_are_one_too_many() -> None:
    with pytest.raises(ToolFailed, match="Found 2 occurrences"):
        replace_pairs("\u2018a\u2019 “a”\n\u2018a\u2019 “a”\n".encode(), ("'a' \"a\"", "b"))


def test_overlapping_occurrences_are_not_unique() -> None:
    with pytest.raises(ToolFailed, match="Found 2 occurrences"):
        replace_pairs(b"aaa", ("aa", "b"))


def test_text_that_no_file_can_hold_is_replaced() -> None:
    assert replace_pairs(b"a", ("a", "\ud800")) == "\ufffd".encode()
    with pytest.raises(ToolFailed):
        replace_pairs(b"\xe9", ("\udce9", "e"))


def test_a_number_that_was_not_counted_to_its_end_is_a_least_number() -> None:
    with pytest.raises(ToolFailed, match="Found at least 1000 occurrences"):
        replace_pairs(b"a" * 5000, ("a", "b"))
    with pytest.raises(ToolFailed, match="Found 999 occurrences"):
        replace_pairs(b"a" * 999, ("a", "b"))


@pytest.mark.parametrize("line", ["line {}", "same"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_edits_that_are_far_apart_are_shown_apart_however_big_they_are(line: str, end: str) -> None:
    lines = [line.format(n) for n in range(3000)]
    lines[10] = "ten"
    lines[2600:2810] = [f"old {n}" for n in range(210)]
    block = "\n".join(lines[2600:2810])
    pairs = [("ten\n", "TEN\nand\n"), (block, "\n".join(f"new {n}" for n in range(300)))]
    edits = [{"oldText": old, "newText": new} for old, new in pairs]
    _, changes = edit_content((end.join(lines) + end).encode(), edits, "f")
    shown = changes.listing.split("\n")
    assert sum(row[0] == "-" for row in shown) == 211
    assert sum(row[0] == "+" for row in shown) == 302
    assert changes.patch.count("@@ -") == 2


async def test_the_difference_of_one_huge_line_is_short(edit: EditTool, tmp_path: Path) -> None:
    (tmp_path / "min.js").write_text("var a=1;" + "x" * 3_000_000)
    outcome = await call_tool(edit, path="min.js", oldText="a=1", newText="a=2")
    assert len(outcome.details["diff"]) < 5000
    assert "patch" not in outcome.details


async def test_the_error_of_a_failed_write_in_place_says_that_the_old_content_is_there(
    edit: EditTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_text("a")
    os.link(tmp_path / "x", tmp_path / "y")

    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "posix_fallocate", no_space)
    assert (await call_for_failure(edit, path="x", oldText="a", newText="b" * 100_000)).text == (
        "Could not edit file: x. Error code: ENOSPC. The file still has its old content."
    )
    assert (tmp_path / "y").read_text() == "a"


def test_a_huge_change_does_not_take_long() -> None:
    old = "\n".join(f"{n}" for n in range(20_000))
    new = "\n".join(f"{n * 7 % 20_011}" for n in range(20_000))
    assert replace_pairs(old.encode(), (old, new)) == new.encode()


line_ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
odd_lines = st.sampled_from(
    [
        b"plain",
        b"caf\xe9",
        b"\xff\xfe\0",
        "“curly” \u2013 dash".encode(),
        b"trailing  ",
        b"",
        "e\u0301\ufb01".encode(),
        b"\tx",
    ]
)
files = st.lists(st.tuples(odd_lines, line_ends), max_size=8).map(
    lambda rows: b"".join(line + end for line, end in rows)
)


@given(files, files, st.sampled_from([b"", b"\xef\xbb\xbf"]), st.text(max_size=30))
def test_bytes_that_no_edit_names_stay_the_same(before: bytes, after: bytes, mark: bytes, new: str) -> None:
    assume("TARGET" not in new)
    data = mark + before + b"<TARGET>" + after
    edited = replace_pairs(data, ("TARGET", new))
    assert edited.startswith(mark + before + b"<")
    assert edited.endswith(b">" + after)


@given(files, st.lists(st.sampled_from(["KEEP", "x", "y\nz", ""]), min_size=1, max_size=4), files)
def test_several_edits_leave_everything_between_them(before: bytes, news: list[str], between: bytes) -> None:
    data = before + b"".join(b"<T%d>" % n + between for n in range(len(news)))
    edited = replace_pairs(data, *((f"<T{n}>", f"[{new}]") for n, new in enumerate(news)))
    rest = edited
    for part in (before, *[between] * len(news)):
        assert rest.startswith(part)
        rest = rest[len(part) :]
        if rest:
            rest = rest[rest.index(b"]") + 1 :]
    assert rest == b""


@given(files.filter(bool), st.data())
def test_any_piece_of_a_valid_file_can_be_replaced(data: bytes, choice: st.DataObject) -> None:
    text = data.decode("utf-8", "ignore").replace("\r\n", "\n").replace("\r", "\n")
    assume(text)
    start = choice.draw(st.integers(0, len(text) - 1))
    end = choice.draw(st.integers(start + 1, len(text)))
    old = text[start:end]
    assume(sum(text.startswith(old, at) for at in range(len(text))) == 1)
    assert replace_pairs(text.encode(), (old, "NEW")) == (text[:start] + "NEW" + text[end:]).encode()


@given(files, files)
def test_edits_never_fail_but_with_a_reason(data: bytes, old: bytes) -> None:
    with contextlib.suppress(ToolFailed):
        edit_content(data, [{"oldText": old.decode("utf-8", "replace"), "newText": "NEW"}], "f")
