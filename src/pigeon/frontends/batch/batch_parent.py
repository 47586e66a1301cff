"""The warm parent of `pigeon batch`: a process that has imported all that an agent needs, and forks one for each task.

`task_process.py` starts it as `python -P -m pigeon.frontends.batch.batch_parent DESCRIPTOR`; the messages on that
socket are in `system/process/messages.py`. The parent contains nothing of a user: folders, variables and keys come with
each task.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from socket import socket

from msgspec.structs import replace

from pigeon.app.environment import environment_of_process
from pigeon.frontends.agent_imports import import_agent_modules
from pigeon.frontends.batch.task_link import TaskLink
from pigeon.frontends.batch.task_process import TaskRequest, decode_request
from pigeon.frontends.batch.task_run import NO_DISK, run
from pigeon.frontends.starting import mask_prints, redirect_streams
from pigeon.providers.http.certificates import load_default_certificates
from pigeon.secrets.redactor import Redactor
from pigeon.system.clock import SteadyLoop
from pigeon.system.collector import resume_collecting
from pigeon.system.process.fork_server import serve_forks
from pigeon.system.process.forking import die_with_parent
from pigeon.system.process.pool import hide_from_other_processes
from pigeon.wire.errors import StartupError, text_for_host, to_printable

PARENT = os.getpid()


def main() -> None:
    """Serve requests until the host has gone."""
    hide_from_other_processes()
    import_agent_modules()
    with suppress(OSError):
        load_default_certificates()
    os.environ.clear()
    serve_forks(int(sys.argv[1]), _run_forked_task)


def _run_forked_task(data: bytes, descriptors: list[int]) -> int:
    """Run as the process of a task, with its descriptors and variables."""
    die_with_parent(PARENT)
    request = decode_request(data)
    link, stderr = descriptors
    redirect_streams(stderr)
    os.environ.update(request.place.variables)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    mask_prints(Redactor())
    return SteadyLoop().run_until_complete(_run_task(request, socket(fileno=link)))


async def _run_task(request: TaskRequest, end: socket) -> int:
    link = await TaskLink.from_socket(end)
    # The collector was off during the start, which creates no garbage.
    resume_collecting()
    try:
        environment = replace(environment_of_process(module_path=sys.path), cwd=request.place.cwd)
        result = await run(request.spec, request.place, environment, link)
    except OSError as error:
        print(f"Error: {to_printable(error)}", file=sys.stderr)  # noqa: T201
        await link.report_task_end(None, text_for_host(error) if error.errno in NO_DISK else "")
        return 1
    except StartupError as error:
        print(f"Error: {to_printable(error)}", file=sys.stderr)  # noqa: T201
        return 1
    await link.report_task_end(result)
    return 0
