"""A worker: the agent of one conversation, in a process that `cli/warm_parent.py` has forked.

It is the server of `--mode rpc` with another channel (`rpc/worker_link.py`), in the one form that all clients of a
conversation share: `pi-latest` with numbered events and all features.
"""

from __future__ import annotations

import gc
import sys
from socket import socket

from msgspec import Struct

from pigeon import __version__
from pigeon.app.build import build
from pigeon.app.environment import Environment
from pigeon.app.options import AgentOptions
from pigeon.dialects.pi_latest import PiLatest
from pigeon.guard.secrets import Redactor
from pigeon.rpc.host import Host
from pigeon.rpc.worker_link import WorkerLink
from pigeon.system.clock import SteadyLoop
from pigeon.transport.event_log import EventLog, lines_since
from pigeon.transport.reader import DEFAULT_CAP
from pigeon.wire.base import ABSENT
from pigeon.wire.dialogs import CancelRequest
from pigeon.wire.errors import printable
from pigeon.wire.events import AgentRestarted, AgentSettled
from pigeon.wire.open_work import SETTLED, OpenWork, open_work

DIED = "The agent died in the middle of the run: {}"


class WorkerRequest(Struct, frozen=True, kw_only=True):
    """A worker that is wanted: the agent, its surroundings, and the folder of its event log.

    `died` is how the process before this one came to its end, if that was not wanted.
    """

    number: int
    options: AgentOptions
    folder: str
    variables: dict[str, str]
    log_folder: str
    died: str = ""


def run_worker(request: WorkerRequest, environment: Environment, redactor: Redactor, listener: socket) -> int:
    """Serve until a signal, or until no supervisor has come back for a long time; returns the exit code."""
    return SteadyLoop().run_until_complete(_serve(request, environment, redactor, listener))


async def _serve(request: WorkerRequest, environment: Environment, redactor: Redactor, listener: socket) -> int:
    agent = await build(request.options.spoken_in(PiLatest), environment, redactor)
    for problem in agent.problems:
        print(f"Warning: {printable(problem)}", file=sys.stderr)  # noqa: T201
    session, life = agent.session, agent.lifecycle
    log = EventLog(request.log_folder)
    left = open_work(lines_since(request.log_folder, SETTLED, log.end))
    link = WorkerLink(listener, log, lambda: session.activity.busy, DEFAULT_CAP)
    host = Host(session, PiLatest(__version__), link, life.drains, life.warm, mask=redactor.mask)
    host.speak_fully()
    _end_open_work(left, host, request.died)
    # The collector was off: nothing that a start makes is garbage.
    gc.freeze()
    gc.enable()
    return await host.serve(life.started, life.leaving, life.stop)


def _end_open_work(left: OpenWork, host: Host, died: str) -> None:
    """Say what became of all that the process before this one has left open."""
    why = died or "the machine was stopped"
    if died or left.busy:
        host.tell(AgentRestarted(reason=why))
    for number, id in enumerate(left.questions):
        host.tell(CancelRequest(id=f"restarted-{number}", target_id=id))
    if left.running:
        run_id = left.run_id or ABSENT
        host.tell(AgentSettled(run_id=run_id, reason="error", error_message=DIED.format(why)))
