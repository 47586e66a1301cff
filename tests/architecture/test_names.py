"""One name, one thing: over the whole package a class is found by its name, and no module is a drawer."""

from __future__ import annotations

import re

from fakes.source_tree import ROOT, TREE, hold

VAGUE = {"utils", "util", "helpers", "common", "misc"}

# Class names that two modules may share, with the reason. `extensions/public` repeats names of the wire on purpose (an
# author of extensions knows the protocol) and is compared only with itself.
SHARED: dict[str, str] = {"Connection": "of a client (`rpc`), and to a model server (`providers`)"}


def test_a_class_name_exists_once() -> None:
    hold(TREE.repeated_classes(), SHARED)


def test_files_that_docstrings_and_comments_name_exist() -> None:
    assert TREE.stale_paths() == []


def test_docstrings_and_comments_name_the_mechanism_and_not_a_person() -> None:
    assert TREE.persons() == []


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
