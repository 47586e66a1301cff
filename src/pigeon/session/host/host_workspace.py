"""A workspace that is the host's: its files and commands are asked of the host, one request for each operation."""

from __future__ import annotations

import asyncio
import base64
import errno
import os
from collections.abc import AsyncIterator, Sequence

from msgspec.structs import replace

from pigeon.session.host.host_services import CommandTimedOut, HostServices
from pigeon.system.held_paths import HeldPath
from pigeon.wire.base import ABSENT, Absent, value_or_default
from pigeon.wire.choices import FileKind, WorkspaceKind
from pigeon.wire.commands.services import HostFileStatus
from pigeon.wire.events import HostCommandRun, HostFileList, HostFileRead, HostFileStat, HostFileWrite, HostSearch
from pigeon.workspaces.errors import FileHasChanged
from pigeon.workspaces.records import (
    MISSING,
    CommandEnd,
    Entry,
    FileStat,
    Look,
    Match,
    SearchEnd,
    SearchQuery,
    Seen,
)
from pigeon.workspaces.workspace import OnFound, OnOutput, Workspace

_MOST_LINKS = 40
_NOT_OFFERED = "the host does not offer {}; it has to be set with set_host_services"


class HostWorkspace(Workspace):
    """The files of a host, from the moment on at which it has set its services."""

    name = "host"
    kind: WorkspaceKind = "host"

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.home = folder
        self.url = f"host:{folder}"
        self._services: HostServices | None = None

    def use_services(self, services: HostServices) -> None:
        self._services = services

    async def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        services, place = self._require("readFiles"), await self._reach(path)
        request = HostFileRead(id=services.new_request_id(), path=place)
        if services.offered.gives_bytes is True:
            request.encoding = "base64"
        answer = await services.ask(request)
        if isinstance(answer.data, str):
            data = base64.b64decode(answer.data)
        elif isinstance(answer.content, str):
            data = answer.content.encode("utf-8", "replace")
        else:
            raise OSError(f"the host gave no content of {place}")
        return data[start:] if size is None else data[start : start + size]

    async def write(self, path: str, data: bytes, *, unchanged: str | None = None) -> FileStat:
        services, place = self._require("writeFiles"), await self._reach(path)
        before = await self._lstat(place, {})
        if unchanged is not None and before.version != unchanged:
            raise FileHasChanged(f"{place} has changed since it was read")
        try:
            content, encoded = data.decode(), None
        except UnicodeDecodeError:
            content, encoded = None, base64.b64encode(data).decode("ascii")
        request = HostFileWrite(
            id=services.new_request_id(),
            path=place,
            content=ABSENT if content is None else content,
            data=ABSENT if encoded is None else encoded,
        )
        answer = await services.ask(request)
        return FileStat(kind="file", size=len(data), version=value_or_default(answer.version, ""), place=place)

    async def stat(self, path: str, follow: bool = True) -> FileStat:
        seen = (await self.look([Look(self.path_of(path))]))[0]
        return seen.followed if follow else seen.stat

    async def list(self, path: str = ".") -> Sequence[Entry]:
        place = await self._reach(path)
        services = self._require("list")
        answer = await services.ask(HostFileList(id=services.new_request_id(), path=place))
        cache: dict[str, FileStat] = {}
        entries = value_or_default(answer.entries, [])
        return await asyncio.gather(*(self._make_entry(place, entry.name, entry, cache) for entry in entries))

    async def search(self, query: SearchQuery, on_found: OnFound | None = None) -> SearchEnd:
        services, place = self._require("search"), await self._reach(query.path)
        request = HostSearch(
            id=services.new_request_id(),
            path=place,
            what=query.what,
            pattern=query.pattern,
            ignore_case=query.ignore_case or ABSENT,
            literal=query.literal or ABSENT,
            glob=query.glob or ABSENT,
        )
        answer = await services.ask(request, query.time_box)
        found = [Match(one.path, one.line, one.text) for one in value_or_default(answer.matches, [])]
        for path in value_or_default(answer.paths, []):
            found.append(Match(path.removesuffix("/"), kind="folder" if path.endswith("/") else "file"))
        if on_found is None:
            return SearchEnd(matches=found)
        return SearchEnd(stopped=bool(found) and on_found(found))

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        stdin: bytes | AsyncIterator[bytes] | None = None,
        timeout: float | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandEnd:
        services = self._require("runCommands")
        request = HostCommandRun(
            id=services.new_request_id(), command=["/bin/sh", "-c", command], cwd=self.path_of(cwd or "."), env={}
        )
        try:
            answer = await services.ask(request, timeout)
            output = value_or_default(answer.output, "")
            # A command without a code was ended by a signal.
            code = value_or_default(answer.exit_code, None)
            end = CommandEnd(1 if code is None else code)
        except CommandTimedOut as stopped:
            output, end = str(stopped), CommandEnd(None, timed_out=True)
        data = output.encode("utf-8", "replace")
        if on_output is not None and data:
            await on_output(data)
        return replace(end, output=data)

    async def look(self, wanted: Sequence[Look]) -> Sequence[Seen]:
        if self._services is None or self._services.offered.gives_stat is not True:
            return [self._guess(look) for look in wanted]
        cache: dict[str, FileStat] = {}
        return await asyncio.gather(*(self._look_through_links(look, cache) for look in wanted))

    def _guess(self, look: Look) -> Seen:
        """What is known without asking: before the host has set its services nothing is there."""
        place = self.path_of(look.path)
        above = self.folder == place or self.folder.startswith(f"{place.rstrip('/')}/")
        known = self._services is not None and self._services.offered.read_files
        kind: FileKind = "folder" if above else "file" if known else "missing"
        stat = FileStat(kind=kind, version=MISSING if kind == "missing" else "", place=place)
        return Seen(stat, stat)

    async def _look_through_links(self, look: Look, cache: dict[str, FileStat]) -> Seen:
        path = self.path_of(look.path)
        place = await self._resolve(path, cache)
        stat, followed = await self._lstat(path, cache), await self._lstat(place, cache)
        stat, followed = _with_place(stat, place), _with_place(followed, place)
        content = entries = None
        error = 0
        try:
            if look.content and followed.kind == "file" and followed.size <= look.content:
                content = await self.read(_held(place, False))
            if look.entries and followed.kind == "folder":
                entries = await self.list(_held(place, True))
        except OSError as failure:
            error = failure.errno or errno.EIO
        return Seen(stat, followed, content, entries, error)

    async def _resolve(self, path: str, cache: dict[str, FileStat]) -> str:
        """The real path, component by component; the folder of the workspace is one."""
        inside = path == self.folder or path.startswith(f"{self.folder.rstrip('/')}/")
        place = self.folder if inside else "/"
        rest = [name for name in path[len(place) :].split("/") if name]
        links = 0
        while rest:
            name = rest.pop(0)
            if name == "..":
                place = os.path.dirname(place)
                continue
            if name == ".":
                continue
            below = os.path.join(place, name)
            found = await self._lstat(below, cache)
            if found.kind == "link" and found.target and links < _MOST_LINKS:
                links += 1
                place = "/" if found.target.startswith("/") else place
                rest = [part for part in found.target.split("/") if part] + rest
            else:
                place = below
        return place

    async def _reach(self, path: str) -> str:
        """The place of a path; raises `OSError` if a held path leads elsewhere by now."""
        place = self.path_of(path)
        can_check = self._services is not None and self._services.offered.gives_stat is True
        if isinstance(path, HeldPath) and can_check and await self._resolve(place, {}) != place:
            raise OSError(errno.ELOOP, "too many symbolic links encountered", place)
        return place

    async def _lstat(self, path: str, cache: dict[str, FileStat]) -> FileStat:
        known = cache.get(path)
        if known is None:
            services = self._require("stat")
            answer = await services.ask(HostFileStat(id=services.new_request_id(), path=path, follow=False))
            if isinstance(answer.stat, Absent):
                raise OSError(f"the host did not say what {path} is")
            known = cache[path] = _to_stat(answer.stat, path)
        return known

    async def _make_entry(self, folder: str, name: str, found: HostFileStatus, cache: dict[str, FileStat]) -> Entry:
        path = os.path.join(folder, name)
        leads_to = found.kind
        if leads_to == "link":
            place = await self._resolve(path, cache)
            leads_to = (await self._lstat(place, cache)).kind
        stat = _to_stat(found, path)
        return Entry(
            kind=stat.kind,
            size=stat.size,
            mode=stat.mode,
            mtime_ms=stat.mtime_ms,
            version=stat.version,
            place=path,
            target=stat.target,
            name=name,
            leads_to=leads_to,
        )

    def _require(self, service: str) -> HostServices:
        if self._services is None:
            raise OSError(_NOT_OFFERED.format(service))
        offered = self._services.offered
        given = {
            "readFiles": offered.read_files,
            "writeFiles": offered.write_files,
            "runCommands": offered.run_commands,
            "stat": offered.gives_stat is True,
            "list": offered.gives_list is True,
            "search": offered.gives_search is True,
        }
        if not given[service]:
            raise OSError(_NOT_OFFERED.format(service))
        return self._services


def _held(place: str, is_folder: bool) -> HeldPath:
    return HeldPath(place, (place,), is_folder)


def _with_place(stat: FileStat, place: str) -> FileStat:
    return replace(stat, place=place)


def _to_stat(found: HostFileStatus, place: str) -> FileStat:
    return FileStat(
        kind=found.kind,
        size=found.size,
        mode=found.mode,
        mtime_ms=int(found.mtime_ms),
        version=MISSING if found.kind == "missing" else found.version,
        place=place,
        target=value_or_default(found.target, None),
    )
