"""An agent that works in an E2B sandbox, through E2B's own package: a `pigeon.workspaces.Workspace` of one's own.

    pip install e2b; export E2B_API_KEY=...; python examples/e2b_workspace.py "Write a haiku to haiku.txt"

Files go over E2B's file API, searches and commands are commands in the sandbox. The key of E2B and those of the model
stay here.
"""

from __future__ import annotations

import asyncio
import errno
import os
import posixpath
import shlex
import sys
from collections.abc import AsyncIterator, Sequence

import e2b

import pigeon
from pigeon.workspaces import (
    CommandEnd,
    Entry,
    FileHasChanged,
    FileKind,
    FileStat,
    HeldPath,
    Match,
    OnFound,
    OnOutput,
    SearchEnd,
    SearchQuery,
    Workspace,
    WorkspaceLost,
)

KINDS: dict[str, FileKind] = {"regular file": "file", "regular empty file": "file", "directory": "folder"}
FORMAT = "%F|%s|%f|%Y|%i-%s-%y-%z|%h|%d:%i"


class E2bWorkspace(Workspace):
    """A folder of a running sandbox."""

    name = "e2b"
    home = "/home/user"

    def __init__(self, sandbox: e2b.AsyncSandbox, folder: str = "/home/user") -> None:
        self.sandbox = sandbox
        self.folder = folder

    async def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        place = await self._check(path)
        found = await self.stat(place)
        if found.kind != "file":
            number = {"missing": errno.ENOENT, "folder": errno.EISDIR}.get(found.kind, errno.EINVAL)
            raise OSError(number, os.strerror(number), place)
        data = bytes(await self.sandbox.files.read(place, format="bytes"))
        return data[start:] if size is None else data[start : start + size]

    async def write(self, path: str, data: bytes, *, unchanged: str | None = None) -> FileStat:
        place = await self._check(path)
        found = await self.stat(place)
        if found.kind == "folder":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), place)
        if unchanged is not None and found.version != unchanged:
            raise FileHasChanged(f"{place} has changed since it was read")
        # The new content gets its name when it is whole.
        new = f"{place}.{os.urandom(6).hex()}.tmp"
        await self.sandbox.files.write(new, data)
        here, there = shlex.quote(new), shlex.quote(place)
        await self._ask(f"[ ! -e {there} ] || chmod --reference={there} {here}; mv -f {here} {there}", place)
        return await self.stat(place)

    async def stat(self, path: str, follow: bool = True) -> FileStat:
        place = self.path_of(path)
        quoted = shlex.quote(place)
        follows = "-L" if follow else ""
        script = f"readlink -m -- {quoted}; readlink -- {quoted}; echo; stat {follows} -c '{FORMAT}' -- {quoted}"
        end = await self.run(f"({script}) 2>/dev/null", cwd="/")
        real, target, *rest = end.output.decode().split("\n")
        line = next((one for one in rest if "|" in one), "")
        return read_stat(line, real, target if not follow and target else None)

    async def list(self, path: str = ".") -> Sequence[Entry]:
        place = await self._check(path)
        found = await self.stat(place)
        if found.kind != "folder":
            number = errno.ENOENT if found.kind == "missing" else errno.ENOTDIR
            raise OSError(number, os.strerror(number), place)
        names = [entry.name for entry in await self.sandbox.files.list(place)]
        paths = [posixpath.join(place, name) for name in names]
        stats = await asyncio.gather(*(self.stat(one, follow=False) for one in paths))
        leads = await asyncio.gather(*(self.stat(one) for one in paths))
        return [
            Entry(
                kind=stat.kind, size=stat.size, mode=stat.mode, mtime_ms=stat.mtime_ms, version=stat.version,
                place=stat.place, target=stat.target, identity=stat.identity, name=name, leads_to=lead.kind,
            )
            for name, stat, lead in zip(names, stats, leads, strict=True)
        ]  # fmt: skip

    async def search(self, query: SearchQuery, on_found: OnFound | None = None) -> SearchEnd:
        place = shlex.quote(await self._check(query.path))
        if query.what == "files":
            command = f"cd {place} && find . -name .git -prune -o -name {shlex.quote(query.pattern)} -printf '%y|%P\\n'"
        else:
            options = ["-rnIZ", "-F" if query.literal else "-E", *(["-i"] if query.ignore_case else [])]
            options += [f"-C{query.context}"] if query.context else []
            options += [f"--include={shlex.quote(query.glob)}"] if query.glob else []
            command = f"cd {place} && grep {' '.join(options)} --exclude-dir=.git -e {shlex.quote(query.pattern)} ."
        end = await self.run(command, timeout=query.time_box)
        lines = end.output.decode("utf-8", "replace").splitlines()
        if query.what == "text" and end.exit_code == 2:
            return SearchEnd(complaint="\n".join(lines), unread=True)
        read = read_path if query.what == "files" else read_line
        found = sorted((match for line in lines if (match := read(line))), key=lambda match: (match.path, match.line))
        if on_found is None:
            return SearchEnd(out_of_time=end.timed_out, matches=found)
        return SearchEnd(out_of_time=end.timed_out, stopped=bool(found) and on_found(found))

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        stdin: bytes | AsyncIterator[bytes] | None = None,
        timeout: float | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandEnd:
        output = bytearray()

        async def show(text: str) -> None:
            output.extend(text.encode())
            if on_output is not None:
                await on_output(text.encode())

        # Everything that the command starts inherits this variable, by which it is found when it has to end.
        mark = f"PIGEON_CALL={os.urandom(8).hex()}"
        whole = f"env {mark} bash -c {shlex.quote(command)} 2>&1"
        try:
            handle = await self.sandbox.commands.run(
                whole, background=True, cwd=self.path_of(cwd or "."), on_stdout=show, stdin=stdin is not None, timeout=0
            )
        except e2b.SandboxException as error:
            raise WorkspaceLost(f"the sandbox {self.sandbox.sandbox_id} does not answer: {error}") from None
        try:
            if stdin is not None:
                parts = [stdin] if isinstance(stdin, bytes) else [part async for part in stdin]
                await self.sandbox.commands.send_stdin(handle.pid, b"".join(parts).decode())
                await self.sandbox.commands.close_stdin(handle.pid)
            async with asyncio.timeout(timeout):
                code = (await handle.wait()).exit_code
        except e2b.CommandExitException as ended:
            code = ended.exit_code
        except TimeoutError:
            await self._kill(mark)
            return CommandEnd(None, True, bytes(output))
        except e2b.SandboxException as error:
            raise WorkspaceLost(
                f"connection to {self.sandbox.sandbox_id} lost; the command may still run: {error}"
            ) from None
        except BaseException:
            await asyncio.shield(self._kill(mark))
            raise
        return CommandEnd(code, False, bytes(output))

    async def _kill(self, mark: str) -> None:
        find = f"grep -lzs {mark} /proc/[0-9]*/environ | cut -d/ -f3"
        await self.sandbox.commands.run(f"for n in 1 2 3; do kill -KILL $({find}) 2>/dev/null; done; true")

    async def _check(self, path: str) -> str:
        """The place of a path; a held one must still lead there, without a link on the way."""
        place = self.path_of(path)
        if isinstance(path, HeldPath) and (await self.stat(place, follow=False)).place != place:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), place)
        return place

    async def _ask(self, command: str, place: str) -> None:
        end = await self.run(command, cwd="/")
        if end.exit_code != 0:
            raise OSError(errno.EIO, end.output.decode().strip(), place)


