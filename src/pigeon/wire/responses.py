"""The one envelope of an answer."""

from __future__ import annotations

from typing import Literal

from pigeon.wire.base import ABSENT, Absent, Json, Record


class Response(Record, kw_only=True):
    """`data` on success (absent where the command has none), `error` on failure."""

    id: Json | Absent = ABSENT
    type: Literal["response"] = "response"
    command: str
    success: bool
    data: Json | Absent = ABSENT
    error: str | Absent = ABSENT


def succeeded(command: str, data: Json | Absent = ABSENT, id: Json | Absent = ABSENT) -> Response:
    """A command was carried out, or accepted."""
    return Response(id=id, command=command, success=True, data=data)


def failed(command: str, error: str, id: Json | Absent = ABSENT) -> Response:
    """A command was refused."""
    return Response(id=id, command=command, success=False, error=error)
