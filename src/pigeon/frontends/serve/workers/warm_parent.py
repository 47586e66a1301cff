"""The warm parent of `pigeon serve`: a process that forks workers.

`worker_process.py` starts it, with the descriptor of a socket as its argument; the messages on that socket are in
`system/process/messages.py`. A worker is a new agent without the cost of a start, and shares the memory of everything
imported. The parent contains nothing of a user: folder, variables and options come with each request.

At first it has imported only what every agent needs, so that the first conversation need not wait. The rest is its
preparation (`warming.py`), which the supervisor asks for when there is time; workers that are forked before or
meanwhile import what they need themselves.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from socket import socket

from pigeon.app.environment import environment_of_process
from pigeon.frontends.serve.worker_process import WARM_UP
from pigeon.frontends.serve.worker_request import decode_request
from pigeon.frontends.serve.workers.worker import run_worker
from pigeon.frontends.starting import mask_prints, redirect_streams
from pigeon.secrets.redactor import Redactor
from pigeon.system.process.fork_server import serve_forks
from pigeon.system.process.immortal_objects import make_all_immortal
from pigeon.system.process.pool import hide_from_other_processes
from pigeon.wire.errors import StartupError, to_printable


def main() -> None:
    """Serve requests until the supervisor has gone."""
    hide_from_other_processes()
    variables = dict(os.environ)
    os.environ.clear()
    serve_forks(int(sys.argv[1]), _run_forked_worker, preparation=_prepare_with(variables))


def _prepare_with(variables: dict[str, str]) -> Iterator[None]:
    """Prepare with these variables, which the workers do not get."""
    from pigeon.frontends.serve.workers.warming import warm_up

    plays = variables.get(WARM_UP) != "off"
    steps = warm_up(plays, variables.get("PATH", os.defpath))
    has_more = True
    while has_more:
        os.environ.update(variables)
        try:
            has_more = next(steps, False) is None
        finally:
            os.environ.clear()
        yield
    if plays:
        make_all_immortal()


def _run_forked_worker(data: bytes, descriptors: list[int]) -> int:
    """Run as a worker, with its descriptors, variables and folder."""
    request = decode_request(data)
    listener, stderr, *link = descriptors
    redirect_streams(stderr)
    os.environ.update(request.variables)
    redactor = Redactor()
    mask_prints(redactor)
    try:
        if link:
            from pigeon.frontends.serve.workers.shared_worker import run_shared_worker

            sockets = (socket(fileno=link[0]), socket(fileno=listener))
            return run_shared_worker(request, environment_of_process(), redactor, *sockets, stderr=os.dup(2))
        os.chdir(request.folder)
        return run_worker(request, environment_of_process(module_path=sys.path), redactor, socket(fileno=listener))
    except (StartupError, OSError) as error:
        print(f"Error: {to_printable(str(error))}", file=sys.stderr)  # noqa: T201
        return 1
