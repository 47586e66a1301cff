"""The source of the package as syntax trees, and what can be measured on it without running it.

`tests/architecture/` forbids what stands here as a list of offenders, and `scripts/house.py` prints the same lists as
figures, so that a rule and its measure cannot drift apart. A `SourceTree` is made for one checkout (`root`): two
checkouts can be compared in one process.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

PACKAGE = "pigeon"
SMALL = 60
MOST_ATTRIBUTES = 15
MIRRORS = (f"{PACKAGE}.extensions.public",)  # names of the wire on purpose: an author of extensions knows those

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef
_PLAIN_DECORATORS = {
    "property", "cached_property", "setter", "classmethod", "staticmethod", "override", "overload", "final",
    "abstractmethod", "contextmanager", "asynccontextmanager", "runtime_checkable", "cache", "lru_cache", "dataclass",
    "total_ordering", "singledispatch",
}  # fmt: skip
_PERSONS = re.compile(r"\b(?:some|no|any|every)body\b|\b(?:some|any)one\b|\bwhoever\b", re.IGNORECASE)
_PATH = re.compile(r"`((?:\w+/)+\w*(?:\.py)?|\w+\.py)`")


class ForeignAssignment(NamedTuple):
    """A place where code outside a class sets or deletes an attribute of one of its objects."""

    module: str
    function: str
    target: str
    line: int

    @property
    def short(self) -> str:
        """The module and the attribute alone: what is the same however the object is called."""
        return f"{self.module}: {self.target if '(' in self.target else self.target.rpartition('.')[2]}"

    def __str__(self) -> str:
        return f"{self.module}.{self.function}: {self.target}"


@cache
def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """All nodes of a tree, as `ast.walk` gives them: most measures look at every node of every module."""
    return list(ast.walk(tree))


class SourceTree:
    """The modules of one checkout: their syntax trees, their imports, and the lists that the rules are about."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.source = root / "src"
        self._trees: dict[str, ast.Module] = {}
        self._imports: dict[str, tuple[list[str], list[str]]] = {}

    @cached_property
    def modules(self) -> dict[str, Path]:
        """Every module of the package and its file; a package stands under its own name."""
        found = {}
        for path in sorted((self.source / PACKAGE).rglob("*.py")):
            parts = path.relative_to(self.source).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return found

    def text(self, module: str) -> str:
        """The source of a module."""
        return self.modules[module].read_text("utf-8")

    def lines(self, module: str) -> int:
        """How many lines the file of a module has."""
        return len(self.text(module).splitlines())

    def tree(self, module: str) -> ast.Module:
        """The syntax tree of a module, parsed once."""
        if module not in self._trees:
            self._trees[module] = ast.parse(self.text(module))
        return self._trees[module]

    def is_package(self, module: str) -> bool:
        """Whether the module is the `__init__.py` of a folder."""
        return self.modules[module].name == "__init__.py"

    # Imports

    def imports(self, module: str) -> list[str]:
        """Modules of the package that this one imports, at import time or later."""
        return self._both_imports(module)[1]

    def early_imports(self, module: str) -> list[str]:
        """Modules of the package that are imported while this one is being imported."""
        return self._both_imports(module)[0]

    @cached_property
    def importers(self) -> dict[str, list[str]]:
        """For every module the modules that import it."""
        found: dict[str, list[str]] = {name: [] for name in self.modules}
        for name in self.modules:
            for other in self.imports(name):
                found[other].append(name)
        return found

    def cycles(self) -> list[list[str]]:
        """Groups of modules that need each other while being imported (strongly connected components)."""
        forwards = {name: self.early_imports(name) for name in self.modules}
        backwards: dict[str, list[str]] = {name: [] for name in self.modules}
        for name, others in forwards.items():
            for other in others:
                backwards[other].append(name)
        order: list[str] = []
        seen: set[str] = set()
        for start in self.modules:
            _visit(start, forwards, seen, order)
        seen.clear()
        groups = []
        for start in reversed(order):
            group: list[str] = []
            _visit(start, backwards, seen, group)
            if len(group) > 1:
                groups.append(sorted(group))
        return groups

    def known(self, name: str) -> str:
        """The module that a dotted name belongs to, or nothing if it is not of this package."""
        while name == PACKAGE or name.startswith(PACKAGE + "."):
            if name in self.modules:
                return name
            name = name.rpartition(".")[0]
        return ""

    def _both_imports(self, module: str) -> tuple[list[str], list[str]]:
        if module not in self._imports:
            at_import, anywhere = set(), set()
            tree = self.tree(module)
            top = set(_run_at_import(tree))
            for node in nodes_of(tree):
                for name in self._named(node):
                    anywhere.add(name)
                    if node in top:
                        at_import.add(name)
            self._imports[module] = (sorted(at_import - {module}), sorted(anywhere - {module}))
        return self._imports[module]

    def _named(self, node: ast.AST) -> list[str]:
        if isinstance(node, ast.Import):
            return [known for alias in node.names if (known := self.known(alias.name))]
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            return [known for name in inner if (known := self.known(name))]
        return []

    # Folders and files

    def folders(self) -> dict[str, int]:
        """How many modules lie flat in each folder, `__init__.py` not counted; the largest first."""
        found: dict[str, int] = defaultdict(int)
        for name, path in self.modules.items():
            if not self.is_package(name):
                found[str(path.parent.relative_to(self.source))] += 1
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))

    def single_importers(self) -> dict[str, str]:
        """Modules that exactly one other module imports, one of the same package, and that module."""
        return {
            name: importers[0]
            for name, importers in self.importers.items()
            if len(importers) == 1 and not self.is_package(name) and package_of(name) == package_of(importers[0])
        }

    def small_fragments(self) -> dict[str, str]:
        """Those of the modules with a single importer that have fewer than 60 lines."""
        return {name: only for name, only in self.single_importers().items() if self.lines(name) < SMALL}

    def comments(self) -> int:
        """Comments for readers; directives such as `noqa` and `type:` are none."""
        found = 0
        for name in self.modules:
            for token in tokenize.generate_tokens(io.StringIO(self.text(name)).readline):
                found += token.type == tokenize.COMMENT and not _is_directive(token.string)
        return found

    def stale_paths(self) -> list[str]:
        """Files that docstrings and comments name in backticks (`folder/module`, `module.py`) and that do not exist."""
        found = []
        for module, path in self.modules.items():
            named = {match[1] for text in self._words[module] for match in _PATH.finditer(text)}
            package = self.source / PACKAGE / package_of(module).replace(".", "/")
            beside = {one.name for one in package.rglob("*.py")}
            for name in sorted(named - beside):
                is_path = name.endswith(".py") or (self.source / PACKAGE / name.split("/")[0]).is_dir()
                folders = (path.parent, package, self.source / PACKAGE, self.root)
                if is_path and not any(_exists(folder / name) for folder in folders):
                    found.append(f"{module}: {name}")
        return found

    def persons(self) -> list[str]:
        """Docstrings and comments that speak of persons where there are none, by module."""
        texts = {module: " ".join(self._words[module]) for module in self.modules}
        return [f"{module}: {word}" for module, text in texts.items() for word in sorted({*_PERSONS.findall(text)})]

    @cached_property
    def _words(self) -> dict[str, list[str]]:
        """The docstrings and comments of each module."""
        return {module: list(self._words_of(module)) for module in self.modules}

    def _words_of(self, module: str) -> Iterator[str]:
        for node in nodes_of(self.tree(module)):
            if isinstance(node, ast.Module | Definition):
                yield ast.get_docstring(node) or ""
        for token in tokenize.generate_tokens(io.StringIO(self.text(module)).readline):
            if token.type == tokenize.COMMENT:
                yield token.string

    # Classes and functions

    def repeated_classes(self) -> dict[str, list[str]]:
        """Class names that exist twice or more, with their modules; the mirrors count only among themselves."""
        return {name: found for name, found in self._classes().items() if len(found) > 1}

    def _classes(self) -> dict[str, list[str]]:
        own: dict[str, list[str]] = defaultdict(list)
        for module in self.modules:
            mirror = "mirror of " if module.startswith(MIRRORS) else ""
            for node in nodes_of(self.tree(module)):
                if isinstance(node, ast.ClassDef):
                    own[mirror + node.name].append(module)
        return own

    def functions(self) -> Iterator[tuple[str, int]]:
        """Every function with its dotted name and its length, decorators included."""
        for module in self.modules:
            for node in nodes_of(self.tree(module)):
                if isinstance(node, Function):
                    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                    yield f"{module}.{node.name}", (node.end_lineno or first) - first + 1

    def public_methods(self) -> Iterator[tuple[str, int]]:
        """Every class with its dotted name and the number of its public methods."""
        for module in self.modules:
            for node in nodes_of(self.tree(module)):
                if isinstance(node, ast.ClassDef):
                    methods = [child.name for child in node.body if isinstance(child, Function)]
                    yield f"{module}.{node.name}", sum(not name.startswith("_") for name in methods)

    def attributes(self) -> Iterator[tuple[str, int]]:
        """Every class with its dotted name and how many different attributes its code sets on `self`."""
        for module in self.modules:
            for node in nodes_of(self.tree(module)):
                if isinstance(node, ast.ClassDef):
                    yield f"{module}.{node.name}", len(_own_attributes(node))

    def large_objects(self) -> dict[str, int]:
        """Classes with more than 15 attributes, the largest first."""
        found = [(name, count) for name, count in self.attributes() if count > MOST_ATTRIBUTES]
        return dict(sorted(found, key=lambda pair: -pair[1]))

    def foreign_assignments(self) -> list[ForeignAssignment]:
        """Where an attribute of an object is set or deleted outside its class.

        A target `x.y` is fine when `x` is `self` or `cls`, a parameter that is annotated with the class around, or a
        local name that the same function has bound to a call of a class: what makes an object may fill it in. It is
        fine, too, when `y` is a field of a record (a dataclass or struct) or of a private class of the same module:
        those are the module's own working state. All else counts: `self.other.y = z`, `parameter.y = z`,
        `name.y = z` and `setattr(x, ...)`.
        """
        found: list[ForeignAssignment] = []
        for module in self.modules:
            visitor = _Assignments(module, _state_fields(self.tree(module)))
            visitor.visit(self.tree(module))
            found += visitor.found
        return found

    def null_objects_asked(self) -> list[str]:
        """Where code asks whether an object is the null object of its kind (`isinstance(hooks, NoHooks)`)."""
        return [
            f"{module}: {asked}"
            for module in self.modules
            for node in nodes_of(self.tree(module))
            if isinstance(node, ast.Call) and _last_name(node) == "isinstance" and len(node.args) == 2
            for asked in map(_last_name, _alternatives(node.args[1]))
            if re.match(r"_?(No|Null)[A-Z]", asked)
        ]

    # Names that nothing uses

    def unused_names(self) -> list[str]:
        """Public names at the top of a module that nothing in the source uses, nor a decorator registers."""
        used = self._used_names()
        found = []
        for module in self.modules:
            tree = self.tree(module)
            for name, node in _top_names(tree):
                registered = isinstance(node, Definition) and bool(_registering(node))
                if name.startswith("_") or registered or (module, name) in used or _uses_itself(tree, name, node):
                    continue
                found.append(f"{module}.{name}")
        return found

    def unused_methods(self) -> list[str]:
        """Public methods and properties whose name appears nowhere in the source but where it is defined."""
        mentioned: set[str] = set()
        defined: list[tuple[str, str]] = []
        for module in self.modules:
            for node in nodes_of(self.tree(module)):
                if isinstance(node, ast.Attribute):
                    mentioned.add(node.attr)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                    mentioned.add(node.value)
                elif isinstance(node, ast.ClassDef) and not module.startswith(MIRRORS):
                    defined += [
                        (f"{module}.{node.name}.{child.name}", child.name)
                        for child in node.body
                        if isinstance(child, Function) and not child.name.startswith("_") and not _registering(child)
                    ]
        return [full for full, name in defined if name not in mentioned]

    def _used_names(self) -> set[tuple[str, str]]:
        """Pairs of module and name that another module imports by name, or reads through the module."""
        used: set[tuple[str, str]] = set()
        for module in self.modules:
            tree = self.tree(module)
            aliases: dict[str, str] = {}
            for node in nodes_of(tree):
                if isinstance(node, ast.ImportFrom) and node.module and self.known(node.module):
                    for alias in node.names:
                        inner = f"{node.module}.{alias.name}"
                        if inner in self.modules:
                            aliases[alias.asname or alias.name] = inner
                        else:
                            used.add((node.module, alias.name))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    owner, _, name = node.value.replace(":", ".").rpartition(".")
                    used.add((owner, name))  # lazy exports name modules in strings
            for node in nodes_of(tree):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
                    used.add((aliases[node.value.id], node.attr))
        return used