def read_stat(line: str, place: str, target: str | None) -> FileStat:
    if not line:
        return FileStat(kind="missing", version="missing", place=place)
    kind, size, mode, seconds, version, links, identity = line.split("|")
    return FileStat(
        kind="link" if kind == "symbolic link" else KINDS.get(kind, "other"),
        size=int(size),
        mode=int(mode, 16) & 0o7777,
        mtime_ms=int(seconds) * 1000,
        version=version,
        place=place,
        target=target,
        identity=identity if kind.startswith("regular") and links != "1" else "",
    )


def read_path(line: str) -> Match | None:
    kind, _, path = line.partition("|")
    if not path:
        return None
    return Match(path, kind="file" if kind == "f" else "folder" if kind == "d" else "other")


def read_line(line: str) -> Match | None:
    path, _, rest = line.partition("\0")
    digits = len(rest) - len(rest.lstrip("0123456789"))
    if not digits:
        return None
    kind = "match" if rest[digits : digits + 1] == ":" else "context"
    return Match(
        path.removeprefix("./"), int(rest[:digits]), rest[digits + 1 :], "match" if kind == "match" else "context"
    )


async def main(prompt: str) -> None:
    sandbox = await e2b.AsyncSandbox.create()
    try:
        async with pigeon.Agent(workspace=E2bWorkspace(sandbox)) as agent:
            print((await agent.run(prompt)).text)
    finally:
        await sandbox.kill()


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "What is in this folder?"))
