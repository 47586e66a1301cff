from __future__ import annotations

import pytest

from pigeon.tools.editing.replacing import edit_content
from pigeon.wire.errors import ToolFailed


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        ("foo   \nbar   \nrest  \n", "foo\nbar", "foo\nbaz", "foo   \nbaz\nrest  \n"),
        ("x   \r\ny\t\r\nz  \r\n", "x\ny\n", "x\nq\n", "x   \r\nq\r\nz  \r\n"),
        ("\ufeffq = \u2018a\u2019 \t\nnext  \n", "q = 'a'", "q = 'b'", "\ufeffq = 'b'\nnext  \n"),
        ("q = \u2018a\u2019  ", "q = 'a'", "q = 'b'", "q = 'b'"),
        ("a\t\n", "a  ", "a", "a\n"),
        ("a  \nb  \nc\n", "a\nb", "a\nX\nb", "a  \nX\nb  \nc\n"),
        ("a  \n\nb  \n", "a\n\nb", "c\n\nb", "c\n\nb  \n"),
        ("say “hi”  there  \n", 'say "hi"', "say yes", "say yes  there  \n"),
    ],
)
def test_blanks_at_the_end_of_a_line_go_with_the_line_that_is_replaced(
    before: str, old: str, new: str, after: str
) -> None:
    data, _ = edit_content(before.encode(), [{"oldText": old, "newText": new}], "f")
    assert data.decode() == after


def test_an_edit_may_not_begin_in_the_blanks_of_a_line_that_another_one_replaces() -> None:
    edits = [{"oldText": "q = 'a'", "newText": "q"}, {"oldText": "  \nnext", "newText": "x"}]
    with pytest.raises(ToolFailed, match="overlap"):
        edit_content("q = \u2018a\u2019  \nnext\n".encode(), edits, "f")
