"""Nothing blocks the event loop: calls that wait are in functions that run in threads, or in programs without a loop.

Waiting for the disk counts (`fsync`, whole folders, files moved to another disk), as do futures of other threads,
threads, children, locks and sockets. A function counts as one for threads if it is passed by name to
`asyncio.to_thread`, `run_in_executor`, `submit` or `Thread`; if it waits, nothing but other functions for threads may
call it directly. Locks are asked for with `LOCK_NB`, children with `WNOHANG`; everything else waits by `await`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from support.source_tree import FOR_OTHER_MACHINES, TREE, hold

ALWAYS_WAIT = {
    "time.sleep",
    *(f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output")),
    *(f"os.{name}" for name in ("system", "wait", "waitid", "fsync", "fdatasync", "sync")),
    *(f"shutil.{name}" for name in ("move", "copy", "copy2", "copyfile", "copytree", "rmtree")),
    *("socket.create_connection", "urllib.request.urlopen"),
}
# Functions of ours that wait for the disk, by the names under which they are called.
DISK_WAITS = {"replace_file_atomically", "sync_folder", "remove_folder"}
# Methods of sockets, which wait if the socket does.
SOCKET_WAITS = {"accept", "recv", "recv_into", "recvfrom", "recvmsg", "sendall"}
# What waits unless one of these is among its arguments.
WAIT_UNLESS = {"os.waitpid": ("WNOHANG",), "fcntl.flock": ("LOCK_NB", "LOCK_UN"), "fcntl.lockf": ("LOCK_NB", "LOCK_UN")}
THREAD_STARTERS = {"to_thread", "run_in_executor", "submit", "Thread"}

# "module.function": why it may wait.
_OWN_COMMAND = "a command of its own, which has no event loop"
_OF_RESULTS = "called by functions for threads, and by tasks of Ray, which have no event loop"
_OF_EXTENSIONS = "for the threads of extensions; in the thread of the session it raises an error or does not wait"
EXCEPTIONS = {
    "pigeon.cli.commands.demo._run_tour": "the end of a command of its own",
    "pigeon.cli.commands.sessions.delete": _OWN_COMMAND,
    "pigeon.session.history.trash.restore_session": _OWN_COMMAND,
    "pigeon.extensions.public.context.wait": _OF_EXTENSIONS,
    "pigeon.extensions.runtime.session_access.call": _OF_EXTENSIONS,
    "pigeon.sdk.sync.stop": "for programs without an event loop; its own is in the thread that it waits for",
    "pigeon.frontends.batch.batch_folder._remove_if_possible": "called while a batch is prepared, in a thread",
    "pigeon.frontends.batch.batch_folder.put_record": "called while a batch is prepared, before its event loop",
    "pigeon.frontends.batch.batch_folder._write": "called while a batch is prepared, in a thread",
    "pigeon.frontends.batch.places.workspaces.make_writable_and_retry": "for `remove_folder`, its callers are checked",
    "pigeon.frontends.batch.preparing._find_model_problem": "in a loop that has nothing else to do",
    "pigeon.checkpoints.cleaning._remove_baselines": "called by `remove_old` in a thread, and by a command of its own",
    "pigeon.checkpoints.cleaning.free_checkpoints": _OWN_COMMAND,
    "pigeon.checkpoints.restoration._write_pending": "while files are restored, in a thread",
    "pigeon.frontends.batch.ray_engine.check_cluster_listens": "while the cluster is joined, in a thread",
    "pigeon.frontends.batch.ray_engine.run_remotely": _OF_RESULTS,
    "pigeon.frontends.batch.ray_engine.unpack_result": _OF_RESULTS,
    "pigeon.frontends.batch.task_run._sync_path": _OF_RESULTS,
    "pigeon.frontends.batch.task_run.commit_folder": _OF_RESULTS,
    "pigeon.frontends.batch.task_run.put_result": _OF_RESULTS,
    "pigeon.frontends.terminal.chat_mode.find_elsewhere": "completions of files are searched in a thread",
    "pigeon.frontends.serve.conversation_record.lock_and_clean_up": "before the service takes connections",
    # It does wait: 12 ms for 1 MB and 40 ms for 10 MB on a usual disk. Once in the life of a session file, when one in
    # an older version of the format is first opened for writing: it is replaced, so the disk must have the new one.
    "pigeon.session.history.session_file._rewrite_file": "once for a file of an older version, which must not be lost",
    "pigeon.system.files._write_and_rename": "waits if `replace_file_atomically` asks it to, whose callers are checked",
    "pigeon.system.files.sync_folder": "its callers are checked",
    "pigeon.cli.commands.warm._locked_folder": _OWN_COMMAND,
    "pigeon.system.process.warm.server._accept": "a program without an event loop, whose socket does not wait",
    "pigeon.system.process.messages.receive_unopened": "of the event loop, no socket waits; others are of programs",
    "pigeon.session.history.file_store._locked_note": "called by functions for threads",
    "pigeon.session.history.file_store._write_note": "called by functions for threads",
    "pigeon.config.file_editing.change_file": "for commands of their own, which have no event loop",
    "pigeon.frontends.acp.command.set_up_key": "a command of its own, which has no event loop",
    "pigeon.system.process.foreground.run_in_foreground": "a person's editor; the command that opens it has no loop",
    "pigeon.system.process.namespaces._run_first_process": "the first process of a namespace, which only waits",
    "pigeon.system.process.namespaces._monitor_command": "a program without an event loop",
}


def waiting_functions(tree: ast.AST) -> Iterator[str]:
    """The names of all functions in a module that wait."""
    for function, call in _calls_of(tree, "<module>"):
        if _waits(call):
            yield function


def _waits(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    owner, _, last = name.rpartition(".")
    if name in WAIT_UNLESS:
        arguments = " ".join(map(ast.unparse, call.args))
        return not any(flag in arguments for flag in WAIT_UNLESS[name])
    if last == "join":
        return "thread" in owner.lower()
    # The result of a future of this loop is there, or an error; that of another thread's is waited for.
    if last == "result":
        return bool(call.args or call.keywords) or "threadsafe" in owner
    return name in ALWAYS_WAIT or last in DISK_WAITS or (bool(owner) and last in SOCKET_WAITS)


def direct_callers(tree: ast.AST, names: set[str]) -> Iterator[str]:
    """The names of the functions in a module that call one of these."""
    for function, call in _calls_of(tree, "<module>"):
        if isinstance(call.func, ast.Name | ast.Attribute) and ast.unparse(call.func).rpartition(".")[2] in names:
            yield function


def blocked_functions(trees: Mapping[str, ast.AST]) -> set[str]:
    """The functions of these modules, as `module.function`, that wait in the event loop."""
    for_threads = set[str]().union(*map(functions_for_threads, trees.values()))
    waiting = {module: set(waiting_functions(tree)) for module, tree in trees.items()}
    # A call shows no more than the name: one that several functions have says nothing.
    defined = Counter(
        node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
    )
    in_threads = {name for name in set[str]().union(*waiting.values()) & for_threads if defined[name] == 1}
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
        if isinstance(child, ast.Call) and not isinstance(node, ast.Await):
            yield function, child
        yield from _calls_of(child, inner)


@pytest.mark.timeout(180)  # it reads the whole source
def test_nothing_waits_in_the_event_loop() -> None:
    modules = [module for module in TREE.modules if not module.startswith(FOR_OTHER_MACHINES)]
    hold(blocked_functions({module: TREE.tree(module) for module in modules}), EXCEPTIONS)


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
    "the disk": "async def put():\n    os.fsync(file.fileno())",
    "the disk, elsewhere": "async def put():\n    replace_file_atomically(path, b'', 0o600)",
    "another disk": "def delete_session():\n    shutil.move(source, target)",
    "a folder for threads, deleted in the loop": """
def drop_folder(path):
    shutil.rmtree(path)
async def end(path):
    await asyncio.to_thread(drop_folder, path)
def forget(path):
    drop_folder(path)
""",
    "a socket": "async def read():\n    return connection.recv(10)",
    "another thread": "def ask():\n    return future.result(5)",
    "a coroutine of another loop": "def ask():\n    return asyncio.run_coroutine_threadsafe(work(), loop).result()",
    "the end of a thread": "def stop(self):\n    self._thread.join()",
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
        "async def read():\n    return await socket.recv()",
        "def took(task):\n    return ', '.join(task.result())",
    ],
)
def test_what_runs_in_a_thread_or_does_not_wait_is_not_found(source: str) -> None:
    assert not blocked_functions({"module": ast.parse(source)})
