"""How tools reach files: through the host if that serves the files of the workspace, else in the workspace.

What the host has open may differ from the disk, as an editor's unsaved text does; then the host's text counts. If a
host refuses to read a file, it does not know it, and the disk is read. If it refuses to write, that is final, because
its text may differ from the disk. Pictures, binary files and long files are always read from the disk.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pigeon.agent.interfaces import NO_HOST, HostAccess, HostRefused, ToolRun
from pigeon.system.files import open_regular
from pigeon.system.held_paths import HeldPath, OpenedPath
from pigeon.wire.errors import Aborted, ToolFailed
from pigeon.workspaces.fact_table import SeenPath
from pigeon.workspaces.line_reading import Slice, slice_lines
from pigeon.workspaces.local import LocalWorkspace
from pigeon.workspaces.records import SearchEnd, SearchQuery
from pigeon.workspaces.workspace import SNIFFED, OnFound, Workspace

_T = TypeVar("_T")
LONGEST_AT_HOST = 4 << 20
LONGEST_TOLD = 1 << 20
SNIFFED_TEXT = 8192
# A write that has begun may take so long to end after an abort; on this machine it is waited for.
WRITTEN_WITHIN = 3.0


class FileAccess:
    """The files of one agent; without a host they are those of the workspace."""

    def __init__(self, host: HostAccess = NO_HOST, workspace: Workspace | None = None) -> None:
        self._host = host
        self._workspace = workspace or LocalWorkspace("/")
        # Outputs of commands are kept here, wherever the commands have run.
        self._here = self._workspace if isinstance(self._workspace, LocalWorkspace) else LocalWorkspace("/")

    async def read_lines(
        self, run: ToolRun, held: HeldPath, first: int, count: int | None, is_special: Callable[[bytes], bool]
    ) -> Slice | bytes:
        """Some lines of a text, or all of a file whose beginning `is_special`; raises `OSError`."""
        at_host = await self._read_host_text(run, held)
        if at_host is not None:
            return slice_lines(at_host, first, count)
        content = _content_seen(held)
        if content is None:
            return await run.scope.wait(self._at(held).read_lines(held, first, count, is_special))
        return content if is_special(content[:SNIFFED]) else slice_lines(content, first, count)

    async def read_for_change(self, run: ToolRun, held: HeldPath, at_most: int) -> tuple[bytes, str | None]:
        """All of a file, and its version if that is checked when it is written; raises `OSError`."""
        at_host = await self._read_host_text(run, held)
        if at_host is not None:
            return at_host, None
        if not isinstance(held, SeenPath):
            return await run.scope.wait(self._read_whole(held, at_most)), None
        content = _content_seen(held)
        if content is not None:
            return content, held.seen.followed.version
        before = await run.scope.wait(self._at(held).stat(held))
        return await run.scope.wait(self._read_whole(held, at_most)), before.version

    async def read_start(self, run: ToolRun, held: HeldPath, size: int) -> bytes:
        """The beginning of a file; raises `OSError`."""
        return await run.scope.wait(self._at(held).read(held, 0, size))

    async def read_for_preview(self, held: HeldPath, at_most: int) -> bytes:
        """All of a file in the workspace; raises `OSError`."""
        content = held.fresh_content if isinstance(held, SeenPath) else None
        return content if content is not None else await self._read_whole(held, at_most)

    async def list_first(
        self, run: ToolRun, held: HeldPath, limit: int, is_wanted: Callable[[str], bool]
    ) -> tuple[list[tuple[str, bool]], bool]:
        """The first names in a folder, each with whether it is a folder, and whether there are more."""
        return await run.scope.wait(self._at(held).list_first(held, limit, is_wanted))

    async def search(self, run: ToolRun, query: SearchQuery, on_found: OnFound) -> SearchEnd:
        """Search in the workspace until there is enough."""
        run.scope.raise_if_cancelled()
        end = await run.scope.wait(self._at(query.path).search(query, on_found))
        run.scope.raise_if_cancelled()
        return end

    async def is_missing(self, run: ToolRun, held: HeldPath) -> bool:
        if isinstance(held, SeenPath):
            return held.is_missing
        return (await run.scope.wait(self._at(held).stat(held.place))).kind == "missing"

    async def replace(
        self, run: ToolRun, held: HeldPath, data: bytes, old: bytes | None = None, version: str | None = None
    ) -> None:
        """Replace the content of a file; raises `OSError` and `ToolFailed`. `old` is its previous content, if known,
        and `version` what it must still be.

        A started write is finished even if the run is aborted.
        """
        tells = self._host.wants_changes
        before = old if old is not None or not tells else await self._read_old_content(run, held)
        path = self._host.find_host_path_to_write(held.place)
        if path is None:
            await self._finish_writing(run, held, self._workspace.write(held, data, unchanged=version))
        else:
            if isinstance(held, OpenedPath):
                await asyncio.to_thread(lambda: held.open_folder(make=True))
            try:
                await self._host.write(run, path, data.decode("utf-8", "replace"))
            except HostRefused as refusal:
                raise ToolFailed(f"The host refused to write {path}: {refusal}") from None
        if tells:
            shown = None if before is None else before.decode("utf-8", "replace")
            self._host.report_change(run, path or held.place, shown, data.decode("utf-8", "replace"))

    async def _finish_writing(self, run: ToolRun, held: HeldPath, writing: Coroutine[Any, Any, _T]) -> _T:
        if isinstance(held, OpenedPath):
            return await writing
        task = asyncio.ensure_future(writing)
        loop = asyncio.get_running_loop()
        forget = run.scope.add_cancel_callback(lambda: loop.call_later(WRITTEN_WITHIN, task.cancel))
        try:
            return await task
        except asyncio.CancelledError:
            if run.scope.cancelled and task.cancelled():
                raise Aborted from None
            raise
        finally:
            forget()

    def _at(self, path: str) -> Workspace:
        return self._here if isinstance(path, OpenedPath) else self._workspace

    async def _read_whole(self, held: HeldPath, at_most: int) -> bytes:
        data = await self._at(held).read(held, 0, at_most + 1)
        if len(data) > at_most:
            raise OSError(errno.EFBIG, "file too large")
        return data

    async def _read_host_text(self, run: ToolRun, held: HeldPath) -> bytes | None:
        """The host's text of a file as UTF-8, or None if the disk is to be read."""
        path = self._host.find_host_path_to_read(held.place)
        if path is None or not await run.scope.wait(asyncio.to_thread(_is_text, held)):
            return None
        try:
            text = await self._host.read(run, path)
        except HostRefused:
            return None
        return text.encode("utf-8", "replace")

    async def _read_old_content(self, run: ToolRun, held: HeldPath) -> bytes | None:
        """The previous content of a file; None for a new one, empty for one that cannot be shown."""
        try:
            return (await self.read_for_change(run, held, LONGEST_TOLD))[0]
        except FileNotFoundError:
            return None
        except OSError:
            return b""


def _content_seen(held: HeldPath) -> bytes | None:
    """All of a file, if it came with its path just now; raises `FileNotFoundError` if there was none."""
    if not isinstance(held, SeenPath):
        return None
    if held.is_missing and held.is_fresh:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), held.place)
    return held.fresh_content


def _is_text(held: HeldPath) -> bool:
    """Whether the host may be asked for a file as text, even if it is not on disk: the host may have it unsaved."""
    if not isinstance(held, OpenedPath):
        return False
    try:
        descriptor = open_regular(held)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        return os.fstat(descriptor).st_size <= LONGEST_AT_HOST and b"\0" not in os.read(descriptor, SNIFFED_TEXT)
    finally:
        os.close(descriptor)
