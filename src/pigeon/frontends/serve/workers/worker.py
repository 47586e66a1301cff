"""A worker: the agent of one conversation, in a process that `frontends/serve/workers/warm_parent.py` has forked.

It is the server of `--mode rpc` over another channel (`rpc/worker_link.py`), in the one form that all clients of a
conversation share: `pi-latest` with numbered events and all features.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from functools import partial
from socket import socket

from msgspec.structs import replace

from pigeon import __version__
from pigeon.app.build import BuiltAgent, build
from pigeon.dialects.pi_latest import PiLatest
from pigeon.frontends.draining import should_drain
from pigeon.frontends.serve.worker_request import WorkerRequest
from pigeon.frontends.serve.workers.worker_files import QueueFile, StateFile
from pigeon.rpc.host import Host
from pigeon.rpc.worker_link import WorkerLink
from pigeon.secrets.redactor import Redactor
from pigeon.system.clock import SteadyLoop
from pigeon.system.collector import resume_collecting
from pigeon.system.environment import Environment
from pigeon.transport.event_log import EventLog, lines_since, lock_log_within
from pigeon.transport.reader import DEFAULT_CAP
from pigeon.wire.base import ABSENT
from pigeon.wire.dialogs import CancelRequest
from pigeon.wire.errors import BadRecord, PigeonError, StartupError, to_printable
from pigeon.wire.events import AgentRestarted, AgentSettled, HostToolCancel, Outbound
from pigeon.wire.open_work import OpenWork, head_of, is_settled, read_open_work

# How long to wait for an earlier process of the conversation that is being killed.
OTHER_SECONDS = 3.0
QUEUE_FILE = "queue.json"
DIED = "The agent died during the run: {}"
# How long the helper for shell commands is kept after a run.
HELPER_SECONDS = 30.0


class Seat:
    """The place of a conversation in its process, which it has for itself."""

    is_shared = False
    host_type = Host

    def print_line(self, text: str) -> None:
        """Print a warning for the operator; the first thing that is printed."""
        print(text, file=sys.stderr)  # noqa: T201

    def on_host_ready(self, host: Host) -> None:
        """Called before the conversation is served: the collector was off during the start, which creates no
        garbage."""
        resume_collecting()


ALONE = Seat()


def run_worker(request: WorkerRequest, environment: Environment, redactor: Redactor, listener: socket) -> int:
    """Serve until a signal, or until no supervisor has returned for a long time; returns the exit code."""
    return SteadyLoop().run_until_complete(lock_and_serve(request, environment, redactor, listener))


async def lock_and_serve(
    request: WorkerRequest, environment: Environment, redactor: Redactor, listener: socket, seat: Seat = ALONE
) -> int:
    """Serve one conversation in the running event loop, as the only process that does; raises `StartupError` or
    `OSError`."""
    # Before anything of the conversation is touched: the previous process may still be using it.
    try:
        lock = await lock_log_within(request.log_folder, OTHER_SECONDS)
    except OSError:
        raise StartupError("another process of this conversation does not end") from None
    return await serve_worker(request, environment, redactor, listener, lock, seat)


async def serve_worker(
    request: WorkerRequest,
    environment: Environment,
    redactor: Redactor,
    listener: socket,
    lock: int = -1,
    seat: Seat = ALONE,
) -> int:
    """Like `lock_and_serve`; `lock` is the lock of the log, which is released at the end."""
    options = replace(request.options.for_dialect(PiLatest), several_clients=True, attended=True)
    try:
        agent = await build(options, environment, redactor)
        log = EventLog(request.log_folder, lock=lock)
    except BaseException:
        if lock >= 0:
            os.close(lock)
        raise
    for problem in agent.problems:
        seat.print_line(f"Warning: {to_printable(problem)}")
    state = StateFile(request.state_file, agent.session)
    try:
        host = await _prepare_host(request, agent, log, state, listener, seat)
    except (PigeonError, OSError):
        # Others of this process go on.
        log.close()
        await agent.session.close()
        await agent.lifecycle.stop()
        raise
    seat.on_host_ready(host)
    life, helper = agent.lifecycle, HelperTimer(agent)
    agent.session.bus.add_announcer(helper.restart, kind=AgentSettled)
    code = await host.serve(life.on_host_ready, life.close_extensions, life.stop)
    helper.stop()
    state.close()
    return code


async def _prepare_host(
    request: WorkerRequest, agent: BuiltAgent, log: EventLog, state: StateFile, listener: socket, seat: Seat
) -> Host:
    """The server of a built agent, with everything that the previous process has left."""
    session = agent.session
    left = read_open_work(lines_since(request.log_folder, is_settled, log.end))
    queue = QueueFile(os.path.join(os.path.dirname(request.state_file), QUEUE_FILE), session)

    def save_state() -> None:
        state.save_if_changed()
        queue.save_if_changed()

    drains = partial(should_drain, agent, request.options.drain)
    link = WorkerLink(listener, log, lambda: host.is_busy, save_state, DEFAULT_CAP, seat.is_shared)
    host = seat.host_type(
        session,
        PiLatest(__version__),
        link,
        drains,
        session.warm_up,
        mask=agent.redactor.mask,
    )
    await _restore_state(request, host, state, seat)
    for end in end_events_of(left, request.died, "" if request.state is None else request.state.run):
        host.announce_event(end)
    try:
        queue.restore_queue()
    except (OSError, BadRecord) as error:
        problem = f"{QUEUE_FILE} cannot be read, and the messages that waited are lost: {error}"
        seat.print_line(f"Warning: {to_printable(problem)}")
    return host


class HelperTimer:
    """Ends the helper for shell commands when no run needs it for a while: there are many workers, most wait for a
    person, and it takes 6 MB in three processes. Starting it takes longer than a short prompt."""

    def __init__(self, agent: BuiltAgent) -> None:
        self._agent = agent
        self._timer: asyncio.TimerHandle | None = None

    def restart(self, settled: Outbound) -> None:
        """Called at the end of each run."""
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(HELPER_SECONDS, self._release)

    def stop(self) -> None:
        """Cancel the end of the helper, because a run or the end of the worker decides about it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _release(self) -> None:
        self._timer = None
        # The end of an active run sets another timer.
        if not self._agent.session.activity.is_running:
            self._agent.processes.release_when_idle()


async def _restore_state(request: WorkerRequest, host: Host, state: StateFile, seat: Seat) -> None:
    for command in request.commands:
        try:
            await host.run_command(command)
        except PigeonError as error:
            problem = f"{command['type']}, which was in force, is now refused: {error}"
            if command["type"] == "set_permissions":
                raise StartupError(problem) from None
            seat.print_line(f"Warning: {to_printable(problem)}")
    if request.state is not None:
        state.restore_session(request.state)


def end_events_of(left: OpenWork, died: str, started: str) -> Iterator[Outbound]:
    """The events that end everything which the previous process left open; `started` is its last run.

    The log shows whether that run has begun and ended. If it is not in the log, only its prompt was accepted.
    """
    why = died or "the service was stopped"
    unheard = "" if started == left.last_run else started
    if died or left.is_busy or unheard:
        yield AgentRestarted(reason=why)
    for number, (id, line) in enumerate(left.questions.items()):
        kind = HostToolCancel if head_of(line).type == "host_tool_call" else CancelRequest
        yield kind(id=f"restarted-{number}", target_id=id)
    if left.running or unheard:
        run_id = left.run_id or unheard or ABSENT
        yield AgentSettled(run_id=run_id, reason="error", error_message=DIED.format(why))
