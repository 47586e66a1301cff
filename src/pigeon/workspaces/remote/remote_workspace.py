"""A workspace on another machine, served by the helper: one request and its answers for each operation.

What only reads is repeated if the helper was lost. A write is verified: the file has its new content, or the write is
done again, under the same condition. A command is never run twice; its result says what is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from pigeon.system.held_paths import HeldPath
from pigeon.system.process.start import ProcessOwner
from pigeon.system.process.variables import MARKERS, ProgramEnvironment
from pigeon.workspaces.errors import WorkspaceLost, WorkspaceUnusable
from pigeon.workspaces.records import CommandEnd, Entry, FileStat, Look, Match, SearchEnd, SearchQuery, Seen
from pigeon.workspaces.remote import messages
from pigeon.workspaces.remote.connection import Answers, HelperConnection, HelperGone
from pigeon.workspaces.remote.remote_search import read_search, search_request
from pigeon.workspaces.remote.translating import to_entry, to_error, to_seen, to_stat
from pigeon.workspaces.remote.transport import MachineTransport
from pigeon.workspaces.workspace import OnFound, OnOutput, Workspace

_T = TypeVar("_T")
LARGEST_READ = 256 << 20
LARGEST_KEPT = 1 << 20
LOOKS_AT_ONCE = 500
ATTEMPTS = 3
OPEN_WITHIN = 19.0
KILLED_WITHIN = 1.5
INPUT_AHEAD = 256 * 1024


class RemoteParts(Struct, frozen=True):
    """What reaches another machine: how its transport is started, with which variables, in which folder of ours."""

    processes: ProcessOwner
    environment: Callable[[], ProgramEnvironment]
    cwd: str = "/"


class RemoteWorkspace(Workspace):
    """A folder of another machine, whose files and commands a helper there serves."""

    def __init__(self, transport: MachineTransport, folder: str, url: str, parts: RemoteParts) -> None:
        self.kind = transport.kind
        self.name = transport.name
        self.folder = folder
        self.url = url
        self._connection = HelperConnection(transport, parts.processes, parts.cwd)

    async def open(self) -> None:
        try:
            async with asyncio.timeout(OPEN_WITHIN):
                await self._connection.ensure_connected()
                (seen,) = await self.look([Look(self.folder)])
        except TimeoutError:
            raise WorkspaceUnusable(f"Cannot open the workspace on {self.name}: no answer") from None
        except OSError as error:
            raise WorkspaceUnusable(f"Cannot open the workspace on {self.name}: {error}") from None
        self.home = os.fsdecode(self._connection.welcome.home)
        if seen.followed.kind != "folder":
            reason = os.strerror(seen.error) if seen.error else _reason_of(seen)
            raise WorkspaceUnusable(f"Cannot open the workspace on {self.name}: {reason}: {self.folder}")
        self.folder = seen.followed.place

    async def close(self) -> None:
        await self._connection.close()

    async def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        place, held = self._to_place(path)

        async def collect(answers: Answers) -> bytes:
            parts: list[bytes] = []
            while True:
                record, body = await answers.next()
                if isinstance(record, messages.Data):
                    parts.append(body)
                elif isinstance(record, messages.RequestFailed):
                    raise to_error(record, self.path_of(path))
                else:
                    return b"".join(parts)

        return await self._repeat(
            lambda id: messages.Read(id=id, path=place, held=held, start=start, size=size, at_most=LARGEST_READ),
            collect,
        )

    async def write(self, path: str, data: bytes, *, unchanged: str | None = None) -> FileStat:
        place, held = self._to_place(path)
        failure = HelperGone(False)
        for _ in range(ATTEMPTS):
            try:
                return await self._write_once(path, place, held, data, unchanged)
            except HelperGone as gone:
                failure = gone
            # The write was whole or did not happen: if the file has the new content by now, it was.
            with contextlib.suppress(FileNotFoundError):
                found = await self._find_written(path, data)
                if found is not None:
                    return found
        raise self._lost(failure, f"whether {self.path_of(path)} was written is not known")

    async def _write_once(self, path: str, place: bytes, held: bool, data: bytes, unchanged: str | None) -> FileStat:
        *parts, last = [data[at : at + messages.PART] for at in range(0, len(data), messages.PART)] or [b""]

        def write(id: int) -> messages.Request:
            return messages.Write(id=id, path=place, held=held, unchanged=unchanged)

        answers = await self._start(
            write if not parts else lambda id: messages.Part(id=id), parts[0] if parts else last
        )
        try:
            if parts:
                for part in parts[1:]:
                    await self._connection.send(messages.Part(id=answers.number), part)
                await self._connection.send(write(answers.number), last)
            record, _ = await answers.next()
        except asyncio.CancelledError:
            # A started write is finished, but one of which parts are missing cannot start.
            self._connection.send_at_once(messages.Cancel(id=answers.number))
            raise
        finally:
            answers.close()
        if isinstance(record, messages.RequestFailed):
            raise to_error(record, self.path_of(path))
        assert isinstance(record, messages.RequestDone)
        assert record.stat is not None
        return to_stat(record.stat)

    async def _find_written(self, path: str, data: bytes) -> FileStat | None:
        found = await self.stat(path)
        if found.kind != "file" or found.size != len(data) or await self.read(path) != data:
            return None
        return found

    async def stat(self, path: str, follow: bool = True) -> FileStat:
        (seen,) = await self.look([Look(path)])
        found = seen.followed if follow else seen.stat
        if seen.error:
            raise OSError(seen.error, os.strerror(seen.error), self.path_of(path))
        return found

    async def list(self, path: str = ".") -> Sequence[Entry]:
        place, held = self._to_place(path)
        result = await self._ask(lambda id: messages.List(id=id, path=place, held=held), path)
        return [to_entry(entry) for entry in result.entries]

    async def look(self, wanted: Sequence[Look]) -> Sequence[Seen]:
        seen: list[Seen] = []
        for at in range(0, len(wanted), LOOKS_AT_ONCE):
            looks = [
                messages.SentLook(*self._to_place(look.path), look.content, look.entries)
                for look in wanted[at : at + LOOKS_AT_ONCE]
            ]
            result = await self._ask(lambda id, looks=looks: messages.LookAt(id=id, wanted=looks), "")  # type: ignore[misc]
            seen.extend(map(to_seen, result.seen))
        return seen

    async def search(self, query: SearchQuery, on_found: OnFound | None = None) -> SearchEnd:
        place, held = self._to_place(query.path)
        kept: list[Match] = []

        def keep(found: list[Match]) -> bool:
            kept.extend(found)
            return False

        stat = await self.stat(query.path) if not isinstance(query.path, HeldPath) else None
        is_folder = (
            query.path.is_folder if isinstance(query.path, HeldPath) else stat is not None and stat.kind == "folder"
        )

        async def collect(answers: Answers) -> SearchEnd:
            kept.clear()
            return await read_search(
                self._connection, answers, query, self.path_of(query.path), is_folder, on_found or keep
            )

        end = await self._repeat(lambda id: search_request(id, place, held, query, is_folder), collect)
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
        began = time.monotonic()
        folder = os.fsencode(self.path_of(cwd or "."))
        shell = self._connection.welcome.shell
        argv = [shell, b"-c", os.fsencode(command)]
        output = bytearray()

        async def keep(part: bytes) -> None:
            output.extend(part)
            del output[:-LARGEST_KEPT]

        answers = await self._start(
            lambda id: messages.RunCommand(id=id, argv=argv, cwd=folder, variables=MARKERS, input=stdin is not None)
        )
        running = _RunningCommand(self._connection, answers, on_output or keep)
        try:
            async with asyncio.timeout(timeout):
                code = await running.wait(stdin)
        except TimeoutError:
            await running.kill(KILLED_WITHIN)
            return CommandEnd(None, True, bytes(output))
        except HelperGone as gone:
            raise self._lost_command(gone, time.monotonic() - began) from None
        except _NotStarted as failed:
            path = self.path_of(cwd or ".") if failed.record.code == "folder" else os.fsdecode(shell)
            raise to_error(failed.record, path) from None
        except BaseException:
            running.kill_at_once()
            raise
        finally:
            running.close()
        return CommandEnd(code, False, bytes(output))

    def _lost_command(self, gone: HelperGone, seconds: float) -> WorkspaceLost:
        known = "the command was ended" if gone.is_certain else f"the command may still run: job {os.urandom(4).hex()}"
        return WorkspaceLost(f"connection to {self.name} lost after {seconds:.0f} s; {known}")

    def _lost(self, gone: HelperGone, known: str) -> WorkspaceLost:
        return WorkspaceLost(f"connection to {self.name} lost; {known}")

    # --- requests

    def _to_place(self, path: str) -> tuple[bytes, bool]:
        place = os.fsencode(self.path_of(path))
        if b"\0" in place:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return place, isinstance(path, HeldPath)

    async def _start(self, make: Callable[[int], messages.Request], body: bytes = b"") -> Answers:
        try:
            return await self._connection.start_call(make, body)
        except WorkspaceUnusable as error:
            raise WorkspaceLost(str(error)) from None

    async def _repeat(self, make: Callable[[int], messages.Request], collect: Callable[[Answers], Awaitable[_T]]) -> _T:
        """Do what only reads, again if the helper was lost meanwhile."""
        for attempt in range(ATTEMPTS):
            answers = await self._start(make)
            try:
                return await collect(answers)
            except HelperGone as gone:
                if attempt == ATTEMPTS - 1:
                    raise self._lost(gone, "nothing was changed") from None
            except asyncio.CancelledError:
                self._connection.send_at_once(messages.Cancel(id=answers.number))
                self._connection.send_at_once(messages.KillCommand(id=answers.number))
                raise
            finally:
                answers.close()
        raise AssertionError

    async def _ask(self, make: Callable[[int], messages.Request], path: str) -> messages.RequestDone:
        async def collect(answers: Answers) -> messages.RequestDone:
            record, _ = await answers.next()
            if isinstance(record, messages.RequestFailed):
                raise to_error(record, self.path_of(path))
            assert isinstance(record, messages.RequestDone)
            return record

        return await self._repeat(make, collect)


class _NotStarted(Exception):
    def __init__(self, record: messages.RequestFailed) -> None:
        super().__init__(record.text)
        self.record = record


class _RunningCommand:
    """A command there: its output goes to `on_output` as it comes, and is asked for as it is consumed."""

    def __init__(self, connection: HelperConnection, answers: Answers, on_output: OnOutput) -> None:
        self._connection = connection
        self._answers = answers
        self._on_output = on_output
        self._room = INPUT_AHEAD
        self._has_room = asyncio.Event()
        self._feeding: asyncio.Task[None] | None = None

    async def wait(self, stdin: bytes | AsyncIterator[bytes] | None) -> int:
        """Its exit code; 128 plus the signal's number for a death by signal."""
        if stdin is not None:
            self._feeding = asyncio.ensure_future(self._feed(stdin))
        while True:
            record, body = await self._answers.next()
            if isinstance(record, messages.Output):
                await self._on_output(body)
                await self._connection.send(messages.Credit(id=self._answers.number, bytes=len(body)))
            elif isinstance(record, messages.Taken):
                self._room += record.bytes
                self._has_room.set()
            elif isinstance(record, messages.RequestFailed):
                raise _NotStarted(record)
            elif isinstance(record, messages.CommandEnded):
                return record.exit_code

    async def _feed(self, stdin: bytes | AsyncIterator[bytes]) -> None:
        try:
            if isinstance(stdin, bytes):
                await self._feed_part(stdin)
            else:
                async for part in stdin:
                    await self._feed_part(part)
        finally:
            self._connection.send_at_once(messages.MoreInput(id=self._answers.number, ends=True))

    async def _feed_part(self, part: bytes) -> None:
        while part:
            while self._room <= 0:
                self._has_room.clear()
                await self._has_room.wait()
            size = min(self._room, messages.PART)
            piece, part = part[:size], part[size:]
            self._room -= len(piece)
            await self._connection.send(messages.MoreInput(id=self._answers.number, ends=False), piece)

    def kill_at_once(self) -> None:
        self._connection.send_at_once(messages.KillCommand(id=self._answers.number))

    async def kill(self, within: float) -> None:
        """Kill it and everything it started, and wait a moment until nothing is left."""
        self.kill_at_once()
        with contextlib.suppress(TimeoutError, HelperGone):
            async with asyncio.timeout(within):
                while not isinstance((await self._answers.next())[0], messages.Gone):
                    pass

    def close(self) -> None:
        self._answers.close()
        if self._feeding is not None:
            self._feeding.cancel()


def _reason_of(seen: Seen) -> str:
    return "no such directory" if seen.followed.kind == "missing" else "not a directory"
