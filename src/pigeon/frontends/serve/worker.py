"""A worker: the agent of one conversation, in a process that `frontends/serve/warm_parent.py` has forked.

It is the server of `--mode rpc` over another channel (`rpc/worker_link.py`), in the one form that all clients of a
conversation share: `pi-latest` with numbered events and all features.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from functools import partial
from socket import socket
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from pigeon import __version__
from pigeon.app.build import build
from pigeon.app.options import AgentOptions
from pigeon.dialects.pi_latest import PiLatest
from pigeon.frontends.draining import should_drain
from pigeon.frontends.serve.worker_state import QueueFile, StateFile, WorkerState
from pigeon.rpc.host import Host
from pigeon.rpc.worker_link import WorkerLink
from pigeon.secrets.redactor import Redactor
from pigeon.system.clock import SteadyLoop
from pigeon.system.environment import Environment
from pigeon.transport.event_log import EventLog, lines_since, lock_log_within
from pigeon.transport.reader import DEFAULT_CAP
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Json
from pigeon.wire.dialogs import CancelRequest
from pigeon.wire.errors import BadRecord, PigeonError, StartupError, to_printable
from pigeon.wire.events import AgentRestarted, AgentSettled, HostToolCancel, Outbound
from pigeon.wire.open_work import OpenWork, head_of, is_settled, read_open_work
from pigeon.wire.steering import Limits

# How long to wait for an earlier process of the conversation that is being killed.
OTHER_SECONDS = 3.0
QUEUE_FILE = "queue.json"
DIED = "The agent died during the run: {}"


class WorkerRequest(Struct, frozen=True, kw_only=True):
    """A request for a worker: the agent, its environment, the folder of its event log and its state file.

    `commands` repeat settings that the previous process had, `state` is the state that it left, and `died` tells how it
    ended if it was not stopped on purpose.
    """

    options: AgentOptions
    folder: str
    variables: dict[str, str]
    log_folder: str
    state_file: str
    commands: tuple[dict[str, Json], ...] = ()
    state: WorkerState | None = None
    died: str = ""


def encode_request(request: WorkerRequest) -> bytes:
    """A request as bytes, with only the options that differ from their defaults; all of them are plain values."""
    usual = AgentOptions()
    options = {name: value for name, value in asdict(request.options).items() if value != getattr(usual, name)}
    return codec.encode({**asdict(request), "options": options})


def decode_request(data: bytes) -> WorkerRequest:
    """The request in these bytes. Unpickling would cost each worker half a megabyte."""
    members: dict[str, Any] = codec.decode(data)
    given = members["options"].items()
    options: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given}
    if "limits" in options:
        options["limits"] = codec.convert(options["limits"], Limits)
    state = None if members["state"] is None else codec.convert(members["state"], WorkerState)
    commands = tuple(members["commands"])
    return WorkerRequest(**{**members, "options": AgentOptions(**options), "state": state, "commands": commands})


def run_worker(request: WorkerRequest, environment: Environment, redactor: Redactor, listener: socket) -> int:
    """Serve until a signal, or until no supervisor has returned for a long time; returns the exit code."""
    return SteadyLoop().run_until_complete(_lock_and_serve(request, environment, redactor, listener))


async def _lock_and_serve(
    request: WorkerRequest, environment: Environment, redactor: Redactor, listener: socket
) -> int:
    # Before anything of the conversation is touched: the previous process may still be using it.
    try:
        await lock_log_within(request.log_folder, OTHER_SECONDS)
    except OSError:
        raise StartupError("another process of this conversation does not end") from None
    return await serve_worker(request, environment, redactor, listener)


async def serve_worker(request: WorkerRequest, environment: Environment, redactor: Redactor, listener: socket) -> int:
    """Like `run_worker`, but in the running event loop and without ensuring that it is the only process."""
    options = replace(request.options.for_dialect(PiLatest), several_clients=True, attended=True)
    agent = await build(options, environment, redactor)
    for problem in agent.problems:
        print(f"Warning: {to_printable(problem)}", file=sys.stderr)  # noqa: T201
    session, life = agent.session, agent.lifecycle
    log = EventLog(request.log_folder)
    left = read_open_work(lines_since(request.log_folder, is_settled, log.end))
    state = StateFile(request.state_file, session)
    queue = QueueFile(os.path.join(os.path.dirname(request.state_file), QUEUE_FILE), session)

    def save_state() -> None:
        state.save_if_changed()
        queue.save_if_changed()

    drains = partial(should_drain, agent, options.drain)
    link = WorkerLink(listener, log, lambda: host.is_busy, save_state, DEFAULT_CAP)
    host = Host(session, PiLatest(__version__), link, drains, session.warm_up, mask=redactor.mask)
    # There are many workers, and most wait for a person: the helper for shell commands takes 6 MB in three processes.
    session.bus.add_announcer(lambda event: agent.processes.release_when_idle(), kind=AgentSettled)
    await _restore_state(request, host, state)
    for end in end_events_of(left, request.died, "" if request.state is None else request.state.run):
        host.announce_event(end)
    try:
        queue.restore_queue()
    except (OSError, BadRecord) as error:
        problem = f"{QUEUE_FILE} cannot be read, and the messages that waited are lost: {error}"
        print(f"Warning: {to_printable(problem)}", file=sys.stderr)  # noqa: T201
    # The collector was off during the start, which creates no garbage.
    gc.freeze()
    gc.enable()
    return await host.serve(life.on_host_ready, life.close_extensions, life.stop)


async def _restore_state(request: WorkerRequest, host: Host, state: StateFile) -> None:
    for command in request.commands:
        try:
            await host.run_command(command)
        except PigeonError as error:
            problem = f"{command['type']}, which was in force, is now refused: {error}"
            if command["type"] == "set_permissions":
                raise StartupError(problem) from None
            print(f"Warning: {to_printable(problem)}", file=sys.stderr)  # noqa: T201
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
