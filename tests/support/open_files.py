"""Files that a test has left open: an error handler or a clean-up that forgets a descriptor shows nowhere else."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from support.processes import eventually

# Where the system shows what a process has open; elsewhere than on Linux nothing is found.
DESCRIPTORS = "/proc/self/fd"
# How long a thread may take to sync what was written last.
WITHIN = 5.0


def list_open_files(folder: Path) -> list[str]:
    """The files below a folder that this process has open, without those that only wait to be collected, or that a
    thread is still writing to the disk."""
    found = _find_open_files(folder)
    if found:
        gc.collect()
        eventually(lambda: not _find_open_files(folder), WITHIN)
        found = _find_open_files(folder)
    return found


def _find_open_files(folder: Path) -> list[str]:
    if not os.path.isdir(DESCRIPTORS):
        return []
    begin = f"{folder}/"
    found = []
    with os.scandir(DESCRIPTORS) as descriptors:
        for descriptor in descriptors:
            try:
                place = os.readlink(descriptor.path)
            except OSError:
                continue
            if place.startswith(begin):
                found.append(place.removeprefix(begin))
    return found
