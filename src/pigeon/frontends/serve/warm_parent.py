"""The warm parent of `pigeon serve`: a process that has imported all that an agent needs, and forks workers.

`worker_process.py` starts it as `python -P -m pigeon.frontends.serve.warm_parent DESCRIPTOR`; what is said over that
socket is in `system/process/messages.py`. A worker is a new agent without the cost of a start, and shares the memory of
everything imported. Nothing of a user is in the parent: folder, variables and options come with each request.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from socket import socket

from pigeon.app.environment import process_environment
from pigeon.frontends.agent_imports import import_all
from pigeon.frontends.serve.warming import settle, warm_up
from pigeon.frontends.serve.worker import run_worker, unpacked
from pigeon.frontends.serve.worker_process import WARM_UP
from pigeon.frontends.starting import mask_prints
from pigeon.providers.http.client import own_certificates
from pigeon.secrets.redactor import Redactor
from pigeon.system.process.fork_server import serve_forks
from pigeon.system.process.immortal_objects import make_all_immortal
from pigeon.system.process.pool import hide_from_other_processes
from pigeon.wire.errors import StartupError, printable


def main() -> None:
    """Serve requests until the supervisor has gone."""
    hide_from_other_processes()
    import_all()
    with suppress(OSError):
        # Loaded by each worker for itself, they would be most of a megabyte.
        own_certificates()
    warm = os.environ.get(WARM_UP) != "off"
    if warm:
        with tempfile.TemporaryDirectory(prefix="pigeon-") as folder:
            warm_up(folder, os.environ.get("PATH", os.defpath))
    os.environ.clear()
    settle()
    if warm:
        make_all_immortal()
    serve_forks(int(sys.argv[1]), _work)


def _work(data: bytes, descriptors: list[int]) -> int:
    """Be a worker: with descriptors, variables and a folder of its own."""
    request = unpacked(data)
    listener, stderr = descriptors
    null = os.open(os.devnull, os.O_RDWR)
    for target, source in ((0, null), (1, stderr), (2, stderr)):
        os.dup2(source, target)
    os.close(null)
    os.close(stderr)
    os.environ.update(request.variables)
    redactor = Redactor()
    mask_prints(redactor)
    try:
        os.chdir(request.folder)
        return run_worker(request, process_environment(module_path=sys.path), redactor, socket(fileno=listener))
    except (StartupError, OSError) as error:
        print(f"Error: {printable(str(error))}", file=sys.stderr)  # noqa: T201
        return 1


if __name__ == "__main__":
    main()
