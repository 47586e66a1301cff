"""How large things may get before a part of them wants to be born."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.source_tree import ROOT, cycles, modules, tree_of

FILE_LINES = 600
FACADE_LINES = 250
FUNCTION_LINES = 60
PUBLIC_METHODS = 20
FACADES = {"pigeon.session.session"}

# One line per deliberate exception, with its reason.
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}
WIDE_CLASSES: dict[str, str] = {}
NAMES = sorted(modules())


@pytest.mark.parametrize("module", NAMES)
def test_a_file_is_short_enough(module: str) -> None:
    limit = FACADE_LINES if module in FACADES else FILE_LINES
    assert module in LONG_FILES or _lines(modules()[module]) <= limit


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=lambda path: path.name)
def test_a_test_file_is_short_enough(path: Path) -> None:
    assert _lines(path) <= FILE_LINES


@pytest.mark.parametrize("module", NAMES)
def test_a_function_is_short_enough(module: str) -> None:
    long = [
        f"{name} has {length} lines"
        for name, length in _functions(module)
        if length > FUNCTION_LINES and f"{module}.{name}" not in LONG_FUNCTIONS
    ]
    assert not long


@pytest.mark.parametrize("module", NAMES)
def test_a_class_has_few_enough_public_methods(module: str) -> None:
    wide = [
        f"{node.name} has {count} public methods"
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.ClassDef)
        and (count := _public_methods(node)) > PUBLIC_METHODS
        and f"{module}.{node.name}" not in WIDE_CLASSES
    ]
    assert not wide


def test_no_two_modules_need_each_other() -> None:
    assert cycles() == []


def test_exceptions_are_still_needed() -> None:
    assert all(_lines(modules()[name]) > FILE_LINES for name in LONG_FILES if name not in FACADES)


def test_nothing_is_called_utils() -> None:
    vague = {"utils", "util", "helpers", "common", "misc"}
    assert not [name for name in NAMES if name.rpartition(".")[2] in vague]


def _lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def _functions(module: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield node.name, (node.end_lineno or first) - first + 1


def _public_methods(node: ast.ClassDef) -> int:
    methods = [child for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)]
    return sum(not method.name.startswith("_") for method in methods)
