"""Deliberate damages to the source: one small change each, which some test should notice.

A damage is found in a syntax tree and written as a replacement of its piece of the text, so that the rest of the file
stays as it is. What no test could notice is left out by rule here (`_is_out_of_scope`, `_is_clock_comparison`), or
one by one, with a reason, in `equivalent_mutants.json`.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

# How many of a hundred are of which kind.
KINDS = {"handler": 20, "clean-up": 20, "limit": 12, "condition": 18, "statement": 14, "return": 10, "await": 6}
CLEAN_UP = re.compile(
    r"(a?close\w*|cancel\w*|unlink\w*|kill\w*|remove\w*|release\w*|terminate\w*|rmtree|wait_closed|shutdown|stop\w*"
    r"|discard\w*|detach\w*|drop\w*|end\w*|delete\w*|forget\w*|rmdir|pop|clear)$"
)
LOGGERS = re.compile(r"_?log(ger)?(ging)?$|warnings$")
CLOCK = re.compile(r"monotonic|deadline|seconds|timeout|\btime\b|\bnow\b|_at\b|until|began|elapsed|age\b|mtime")
FLIPPED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
# Functions for people who debug, and for type checkers.
UNWATCHED = {"__repr__", "__str__"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutation:
    """One damage: `before` at these bytes of a file becomes `after`."""

    path: str
    function: str
    block: str
    kind: str
    line: int
    begin: int
    end: int
    before: str
    after: str
    source: str

    @property
    def key(self) -> str:
        """The same for the same damage to the same function, wherever that is in its file."""
        where = f"{self.path} {self.function} {self.block} {self.before} {self.after} {self.source}"
        return hashlib.sha256(where.encode()).hexdigest()[:16]

    @property
    def package(self) -> str:
        return package_of(self.path)

    def apply(self, text: bytes) -> bytes:
        """The text of its file with the damage."""
        return text[: self.begin] + self.after.encode() + text[self.end :]

    def __str__(self) -> str:
        """For people: where, and what."""
        before, after = (" ".join(piece.split()) for piece in (self.before, self.after))
        return f"{self.path}:{self.line} {self.function} [{self.kind}]\n    - {before[:160]}\n    + {after[:160]}"


def package_of(path: str) -> str:
    """The package of a module; each front end is one."""
    parts = path.split("/")[2:-1]
    return ".".join(parts[: 2 if parts[:1] == ["frontends"] else 1]) or "pigeon"


@dataclass(frozen=True, slots=True)
class Block:
    """Statements that run one after the other: where tests are watched reaching the code."""

    name: str
    function: str
    statements: list[ast.stmt]


def blocks_of(tree: ast.Module) -> Iterator[Block]:
    """All blocks inside functions, named by their function and their place in it."""
    for name, function in _functions(tree.body, ""):
        if function.name in UNWATCHED or _is_declared_only(function):
            continue
        for number, statements in enumerate(_statement_lists(function)):
            yield Block(f"{name}#{number}", name, statements)


def mutations_of(path: str, text: bytes) -> Iterator[Mutation]:
    """All damages that can be done to a file."""
    tree = ast.parse(text)
    starts = _line_starts(text)
    lines: dict[str, str] = {name: ast.unparse(function) for name, function in _functions(tree.body, "")}
    ends = {name: function.body[-1] for name, function in _functions(tree.body, "")}
    seen: dict[tuple[int, int], set[str]] = defaultdict(set)
    blocks = list(blocks_of(tree))
    names = {id(block.statements): block.name for block in blocks}
    for block in blocks:
        source = hashlib.sha256(lines[block.function].encode()).hexdigest()[:8]
        for statement in block.statements:
            handlers = getattr(statement, "handlers", [])
            # A damage to a handler shows only where it handles something: in its own block.
            handled = {id(node): names[id(one.body)] for one in handlers for node in (one, one.type)}
            for kind, node, after in _damages(statement):
                if _is_out_of_scope(node):
                    continue
                if after == "pass" and statement is ends[block.function] and _only_returns(node):
                    continue
                first, last = (node.body[0], node.body[-1]) if isinstance(node, ast.ExceptHandler) else (node, node)
                begin = starts[first.lineno - 1] + first.col_offset
                end = starts[(last.end_lineno or 0) - 1] + (last.end_col_offset or 0)
                before = text[begin:end].decode()
                if before.strip() == after.strip() or after in seen[begin, end]:
                    continue
                seen[begin, end].add(after)
                name = handled.get(id(node), block.name) if kind == "handler" else block.name
                where = (path, block.function, name, kind, node.lineno, begin, end)
                yield Mutation(*where, before, after, source)


def _damages(statement: ast.stmt) -> Iterator[tuple[str, ast.AST, str]]:
    """Kind, node and replacement of the damages to a statement itself; those to its blocks come with the blocks."""
    yield from _deletions(statement)
    match statement:
        case ast.Try() | ast.TryStar():
            yield from _handler_damages(statement)
        case ast.Return(value=value) if value is not None:
            yield from (("return", value, after) for after in _other_results(value))
        case ast.If(test=test) | ast.While(test=test):
            yield "condition", test, f"(not ({ast.unparse(test)}))"
        case ast.With(items=items) | ast.AsyncWith(items=items):
            yield from _suppressions(items)
    for node in _expressions(statement):
        yield from _expression_damages(node)


def _deletions(statement: ast.stmt) -> Iterator[tuple[str, ast.AST, str]]:
    match statement:
        case ast.Expr(value=ast.Await(value=value)):
            yield ("clean-up" if _is_clean_up(value) else "await"), statement, "pass"
        case ast.Expr(value=ast.Call() as call):
            yield ("clean-up" if _is_clean_up(call) else "statement"), statement, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign():
            yield "statement", statement, "pass"
    if isinstance(statement, ast.Try):
        for last in statement.finalbody:
            if isinstance(last, ast.Expr | ast.Assign | ast.AugAssign | ast.If):
                yield "clean-up", last, "pass"


def _handler_damages(statement: ast.Try | ast.TryStar) -> Iterator[tuple[str, ast.AST, str]]:
    for handler in statement.handlers:
        if not (len(handler.body) == 1 and isinstance(handler.body[0], ast.Raise)):
            yield "handler", handler, "raise"
        if not isinstance(handler.body[0], ast.Pass):
            yield "handler", handler, "pass"
        if isinstance(handler.type, ast.Tuple) and len(handler.type.elts) > 1:
            for left_out in range(len(handler.type.elts)):
                kept = [ast.unparse(one) for number, one in enumerate(handler.type.elts) if number != left_out]
                yield "handler", handler.type, f"({', '.join(kept)},)"


def _suppressions(items: list[ast.withitem]) -> Iterator[tuple[str, ast.AST, str]]:
    for item in items:
        match item.context_expr:
            case ast.Call(func=ast.Attribute(attr="suppress") | ast.Name(id="suppress")) as call:
                yield "handler", call, f"{ast.unparse(call.func)}()"


def _expression_damages(node: ast.expr) -> Iterator[tuple[str, ast.AST, str]]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in FLIPPED and not _is_clock_comparison(node):
            flipped = SIGNS[FLIPPED[type(op)]]
            yield "limit", node, f"{ast.unparse(node.left)} {flipped} {ast.unparse(node.comparators[0])}"
            for side in (node.left, node.comparators[0]):
                yield from _off_by_one(side)
        case ast.Slice(lower=lower, upper=upper):
            yield from _off_by_one(lower)
            yield from _off_by_one(upper)
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[_, _, *_]):
            other = "max" if name == "min" else "min"
            yield "limit", node, f"{other}({', '.join(map(ast.unparse, [*node.args, *node.keywords]))})"
        case ast.BoolOp(op=op, values=values):
            word = " or " if isinstance(op, ast.And) else " and "
            yield "condition", node, f"({word.join(f'({ast.unparse(value)})' for value in values)})"
            for left_out in range(len(values)):
                rest = [f"({ast.unparse(value)})" for number, value in enumerate(values) if number != left_out]
                joined = (" and " if isinstance(op, ast.And) else " or ").join(rest)
                yield "condition", node, f"({joined})"
        case ast.IfExp(test=test):
            yield "condition", test, f"(not ({ast.unparse(test)}))"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "condition", node, f"(bool({ast.unparse(operand)}))"
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            for generator in node.generators:
                for test in generator.ifs:
                    yield "condition", test, f"(not ({ast.unparse(test)}))"


def _off_by_one(node: ast.expr | None) -> Iterator[tuple[str, ast.AST, str]]:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield "limit", node, str(node.value + 1)
    elif isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).rpartition(".")[2].isupper():
        yield "limit", node, f"({ast.unparse(node)} + 1)"


def _other_results(value: ast.expr) -> Iterator[str]:
    match value:
        case ast.Constant(value=True):
            yield "False"
        case ast.Constant(value=False):
            yield "True"
        case ast.Constant(value=None):
            return
        case ast.Constant(value=int()):
            yield f"{ast.unparse(value)} + 1"
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            yield f"not ({ast.unparse(value)})"
        case ast.List() | ast.ListComp():
            yield "[]"
        case ast.Dict() | ast.DictComp():
            yield "{}"
        case _:
            yield "None"


def _is_clean_up(node: ast.AST) -> bool:
    return any(
        isinstance(call, ast.Call) and CLEAN_UP.match(_last_name(call.func).lstrip("_")) is not None
        for call in ast.walk(node)
    )


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_out_of_scope(node: ast.AST) -> bool:
    """Whether it only writes to the log, or tells the type checker or the collector of garbage something."""
    if isinstance(node, ast.If):
        return ast.unparse(node.test).endswith("TYPE_CHECKING")
    value = node.value if isinstance(node, ast.Expr) else node
    value = value.value if isinstance(value, ast.Await) else value
    if not isinstance(value, ast.Call):
        return False
    first, *_ = ast.unparse(value.func).split(".")
    receiver = value.func.value if isinstance(value.func, ast.Attribute) else None
    of_logger = receiver is not None and LOGGERS.search(_last_name(receiver)) is not None
    return of_logger or first in {"gc", "assert_never", "cast", "print"}


def _only_returns(node: ast.AST) -> bool:
    """Whether a handler returns None, as the function does anyway if nothing follows."""
    match node:
        case ast.ExceptHandler(body=[ast.Return(value=None | ast.Constant(value=None))]):
            return True
    return False


def _is_clock_comparison(node: ast.Compare) -> bool:
    """Two times are never the same, so that `<` and `<=` are."""
    return CLOCK.search(ast.unparse(node)) is not None


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, Function]]:
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                name = f"{prefix}{statement.name}"
                yield name, statement
                yield from _functions(_all_statements(statement.body), f"{name}.")
            case ast.ClassDef():
                yield from _functions(statement.body, f"{prefix}{statement.name}.")
            case ast.If() if not ast.unparse(statement.test).endswith("TYPE_CHECKING"):
                yield from _functions(statement.body, prefix)


def _all_statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements at any depth, but not those of functions and classes inside."""
    found = []
    for statement in body:
        found.append(statement)
        for inner in _inner_lists(statement):
            found += _all_statements(inner)
    return found


