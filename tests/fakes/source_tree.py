"""The source of the package as syntax trees: modules, what they import, how long their parts are."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PACKAGE = "pigeon"


@cache
def modules() -> dict[str, Path]:
    """Every module of the package and its file."""
    found = {}
    for path in sorted((SOURCE / PACKAGE).rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree_of(module: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(modules()[module].read_text("utf-8"))


def room_of(module: str) -> str:
    """The first part of the module's name below the package; empty for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and f"{PACKAGE}.{parts[1]}" != f"{PACKAGE}.__main__" else ""


@cache
def _imports(module: str) -> tuple[list[str], list[str]]:
    at_import, anywhere = [], []
    tree = tree_of(module)
    top = set(_run_at_import(tree))
    for node in ast.walk(tree):
        for name in _named(node):
            anywhere.append(name)
            if node in top:
                at_import.append(name)
    return sorted(set(at_import) - {module}), sorted(set(anywhere) - {module})


def imports_of(module: str) -> list[str]:
    """Modules of the package that this one imports, at import time or later."""
    return _imports(module)[1]


def early_imports_of(module: str) -> list[str]:
    """Modules of the package that are imported while this one is being imported."""
    return _imports(module)[0]


def _run_at_import(tree: ast.AST) -> list[ast.AST]:
    found: list[ast.AST] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or _only_for_types(node):
            continue
        found.append(node)
        found += _run_at_import(node)
    return found


def _only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def _named(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [known for alias in node.names if (known := _known(alias.name))]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        inner = [f"{node.module}.{alias.name}" for alias in node.names]
        return [known for name in inner if (known := _known(name))]
    return []


def _known(name: str) -> str:
    """The module that a dotted name belongs to, or nothing if it is not of this package."""
    while name == PACKAGE or name.startswith(PACKAGE + "."):
        if name in modules():
            return name
        name = name.rpartition(".")[0]
    return ""


def cycles() -> list[list[str]]:
    """Groups of modules that need each other while being imported."""
    order: list[str] = []
    seen: set[str] = set()
    for start in modules():
        _visit(start, {name: early_imports_of(name) for name in modules()}, seen, order)
    backwards: dict[str, list[str]] = {name: [] for name in modules()}
    for name in modules():
        for other in early_imports_of(name):
            backwards[other].append(name)
    seen.clear()
    groups = []
    for start in reversed(order):
        group: list[str] = []
        _visit(start, backwards, seen, group)
        if len(group) > 1:
            groups.append(sorted(group))
    return groups


def _visit(start: str, edges: dict[str, list[str]], seen: set[str], order: list[str]) -> None:
    if start in seen:
        return
    seen.add(start)
    for other in edges[start]:
        _visit(other, edges, seen, order)
    order.append(start)
