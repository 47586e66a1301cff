"""The branches of a session on its page: the active one, the others, and bookmarks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pigeon.export.html import SessionPage
from pigeon.export.markdown import TextFormatter
from pigeon.export.tree import branches_of
from pigeon.wire.entries import LabelEntry, SessionInfo
from support.browser import PageReader
from support.sessions import BEGAN, HEADER, ItemLine, assistant_entry, stats, user_entry

BASE = {"id": "x", "parent_id": None, "timestamp": BEGAN}


def lines_of(*rows: tuple[object, int | None]) -> list[ItemLine]:
    return [ItemLine(item, number, parent) for number, (item, parent) in enumerate(rows)]


def render_tree(lines: list[ItemLine], active: list[int]) -> str:
    page = SessionPage(HEADER, lines, [f"id{number}" for number in active], stats())
    made = "".join(page.render_pieces(TextFormatter()))
    assert PageReader(made).faults == []
    return made


FORKED = (
    (user_entry("first"), None),
    (assistant_entry("one"), 0),
    (user_entry("this way"), 1),
    (assistant_entry("leftward"), 2),
    (user_entry("that way"), 1),
    (assistant_entry("rightward"), 4),
    (user_entry("and on"), 3),
)


def test_a_branch_that_was_left_stands_behind_the_active_one_and_is_linked_where_it_leaves() -> None:
    made = render_tree(lines_of(*FORKED), [0, 1, 4, 5])
    talk, other = made.split("<h2>Other branches</h2>\n")
    assert "rightward" in talk
    assert "leftward" not in talk
    assert [text in other for text in ("this way", "leftward", "and on")] == [True] * 3
    behind = talk.partition('id="m1"')[2].partition("</article>\n")[2]
    assert behind.startswith('<p class="forks">Another branch leaves here: <a href="#b1">this way</a></p>')
    assert 'id="b1"' in other
    assert '<a href="#m1">here</a>' in other


def test_a_branch_goes_on_with_the_first_entry_that_hangs_on_its_last() -> None:
    rows = [*FORKED, (user_entry("or so"), 3)]
    branches = branches_of(lines_of(*rows), ["id0", "id1", "id4", "id5"])
    assert [(one.leaves, one.entries) for one in branches[1:]] == [(1, [2, 3, 6]), (3, [7])]


def test_what_says_nothing_is_no_branch() -> None:
    rows = [
        (user_entry("first"), None),
        (assistant_entry("one"), 0),
        (SessionInfo(**BASE, name="n"), 0),
        (user_entry("more"), 1),
    ]
    assert len(branches_of(lines_of(*rows), ["id0", "id1", "id3"])) == 1


def test_bookmarks_are_shown_at_their_entry_and_in_the_contents_and_go_when_they_are_taken_away() -> None:
    rows: list[tuple[object, int | None]] = [(user_entry("first"), None), (assistant_entry("one"), 0)]
    rows[0][0].id, rows[1][0].id = "id0", "id1"  # type: ignore[attr-defined]
    rows += [(LabelEntry(**BASE, target_id=f"id{number}", label=f"mark <{number}>"), 1) for number in (0, 1)]
    made = render_tree(lines_of(*rows), [0, 1])
    assert made.count('<span class="bookmark">mark &lt;0&gt;</span>') == 2
    assert made.count('<span class="bookmark">mark &lt;1&gt;</span>') == 2
    made = render_tree(lines_of(*rows, (LabelEntry(**BASE, target_id="id1"), 1)), [0, 1])
    assert "mark &lt;1&gt;" not in made


def test_a_tree_of_twenty_thousand_branches_inside_each_other_is_no_deeper_than_a_page() -> None:
    rows = [(user_entry("root"), None), *((user_entry(f"n{number}"), number // 2) for number in range(1, 20_000))]
    branches = branches_of(lines_of(*rows), ["id0"])
    assert sum(len(one.entries) for one in branches) == 20_000
    assert len(branches) > 9_000


@given(st.lists(st.none() | st.integers(0, 12), max_size=12), st.lists(st.integers(0, 12), max_size=4, unique=True))
def test_whatever_a_file_says_every_entry_is_shown_once(parents: list[int | None], active: list[int]) -> None:
    rows = [(user_entry(f"entry {number}."), parent) for number, parent in enumerate(parents)]
    chosen = sorted(number for number in active if number < len(rows))
    branches = branches_of(lines_of(*rows), [f"id{number}" for number in chosen])
    assert sorted(number for one in branches for number in one.entries) == list(range(len(rows)))
    made = render_tree(lines_of(*rows), chosen)
    assert [made.count(f'id="m{number}"') for number in range(len(rows))] == [1] * len(rows)
