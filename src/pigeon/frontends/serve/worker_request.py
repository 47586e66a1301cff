"""What a supervisor asks of a worker: which agent, in which folder, with which state, as bytes."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from pigeon.app.options import AgentOptions
from pigeon.frontends.serve.worker_state import WorkerState
from pigeon.system.process.messages import LinkMessage
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.steering import Limits


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
    return codec.encode({**asdict(request), "options": encode_options(request.options)})


def encode_options(options: AgentOptions) -> dict[str, Any]:
    """The options that differ from their defaults."""
    usual = AgentOptions()
    return {name: value for name, value in asdict(options).items() if value != getattr(usual, name)}


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


class JoinRequest(LinkMessage):
    """Serve one more conversation in a shared process; its descriptors are the listening socket and the file for
    errors."""

    request: bytes