def package_of(module: str) -> str:
    """The top-level package of a module, and for front ends each one of its own (`frontends.serve`); empty for
    `pigeon` itself and its `__main__`."""
    parts = module.split(".")
    if len(parts) > 3 and parts[1] == "frontends":
        return ".".join(parts[1:3])
    return parts[1] if len(parts) > 1 and parts[1] != "__main__" else ""


class _Assignments(ast.NodeVisitor):
    """Collects foreign assignments of one module, with the function and class around each."""

    def __init__(self, module: str, fields: set[str]) -> None:
        self.found: list[ForeignAssignment] = []
        self._module = module
        self._fields = fields
        self._classes: list[str] = []
        self._functions: list[tuple[str, set[str]]] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outer, self._functions = self._functions, []
        self._classes.append(node.name)
        self.generic_visit(node)
        self._classes.pop()
        self._functions = outer

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._enter(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._enter(node)

    def _enter(self, node: Function) -> None:
        self._functions.append((node.name, _own_objects(node, self._classes[-1] if self._classes else "")))
        self.generic_visit(node)
        self._functions.pop()

    def visit_Attribute(self, node: ast.Attribute) -> None:
        changes = isinstance(node.ctx, ast.Store | ast.Del)
        if changes and node.attr not in self._fields and not self._is_own(node.value):
            self._note(node, ast.unparse(node))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _last_name(node) in ("setattr", "delattr") and node.args and not self._is_own(node.args[0]):
            self._note(node, ast.unparse(node))
        self.generic_visit(node)

    def _is_own(self, target: ast.expr) -> bool:
        return isinstance(target, ast.Name) and (
            target.id in ("self", "cls") or any(target.id in own for _, own in self._functions)
        )

    def _note(self, node: ast.expr, target: str) -> None:
        around = [*self._classes, *(name for name, _ in self._functions)]
        self.found.append(ForeignAssignment(self._module, ".".join(around), target, node.lineno))


def _state_fields(tree: ast.Module) -> set[str]:
    """Fields of the dataclasses, structs and private classes of a module."""
    fields: set[str] = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.ClassDef) and (_is_record(node) or node.name.startswith("_")):
            for child in ast.walk(node):
                if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
                    fields.add(child.target.id)
                elif isinstance(child, ast.Attribute) and ast.unparse(child.value) == "self":
                    fields.add(child.attr)
    return fields


