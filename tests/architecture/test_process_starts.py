"""Only `system/process` starts, signals or waits for processes, so that none can outlive Pigeon unnoticed, or see
variables that nobody has chosen for it."""

from __future__ import annotations

import ast
import inspect

from house_measures import nodes_of

from pigeon.system.process.foreground import run_in_foreground
from pigeon.system.process.forking import ForkServer
from pigeon.system.process.python_programs import make_python_command
from pigeon.system.process.run_program import run_program
from pigeon.system.process.start import ProcessOwner
from support.source_tree import FOR_OTHER_MACHINES, TREE

HOME = "pigeon.system.process"
OF_OS = {
    *("fork", "forkpty", "kill", "killpg", "popen", "posix_spawn", "posix_spawnp", "system", "startfile"),
    *("wait", "wait3", "wait4", "waitid", "waitpid", "pidfd_open"),
    *(f"exec{kind}" for kind in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
    *(f"spawn{kind}" for kind in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
}
OF_SIGNAL = {"pidfd_send_signal", "raise_signal", "pthread_kill"}
MODULES = {"subprocess", "multiprocessing", "pty", "concurrent.futures.process"}
OF_ASYNCIO = {"create_subprocess_exec", "create_subprocess_shell", "subprocess", "subprocess_exec", "subprocess_shell"}

# One line per deliberate exception: (module, what it uses): reason.
EXCEPTIONS = {
    ("pigeon.cli.main", "os.execv"): "becomes itself once more where the interpreter was not started in UTF-8",
    (
        "pigeon.frontends.serve.workers.warming",
        "signal.raise_signal",
    ): "ends the agent that it plays, as a worker is ended",
    ("pigeon.rpc.shutdown", "os.kill"): "ends itself by SIGINT, so that a shell sees how it ended",
}


# The wall stands in `start`: only it may reach what starts commands, and only these may say that one runs outside.
BEHIND_THE_WALL = {"start_unsupervised", "SupervisedProcess", "program_request"}
MAY_SAY_OUTSIDE = {
    "pigeon.system.process.start": "where the wall stands",
    "pigeon.system.shell.shell": "passes on what it is told",
    "pigeon.tools.bash": "what the host has allowed; `permissions/sandbox_exit` asks",
    "pigeon.tools.background_commands": "the same for a command in the background",
    "pigeon.session.host.host_shell": "the host's own command, if the user's settings say so",
    "pigeon.workspaces.remote.transport": "what connects to the machine that the user has named",
}
# Who makes an owner of processes. What has no wall is none of an agent, and runs nothing that a model has said.
OWNERS = {
    "pigeon.workspaces.local": "a workspace that a program uses without an agent",
    "pigeon.app.checkpoints": "git in repositories of Pigeon's own, which runs nothing that a model has said",
    "pigeon.app.build": "the agent's own, which `app/sandbox` encloses",
    "pigeon.cli.commands.doctor": "key commands, which `app/sandbox` encloses, too",
    "pigeon.frontends.terminal.clipboard": "the clipboard of the person",
    "pigeon.mcp.connector_process": "a part of Pigeon; servers that are programs are started by the agent's own owner",
    "pigeon.frontends.batch.preparing": "git, before any task runs",
    "pigeon.frontends.batch.task_run": "git before a task has an agent; after that it is the agent's own",
}


# The one place where the variables of a program are chosen; `ProcessOwner.start` takes nothing else, as mypy checks.
VARIABLES = "pigeon.system.process.variables"
# The one place where git is run.
GIT = "pigeon.system.git"
# Who names our interpreter; every program that runs in it is started isolated.
NAMING_PYTHON = {
    "pigeon.cli.main": "becomes itself once more where the interpreter was not started in UTF-8",
    "pigeon.system.extras": "a command that is shown",
    "pigeon.system.process.pool": "the helper, isolated and without site packages",
    "pigeon.system.process.python_programs": "all others",
    "pigeon.system.process.warm.code_watch": "one of the files that are compared",
    "pigeon.system.process.warm.link": "what is compared",
    "pigeon.workspaces.ripgrep": "where its program may be",
}
# Calls of libraries that start programs which they find through PATH, with all our variables.
STARTING_PROGRAMS = {
    *("platform.platform", "platform.processor", "platform.uname", "platform.architecture", "uuid.getnode"),
    *("uuid.uuid1", "ctypes.util.find_library", "webbrowser.open", "os.startfile", "pydoc.pager"),
}


def uses() -> set[tuple[str, str]]:
    """Every use of a means to start or signal a process outside `system/process`."""
    return {
        (module, used)
        for module in TREE.modules
        if not module.startswith((HOME, FOR_OTHER_MACHINES))
        for used in _process_names(TREE.tree(module))
    }


def _process_names(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in MODULES}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {node.module} & MODULES | {name for name in names if _starts_or_signals(name)}
        elif isinstance(node, ast.Attribute):
            name = f"{node.value.id}.{node.attr}" if isinstance(node.value, ast.Name) else f".{node.attr}"
            if _starts_or_signals(name):
                found.add(name)
    return found


def _starts_or_signals(name: str) -> bool:
    owner, _, attribute = name.rpartition(".")
    return (
        (owner in ("os", "posix") and attribute in OF_OS)
        or (owner == "signal" and attribute in OF_SIGNAL)
        or (owner == "asyncio" and attribute in OF_ASYNCIO)
        or attribute.startswith(("create_subprocess", "subprocess_"))
        or name in MODULES
    )


def test_only_one_package_starts_or_signals_processes() -> None:
    assert uses() - set(EXCEPTIONS) == set()


def test_every_exception_is_still_needed() -> None:
    assert set(EXCEPTIONS) - uses() == set()


def test_a_command_is_started_at_one_place_where_the_wall_stands() -> None:
    reaching = {
        module
        for module in TREE.modules
        for node in nodes_of(TREE.tree(module))
        if isinstance(node, ast.Call) and _called_name(node) in BEHIND_THE_WALL
    }
    assert reaching == {"pigeon.system.process.start"}


def test_only_those_say_outside_who_have_asked() -> None:
    saying = {
        module
        for module in TREE.modules
        for node in nodes_of(TREE.tree(module))
        if isinstance(node, ast.Call) and any(keyword.arg == "outside" for keyword in node.keywords)
    }
    assert saying <= set(MAY_SAY_OUTSIDE)
    assert saying >= set(MAY_SAY_OUTSIDE) - {"pigeon.system.process.start"}


def test_owners_of_processes_are_known() -> None:
    making = {
        module
        for module in TREE.modules
        for node in nodes_of(TREE.tree(module))
        if isinstance(node, ast.Call) and _called_name(node) == "ProcessOwner"
    }
    assert making == set(OWNERS)


def test_the_variables_of_a_program_are_chosen_in_one_place() -> None:
    making = {
        module
        for module in TREE.modules
        for node in nodes_of(TREE.tree(module))
        if isinstance(node, ast.Call) and _called_name(node) == "ProgramEnvironment"
    }
    assert making == {VARIABLES}
    for start in (ProcessOwner.start, run_program, run_in_foreground, ForkServer.__init__):
        assert "ProgramEnvironment" in inspect.get_annotations(start).values()


def test_git_is_run_in_one_place() -> None:
    running = {
        module
        for module in TREE.modules
        for node in nodes_of(TREE.tree(module))
        if isinstance(node, ast.List | ast.Tuple | ast.Call)
        if not (isinstance(node, ast.Call) and _called_name(node) in ("get", "pop", "setdefault"))
        if _first_text(node.args if isinstance(node, ast.Call) else node.elts) == "git"
    }
    assert running == {GIT}


def _first_text(items: list[ast.expr]) -> str:
    first = items[0] if items else None
    return str(first.value).rpartition("/")[2] if isinstance(first, ast.Constant) else ""


def test_programs_in_python_are_started_isolated() -> None:
    naming = {
        module
        for module in TREE.modules
        for node in nodes_of(TREE.tree(module))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.executable"
    }
    assert naming == set(NAMING_PYTHON)
    assert make_python_command("m")[1] == "-I"


def test_no_library_starts_programs_for_us() -> None:
    calling = {
        (module, called)
        for module in TREE.modules
        for node in nodes_of(TREE.tree(module))
        if isinstance(node, ast.Attribute) and (called := ast.unparse(node)) in STARTING_PROGRAMS
    }
    assert calling == set()


def _called_name(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
