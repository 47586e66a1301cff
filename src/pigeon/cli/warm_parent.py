"""The warm parent of `pigeon serve`: a process that has imported all that an agent needs, and forks workers.

`serve/worker_process.py` starts it as `python -P -m pigeon.cli.warm_parent DESCRIPTOR`; what is said over that socket
is in `system/process/forking.py`. A worker is a new agent without the cost of a start, and shares the memory of
everything imported. Nothing of a user is in the parent: folder, variables and options come with each request.
"""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import suppress
from socket import socket

import msgspec

from pigeon.app.environment import process_environment
from pigeon.cli.starting import mask_prints
from pigeon.guard.secrets import Redactor
from pigeon.serve.worker import WorkerRequest, run_worker
from pigeon.system.clock import SteadyLoop
from pigeon.system.process.forking import serve_forks
from pigeon.system.process.pool import hide_from_other_processes
from pigeon.wire.errors import StartupError, printable

# Rooms whose modules are imported: all that an agent may need, and nothing of other doors.
ROOMS = (
    "agent", "app", "config", "dialects", "export", "extensions", "guard", "providers", "resources", "rpc", "session",
    "system", "tools", "transport", "wire",
)  # fmt: skip
# What those import inside functions.
LATE = (
    "anyio._backends._asyncio",
    "anyio.lowlevel",
    "anyio.streams.memory",
    "anyio.streams.stapled",
    "concurrent.futures.thread",
    "httpcore2",
    "jsonschema",
    "markdown_it",
    "nh3",
    "pwd",
    "pygments.lexers",
    "queue",
    "referencing.jsonschema",
    "regex",
    "resource",
    "secrets",
    "shlex",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "uuid",
    "yaml",
)
PLAYED = 3
# A program of its own, and what a fork would not do well.
LEFT_OUT = ("pigeon.system.process.helper_main",)


def main() -> None:
    """Serve requests until the supervisor has gone."""
    hide_from_other_processes()
    _import_all()
    serve_forks(int(sys.argv[1]), _work)


def _import_all() -> None:
    import importlib
    import pkgutil

    package = os.path.dirname(os.path.dirname(__file__))
    for room in ROOMS:
        for module in pkgutil.walk_packages([f"{package}/{room}"], f"pigeon.{room}."):
            if module.name not in LEFT_OUT:
                importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)
    _prepare_records()
    _play_once()


def _play_once() -> None:
    """Have the demo model use a tool, and leave nothing of it.

    The interpreter writes into the code that it runs first; what it has written here, workers share.
    """
    import tempfile

    from pigeon.sdk.agent import Agent

    async def play(folder: str) -> None:
        variables = {"HOME": folder, "PATH": os.environ.get("PATH", os.defpath)}
        async with Agent(model="demo", cwd=folder, agent_dir=folder, env=variables, session=None) as agent:
            for _ in range(PLAYED):
                await agent.run("list the files")

    loop = SteadyLoop()
    try:
        with tempfile.TemporaryDirectory(prefix="pigeon-") as folder:
            loop.run_until_complete(play(folder))
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def _prepare_records() -> None:
    """What msgspec works out about a record when it meets it first is kept with its class, and so shared."""
    from pigeon.wire import codec

    found: list[type] = [msgspec.Struct]
    for record in found:
        found += record.__subclasses__()
    for record in found[1:]:
        if record.__module__.startswith(("pigeon.wire.", "pigeon.config.")):
            with suppress(TypeError, NameError):
                codec.prepare(record)


def _work(data: bytes, descriptors: list[int]) -> int:
    """Be a worker: with descriptors, variables and a folder of its own."""
    request = pickle.loads(data)
    assert isinstance(request, WorkerRequest)
    listener, stderr = descriptors
    null = os.open(os.devnull, os.O_RDWR)
    for target, source in ((0, null), (1, stderr), (2, stderr)):
        os.dup2(source, target)
    os.close(null)
    os.close(stderr)
    os.environ.clear()
    os.environ.update(request.variables)
    redactor = Redactor()
    mask_prints(redactor)
    try:
        os.chdir(request.folder)
        return run_worker(request, process_environment(), redactor, socket(fileno=listener))
    except (StartupError, OSError) as error:
        print(f"Error: {printable(str(error))}", file=sys.stderr)  # noqa: T201
        return 1


if __name__ == "__main__":
    main()