def _is_record(node: ast.ClassDef) -> bool:
    bases = {_last_name(base) for base in node.bases}
    return "dataclass" in map(_last_name, node.decorator_list) or bool(bases & {"Struct", "Record", "Loose"})


def _own_objects(function: Function, around: str) -> set[str]:
    """Names that a function may fill in: of the class around it, or bound to an object that it has just made."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    own = {one.arg for one in arguments if around and _is_annotation_of(one.annotation, around)}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and _makes_object(node.value):
            own |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _makes_object(node.value):
            own.add(node.target.id)
    return own


def _is_annotation_of(annotation: ast.expr | None, name: str) -> bool:
    return isinstance(annotation, ast.Name | ast.Constant) and ast.unparse(annotation).strip("'\"") in (name, "Self")


def _makes_object(value: ast.expr | None) -> bool:
    """A call of something with a capital letter (a class), of `cls`, or of a function that copies a record."""
    if not isinstance(value, ast.Call):
        return False
    name = _last_name(value)
    return name.lstrip("_")[:1].isupper() or name in ("cls", "replace", "copy", "deepcopy", "__new__")


def _exists(path: Path) -> bool:
    return path.exists() or path.with_name(f"{path.name}.py").exists()


def _alternatives(kinds: ast.expr) -> list[ast.expr]:
    """The classes that `isinstance` is asked for: one, a tuple, or a union."""
    if isinstance(kinds, ast.Tuple):
        return kinds.elts
    if isinstance(kinds, ast.BinOp):
        return [*_alternatives(kinds.left), *_alternatives(kinds.right)]
    return [kinds]


def _is_directive(comment: str) -> bool:
    return comment.lstrip("# ").startswith(("noqa", "type:", "pragma", "fmt:", "ruff:", "mypy:"))


def _run_at_import(tree: ast.AST) -> list[ast.AST]:
    found: list[ast.AST] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function | ast.Lambda) or _only_for_types(node):
            continue
        found.append(node)
        found += _run_at_import(node)
    return found


def _only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def _top_names(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for node in tree.body:
        if isinstance(node, Definition):
            yield node.name, node
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                yield from ((one.id, node) for one in ast.walk(target) if isinstance(one, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node


def _own_attributes(node: ast.ClassDef) -> set[str]:
    return {
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute)
        and isinstance(one.ctx, ast.Store)
        and isinstance(one.value, ast.Name)
        and one.value.id == "self"
    }


def _registering(node: Definition) -> list[ast.expr]:
    """Decorators that hand the definition to a registry, not those that only change its kind."""
    return [one for one in node.decorator_list if _last_name(one) not in _PLAIN_DECORATORS]


def _last_name(expression: ast.expr) -> str:
    """The last part of a dotted name, or of the name that is called."""
    called = expression.func if isinstance(expression, ast.Call) else expression
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _uses_itself(tree: ast.Module, name: str, definition: ast.AST) -> bool:
    """Whether the module reads the name anywhere but inside its definition."""
    inside = set(ast.walk(definition))
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and node not in inside
        for node in nodes_of(tree)
    )


def _visit(start: str, edges: dict[str, list[str]], seen: set[str], order: list[str]) -> None:
    if start in seen:
        return
    seen.add(start)
    for other in edges[start]:
        _visit(other, edges, seen, order)
    order.append(start)
