"""The records between a worker of `pigeon serve` and its supervisor besides commands (`rpc/worker_link.py`).

A worker sends `WorkerNotice`s, one to a line; answers are among them. A supervisor sends commands, `Sleep` and `End`.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from pigeon.transport.event_log import LogEnd
from pigeon.wire import codec
from pigeon.wire.answers import Response
from pigeon.wire.base import ABSENT, Absent, Json


class Logged(Struct, tag_field="type", tag="logged", frozen=True, omit_defaults=True):
    """How far the log reaches. The first notice to a supervisor has `heard`: the number of the last event before the
    previous supervisor left, or before the worker began. The process may be `shared` with other conversations."""

    segment: int
    offset: int
    pid: int
    heard: int | None = None
    shared: bool = False

    @property
    def end(self) -> LogEnd:
        """The position up to which the log can be read."""
        return LogEnd(self.segment, self.offset)


class Needed(Struct, tag_field="type", tag="needed", frozen=True):
    """The worker does not sleep, because work is in progress."""


class Alive(Struct, tag_field="type", tag="alive", frozen=True):
    """The event loop of the worker runs; sent every few seconds."""


class WorkerAnswer(Struct, tag_field="type", tag="response", frozen=True):
    """The answer to a command, under the id that the supervisor assigned; its texts and data stay encoded."""

    command: str
    success: bool
    id: Json | Absent = ABSENT
    data: msgspec.Raw | Absent = ABSENT
    error: msgspec.Raw | Absent = ABSENT
    code: msgspec.Raw | Absent = ABSENT

    def encode_with_id(self, id: Json | Absent) -> bytes:
        """The same answer under the client's id."""
        given = ABSENT if isinstance(id, Absent) else msgspec.Raw(codec.encode(id))
        members = {"error": self.error, "code": self.code}
        return codec.encode(
            Response(id=given, command=self.command, success=self.success, data=self.data, **members)  # type: ignore[arg-type]
        )

    def decode_data(self) -> Json:
        """The data of the answer; None if it has none."""
        return None if isinstance(self.data, Absent) else codec.decode(bytes(self.data))


class Sleep(Struct, frozen=True):
    """The worker shall end unless it is needed; no command is sent until it has ended or answered `Needed`."""

    sleep: Literal[True] = True


class End(Struct, frozen=True):
    """The worker shall end, whatever is in progress; for a worker that shares its process, which a signal would end
    for all."""

    end: Literal[True] = True


WorkerNotice = Logged | Needed | Alive | WorkerAnswer
SLEEP = codec.encode(Sleep())
END = codec.encode(End())
_decoder: msgspec.json.Decoder[WorkerNotice] = msgspec.json.Decoder(WorkerNotice)


def decode_notice(line: bytes) -> WorkerNotice | None:
    """A line of a worker, or None for an unknown notice of another release."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
