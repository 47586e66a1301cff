"""The workspace on this machine: the disk, ripgrep and the user's shell."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from pigeon.system.files import open_regular, read_rest, replace_file, run_in_thread
from pigeon.system.held_paths import HeldPath, OpenedPath, hold_place, resolve_and_hold
from pigeon.wire.choices import WorkspaceKind
from pigeon.workspaces.errors import FileHasChanged, WorkspaceUnusable
from pigeon.workspaces.line_reading import Slice, read_lines
from pigeon.workspaces.records import (
    MISSING,
    CommandEnd,
    Entry,
    FileStat,
    Match,
    SearchEnd,
    SearchQuery,
    kind_of_mode,
    stat_of,
)
from pigeon.workspaces.workspace import SNIFFED, FirstNames, OnFound, OnOutput, Workspace

if TYPE_CHECKING:
    from pigeon.system.process.start import Process, ProcessOwner
    from pigeon.system.process.variables import ProgramEnvironment
    from pigeon.workspaces.ripgrep import Ripgrep

_T = TypeVar("_T")
LARGEST_KEPT = 1 << 20
_GONE_WITHIN = 1.5


class LocalParts(Struct, frozen=True):
    """What an agent gives its workspace: how processes are started, with which variables, in which shell."""

    processes: ProcessOwner
    environment: Callable[[], ProgramEnvironment]
    home: str
    shell: str = "/bin/sh"


class LocalWorkspace(Workspace):
    """A folder of this machine.

    It may be subclassed: an agent reaches files and commands by the methods that a subclass overrides.
    """

    name = "local"
    kind: WorkspaceKind = "local"

    def __init__(self, folder: str | os.PathLike[str], parts: LocalParts | None = None) -> None:
        self.folder = os.path.realpath(folder) if not os.path.isabs(os.fspath(folder)) else os.path.normpath(folder)
        self._parts = parts
        if type(self) is not LocalWorkspace:
            self.kind = "object"

    @property
    def home(self) -> str:  # type: ignore[override]
        """What `~` means in its paths."""
        return self._ensure_parts().home

    def use_parts(self, parts: LocalParts) -> None:
        """Start commands as an agent does, from now on."""
        self._parts = parts
        self.__dict__.pop("_ripgrep", None)

    def overrides(self, *operations: str) -> bool:
        """Whether a subclass has its own form of any of these operations."""
        return any(getattr(type(self), name) is not getattr(LocalWorkspace, name) for name in operations)

    async def open(self) -> None:
        if (await self.stat(self.folder)).kind != "folder":
            raise WorkspaceUnusable(f"Not a directory: {self.folder}")

    async def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        return await run_in_thread(lambda: self._with_held(path, lambda held: _read_part(held, start, size)))

    async def write(self, path: str, data: bytes, *, unchanged: str | None = None) -> FileStat:
        return await run_in_thread(lambda: self._with_held(path, lambda held: _write(held, data, unchanged)))

    async def stat(self, path: str, follow: bool = True) -> FileStat:
        return await run_in_thread(lambda: look_at_file(self.path_of(path), follow))

    async def list(self, path: str = ".") -> Sequence[Entry]:
        return await run_in_thread(lambda: self._with_held(path, list_entries))

    async def search(self, query: SearchQuery, on_found: OnFound | None = None) -> SearchEnd:
        from pigeon.workspaces import local_search

        kept: list[Match] = []
        search = local_search.search_text if query.what == "text" else local_search.search_files

        def keep(found: list[Match]) -> bool:
            kept.extend(found)
            return False

        held = query.path if isinstance(query.path, OpenedPath) else self._hold(query.path)
        try:
            end = await search(self._ripgrep, held, query, on_found or keep)
        finally:
            if held is not query.path:
                held.close()
        return SearchEnd(end.complaint, end.unread, end.out_of_time, end.stopped, kept)

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        stdin: bytes | AsyncIterator[bytes] | None = None,
        timeout: float | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandEnd:
        parts = self._ensure_parts()
        fed, feeding = await _start_feeding(stdin)
        process = await parts.processes.start(
            [parts.shell, "-c", command],
            cwd=self.path_of(cwd or "."),
            environment=parts.environment(),
            stdin=fed,
        )
        output = bytearray()
        deadline = None if timeout is None else time.monotonic() + timeout

        async def keep(part: bytes) -> None:
            output.extend(part)
            del output[:-LARGEST_KEPT]

        try:
            timed_out = await _pump(process, on_output or keep, deadline)
            if timed_out:
                process.kill()
            code = await process.wait()
            if timed_out:
                await process.wait_until_gone(_GONE_WITHIN)
        except BaseException:
            process.kill()
            raise
        finally:
            process.close()
            if feeding is not None:
                feeding.cancel()
        return CommandEnd(None if timed_out else code, timed_out, bytes(output))

    async def read_lines(
        self, path: str, first: int, count: int | None, is_special: Callable[[bytes], bool]
    ) -> Slice | bytes:
        if self.overrides("read"):
            return await super().read_lines(path, first, count, is_special)
        is_over = False

        def read(held: OpenedPath) -> Slice | bytes:
            return _read_lines(held, first, count, is_special, lambda: is_over)

        try:
            return await asyncio.to_thread(self._with_held, path, read)
        finally:
            is_over = True

    async def list_first(self, path: str, limit: int, is_wanted: Callable[[str], bool]) -> FirstNames:
        if self.overrides("list"):
            return await super().list_first(path, limit, is_wanted)
        return await asyncio.to_thread(self._with_held, path, lambda held: _list_first(held, limit, is_wanted))

    @cached_property
    def _ripgrep(self) -> Ripgrep:
        from pigeon.workspaces.ripgrep import Ripgrep

        parts = self._ensure_parts()
        return Ripgrep(parts.processes, parts.environment, parts.home)

    def _with_held(self, path: str, use: Callable[[OpenedPath], _T]) -> _T:
        if isinstance(path, OpenedPath):
            return use(path)
        with self._hold(path) as held:
            return use(held)

    def _hold(self, path: str) -> OpenedPath:
        return hold_place(path.place) if isinstance(path, HeldPath) else resolve_and_hold(self.path_of(path))

    def _ensure_parts(self) -> LocalParts:
        if self._parts is None:
            self._parts = _parts_of_this_process()
        return self._parts


def look_at_file(path: str, follow: bool) -> FileStat:
    """What there is at an absolute path of this machine; raises `OSError` for other reasons than that it is missing."""
    place = os.path.realpath(path)
    try:
        found = os.stat(path, follow_symlinks=follow)
    except (FileNotFoundError, NotADirectoryError):
        return FileStat(kind="missing", version=MISSING, place=place)
    return stat_of(found, place, os.readlink(path) if stat.S_ISLNK(found.st_mode) else None)


def list_entries(held: OpenedPath) -> list[Entry]:
    """Every name in a folder that can be looked at, with what a link leads to."""
    folder = held.open(os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK)
    try:
        return [entry for name in os.listdir(folder) if (entry := _make_entry(folder, name, held.place)) is not None]
    finally:
        os.close(folder)


def _make_entry(folder: int, name: str, above: str) -> Entry | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    place, target = os.path.join(above, name), None
    leads_to = kind_of_mode(found.st_mode)
    if leads_to == "link":
        leads_to = "missing"
        with suppress(OSError):
            target = os.readlink(name, dir_fd=folder)
            leads_to = kind_of_mode(os.stat(name, dir_fd=folder).st_mode)
    described = stat_of(found, place, target)
    return Entry(
        **{field: getattr(described, field) for field in described.__struct_fields__}, name=name, leads_to=leads_to
    )


def _read_part(held: OpenedPath, start: int, size: int | None) -> bytes:
    descriptor = open_regular(held)
    try:
        if start:
            os.lseek(descriptor, start, os.SEEK_SET)
        return read_rest(descriptor) if size is None else _read_some(descriptor, size)
    finally:
        os.close(descriptor)


def _read_some(descriptor: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (part := os.read(descriptor, size)):
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _write(held: OpenedPath, data: bytes, unchanged: str | None) -> FileStat:
    if unchanged is not None and look_at_file(held.place, False).version != unchanged:
        raise FileHasChanged(f"{held.place} has changed since it was read")
    replace_file(held, data)
    return look_at_file(held.place, False)


def _read_lines(
    held: OpenedPath,
    first: int,
    count: int | None,
    is_special: Callable[[bytes], bool],
    is_stopped: Callable[[], bool],
) -> Slice | bytes:
    """The file is opened once, so that the checked file is the one shown."""
    descriptor = open_regular(held)
    try:
        if is_special(_read_start(descriptor)):
            return read_rest(descriptor)
        return read_lines(descriptor, first, count, is_stopped)
    finally:
        os.close(descriptor)


def _read_start(descriptor: int) -> bytes:
    try:
        start = os.read(descriptor, SNIFFED)
    except BlockingIOError:
        return b""
    os.lseek(descriptor, 0, os.SEEK_SET)
    return start


def _list_first(held: OpenedPath, limit: int, is_wanted: Callable[[str], bool]) -> tuple[list[tuple[str, bool]], bool]:
    folder = held.open(os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK)
    try:
        names = sorted(os.listdir(folder), key=lambda name: (name.lower(), name))
        return _look_at_names(folder, filter(is_wanted, names), limit)
    finally:
        os.close(folder)


def _look_at_names(folder: int, names: Iterable[str], limit: int) -> tuple[list[tuple[str, bool]], bool]:
    shown: list[tuple[str, bool]] = []
    for name in names:
        if len(shown) == limit:
            return shown, True
        with suppress(OSError, ValueError):
            shown.append((name, stat.S_ISDIR(os.stat(name, dir_fd=folder).st_mode)))
    return shown, False


async def _pump(process: Process, on_output: OnOutput, deadline: float | None) -> bool:
    """Pass the output on until it ends; returns True if the time was up before."""
    while True:
        chunk = await process.read(None if deadline is None else max(0.0, deadline - time.monotonic()))
        if chunk is None:
            return True
        if not chunk:
            return False
        await on_output(chunk)


async def _start_feeding(
    stdin: bytes | AsyncIterator[bytes] | None,
) -> tuple[bytes | int | None, asyncio.Task[None] | None]:
    """What a process reads its input from: bytes, or the end of a pipe that a task writes to as the input comes."""
    if stdin is None or isinstance(stdin, bytes):
        return stdin, None
    read_end, write_end = os.pipe2(os.O_CLOEXEC)

    async def feed() -> None:
        try:
            async for part in stdin:
                await asyncio.to_thread(_write_all, write_end, part)
        except BrokenPipeError:
            pass
        finally:
            os.close(write_end)

    return read_end, asyncio.create_task(feed())


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _parts_of_this_process() -> LocalParts:
    """For a workspace that belongs to no agent: the variables of this process, without keys."""
    from pigeon.system.process.start import ProcessOwner
    from pigeon.system.process.variables import tool_environment
    from pigeon.system.shell.shell import find_shell

    home = os.path.expanduser("~")
    return LocalParts(
        ProcessOwner(),
        lambda: tool_environment(os.environ, keep_provider_keys=False),
        home,
        find_shell(None, home, os.environ.get("PATH", os.defpath)).path,
    )
