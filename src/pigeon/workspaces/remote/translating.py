"""From the records of the helper to those of workspaces, and from its errors to ours."""

from __future__ import annotations

import errno
import os

from pigeon.system.files import NotRegular
from pigeon.workspaces import records
from pigeon.workspaces.errors import FileHasChanged
from pigeon.workspaces.remote import messages


def to_stat(stat: messages.SentStat) -> records.FileStat:
    return records.FileStat(
        kind=stat.kind,
        size=stat.size,
        mode=stat.mode,
        mtime_ms=stat.mtime_ms,
        version=stat.version,
        place=os.fsdecode(stat.place),
        target=None if stat.target is None else os.fsdecode(stat.target),
        identity=stat.identity,
    )


def to_entry(entry: messages.SentEntry) -> records.Entry:
    return records.Entry(
        kind=entry.kind,
        size=entry.size,
        mode=entry.mode,
        mtime_ms=entry.mtime_ms,
        version=entry.version,
        place=os.fsdecode(entry.place),
        target=None if entry.target is None else os.fsdecode(entry.target),
        identity=entry.identity,
        name=os.fsdecode(entry.name),
        leads_to=entry.leads_to,
    )


def to_seen(seen: messages.SentSeen) -> records.Seen:
    return records.Seen(
        to_stat(seen.stat),
        to_stat(seen.followed),
        seen.content,
        None if seen.entries is None else [to_entry(entry) for entry in seen.entries],
        number_of(seen.error) if seen.error else 0,
    )


def number_of(name: str) -> int:
    """The number that an error has on this machine."""
    return int(getattr(errno, name, errno.EIO))


def to_error(failed: messages.RequestFailed, path: str) -> OSError:
    """The error of a failed request, as the same operation here would raise it."""
    if failed.code == "changed":
        return FileHasChanged(f"{path} has changed since it was read")
    if failed.code == "not-regular":
        return NotRegular(f"Not a regular file: {path} is {failed.text}")
    number = number_of(failed.error)
    if failed.code == "damaged":
        error = OSError(number, os.strerror(number), path)
        error.add_note(failed.text.partition(". ")[2])
        return error
    return OSError(number, os.strerror(number), path)
