"""Commands about what the host does for tools in the place of the disk and the shell, with their answer."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from pigeon.wire.base import ABSENT, Absent, Intended, Json, Record
from pigeon.wire.commands.base import Command


class HostServicesState(Record, kw_only=True):
    """Answer of `set_host_services`: what the host does for tools from now on; no commands while a sandbox is in
    force."""

    read_files: bool = False
    write_files: bool = False
    run_commands: bool = False
    tell_changes: bool = False
    roots: list[str] = field(default_factory=list)


class SetHostServices(Command, tag="set_host_services", kw_only=True):
    """What the host does for the tools `read`, `write`, `edit` and `bash`, from the next call on: it reads and writes
    the files of the workspace (`roots`, else the working directory), runs commands, and wants to hear of changed files.

    Each call is a `host_file_read`, `host_file_write` or `host_command_run`, answered with `host_service_result`. Rules
    and paths are checked before.
    """

    lane = "control"
    answer = HostServicesState
    read_files: bool = False
    write_files: bool = False
    run_commands: bool = False
    tell_changes: bool = False
    roots: list[str] | Absent = ABSENT


class HostServiceResult(Command, tag="host_service_result", kw_only=True):
    """The answer to a request of `set_host_services`, not answered itself: `content` of a file that was read, `output`
    and `exitCode` of a command (null if a signal ended it), or `error`."""

    lane = "control"
    silent = True
    id: Annotated[Json | Absent, Intended(str)] = ABSENT
    content: str | Absent = ABSENT
    output: str | Absent = ABSENT
    truncated: bool | Absent = ABSENT
    exit_code: int | Absent | None = ABSENT
    error: str | Absent = ABSENT


SERVICES: tuple[type[Command], ...] = (SetHostServices, HostServiceResult)
