"""Whether the code that a process has loaded is still what its files contain."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterable

_Stamp = tuple[int, int, int, bool] | None


class CodeWatch:
    """Remembers the files that matter, and compares.

    Of the package of this module each file is compared, because people edit them in place; of other libraries and of
    Python the folders, because installers replace files. `others` are further files that were read.
    """

    def __init__(self) -> None:
        self._began = _process_start()
        self._known: dict[str, _Stamp] = {}

    def remember(self, others: Iterable[str] = ()) -> None:
        """Remember everything that is loaded now."""
        for path in {*_loaded_places(), *others}:
            self._known[path] = _stamp(path)

    def is_current(self) -> bool:
        """False if a file has changed since it was loaded, or while it was."""
        for path, stamp in self._known.items():
            if _stamp(path) != stamp:
                return False
            # A folder also changes when Python puts byte code there for the first time.
            if stamp is not None and stamp[0] >= self._began and not stamp[3]:
                return False
        return True


def _loaded_places() -> set[str]:
    package = __name__.partition(".")[0] + "."
    found = {sys.executable, os.path.join(sys.prefix, "pyvenv.cfg"), *filter(None, sys.path)}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            found.add(file if f"{name}.".startswith(package) else os.path.dirname(file))
    return found


def _process_start() -> int:
    """When this process started, in nanoseconds of the clock that files have."""
    with open("/proc/self/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time_ns() - int(age * 1e9)


def _stamp(path: str) -> _Stamp:
    """When and as what a file was written, and whether it is a folder; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, stat.S_ISDIR(found.st_mode)
