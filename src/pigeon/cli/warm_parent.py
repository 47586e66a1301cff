"""The program of a warm parent: it has imported what agents need, and forks a process for each call of `pigeon`.

`pigeon warm` starts it as the same program with the same interpreter, so that a forked process is what a call would be
that starts by itself (`cli/commands/warm.py`). It contains nothing of a user: its own variables are only those that an
interpreter reads when it starts.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from pigeon.frontends.starting import redirect_streams
from pigeon.system.process.warm.code_watch import CodeWatch

# What calls that run warm import besides what every agent needs.
MODULES = (
    "pigeon.cli.args",
    "pigeon.cli.running",
    "pigeon.frontends.acp.command",
    "pigeon.frontends.print.json_mode",
    "pigeon.frontends.print.one_answer",
    "pigeon.frontends.stdio.rpc_mode",
    "pigeon.system.process.warm.takeover",
)


def run_warm_parent(folder: int, idle_seconds: float) -> NoReturn:
    """Serve calls, on a socket in this folder, until none has come for long.

    Writes to stderr that it begins, or why not, and nothing more.
    """
    os.set_inheritable(folder, False)
    watch = CodeWatch()
    from pigeon.system.process.pool import hide_from_other_processes
    from pigeon.system.process.warm.link import describe_interpreter
    from pigeon.system.process.warm.server import WarmServer, WarmSocket
    from pigeon.system.process.warm.start import READY

    # As callers see it, before anything is imported that could add a folder or a variable.
    facts = describe_interpreter()
    hide_from_other_processes()
    _import_everything()
    watch.remember(_trusted_files())
    os.environ.clear()
    server = WarmServer(WarmSocket(folder, facts), facts, watch.is_current, run_taken_call, idle_seconds)
    gc.collect()
    gc.freeze()
    os.write(2, READY)
    redirect_streams(os.open(os.devnull, os.O_RDWR))
    server.serve()
    os._exit(0)


def run_taken_call(request: bytes, descriptors: list[int]) -> int:
    """The work of a forked process: everything that `main` does, for the caller."""
    from pigeon.cli.main import name_process, run_to_end
    from pigeon.system.process.warm.takeover import take_over

    call = take_over(descriptors, can_run_warm)
    name_process()
    run_to_end(call.report_exit)


def can_run_warm(argv: Sequence[str]) -> bool:
    """True for the modes with an agent and no screen.

    A screen needs the terminal as its own: programs that it opens there stop and are interrupted with it. So the chat
    starts by itself, and only its agent is forked. The same goes for a question at the terminal.
    """
    from pigeon.cli.running import is_agent_without_screen

    program, *arguments = argv
    return is_agent_without_screen(program, arguments)


def _import_everything() -> None:
    import importlib

    from pigeon.cli.main import import_msgspec
    from pigeon.frontends.agent_imports import import_agent_modules
    from pigeon.providers.http.certificates import load_default_certificates

    import_msgspec()
    for module in MODULES:
        importlib.import_module(module)
    import_agent_modules()
    with suppress(OSError):
        load_default_certificates()
    # Makes the parser of options.
    can_run_warm(["pigeon", "--mode", "rpc"])


def _trusted_files() -> list[str]:
    """Where certificates come from: trust that was withdrawn must not live on in a parent."""
    from pigeon.providers.http.certificates import system_store_places

    return system_store_places()
