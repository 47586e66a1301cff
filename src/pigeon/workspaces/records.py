"""What workspaces say about files, searches and commands."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from os import stat_result
from typing import Literal

from msgspec import Struct, field

from pigeon.wire.choices import FileKind, Searched

MatchKind = Literal["match", "context", "binary", "file", "folder", "other"]

MISSING = "missing"
TIME_BOX = 30.0


class FileStat(Struct, frozen=True, kw_only=True):
    """A file, folder or link; `kind` is "missing" if there is nothing.

    `version` differs after every change, and is "missing" for what does not exist. `place` is the real path, with all
    links resolved as far as they exist. `target` is where a link leads. `identity` is the same for all names of a file
    that has several, and empty for all others.
    """

    kind: FileKind
    size: int = 0
    mode: int = 0
    mtime_ms: int = 0
    version: str = ""
    place: str = ""
    target: str | None = None
    identity: str = ""


class Entry(FileStat, frozen=True, kw_only=True):
    """A name in a folder; `leads_to` is the kind of what a link leads to, and `kind` for everything else."""

    name: str
    leads_to: FileKind = "missing"


class Look(Struct, frozen=True):
    """A path to look at: with the beginning of its content, if it is a file, and with its entries, if a folder."""

    path: str
    content: int = 0
    entries: bool = False


class Seen(Struct, frozen=True):
    """What there is at a path: itself, what it leads to, and what was asked for besides.

    `error` is the number of the error that prevented the content or the entries from being read, or 0.
    """

    stat: FileStat
    followed: FileStat
    content: bytes | None = None
    entries: Sequence[Entry] | None = None
    error: int = 0


class SearchQuery(Struct, frozen=True):
    """What to search for: lines of text that match a regular expression, or paths that match a glob.

    Git's ignore files apply. `glob` selects the files whose text is searched. The search ends after `time_box` seconds.
    """

    what: Searched
    path: str
    pattern: str
    literal: bool = False
    ignore_case: bool = False
    glob: str = ""
    context: int = 0
    time_box: float = TIME_BOX


class Match(Struct, frozen=True):
    """A line that matches or is near one, or a path; relative to the searched folder, or the name of the searched file.

    "binary" means that the search of this file ended at its first NUL byte.
    """

    path: str
    line: int = 0
    text: str = ""
    kind: MatchKind = "match"


class SearchEnd(Struct, frozen=True):
    """How a search ended; `complaint` says why it was impossible, `stopped` that there was enough, `unread` that files
    or folders could not be read."""

    complaint: str = ""
    unread: bool = False
    out_of_time: bool = False
    stopped: bool = False
    matches: list[Match] = field(default_factory=list)


class CommandEnd(Struct, frozen=True):
    """How a command ended: 128 plus the signal's number for a death by signal, no code if its time was up."""

    exit_code: int | None
    timed_out: bool = False
    output: bytes = b""


def stat_of(found: stat_result, place: str, target: str | None = None) -> FileStat:
    """The record of a file of this machine."""
    kind = kind_of_mode(found.st_mode)
    return FileStat(
        kind=kind,
        size=found.st_size,
        mode=stat.S_IMODE(found.st_mode),
        mtime_ms=found.st_mtime_ns // 1_000_000,
        version=f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}",
        place=place,
        target=target,
        identity=f"{found.st_dev}:{found.st_ino}" if kind == "file" and found.st_nlink > 1 else "",
    )


def kind_of_mode(mode: int) -> FileKind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"