def _statement_lists(function: Function) -> Iterator[list[ast.stmt]]:
    waiting = [function.body]
    while waiting:
        statements = waiting.pop(0)
        yield statements
        for statement in statements:
            waiting += _inner_lists(statement)


def _inner_lists(statement: ast.stmt) -> list[list[ast.stmt]]:
    if isinstance(statement, Function | ast.ClassDef):
        return []
    found = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    found += [handler.body for handler in getattr(statement, "handlers", [])]
    found += [case.body for case in getattr(statement, "cases", [])]
    return [statements for statements in found if statements]


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Expressions of the statement itself, not of its blocks, and not inside f-strings (their pieces have no place)."""
    if isinstance(statement, Function | ast.ClassDef):
        return
    waiting: list[ast.AST] = []
    blocks = {"body", "orelse", "finalbody", "handlers", "cases", "annotation"}
    for name, value in ast.iter_fields(statement):
        if name not in blocks:
            waiting += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.JoinedStr):
            continue
        if isinstance(node, ast.expr):
            yield node
        waiting += list(ast.iter_child_nodes(node))


def _is_declared_only(function: Function) -> bool:
    """An overload, a method of a protocol, an abstract one: nothing runs."""
    body = [one for one in function.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    return not body or all(isinstance(one, ast.Raise) and "NotImplemented" in ast.unparse(one) for one in body)


def _line_starts(text: bytes) -> list[int]:
    starts = [0]
    for line in text.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    return starts


def add_probes(text: bytes, number_of: Callable[[str], int]) -> str:
    """The source with a call of `reached` at the beginning of each block, with the block's number."""
    tree = ast.parse(text)
    for block in list(blocks_of(tree)):
        probe = ast.parse(f"_reached({number_of(block.name)})").body[0]
        first = block.statements[0]
        has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        block.statements.insert(1 if has_docstring else 0, probe)
    place = next(
        (
            number
            for number, one in enumerate(tree.body)
            if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
            and not (isinstance(one, ast.ImportFrom) and one.module == "__future__")
        ),
        len(tree.body),
    )
    tree.body.insert(place, ast.parse("from pigeon_reach import reached as _reached").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def source_files(root: Path) -> list[str]:
    """The modules that are damaged."""
    return sorted(str(path.relative_to(root)) for path in (root / "src/pigeon").rglob("*.py"))
