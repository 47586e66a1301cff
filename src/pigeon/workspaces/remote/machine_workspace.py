"""A folder of another machine: served by the helper where there is Python, by a POSIX shell elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from pigeon.workspaces.records import CommandEnd, Entry, FileStat, Look, SearchEnd, SearchQuery, Seen
from pigeon.workspaces.remote.connection import NoPython
from pigeon.workspaces.remote.remote_workspace import RemoteParts, RemoteWorkspace
from pigeon.workspaces.remote.transport import MachineTransport
from pigeon.workspaces.workspace import OnFound, OnOutput, Workspace


class MachineWorkspace(Workspace):
    """Which of the two serves it is known once it is open: `served_by`."""

    def __init__(self, transport: MachineTransport, folder: str, url: str, parts: RemoteParts) -> None:
        self.kind = transport.kind
        self.name = transport.name
        self.folder = folder
        self.url = url
        self._transport = transport
        self._parts = parts
        self.served_by: Workspace = RemoteWorkspace(transport, folder, url, parts)

    async def open(self) -> None:
        try:
            await self.served_by.open()
        except NoPython:
            from pigeon.workspaces.remote.shell_workspace import ShellWorkspace

            await self.served_by.close()
            assert self.url is not None
            self.served_by = ShellWorkspace(self._transport, self.folder, self.url, self._parts)
            await self.served_by.open()
        self.folder = self.served_by.folder
        self.home = self.served_by.home

    async def close(self) -> None:
        await self.served_by.close()

    async def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        return await self.served_by.read(path, start, size)

    async def write(self, path: str, data: bytes, *, unchanged: str | None = None) -> FileStat:
        return await self.served_by.write(path, data, unchanged=unchanged)

    async def stat(self, path: str, follow: bool = True) -> FileStat:
        return await self.served_by.stat(path, follow)

    async def list(self, path: str = ".") -> Sequence[Entry]:
        return await self.served_by.list(path)

    async def search(self, query: SearchQuery, on_found: OnFound | None = None) -> SearchEnd:
        return await self.served_by.search(query, on_found)

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        stdin: bytes | AsyncIterator[bytes] | None = None,
        timeout: float | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandEnd:
        return await self.served_by.run(command, cwd=cwd, stdin=stdin, timeout=timeout, on_output=on_output)

    async def look(self, wanted: Sequence[Look]) -> Sequence[Seen]:
        return await self.served_by.look(wanted)
