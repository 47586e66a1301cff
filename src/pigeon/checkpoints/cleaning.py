"""How much the checkpoints of conversations take on disk, and removing those that are no longer wanted."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress

from msgspec import Struct

from pigeon.checkpoints.baseline import LOCK, WORKSPACES, baseline_folder
from pigeon.checkpoints.store import PLACE, RECORDS, SESSION

_NO_CONVERSATIONS = (WORKSPACES, "pending")
_DAY = 86_400


class StoredCheckpoints(Struct, frozen=True):
    """The checkpoints of one conversation; `changed` is in seconds."""

    id: str
    bytes: int
    changed: float


def list_stored(store: str) -> list[StoredCheckpoints]:
    """Those of all conversations, the oldest first."""
    found = []
    for name in _list_names(store):
        if name not in _NO_CONVERSATIONS and os.path.isdir(f"{store}/{name}"):
            changed = 0.0
            with suppress(OSError):
                changed = os.stat(f"{store}/{name}/{RECORDS}").st_mtime
            found.append(StoredCheckpoints(name, _measure(f"{store}/{name}", set()), changed))
    return sorted(found, key=lambda one: (one.changed, one.id))


def free_checkpoints(store: str, is_wanted: Callable[[str], bool]) -> list[StoredCheckpoints]:
    """Remove the checkpoints of conversations that are not wanted, and what is known only for them. For a thread."""
    freed = [one for one in list_stored(store) if not is_wanted(one.id)]
    for one in freed:
        shutil.rmtree(f"{store}/{one.id}", ignore_errors=True)
    _remove_baselines(store, _find_places(store))
    return freed


def remove_old(store: str, keep_bytes: int, keep_days: float, now: float, own: str) -> None:
    """Remove what is older than so many days, and then the oldest until the rest takes no more than so many bytes;
    the checkpoints of `own` stay. For a thread."""
    for one in list_stored(store):
        if one.id != own and one.changed < now - keep_days * _DAY:
            shutil.rmtree(f"{store}/{one.id}", ignore_errors=True)
    _remove_baselines(store, {*_find_places(store), *_find_recent(store, now - keep_days * _DAY)})
    left = [one for one in list_stored(store) if one.id != own]
    while _measure(store, set()) > keep_bytes:
        if left:
            shutil.rmtree(f"{store}/{left.pop(0).id}", ignore_errors=True)
        elif not _remove_baselines(store, ()):
            return


def has_session(store: str, session_id: str) -> bool:
    """Whether the file of a conversation is where it was when its first checkpoint was made."""
    try:
        with open(f"{store}/{session_id}/{SESSION}", "rb") as file:
            path = file.read()
    except OSError:
        return False
    return bool(path) and os.path.exists(path)


def _find_places(store: str) -> set[str]:
    """The baselines of the folders in which conversations have checkpoints."""
    places = set()
    for name in _list_names(store):
        with suppress(OSError), open(f"{store}/{name}/{PLACE}", "rb") as file:
            places.add(os.path.basename(baseline_folder(store, os.fsdecode(file.read()))))
    return places


def _find_recent(store: str, since: float) -> Iterator[str]:
    for name in _list_names(f"{store}/{WORKSPACES}"):
        with suppress(OSError):
            if os.stat(f"{store}/{WORKSPACES}/{name}").st_mtime >= since:
                yield name


def _remove_baselines(store: str, but: Collection[str]) -> bool:
    """Remove those that no process uses; True if there were any."""
    removed = False
    for name in _list_names(f"{store}/{WORKSPACES}"):
        folder = f"{store}/{WORKSPACES}/{name}"
        if name in but:
            continue
        try:
            lock = os.open(f"{folder}/{LOCK}", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
            removed = True
        except BlockingIOError:
            continue
        finally:
            os.close(lock)
    return removed


def _measure(folder: str, seen: set[int]) -> int:
    """The bytes of all files below; one with several names counts once."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                info = os.stat(f"{place}/{name}", follow_symlinks=False)
                if info.st_nlink > 1:
                    if info.st_ino in seen:
                        continue
                    seen.add(info.st_ino)
                size += info.st_size
    return size


def _list_names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
