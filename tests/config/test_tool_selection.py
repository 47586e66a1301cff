"""Lists of tools: names, patterns and changes, from options and settings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.config.tool_selection import (
    is_match,
    join_tool_lists,
    parse_option_selection,
    read_tool_names,
    selection_of,
)
from pigeon.wire.errors import StartupError

KNOWN = ["read", "bash", "edit", "write", "grep", "find", "ls"]
DEFAULT = KNOWN[:4]


def select_tools(entries: list[str]) -> list[str]:
    selection = selection_of(entries)
    return selection.apply_changes(selection.select_named(DEFAULT, KNOWN), KNOWN)


@pytest.mark.parametrize(
    ("entries", "active"),
    [
        (["read"], ["read"]),
        (["+grep"], [*DEFAULT, "grep"]),
        (["-bash", "+ls"], ["read", "edit", "write", "ls"]),
        (["read", "+grep", "-read"], ["grep"]),
        (["+ls", "read"], ["read", "ls"]),
        (["-bash", "+bash"], ["read", "edit", "write", "bash"]),
        (["ls", "read", "ls"], ["ls", "read"]),
        (["read", "gr*"], ["read", "grep"]),
        (["*"], KNOWN),
        (["*r*e*"], ["read", "write", "grep"]),
        ([], []),
        (["nosuch"], []),
        (["READ"], []),
        (["?ead"], []),
        (["[r]ead"], []),
        ([""], []),
        (["+"], DEFAULT),
        (["-"], DEFAULT),
        (["+nosuch", "+ls"], [*DEFAULT, "ls"]),
        (["++ls"], DEFAULT),
        (["+codemode"], DEFAULT),
    ],
)
def test_names_come_first_and_changes_in_their_order(entries: list[str], active: list[str]) -> None:
    assert select_tools(entries) == active


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        (["read", "+ls"], "-t: tool names cannot be mixed with +name or -name entries"),
        (["*", "-bash"], "-t: tool names cannot be mixed with +name or -name entries"),
        (["+g*"], "-t: +name and -name entries take exact tool names, not patterns: +g*"),
        (["+ls", "-g*"], "-t: +name and -name entries take exact tool names, not patterns: -g*"),
    ],
)
def test_an_option_has_either_names_or_changes(entries: list[str], problem: str) -> None:
    with pytest.raises(StartupError) as refused:
        parse_option_selection(entries, "-t")
    assert str(refused.value) == problem


@pytest.mark.parametrize(
    ("users", "projects", "together"),
    [
        (["read", "bash"], ["+ls", "-bash"], ["read", "bash", "+ls", "-bash"]),
        (["read", "bash"], ["write", "+ls"], ["write", "+ls"]),
        (["read", "bash"], [], ["read", "bash"]),
        (["+grep"], ["read"], ["read"]),
    ],
)
def test_changes_of_a_project_add_to_the_users_list(users: list[str], projects: list[str], together: list[str]) -> None:
    assert join_tool_lists(users, projects) == together


@pytest.mark.parametrize("value", ["read", None, {}, 5])
def test_what_is_no_list_names_no_tool_and_is_reported(value: Any) -> None:
    reported: list[str] = []
    assert select_tools(read_tool_names(value, reported.append)) == []
    assert len(reported) == 1


def test_entries_that_are_no_names_are_left_out_and_reported() -> None:
    reported: list[str] = []
    assert select_tools(read_tool_names([1, "+ls"], reported.append)) == [*DEFAULT, "ls"]
    assert len(reported) == 1


def test_what_names_no_tool_is_told_as_it_was_written() -> None:
    assert selection_of(["read", "gr*", "x*", "nosuch"]).find_unknown(KNOWN) == ["x*", "nosuch"]
    assert selection_of(["+codemode", "-ls", "+"]).find_unknown(KNOWN) == ["+codemode"]


@given(st.text(max_size=8), st.text(max_size=8), st.text(max_size=8))
def test_a_wildcard_stands_for_any_characters(before: str, between: str, behind: str) -> None:
    assert is_match(
        "*".join(part.replace("*", "") for part in (before, behind)), f"{before}{between}{behind}".replace("*", "")
    )


@given(st.lists(st.text(alphabet="+-*rels ", max_size=5), max_size=6))
def test_no_list_makes_a_tool_active_that_does_not_exist_or_twice(entries: list[str]) -> None:
    active = select_tools(entries)
    assert set(active) <= set(KNOWN)
    assert len(active) == len(set(active))
