"""What every command is.

Lanes say what a command may wait for. `control` never waits, not even for a host that stopped reading. `session`
commands run one after the other in order of arrival, so `set_model` then `prompt` cannot race. `beside` commands start
in order and finish whenever they finish.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pigeon.wire.base import ABSENT, Absent, Json, Record

Lane = Literal["control", "session", "beside"]
Subject = Literal["session", "talk"]


class Command(Record, tag_field="type", kw_only=True):
    """A request from the host. `id` may be any JSON value and is echoed in the response.

    `about` is what its handler works on: the session, or the talk with the host itself.
    """

    lane: ClassVar[Lane] = "session"
    about: ClassVar[Subject] = "session"
    answer: ClassVar[object] = None
    silent: ClassVar[bool] = False

    id: Json | Absent = ABSENT
