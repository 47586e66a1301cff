"""Folders that are mounted more than once: what is hidden in one place must be hidden in the others, too.

For each mount, the kernel lists which part of which disk it shows. If the same part is shown twice (such as the host's
disk below `/run/host`), a secret would be readable under its second path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

MOUNTS = "/proc/self/mountinfo"


class MountedPart(Struct, frozen=True):
    """A folder `shown` of a disk, and where it is mounted."""

    disk: str
    shown: str
    place: str


def parse_mounts(text: str) -> list[MountedPart]:
    """The mounts in the text of the kernel's list."""
    rows = (line.split() for line in text.splitlines())
    return [MountedPart(row[2], _decode_octal(row[3]), _decode_octal(row[4])) for row in rows if len(row) > 4]


def other_places(paths: Iterable[str], parts: list[MountedPart]) -> list[str]:
    """The other paths under which these real paths appear; for a folder, also mounts that show something in it."""
    repeated = {part.disk for part in parts if sum(other.disk == part.disk for other in parts) > 1}
    parts = [part for part in parts if part.disk in repeated]
    found = [place for path in paths if parts for place in _other_places_of(os.path.realpath(path), parts)]
    return list(dict.fromkeys(found))


def _other_places_of(path: str, parts: list[MountedPart]) -> Iterator[str]:
    holding = [part for part in parts if _path_below(path, part.place) is not None]
    if not holding:
        return
    # Of several mounts in one place, only the last is visible.
    own = max(reversed(holding), key=lambda part: len(part.place))
    on_disk = _join_path(own.shown, _path_below(path, own.place) or "")
    for part in parts:
        if part == own or part.disk != own.disk:
            continue
        inner = _path_below(on_disk, part.shown)
        other = part.place if inner is None and _path_below(part.shown, on_disk) is not None else None
        other = _join_path(part.place, inner) if inner is not None else other
        if other is not None and other != path and os.path.lexists(other):
            yield other


def _path_below(path: str, folder: str) -> str | None:
    """The rest of a path below a folder; None if it is elsewhere."""
    if path == folder:
        return ""
    beginning = folder.rstrip("/") + "/"
    return path[len(beginning) :] if path.startswith(beginning) else None


def _join_path(folder: str, rest: str) -> str:
    return f"{folder.rstrip('/')}/{rest}" if rest else folder


def _decode_octal(text: str) -> str:
    """The text with octal escapes, such as those of blanks, decoded."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
