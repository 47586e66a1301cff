"""The lines of a recording as records: the form that `writer` writes and `reader` reads.

The first line is a `RecordingHeader`, the second an `AgentLine`. Of each exchange there is a `RequestLine`, a
`ResponseLine`, a `PieceLine` for each piece of the body that came, and one of `EndLine`, `FailedLine` and
`DroppedLine`; lines of overlapping exchanges are interleaved. A pause between two attempts has a `PauseLine` once it is
over; one that an abort cut off has none. `t` counts milliseconds from the beginning of the recording.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.model import Model

VERSION = 2
# The first version that has pauses.
HAS_PAUSES = 2


class _RecordedLine(Struct, tag_field="kind", kw_only=True, omit_defaults=True, rename="camel"):
    pass


class RecordingHeader(_RecordedLine, tag="recording", kw_only=True):
    """What made the recording, and when; `seed` reproduces the ids of its run."""

    version: int
    pigeon: str = ""
    at: str = ""
    seed: str


class AgentLine(_RecordedLine, tag="agent", kw_only=True):
    """The models that could be chosen, the initial choice, and the folders by purpose."""

    provider: str = ""
    model: str = ""
    thinking: str = "off"
    models: list[Model] = []
    folders: dict[str, str] = {}


class ClockLine(_RecordedLine, tag="clock", kw_only=True):
    readings: list[int]


class RequestLine(_RecordedLine, tag="request", kw_only=True):
    """A request; its body is JSON, or `text` or `base64` if it is not JSON."""

    exchange: int
    t: int = 0
    method: str = "POST"
    url: str
    headers: dict[str, str] = {}
    body: Raw | Absent = ABSENT
    text: str | None = None
    base64: str | None = None


class ResponseLine(_RecordedLine, tag="response", kw_only=True):
    """The head of a response: its status and its headers."""

    exchange: int
    t: int = 0
    status: int
    headers: dict[str, str] = {}


class PieceLine(_RecordedLine, tag="received", kw_only=True):
    """A piece of a body: text, or base64 if it is not text."""

    exchange: int
    t: int = 0
    text: str = ""
    base64: str | None = None


class EndLine(_RecordedLine, tag="end", kw_only=True):
    """The body of a response was received to its end."""

    exchange: int
    t: int = 0


class FailedLine(_RecordedLine, tag="failed", kw_only=True):
    """There is no response, or it broke off: the class of the exception, and its text."""

    exchange: int
    t: int = 0
    error: str = ""
    reason: str = ""


class DroppedLine(_RecordedLine, tag="dropped", kw_only=True):
    """The agent dropped the response, because it had all that it needed or was stopped."""

    exchange: int
    t: int = 0


class PauseLine(_RecordedLine, tag="pause", kw_only=True):
    """A pause between two attempts was completed; pauses are numbered from their beginnings."""

    number: int
    t: int = 0


RecordingLine = (
    RecordingHeader
    | AgentLine
    | ClockLine
    | RequestLine
    | ResponseLine
    | PieceLine
    | EndLine
    | FailedLine
    | DroppedLine
    | PauseLine
)
decoder = msgspec.json.Decoder(RecordingLine)


def body_json(line: RequestLine) -> Json:
    """The body of a request as JSON, or as a text if it is not JSON."""
    if line.text is not None or line.base64 is not None:
        return line.text if line.text is not None else line.base64
    return None if isinstance(line.body, Absent) else codec.decode(bytes(line.body))
