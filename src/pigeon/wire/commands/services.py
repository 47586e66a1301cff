"""Commands about the host's services for tools in place of the disk and the shell, with their answer."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from pigeon.wire.base import ABSENT, Absent, Intended, Json, Record
from pigeon.wire.choices import FileKind
from pigeon.wire.commands.base import Command


class HostFileStatus(Record, kw_only=True):
    """What there is at a path of the host; `version` differs after every change, `target` is where a link leads."""

    kind: FileKind
    size: int = 0
    mode: int = 0
    mtime_ms: float = 0
    version: str = ""
    target: str | Absent | None = ABSENT


class HostFolderEntry(HostFileStatus, kw_only=True):
    """A name in a folder of the host; links are not followed."""

    name: str


class HostMatch(Record, kw_only=True):
    """A line of a file of the host that matches a search."""

    path: str
    line: int
    text: str


class HostServicesState(Record, kw_only=True):
    """Answer of `set_host_services`: what the host does for tools from now on. While a sandbox is in force, it runs
    no commands, and is asked for no files where commands may write."""

    read_files: bool = False
    write_files: bool = False
    run_commands: bool = False
    tell_changes: bool = False
    gives_bytes: bool | Absent = field(default=ABSENT, name="bytes")
    gives_stat: bool | Absent = field(default=ABSENT, name="stat")
    gives_list: bool | Absent = field(default=ABSENT, name="list")
    gives_search: bool | Absent = field(default=ABSENT, name="search")
    roots: list[str] = field(default_factory=list)


class SetHostServices(Command, tag="set_host_services", kw_only=True):
    """Set what the host does for the tools `read`, `write`, `edit` and `bash`, from the next call on: whether it reads
    and writes the files of the workspace (`roots`, by default the working directory), runs commands, and is told of
    changed files.

    With `--workspace host:/path` all files are the host's, and it also gives their `bytes`, `stat`, folders (`list`)
    and what a `search` finds.

    Each call is a `host_file_read`, `host_file_write` or `host_command_run`, answered with `host_service_result`. Rules
    and paths are checked first.
    """

    lane = "control"
    answer = HostServicesState
    required_scope = "admin"
    effect = "sets"
    read_files: bool = False
    write_files: bool = False
    run_commands: bool = False
    tell_changes: bool = False
    gives_bytes: bool = field(default=False, name="bytes")
    gives_stat: bool = field(default=False, name="stat")
    gives_list: bool = field(default=False, name="list")
    gives_search: bool = field(default=False, name="search")
    roots: list[str] | Absent = ABSENT


class HostServiceResult(Command, tag="host_service_result", kw_only=True):
    """The answer to a request that `set_host_services` allowed, not answered itself: the `content` of a file that was
    read (or its `data` in base64), the `version` of one that was written, a `stat`, `entries`, `matches` or `paths`,
    the `output` and `exitCode` of a command (null if a signal ended it), or an `error`. With `final` a file that
    cannot be read is not read from the disk instead."""

    lane = "control"
    silent = True
    required_scope = "admin"
    id: Annotated[Json | Absent, Intended(str)] = ABSENT
    content: str | Absent = ABSENT
    data: str | Absent = ABSENT
    version: str | Absent = ABSENT
    stat: HostFileStatus | Absent = ABSENT
    entries: list[HostFolderEntry] | Absent = ABSENT
    matches: list[HostMatch] | Absent = ABSENT
    paths: list[str] | Absent = ABSENT
    output: str | Absent = ABSENT
    truncated: bool | Absent = ABSENT
    exit_code: int | Absent | None = ABSENT
    error: str | Absent = ABSENT
    final: bool | Absent = ABSENT


SERVICES: tuple[type[Command], ...] = (SetHostServices, HostServiceResult)
