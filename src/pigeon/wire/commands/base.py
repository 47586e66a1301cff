"""What every command has."""

from __future__ import annotations

from typing import ClassVar, Literal

from pigeon.wire.base import ABSENT, Absent, Json, Record

Lane = Literal["control", "session", "beside"]
Subject = Literal["session", "connection"]


class Command(Record, tag_field="type", kw_only=True):
    """A request from the host. `id` may be any JSON value and is echoed in the response.

    `about` is what its handler works on: the session, or the talk with the host itself. `answer` is the type of the
    `data` of its response: None where that has no data, `NoReturn` for a command that is always refused; `shown` is
    what some dialects have in its place. A `silent` command has no response unless it is refused. In a command a null
    counts as absent, but for the fields in `nullable`.
    """

    lane: ClassVar[Lane] = "session"
    about: ClassVar[Subject] = "session"
    answer: ClassVar[object] = None
    shown: ClassVar[object] = None
    silent: ClassVar[bool] = False
    nullable: ClassVar[frozenset[str]] = frozenset()

    id: Json | Absent = ABSENT
