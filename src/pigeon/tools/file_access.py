"""How `read`, `write` and `edit` reach a file: through the host if that serves the files of the workspace, else on
disk.

What the host has open may differ from the disk, as an editor's unsaved text does; then the host's text counts. If a
host refuses to read a file, it does not know it, and the disk is read. If it refuses to write, that is final, because
its text may differ from the disk. Pictures, binary files and long files are always read from the disk.
"""

from __future__ import annotations

import asyncio
import os

from pigeon.agent.interfaces import NO_HOST, HostAccess, HostRefused, ToolRun
from pigeon.system.files import open_regular, read_whole, replace_file, run_in_thread
from pigeon.system.paths import HeldPath
from pigeon.wire.errors import ToolFailed

LONGEST_AT_HOST = 4 << 20
LONGEST_TOLD = 1 << 20
SNIFFED = 8192


class FileAccess:
    """The files of one agent; without a host they are those on the disk."""

    def __init__(self, host: HostAccess = NO_HOST) -> None:
        self._host = host

    async def read_host_text(self, run: ToolRun, held: HeldPath) -> bytes | None:
        """The host's text of a file as UTF-8, or None if the disk is to be read."""
        path = self._host.find_host_path_to_read(held.place)
        if path is None or not await run.scope.wait(asyncio.to_thread(_is_text, held)):
            return None
        try:
            text = await self._host.read(run, path)
        except HostRefused:
            return None
        return text.encode("utf-8", "replace")

    async def read_whole(self, run: ToolRun, held: HeldPath, at_most: int) -> bytes:
        """All of a file, from wherever it is; raises `OSError` like `read_whole`."""
        at_host = await self.read_host_text(run, held)
        if at_host is not None:
            return at_host
        return await run.scope.wait(asyncio.to_thread(read_whole, held, at_most))

    async def replace(self, run: ToolRun, held: HeldPath, data: bytes, old: bytes | None = None) -> None:
        """Replace the content of a file; raises `OSError` and `ToolFailed`. `old` is its previous content, if known.

        A started write is finished even if the run is aborted.
        """
        tells = self._host.wants_changes
        before = old if old is not None or not tells else await self._read_old_content(run, held)
        path = self._host.find_host_path_to_write(held.place)
        if path is None:
            await run_in_thread(lambda: replace_file(held, data))
        else:
            await asyncio.to_thread(lambda: held.open_folder(make=True))
            try:
                await self._host.write(run, path, data.decode("utf-8", "replace"))
            except HostRefused as refusal:
                raise ToolFailed(f"The host refused to write {path}: {refusal}") from None
        if tells:
            shown = None if before is None else before.decode("utf-8", "replace")
            self._host.report_change(run, path or held.place, shown, data.decode("utf-8", "replace"))

    async def _read_old_content(self, run: ToolRun, held: HeldPath) -> bytes | None:
        """The previous content of a file; None for a new one, empty for one that cannot be shown."""
        try:
            return await self.read_whole(run, held, LONGEST_TOLD)
        except FileNotFoundError:
            return None
        except OSError:
            return b""


def _is_text(held: HeldPath) -> bool:
    """Whether the host may be asked for a file as text, even if it is not on disk: the host may have it unsaved."""
    try:
        descriptor = open_regular(held)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        return os.fstat(descriptor).st_size <= LONGEST_AT_HOST and b"\0" not in os.read(descriptor, SNIFFED)
    finally:
        os.close(descriptor)
