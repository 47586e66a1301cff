"""Machines without Python: a POSIX shell does the work, one script after another, and answers up to a mark.

What a script prints comes as it is, whatever bytes it has; it ends with a line that nothing else can contain. Commands
have a connection of their own, whose input says that Pigeon is still there.
"""

from __future__ import annotations

import asyncio
import base64
import os

from pigeon.system.process.start import ProcessOwner
from pigeon.workspaces.errors import WorkspaceLost, WorkspaceUnusable
from pigeon.workspaces.remote.bundle import make_first_line
from pigeon.workspaces.remote.connection import CONNECT_WITHIN, read_to_mark
from pigeon.workspaces.remote.transport import Link, MachineTransport, start_transport

ANSWER_WITHIN = 60.0
LARGEST_ANSWER = 64 << 20
ENCODED_LINE = 8 * 1024


class ShellConnection:
    """A shell on another machine that runs scripts, one at a time."""

    def __init__(self, transport: MachineTransport, processes: ProcessOwner, cwd: str) -> None:
        self._transport = transport
        self._processes = processes
        self._cwd = cwd
        self._link: Link | None = None
        self._turn = asyncio.Lock()

    async def start_shell(self) -> Link:
        """A connection of its own to a shell; raises `WorkspaceUnusable`."""
        name = self._transport.name
        try:
            async with asyncio.timeout(CONNECT_WITHIN):
                link = await start_transport(self._transport, self._processes, self._cwd)
                try:
                    nonce = os.urandom(12).hex()
                    link.writer.write(make_first_line(nonce, may_use_python=False))
                    await read_to_mark(link, nonce)
                except BaseException:
                    link.close()
                    raise
        except TimeoutError:
            raise WorkspaceUnusable(
                f"Cannot open the workspace on {name}: no answer within {CONNECT_WITHIN:g} seconds."
            ) from None
        except (OSError, EOFError) as error:
            code = None if isinstance(error, OSError) else await link.wait_for_end(2.0)
            reason = str(error) if isinstance(error, OSError) else self._transport.explain(link.said, code or -1)
            raise WorkspaceUnusable(f"Cannot open the workspace on {name}: {reason}") from None
        return link

    async def ask(self, script: str, data: bytes | None = None, *, repeats: bool = True) -> tuple[int, bytes]:
        """Run a script whose functions read `data` by `p_data`; returns its exit code and what it printed.

        If the connection breaks, it is run once more unless that could do harm; else raises `WorkspaceLost`.
        """
        async with self._turn:
            for attempt in range(2):
                try:
                    if self._link is None:
                        self._link = await self.start_shell()
                    async with asyncio.timeout(ANSWER_WITHIN):
                        return await _run_script(self._link, script, data)
                except WorkspaceUnusable as error:
                    raise WorkspaceLost(str(error)) from None
                except (OSError, EOFError):
                    self._drop()
                    if attempt or not repeats:
                        break
                except BaseException:
                    # The answer to this script would be read as that to the next one.
                    self._drop()
                    raise
        raise WorkspaceLost(f"connection to {self._transport.name} lost")

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    async def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close_when_written(1.0)


async def _run_script(link: Link, script: str, data: bytes | None) -> tuple[int, bytes]:
    mark = f"pigeon-{os.urandom(12).hex()}"
    link.writer.write(wrap_script(script, mark, data).encode("utf-8", "surrogateescape"))
    await link.writer.drain()
    parts = bytearray()
    end = f"\n{mark} ".encode()
    while (at := parts.find(end)) < 0:
        part = await link.reader.read(1 << 20)
        if not part:
            raise EOFError
        parts += part
        if len(parts) > LARGEST_ANSWER:
            raise OSError(f"the answer is longer than {LARGEST_ANSWER >> 20} MB")
    while not parts.endswith(b"\n", at + len(end)):
        part = await link.reader.read(100)
        if not part:
            raise EOFError
        parts += part
    return int(parts[at + len(end) :]), bytes(parts[:at])


def wrap_script(script: str, mark: str, data: bytes | None) -> str:
    """The script in braces, so that the shell has read all of it before it begins."""
    given = "" if data is None else encode_data(data)
    return f"{{\n{given}( {script}\n) </dev/null 2>&1\nprintf '\\n{mark} %s\\n' $?\n}}\n"


def encode_data(data: bytes) -> str:
    """A function `p_data` that prints these bytes: by `base64` where it is installed, else by the shell alone."""
    encoded = base64.b64encode(data).decode()
    lines = "\n".join(encoded[at : at + 76] for at in range(0, len(encoded), 76))
    pieces = [data[at : at + ENCODED_LINE // 4] for at in range(0, len(data), ENCODED_LINE // 4)]
    if len(data) > 1 << 16:
        # Both forms would be long; a machine with much to write has base64.
        pieces = []
    octal = "\n".join(f"printf '{''.join(f'{chr(92)}{byte:03o}' for byte in piece)}'" for piece in pieces)
    without = octal if pieces or not data else "return 1"
    return (
        f"p_data() {{\nif command -v base64 >/dev/null 2>&1; then base64 -d <<'PIGEON'\n{lines}\nPIGEON\n"
        f"else\n{without or ':'}\nfi\n}}\n"
    )


def quote(path: str) -> str:
    """A path as one word of a shell."""
    return "'" + path.replace("'", "'\\''") + "'"
