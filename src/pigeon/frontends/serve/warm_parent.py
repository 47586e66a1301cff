"""The warm parent of `pigeon serve`: a process that has imported all that an agent needs, and forks workers.

`worker_process.py` starts it as `python -P -m pigeon.frontends.serve.warm_parent DESCRIPTOR`; the messages on that
socket are in `system/process/messages.py`. A worker is a new agent without the cost of a start, and shares the memory
of everything imported. The parent contains nothing of a user: folder, variables and options come with each request.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from socket import socket

from pigeon.app.environment import environment_of_process
from pigeon.frontends.agent_imports import import_agent_modules
from pigeon.frontends.serve.warming import collect_garbage, warm_up
from pigeon.frontends.serve.worker import decode_request, run_worker
from pigeon.frontends.serve.worker_process import WARM_UP
from pigeon.frontends.starting import mask_prints, redirect_streams
from pigeon.providers.http.certificates import load_default_certificates
from pigeon.secrets.redactor import Redactor
from pigeon.system.process.fork_server import serve_forks
from pigeon.system.process.immortal_objects import make_all_immortal
from pigeon.system.process.pool import hide_from_other_processes
from pigeon.wire.errors import StartupError, to_printable


def main() -> None:
    """Serve requests until the supervisor has gone."""
    hide_from_other_processes()
    import_agent_modules()
    with suppress(OSError):
        # If each worker loaded them, they would take most of a megabyte each.
        load_default_certificates()
    warm = os.environ.get(WARM_UP) != "off"
    if warm:
        with tempfile.TemporaryDirectory(prefix="pigeon-") as folder:
            warm_up(folder, os.environ.get("PATH", os.defpath))
    os.environ.clear()
    collect_garbage()
    if warm:
        make_all_immortal()
    serve_forks(int(sys.argv[1]), _run_forked_worker)


def _run_forked_worker(data: bytes, descriptors: list[int]) -> int:
    """Run as a worker, with its descriptors, variables and folder."""
    request = decode_request(data)
    listener, stderr = descriptors
    redirect_streams(stderr)
    os.environ.update(request.variables)
    redactor = Redactor()
    mask_prints(redactor)
    try:
        os.chdir(request.folder)
        return run_worker(request, environment_of_process(module_path=sys.path), redactor, socket(fileno=listener))
    except (StartupError, OSError) as error:
        print(f"Error: {to_printable(str(error))}", file=sys.stderr)  # noqa: T201
        return 1
