"""Nothing blocks the event loop: calls that wait are in functions that run in threads, or in programs without a loop.

A function counts as one for threads if it is passed by name to `asyncio.to_thread`, `run_in_executor`, `submit` or
`Thread`; if it waits, nothing but other functions for threads may call it directly. Locks are asked for with `LOCK_NB`,
children with `WNOHANG`; everything else waits by `await`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import pytest

from support.source_tree import TREE, hold

ALWAYS_WAIT = {
    "time.sleep",
    *(f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output")),
    *(f"os.{name}" for name in ("system", "wait", "waitid")),
}
# What waits unless one of these is among its arguments.
WAIT_UNLESS = {"os.waitpid": ("WNOHANG",), "fcntl.flock": ("LOCK_NB", "LOCK_UN"), "fcntl.lockf": ("LOCK_NB", "LOCK_UN")}
THREAD_STARTERS = {"to_thread", "run_in_executor", "submit", "Thread"}

# "module.function": why it may wait.
EXCEPTIONS = {
    "pigeon.config.file_editing.change_file": "for commands of their own, which have no event loop",
    "pigeon.frontends.acp.command.set_up_key": "a command of its own, which has no event loop",
    "pigeon.system.process.foreground.run_in_foreground": "a person's editor; the command that opens it has no loop",
    "pigeon.system.process.namespaces._run_first_process": "the first process of a namespace, which only waits",
    "pigeon.system.process.namespaces._monitor_command": "a program without an event loop",
}


def waiting_functions(tree: ast.AST) -> Iterator[str]:
    """The names of all functions in a module that wait."""
    for function, call in _calls_of(tree, "<module>"):
        name = ast.unparse(call.func)
        arguments = " ".join(map(ast.unparse, call.args))
        unless = WAIT_UNLESS.get(name)
        if name in ALWAYS_WAIT or (unless is not None and not any(flag in arguments for flag in unless)):
            yield function


def direct_callers(tree: ast.AST, names: set[str]) -> Iterator[str]:
    """The names of the functions in a module that call one of these."""
    for function, call in _calls_of(tree, "<module>"):
        if isinstance(call.func, ast.Name | ast.Attribute) and ast.unparse(call.func).rpartition(".")[2] in names:
            yield function


def blocked_functions(trees: Mapping[str, ast.AST]) -> set[str]:
    """The functions of these modules, as `module.function`, that wait in the event loop."""
    for_threads = set[str]().union(*map(functions_for_threads, trees.values()))
    waiting = {module: set(waiting_functions(tree)) for module, tree in trees.items()}
    in_threads = set[str]().union(*waiting.values()) & for_threads
    return {
        f"{module}.{function}"
        for module, tree in trees.items()
        for function in {*waiting[module], *direct_callers(tree, in_threads)} - for_threads
    }


def functions_for_threads(tree: ast.AST) -> set[str]:
    """The names of all functions that a module passes to a thread or an executor."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in THREAD_STARTERS:
            given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "target")]
            found |= {
                ast.unparse(one).rpartition(".")[2] for one in given if isinstance(one, (ast.Name, ast.Attribute))
            }
    return found


def _calls_of(node: ast.AST, function: str) -> Iterator[tuple[str, ast.Call]]:
    for child in ast.iter_child_nodes(node):
        inner = child.name if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
        if isinstance(child, ast.Call):
            yield function, child
        yield from _calls_of(child, inner)


def test_nothing_waits_in_the_event_loop() -> None:
    hold(blocked_functions({module: TREE.tree(module) for module in TREE.modules}), EXCEPTIONS)


WAITING = {
    "a lock of a log": """
def lock_log(folder, seconds=0.0):
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            pass
        time.sleep(_PAUSE)
""",
    "a locked folder": """
@contextmanager
def locked_folder(folder):
    while True:
        try:
            _lock(descriptor, folder)
        except FileInUse:
            time.sleep(_PAUSE)
        else:
            break
    yield
""",
    "a stand-in": """
def _held(path, content):
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE)
""",
    "a lock without an end": "def put():\n    fcntl.flock(lock, fcntl.LOCK_EX)",
    "a lock for threads, asked for in the loop": """
def put():
    fcntl.flock(lock, fcntl.LOCK_EX)
async def save(file):
    await asyncio.to_thread(file.put)
def on_signed_in(file):
    file.put()
""",
    "a child": "async def ended():\n    return os.waitpid(pid, 0)",
    "a program": "async def run():\n    subprocess.run(['true'])",
}


@pytest.mark.parametrize("source", WAITING.values(), ids=WAITING)
def test_what_waits_is_found(source: str) -> None:
    assert blocked_functions({"module": ast.parse(source)})


@pytest.mark.parametrize(
    "source",
    [
        "def work():\n    time.sleep(0)\nasync def run():\n    await asyncio.to_thread(work)",
        "class A:\n    def work(self):\n        time.sleep(0)\n"
        "    def run(self):\n        Thread(target=self.work).start()",
        "def lock():\n    fcntl.flock(1, fcntl.LOCK_EX | fcntl.LOCK_NB)\n    fcntl.flock(1, fcntl.LOCK_UN)",
        "def reap():\n    os.waitpid(-1, os.WNOHANG | also)",
    ],
)
def test_what_runs_in_a_thread_or_does_not_wait_is_not_found(source: str) -> None:
    assert not blocked_functions({"module": ast.parse(source)})
