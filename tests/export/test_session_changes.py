"""What a session has changed in files: single changes put together, whatever is known of a file."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pigeon.export.diff_html import lines_of_patch
from pigeon.export.markdown import TextFormatter
from pigeon.export.session_changes import FileNames, find_file_entries, list_changed_files
from pigeon.tools.editing.diff import compare_texts
from pigeon.wire.commands.changes import ChangedFile
from pigeon.wire.content import ToolCall
from support.sessions import ItemLine, assistant_entry, tool_result_entry

NAMES = FileNames("/work", "/home/me")
TEXTS = st.lists(st.sampled_from(["", "a", "b", "  c", "@@", "-d"]), max_size=30)


class Talk:
    """A branch in which each answer calls one tool."""

    def __init__(self) -> None:
        self.lines: list[ItemLine] = []

    def call(self, name: str, arguments: dict[str, Any], text: str = "", failed: bool = False, **details: Any) -> None:
        id = str(len(self.lines))
        for item in (
            assistant_entry(ToolCall(id=id, name=name, arguments=arguments)),
            tool_result_entry(id, text, failed, details or None),
        ):
            self.lines.append(ItemLine(item, len(self.lines), None))

    def edit(self, old: str, new: str, path: str = "f") -> None:
        self.call("edit", {"path": path, "edits": []}, patch=compare_texts(old, new, path).patch)

    def write(self, new: str, path: str = "f") -> None:
        self.call("write", {"path": path, "content": new})

    def files(self, path: str | None = None) -> list[ChangedFile]:
        needed = find_file_entries(self.lines, NAMES)
        return list_changed_files([line for line in self.lines if line.id in needed], NAMES, path, None)

    def diffs(self, path: str = "f") -> list[str]:
        (file,) = self.files(path)
        assert isinstance(file.diffs, list)
        return file.diffs


def text_of(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def apply_patch(lines: list[str], patch: str) -> list[str]:
    """What becomes of lines; those that a patch names must be there."""
    made, place = [], 0
    for line in lines_of_patch(patch):
        if line.sign in " -":
            at = int(line.old) - 1
            made += lines[place:at]
            assert lines[at] == line.text
            place = at + 1
        elif line.sign == "+":
            made += lines[place : place + int(line.new) - 1 - len(made)]
            place += int(line.new) - 1 - len(made) if int(line.new) - 1 > len(made) else 0
        if line.sign in " +":
            assert len(made) == int(line.new) - 1
            made.append(line.text)
    return made + lines[place:]


@given(TEXTS, st.lists(st.tuples(TEXTS, st.booleans()), min_size=1, max_size=6))
def test_many_changes_are_put_together_to_the_one_from_the_first_text_to_the_last(
    first: list[str], steps: list[tuple[list[str], bool]]
) -> None:
    talk = Talk()
    known, now = False, first
    for new, reads in steps:
        if reads:
            known = True
            talk.call("read", {"path": "f"}, text_of(now))
        talk.edit(text_of(now), text_of(new))
        now = new
    if known:
        now = ["written", *now[1:]]
        talk.write(text_of(now))
    if not talk.files():
        assert not known
        assert now == first
        return
    diffs = talk.diffs()
    assert len(diffs) <= 1
    assert apply_patch(first, diffs[0] if diffs else "") == now
    (file,) = talk.files()
    assert (file.added - file.removed, file.whole) == (len(now) - len(first), False)


def test_what_was_changed_back_leaves_no_lines() -> None:
    talk = Talk()
    talk.edit("a\nb\nc\n", "a\nX\nc\n")
    talk.edit("a\nX\nc\n", "a\nb\nc\n")
    assert talk.diffs() == []
    assert [(file.path, file.added, file.removed) for file in talk.files()] == [("f", 0, 0)]


def test_a_change_that_does_not_fit_the_last_one_begins_another_diff() -> None:
    talk = Talk()
    talk.edit("a\nb\nc\n", "a\nX\nc\n")
    talk.edit("a\nsomething\nelse\n", "a\nsomething\nnew\n")
    first, second = talk.diffs()
    assert "+X" in first
    assert "-else\n+new" in second


def test_a_file_that_was_written_over_is_compared_with_what_was_read_of_it() -> None:
    talk = Talk()
    talk.call("read", {"path": "/work/f"}, "a\nb\nc\n")
    talk.write("a\nB\nc\n", "./f")
    assert [(file.path, file.added, file.removed, file.whole) for file in talk.files()] == [("f", 1, 1, False)]
    talk.call("read", {"path": "part"}, "x\n\n[7 more lines in file. Use offset=2 to continue.]")
    talk.write("1\n2\n", "part")
    talk.edit("1\n2\n", "1\n3\n", "part")
    (file,) = talk.files("/work/part")
    assert (file.added, file.removed, file.whole) == (2, 0, True)
    assert file.diffs == ["--- part\n+++ part\n@@ -0,0 +1,2 @@\n+1\n+3\n"]


def test_only_what_was_done_to_files_counts() -> None:
    talk = Talk()
    talk.call("read", {"path": "only read"}, "a\n")
    talk.call("edit", {"path": "failed"}, "no such text", failed=True, patch=compare_texts("a\n", "b\n", "x").patch)
    talk.call("bash", {"command": "sed -i s/a/b/ f"})
    talk.call("replace", {"file": "/elsewhere/by an extension"}, diff="-1 a\n+1 b")
    talk.call("edit", {"path": "~/unnumbered", "oldText": "a\nb", "newText": "a\nc"})
    talk.write("x\n", "z inside")
    files = talk.files()
    assert [(file.path, file.added, file.removed) for file in files] == [
        ("z inside", 1, 0),
        ("/elsewhere/by an extension", 1, 1),
        ("/home/me/unnumbered", 1, 1),
    ]
    assert files[1].entry_id == talk.lines[6].id
    (html,) = list_changed_files(talk.lines, NAMES, "~/unnumbered", TextFormatter())[0].diffs or [""]
    assert "<ins" in html
    assert talk.files("only read") == []


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_places_that_cannot_be_cost_nothing(old: int, new: int) -> None:
    talk = Talk()
    for _ in range(2):
        talk.call("edit", {"path": "f"}, patch=f"@@ -{old},1 +{new},1 @@\n-a\n+b\n@@ -{new},0 +{old},1 @@\n+c\n")
    for file in talk.files("f"):
        assert all(len(diff) < 1000 for diff in file.diffs or ["none"])
