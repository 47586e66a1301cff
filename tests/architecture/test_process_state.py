"""Nothing but the command line reads the process's environment variables, arguments, home or working directory.

An agent gets them with its options: `pigeon.app` hands on the variables as a mapping, the home folder and absolute
paths. That is what lets two agents with different folders and keys live in one process.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from house_measures import nodes_of, package_of

from support.source_tree import FOR_OTHER_MACHINES, TREE

READS = {
    "os.environ",
    "os.environb",
    "os.getenv",
    "os.putenv",
    "os.unsetenv",
    "os.getcwd",
    "os.getcwdb",
    "os.chdir",
    "os.get_exec_path",
    "os.path.abspath",
    "os.path.expanduser",
    "os.path.expandvars",
    "sys.argv",
    "shutil.which",
    "tempfile.gettempdir",
    "tempfile.mkdtemp",
    "tempfile.mkstemp",
    "tempfile.NamedTemporaryFile",
    "tempfile.TemporaryDirectory",
    "tempfile.TemporaryFile",
    "pathlib.Path.cwd",
    "pathlib.Path.home",
}
# Methods of `pathlib.Path` that read the same things; they take no argument.
METHODS = {"expanduser", "absolute"}
# These read nothing of the process when the argument is given.
UNLESS_GIVEN = {
    "shutil.which": "path",
    "tempfile.mkdtemp": "dir",
    "tempfile.mkstemp": "dir",
    "tempfile.TemporaryDirectory": "dir",
}

_HANDED_OVER = "a warm start hands the state of one process over to another"
# (module, what it reads): why it may.
ALLOWED = {
    ("pigeon.workspaces.local", "os.environ"): "for a workspace that a program uses without an agent",
    ("pigeon.workspaces.local", "os.path.expanduser"): "the same",
    ("pigeon.testing", "tempfile.TemporaryDirectory"): "tests of programs call it, and no agent does",
    ("pigeon.__main__", "os.getcwd"): "takes it off the path on which modules are looked for",
    ("pigeon.app.environment", "os.environ"): "the one place that looks at the process, for callers that want it",
    ("pigeon.app.environment", "os.getcwd"): "the same",
    ("pigeon.app.environment", "os.path.expanduser"): "the same",
    ("pigeon.frontends.batch.batch_parent", "os.environ"): "a program of its own",
    ("pigeon.frontends.batch.batch_parent", "sys.argv"): "a program of its own",
    ("pigeon.frontends.serve.workers.warm_parent", "os.environ"): "a program of its own",
    ("pigeon.frontends.serve.workers.warm_parent", "os.chdir"): "a program of its own",
    ("pigeon.frontends.serve.workers.warming", "tempfile.TemporaryDirectory"): "a part of that program",
    ("pigeon.frontends.serve.workers.warm_parent", "sys.argv"): "a program of its own",
    ("pigeon.frontends.printing", "os.environ"): "whether colours are wanted",
    ("pigeon.system.process.helper_main", "os.environ"): "a program of its own, which gets its orders this way",
    ("pigeon.system.process.helper_main", "os.chdir"): "it starts commands, each in its folder",
    ("pigeon.system.process.namespaces", "os.chdir"): "a part of that program, which does the same",
    ("pigeon.system.process.warm.call", "os.environ"): _HANDED_OVER,
    ("pigeon.system.process.warm.call", "os.environb"): _HANDED_OVER,
    ("pigeon.system.process.warm.call", "sys.argv"): _HANDED_OVER,
    ("pigeon.system.process.warm.link", "os.environb"): _HANDED_OVER,
    ("pigeon.system.process.warm.start", "os.environ"): _HANDED_OVER,
    ("pigeon.system.process.warm.start", "os.environb"): _HANDED_OVER,
    ("pigeon.system.process.warm.server", "os.chdir"): _HANDED_OVER,
    ("pigeon.system.process.warm.takeover", "os.environ"): _HANDED_OVER,
    ("pigeon.system.process.warm.takeover", "os.environb"): _HANDED_OVER,
    ("pigeon.system.process.warm.takeover", "sys.argv"): _HANDED_OVER,
    ("pigeon.system.process.python_programs", "sys.argv"): _HANDED_OVER,
    ("pigeon.system.process.pool", "os.environ"): "starts our own interpreter again, which may need its library path",
}


def test_only_the_command_line_reads_the_state_of_the_process() -> None:
    found = {(module, what): where for module, what, where in _find_reads()}
    forbidden = {pair: where for pair, where in found.items() if pair not in ALLOWED}
    assert not forbidden, "take it by the constructor instead: " + ", ".join(
        f"{module}:{where} reads {what}" for (module, what), where in forbidden.items()
    )


def test_exceptions_are_still_needed() -> None:
    found = {(module, what) for module, what, _ in _find_reads()}
    assert set(ALLOWED) <= found


def _find_reads() -> Iterator[tuple[str, str, int]]:
    for module in TREE.modules:
        if package_of(module) != "cli" and not module.startswith(FOR_OTHER_MACHINES):
            for what, line in _reads(TREE.tree(module)):
                yield module, what, line


def _reads(tree: ast.Module) -> Iterator[tuple[str, int]]:
    known = _imported_names(tree)
    methods = (node.func for node in nodes_of(tree) if isinstance(node, ast.Call) and not node.args)
    for method in methods:
        if isinstance(method, ast.Attribute) and method.attr in METHODS:
            yield method.attr, method.lineno
    harmless = {id(node.func) for node in nodes_of(tree) if isinstance(node, ast.Call) and _is_given(node, known)}
    for node in nodes_of(tree):
        if not isinstance(node, ast.Attribute | ast.Name) or id(node) in harmless:
            continue
        name = _dotted_name(node, known)
        if name in READS:
            yield name, node.lineno


def _is_given(call: ast.Call, known: dict[str, str]) -> bool:
    wanted = UNLESS_GIVEN.get(_dotted_name(call.func, known))
    return any(keyword.arg == wanted for keyword in call.keywords) if wanted else False


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """What the names of a module stand for: `which` for `shutil.which`."""
    known = {}
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            known.update({alias.asname or alias.name: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom):
            known.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return known


def _dotted_name(node: ast.expr, known: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_dotted_name(node.value, known)}.{node.attr}"
    return ""
