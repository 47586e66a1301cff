"""A workspace on a machine without Python: what the helper does, done by a POSIX shell.

The limits: a held path is checked right before it is used, not held; an output is what it is with its errors in it;
input that comes in parts is collected first; what a command leaves in the background ends with it, and a daemon that
leaves the session of its command is not found; a broken connection ends commands; a search reads the files that are not
larger than 1 MB over the connection; at most 16 MB can be written at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import AsyncIterator, Sequence

from pigeon.system.files import NotRegular
from pigeon.system.held_paths import HeldPath
from pigeon.workspaces.errors import FileHasChanged, WorkspaceLost, WorkspaceUnusable
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
    kind_of_mode,
)
from pigeon.workspaces.remote.remote_workspace import LARGEST_KEPT, RemoteParts
from pigeon.workspaces.remote.shell_connection import ShellConnection, encode_data, quote
from pigeon.workspaces.remote.shell_scripts import (
    ABOUT_MACHINE,
    REAL,
    look_script,
    read_script,
    run_script,
    write_script,
)
from pigeon.workspaces.remote.shell_search import search_files_here
from pigeon.workspaces.remote.transport import Link, MachineTransport
from pigeon.workspaces.workspace import OnFound, OnOutput, Workspace

FAILED = 9
FIELDS = 6
STILL_HERE_EVERY = 2.0
LARGEST_WRITE = 16 << 20
LOOKS_AT_ONCE = 100
# Relative paths, kinds and sizes.
Tree = list[tuple[str, str, int]]


class ShellWorkspace(Workspace):
    """A folder of another machine that has nothing but a POSIX shell."""

    def __init__(self, transport: MachineTransport, folder: str, url: str, parts: RemoteParts) -> None:
        self.kind = transport.kind
        self.name = transport.name
        self.folder = folder
        self.url = url
        self._connection = ShellConnection(transport, parts.processes, parts.cwd)
        self._shell = "/bin/sh"

    async def open(self) -> None:
        try:
            _, about = await self._connection.ask(ABOUT_MACHINE)
            home, self._shell, *missing = about.decode("utf-8", "surrogateescape").split("\n")
            if any(missing):
                raise WorkspaceUnusable(
                    f"Cannot open the workspace on {self.name}: it has no Python 3.8 or newer, "
                    "and no `find` and `stat -c` either."
                )
            self.home = home
            (seen,) = await self.look([Look(self.folder)])
        except OSError as error:
            raise WorkspaceUnusable(f"Cannot open the workspace on {self.name}: {error}") from None
        if seen.followed.kind != "folder":
            reason = "no such directory" if seen.followed.kind == MISSING else "not a directory"
            raise WorkspaceUnusable(f"Cannot open the workspace on {self.name}: {reason}: {self.folder}")
        self.folder = seen.followed.place

    async def close(self) -> None:
        await self._connection.close()

    async def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        place = self._check(path)
        code, printed = await self._connection.ask(read_script(place, start, size, isinstance(path, HeldPath)))
        if code == FAILED:
            raise _error_of(printed, place)
        return printed

    async def write(self, path: str, data: bytes, *, unchanged: str | None = None) -> FileStat:
        place = self._check(path)
        if len(data) > LARGEST_WRITE:
            raise OSError(errno.EFBIG, f"without Python there at most {LARGEST_WRITE >> 20} MB can be written", place)
        temporary = f".pigeon-{os.urandom(6).hex()}.tmp"
        script = write_script(place, unchanged, isinstance(path, HeldPath), temporary)
        try:
            code, printed = await self._connection.ask(script, data, repeats=False)
        except WorkspaceLost:
            # Either everything was written or nothing was: what is there now tells.
            if await self._has_content(path, data):
                return await self.stat(path)
            code, printed = await self._connection.ask(script, data, repeats=False)
        if code == FAILED:
            raise _error_of(printed, place)
        if code:
            raise OSError(errno.EIO, printed.decode("utf-8", "replace").strip() or os.strerror(errno.EIO), place)
        return await self.stat(path)

    async def _has_content(self, path: str, data: bytes) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return (await self.stat(path)).size == len(data) and await self.read(path) == data
        return False

    async def stat(self, path: str, follow: bool = True) -> FileStat:
        (seen,) = await self.look([Look(path)])
        return seen.followed if follow else seen.stat

    async def list(self, path: str = ".") -> Sequence[Entry]:
        (seen,) = await self.look([Look(path, entries=True)])
        if seen.entries is None:
            number = errno.ENOENT if seen.followed.kind == MISSING else seen.error or errno.ENOTDIR
            raise OSError(number, os.strerror(number), self.path_of(path))
        return seen.entries

    async def look(self, wanted: Sequence[Look]) -> Sequence[Seen]:
        seen: list[Seen] = []
        for at in range(0, len(wanted), LOOKS_AT_ONCE):
            part = wanted[at : at + LOOKS_AT_ONCE]
            mark = os.urandom(12).hex()
            scripts = [
                look_script(self._check(look.path), mark, look.content, look.entries, isinstance(look.path, HeldPath))
                for look in part
            ]
            _, printed = await self._connection.ask(REAL + "".join(scripts))
            seen += [_read_look(look, fields, mark) for look, fields in zip(part, _split(printed, mark), strict=True)]
        return seen

    async def search(self, query: SearchQuery, on_found: OnFound | None = None) -> SearchEnd:
        kept: list[Match] = []

        def keep(found: list[Match]) -> bool:
            kept.extend(found)
            return False

        end = await search_files_here(self, query, on_found or keep)
        return SearchEnd(end.complaint, end.unread, end.out_of_time, end.stopped, kept)

    async def list_tree(self, folder: str) -> Tree:
        """Everything below a folder but what belongs to git: relative paths, kinds and sizes."""
        mark = os.urandom(12).hex()
        described = f"-exec stat -c '%f|%s|%n/{mark}:' {{}} +"
        script = f"cd -- {quote(folder)} && find . -name .git -prune -o ! -name . {described}; true"
        _, printed = await self._connection.ask(script)
        found: Tree = []
        for line in printed.decode("utf-8", "surrogateescape").split(f"/{mark}:\n")[:-1]:
            mode, size, name = line.split("|", 2)
            found.append((name.removeprefix("./"), kind_of_mode(int(mode, 16)), int(size)))
        return found

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        stdin: bytes | AsyncIterator[bytes] | None = None,
        timeout: float | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandEnd:
        began = time.monotonic()
        folder = self._check(cwd or ".")
        data = stdin if stdin is None or isinstance(stdin, bytes) else b"".join([part async for part in stdin])
        mark = f"pigeon-{os.urandom(12).hex()}"
        script = run_script(command, folder, self._shell, mark, data is not None)
        try:
            link = await self._connection.start_shell()
        except WorkspaceUnusable as error:
            raise WorkspaceLost(str(error)) from None
        output = bytearray()

        async def keep(part: bytes) -> None:
            output.extend(part)
            del output[:-LARGEST_KEPT]

        staying = asyncio.ensure_future(_say_still_here(link))
        try:
            given = "" if data is None else encode_data(data)
            link.writer.write(f"{{\n{given}{script}}}\n".encode("utf-8", "surrogateescape"))
            async with asyncio.timeout(timeout):
                end = await _read_output(link, mark.encode(), on_output or keep)
        except TimeoutError:
            return CommandEnd(None, True, bytes(output))
        except (OSError, EOFError):
            seconds = time.monotonic() - began
            raise WorkspaceLost(
                f"connection to {self.name} lost after {seconds:.0f} s; the command may still run: job {mark[-8:]}"
            ) from None
        finally:
            staying.cancel()
            link.writer.write(b"k\n")
            await asyncio.shield(link.close_when_written(1.0))
        if end == b"folder":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
        return CommandEnd(int(end), False, bytes(output))

    def _check(self, path: str) -> str:
        place = self.path_of(path)
        if "\0" in place:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return place


async def _say_still_here(link: Link) -> None:
    """The machine ends a command whose connection has said nothing for 9 seconds."""
    while True:
        await asyncio.sleep(STILL_HERE_EVERY)
        link.writer.write(b"\n")


async def _read_output(link: Link, mark: bytes, on_output: OnOutput) -> bytes:
    """Pass the output on up to the mark; returns what follows the mark."""
    end = b"\n" + mark + b" "
    waiting = bytearray()
    while True:
        part = await link.reader.read(1 << 16)
        if not part:
            raise EOFError
        waiting += part
        at = waiting.find(end)
        if at >= 0 and waiting.endswith(b"\n", at + len(end)):
            if at:
                await on_output(bytes(waiting[:at]))
            return bytes(waiting[at + len(end) : -1])
        # The end of what has come may be the beginning of the mark.
        safe = waiting.rfind(b"\n", max(0, len(waiting) - len(end) - 16)) if at < 0 else at
        safe = len(waiting) if safe < 0 else safe
        if safe:
            await on_output(bytes(waiting[:safe]))
            del waiting[:safe]


def _split(printed: bytes, mark: str) -> list[list[bytes]]:
    """The fields that the shell has printed for each path, in order."""
    pieces = printed.split(f"{mark};".encode())
    return [pieces[at : at + FIELDS] for at in range(0, len(pieces) - 1, FIELDS)]


def _read_look(look: Look, fields: list[bytes], mark: str) -> Seen:
    place, target, itself, followed, content, entries = fields
    real = os.fsdecode(place)
    leads = os.fsdecode(target[:-1]) if target else None
    stat = _read_stat(itself, real, leads)
    seen = _read_stat(followed, real, None)
    failed = f"{mark}!".encode()
    wanted = content if seen.kind == "file" else entries if seen.kind == "folder" else b""
    error = errno.EACCES if wanted.endswith(failed) else 0
    return Seen(
        stat,
        seen,
        content if look.content and seen.kind == "file" and not error else None,
        _read_entries(entries, real, mark) if look.entries and seen.kind == "folder" and not error else None,
        error,
    )


def _read_stat(line: bytes, place: str, target: str | None) -> FileStat:
    if not line.strip():
        return FileStat(kind="missing", version=MISSING, place=place)
    version = line.decode("utf-8", "surrogateescape").strip()
    raw, size, seconds, _, _, inode, links, device = version.split("|")
    mode = int(raw, 16)
    kind = kind_of_mode(mode)
    return FileStat(
        kind=kind,
        size=int(size),
        mode=mode & 0o7777,
        mtime_ms=int(seconds) * 1000,
        version=version,
        place=place,
        target=target,
        identity=f"{device}:{inode}" if kind == "file" and int(links) > 1 else "",
    )


def _read_entries(printed: bytes, folder: str, mark: str) -> list[Entry]:
    text = os.fsdecode(printed)
    found: dict[str, FileStat] = {}
    leads: dict[str, str] = {}
    targets: dict[str, str] = {}
    pieces = text.split(f"/{mark}:")
    waiting = ""
    for piece in (piece.removeprefix("\n") for piece in pieces[:-1]):
        if waiting:
            targets[waiting], waiting = piece.removesuffix("\n"), ""
        elif piece.startswith(">"):
            waiting = piece[1:].removeprefix("./")
        else:
            line, _, name = piece.removeprefix("+").partition("|./")
            stat = _read_stat(os.fsencode(line), os.path.join(folder, name), None)
            if piece.startswith("+"):
                leads[name] = stat.kind
            else:
                found[name] = stat
    return [
        Entry(
            kind=stat.kind,
            size=stat.size,
            mode=stat.mode,
            mtime_ms=stat.mtime_ms,
            version=stat.version,
            place=stat.place,
            target=targets.get(name),
            identity=stat.identity,
            name=name,
            leads_to=leads.get(name, MISSING) if stat.kind == "link" else stat.kind,  # type: ignore[arg-type]
        )
        for name, stat in found.items()
    ]


def _error_of(printed: bytes, place: str) -> OSError:
    code = printed.decode("utf-8", "replace").strip()
    if code == "changed":
        return FileHasChanged(f"{place} has changed since it was read")
    if code == "special":
        return NotRegular(f"Not a regular file: {place} is special")
    number = getattr(errno, code, errno.EIO)
    return OSError(number, os.strerror(number), place)
