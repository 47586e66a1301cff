"""How `read`, `write` and `edit` reach a file: at the host where that serves the files of the workspace, else on disk.

What the host has open may differ from the disk, as an editor's unsaved text does; then the host's text counts. A host
that refuses to read a file does not know it, and the disk is asked. One that refuses to write is obeyed: its text may
not be what is on disk. Pictures, binary files and long ones are the disk's.
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
    """The files of one agent; without a host they are those of the disk."""

    def __init__(self, host: HostAccess = NO_HOST) -> None:
        self._host = host

    async def read_host_text(self, run: ToolRun, held: HeldPath) -> bytes | None:
        """The text that the host has for a file, as UTF-8; none if the disk is to be asked."""
        path = self._host.path_for_reading(held.place)
        if path is None or not await run.scope.wait(asyncio.to_thread(_is_text, held)):
            return None
        try:
            text = await self._host.read(run, path)
        except HostRefused:
            return None
        return text.encode("utf-8", "replace")

    async def read_whole(self, run: ToolRun, held: HeldPath, at_most: int) -> bytes:
        """All of a file, from where it is; raises `OSError` as `read_whole` does."""
        at_host = await self.read_host_text(run, held)
        if at_host is not None:
            return at_host
        return await run.scope.wait(asyncio.to_thread(read_whole, held, at_most))

    async def replace(self, run: ToolRun, held: HeldPath, data: bytes, old: bytes | None = None) -> None:
        """Give a file this content; raises `OSError` and `ToolFailed`. `old` is what it had, if that is known.

        A write that has begun is finished even if the run is aborted.
        """
        tells = self._host.wants_changes
        before = old if old is not None or not tells else await self._read_before(run, held)
        path = self._host.path_for_writing(held.place)
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

    async def _read_before(self, run: ToolRun, held: HeldPath) -> bytes | None:
        """What a file had; none for a new one, nothing for one that cannot be shown."""
        try:
            return await self.read_whole(run, held, LONGEST_TOLD)
        except FileNotFoundError:
            return None
        except OSError:
            return b""


def _is_text(held: HeldPath) -> bool:
    """Whether a file may be asked for as a text; one that is not on disk may be: the host may know it unsaved."""
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
