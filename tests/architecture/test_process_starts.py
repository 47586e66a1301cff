"""Only `system/process` starts, signals or waits for processes, so that none can outlive Pigeon unnoticed."""

from __future__ import annotations

import ast

from house_measures import nodes_of

from support.source_tree import TREE

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
        "pigeon.frontends.serve.warming",
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
    "pigeon.session.host.host_shell": "the host's own command, if the user's settings say so",
}
# Who makes an owner of processes. What has no wall is none of an agent, and runs nothing that a model has said.
OWNERS = {
    "pigeon.app.build": "the agent's own, which `app/sandbox` encloses",
    "pigeon.cli.commands.doctor": "key commands, which `app/sandbox` encloses, too",
    "pigeon.frontends.terminal.clipboard": "the clipboard of the person",
    "pigeon.mcp.connector_process": "a part of Pigeon; servers that are programs are started by the agent's own owner",
    "pigeon.frontends.batch.preparing": "git, before any task runs",
    "pigeon.frontends.batch.task_run": "git before a task has an agent; after that it is the agent's own",
}


def uses() -> set[tuple[str, str]]:
    """Every use of a means to start or signal a process outside `system/process`."""
    return {
        (module, used)
        for module in TREE.modules
        if not module.startswith(HOME)
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


def _called_name(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
