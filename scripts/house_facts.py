"""Where the source names a tool, an API, a feature of `hello` or the files of sessions outside their declaration.

The names come from the declarations themselves: the catalogue of tools, the adapters of APIs, the type `Feature`, the
session store. Some of them are also ordinary words ("read", "trust"), so a string counts only where it can mean nothing
else:

* tool: it is compared with something that is called a name or a tool (`call.name == "bash"`); it stands in a tuple,
  list or set, or among the keys of a dict, that has tool names only; it is an argument or a key next to something that
  is called a tool (`tools["todo"]`, `toolset.offer("todo")`), or assigned to it; it is in a piece of JSON
  (`"toolName":"todo"`).
* feature: the same with things that are called features or wanted; a tuple, list, set or dict must have two or more.
* API: anywhere, since no other string looks like these. Session file: a name, or a part of one, that ends as theirs.

What is said in a `Literal` is a type and does not count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, get_args

from house_measures import PACKAGE, SourceTree, nodes_of

from pigeon.providers.apis import APIS
from pigeon.tools import catalog
from pigeon.wire.choices import Feature

TOOL_WORDS = {"tool", "tools", "toolset"}
NAMED_WORDS = {*TOOL_WORDS, "name", "names", "called"}
FEATURE_WORDS = {"feature", "features", "wanted"}
# The files, as patterns below the package, that declare each kind of name.
DECLARED = {
    "tool": ("tools/*.py",),
    "api": ("providers/*/api.py",),
    "feature": ("wire/*.py",),
    "session file": ("session/history/session_folders.py", "session/history/repository.py"),
}
_JSON = re.compile(r'"toolName":\s*"(\w+)"')
_SPACE = re.compile(r"\s")
_JS_LIST = re.compile(r"\[((?:\s*\"\w+\"\s*,?)+)\]")
_JS_COMPARED = re.compile(r'\b(?:toolName|tool|name)\s*[!=]==?\s*"(\w+)"')
_JS_FEATURES = re.compile(r"\b[fF]eatures\b[^\"']*((?:[\"'][\w-]+[\"'][\s,]*)+)")


class NamedFact(NamedTuple):
    """One place: its file below the package, the line, the kind of the name and the name."""

    path: str
    line: int
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind} {self.name}"


def named_facts(tree: SourceTree) -> list[NamedFact]:
    """Every place that names one of these by hand, in the order of the files."""
    root = tree.source / PACKAGE
    names = declared_names(tree)
    found = []
    for module, path in tree.modules.items():
        found += list(facts_in(tree.tree(module), path.relative_to(root), names))
    for path in sorted(root.rglob("*.js")):
        found += list(facts_in_script(path.read_text("utf-8"), path.relative_to(root), names))
    return found


def declared_names(tree: SourceTree) -> dict[str, frozenset[str]]:
    """The names of each kind, from their declarations."""
    known = catalog.all_facts()
    return {
        "tool": frozenset((*known, *(name for facts in known.values() for name in facts.other_names))),
        "api": frozenset(APIS),
        "feature": frozenset(get_args(Feature)),
        "session file": frozenset(_endings(tree)),
    }


def _endings(tree: SourceTree) -> Iterator[str]:
    """The endings of file names that the session store has: its constant `_SUFFIX`, or what it removes from names."""
    root = tree.source / PACKAGE
    for module, path in tree.modules.items():
        if _is_declared(path.relative_to(root), "session file"):
            for node in nodes_of(tree.tree(module)):
                about = (node,) if isinstance(node, ast.Assign) else node.args if isinstance(node, ast.Call) else ()
                if about and _words(node) & {"suffix", "removesuffix"}:
                    texts = (part.value for one in about for part in ast.walk(one) if isinstance(part, ast.Constant))
                    yield from (text for text in texts if isinstance(text, str) and re.fullmatch(r"\.\w+", text))


def _is_declared(path: Path, kind: str) -> bool:
    return any(path.match(pattern) and len(path.parts) == len(Path(pattern).parts) for pattern in DECLARED[kind])


def facts_in(tree: ast.Module, path: Path, names: dict[str, frozenset[str]]) -> Iterator[NamedFact]:
    """The places of one module; `path` is its file below the package."""
    parents = {child: node for node in nodes_of(tree) for child in ast.iter_child_nodes(node)}
    kinds = [kind for kind in names if not _is_declared(path, kind)]
    for node in nodes_of(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str | bytes) or _is_type(node, parents):
            continue
        value = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
        for kind in kinds:
            if _is_among(value, kind, names[kind]) and _means(node, parents, kind, names[kind]):
                yield NamedFact(path.as_posix(), node.lineno, kind, value)
        if "tool" in kinds and (found := _JSON.search(value)) and found[1] in names["tool"]:
            yield NamedFact(path.as_posix(), node.lineno, "tool", found[1])


def facts_in_script(text: str, path: Path, names: dict[str, frozenset[str]]) -> Iterator[NamedFact]:
    """The tools and features that one script of the page names, line by line."""
    tools = names["tool"]
    for number, line in enumerate(text.split("\n"), 1):
        lists = [re.findall(r"\w+", found[1]) for found in _JS_LIST.finditer(line)]
        listed = [name for words in lists if tools.issuperset(words) for name in words]
        compared = [name for name in _JS_COMPARED.findall(line) if name in tools]
        for name in (*listed, *compared):
            yield NamedFact(path.as_posix(), number, "tool", name)
        for words in _JS_FEATURES.findall(line):
            for name in re.findall(r"[\w-]+", words):
                if name in names["feature"]:
                    yield NamedFact(path.as_posix(), number, "feature", name)


def _is_among(value: str, kind: str, names: frozenset[str]) -> bool:
    if kind == "session file":
        return value.endswith(tuple(names)) and not _SPACE.search(value)
    return value in names


def _means(node: ast.Constant, parents: dict[ast.AST, ast.AST], kind: str, names: frozenset[str]) -> bool:
    if kind in ("api", "session file"):
        return True
    words, named = (TOOL_WORDS, NAMED_WORDS) if kind == "tool" else (FEATURE_WORDS, FEATURE_WORDS)
    parent = parents[node]
    if isinstance(parent, ast.Compare):
        sides = (side for side in (parent.left, *parent.comparators) if side is not node)
        return any(_words(side.func if isinstance(side, ast.Call) else side) & named for side in sides)
    if isinstance(parent, ast.MatchValue):
        around = parents[parents[parent]]
        return isinstance(around, ast.Match) and bool(_words(around.subject) & named)
    if isinstance(parent, ast.Tuple | ast.List | ast.Set):
        if not _all_in(parent.elts, names):
            return False
        return kind == "tool" or len(parent.elts) > 1 or bool(_words(parents[parent]) & words)
    if isinstance(parent, ast.Dict) and any(key is node for key in parent.keys):
        return _all_in(parent.keys, names) and (kind == "tool" or len(parent.keys) > 1)
    if isinstance(parent, ast.Call | ast.Subscript | ast.Assign | ast.AnnAssign):
        return bool(_words(parent) & words)
    return False


def _all_in(items: list[ast.expr] | list[ast.expr | None], names: frozenset[str]) -> bool:
    return all(isinstance(item, ast.Constant) and item.value in names for item in items)


def _words(node: ast.AST) -> set[str]:
    """The words of every name in an expression: `self._toolCards.tool_name` has tool, cards and name.

    What is asked of the result of a call says what that is: `facts_of(name).kind` has only facts, of and kind.
    """
    found: set[str] = set()
    waiting: list[ast.AST] = [node]
    while waiting:
        one = waiting.pop()
        asked = one.value if isinstance(one, ast.Attribute) else None
        waiting += [asked.func] if isinstance(asked, ast.Call) else ast.iter_child_nodes(one)
        name = one.id if isinstance(one, ast.Name) else one.attr if isinstance(one, ast.Attribute) else ""
        name = one.arg or "" if isinstance(one, ast.keyword) else name
        found.update(word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name))
    return found


def _is_type(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether a string stands in a `Literal`."""
    at: ast.AST | None = node
    while at is not None and not isinstance(at, ast.stmt):
        if isinstance(at, ast.Subscript) and isinstance(at.value, ast.Name) and at.value.id == "Literal":
            return True
        at = parents.get(at)
    return False
