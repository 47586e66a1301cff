"""`hello`: how a host that knows us says what it speaks and what it can do with. Nobody has to send it."""

from __future__ import annotations

from typing import Literal

from pigeon.wire.base import ABSENT, Absent, Record
from pigeon.wire.command import Command

DialectName = Literal["pi", "pi-latest", "omp", "xcsh", "companion"]
Feature = Literal["deltas", "seq"]


class Limits(Record, kw_only=True):
    """What is the most we take: bytes of a line, and commands that are not answered yet."""

    record_bytes: int
    commands_in_flight: int


class Welcome(Record, kw_only=True):
    """Answer of `hello`: who we are, and what is in force from the next line on."""

    name: str
    version: str
    dialect: DialectName
    features: list[Feature]
    limits: Limits


class Hello(Command, tag="hello", kw_only=True):
    """Choose the dialect and features: `deltas` (updates without the message so far), `seq` (numbered events).

    What is not named stays as it is; features that are not known are left out of the answer.
    """

    lane = "control"
    about = "talk"
    answer = Welcome
    dialect: DialectName | Absent = ABSENT
    features: list[str] | Absent = ABSENT
