"""One name, one thing: over the whole package a class is found by its name, and no module is a drawer."""

from __future__ import annotations

import re

import pytest
from house_names import is_riddle, riddles, share_of_riddles, short_docstrings

from support.source_tree import ROOT, TREE, hold

MOST_RIDDLES = 1.5  # percent; respected projects have 0.0 to 1.3
VAGUE = {"utils", "util", "helpers", "common", "misc"}

# Class names that two modules may share, with the reason. `extensions/public` repeats names of the wire on purpose (an
# author of extensions knows the protocol) and is compared only with itself.
SHARED: dict[str, str] = {
    "Workspace": "that of a task of a batch names folders and revisions, and was there first",
}


def test_a_class_name_exists_once() -> None:
    hold(TREE.repeated_classes(), SHARED)


def test_files_that_docstrings_and_comments_name_exist() -> None:
    assert TREE.stale_paths() == []


def test_docstrings_and_comments_name_the_mechanism_and_not_a_person() -> None:
    assert TREE.persons() == []


def test_function_names_say_what_the_functions_do() -> None:
    assert share_of_riddles(TREE) <= MOST_RIDDLES, riddles(TREE)


def test_no_docstring_is_a_filler() -> None:
    assert short_docstrings(TREE) == []


@pytest.mark.parametrize("name", ["shown", "_told", "answered", "take", "take_back", "look_at", "_let_go"])
def test_bare_participles_and_everyday_verbs_are_riddles(name: str) -> None:
    assert is_riddle(name)


@pytest.mark.parametrize("name", ["is_allowed", "on_closed", "read", "open", "put", "take_screenshot", "__enter__"])
def test_predicates_callbacks_and_verbs_with_an_object_are_no_riddles(name: str) -> None:
    assert not is_riddle(name)


def test_nothing_is_called_utils() -> None:
    assert not [module for module in TREE.modules if module.rpartition(".")[2] in VAGUE]


def test_no_expression_has_a_group_that_gives_nothing_back() -> None:
    """Python before 3.11.5, which Debian has, matches `(...)*+` and `(...)++` wrongly; `(?>(...)*)` means the same."""
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if re.search(r"\)(\*\+|\+\+|\?\+)", line) and "_URL_SIGNS" not in line
    ]
    assert found == []
