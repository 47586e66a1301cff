"""A program to communicate with: bytes to its stdin, bytes from its stdout, for as long as it lives.

Unlike commands (`system/process/start.py`), it is not killed by a reaper with all that it started: it is another agent,
which ends when its stdin is closed, which also happens when we die. The signals of our terminal do not reach it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from subprocess import PIPE
from typing import Any, cast

LAST_LINES = 20
# How long output may take to arrive after the end of a process; another process that it started may hold the pipe.
AFTER_EXIT_SECONDS = 1.0
LONGEST_LINE = 2_000


class PeerProcess(asyncio.SubprocessProtocol):
    """A program to communicate with.

    `receive` gets its output, `complain` each line of its stderr; `lost` is called once when it will write nothing
    more.
    """

    def __init__(
        self,
        receive: Callable[[bytes], None],
        lost: Callable[[], None],
        complain: Callable[[str], None] | None = None,
    ) -> None:
        self._receive = receive
        self._lost = lost
        self._complain = complain
        self._transport: asyncio.SubprocessTransport | None = None
        self._output_ended = False
        self._exited = asyncio.Event()
        self._errors_ended = asyncio.Event()
        self._errors: deque[bytes] = deque(maxlen=LAST_LINES)
        self._error_line = b""

    async def start(self, argv: Sequence[str], cwd: str | None, environment: Mapping[str, str] | None) -> None:
        """Start the program; raises `OSError` if that fails. Without an environment it gets ours."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.subprocess_exec(
            lambda: self,
            *argv,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=cwd,
            env=None if environment is None else dict(environment),
            start_new_session=True,
        )
        self._transport = transport

    @property
    def pid(self) -> int | None:
        return None if self._transport is None else self._transport.get_pid()

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return None if self._transport is None else self._transport.get_returncode()

    @property
    def last_error_lines(self) -> str:
        """The last lines that it wrote to stderr."""
        lines = [*self._errors, self._error_line] if self._error_line else list(self._errors)
        return "\n".join(line.decode("utf-8", "replace") for line in lines).strip()

    def write(self, data: bytes) -> None:
        """Send bytes; unread ones are buffered. Ignored once the program is gone."""
        pipe = self._pipe(0)
        if pipe is not None:
            cast("asyncio.WriteTransport", pipe).write(data)

    def end_input(self) -> None:
        """Close its stdin after everything that was written."""
        pipe = self._pipe(0)
        if pipe is not None:
            cast("asyncio.WriteTransport", pipe).close()

    def terminate(self) -> None:
        if self._transport is not None and not self._exited.is_set():
            with suppress(ProcessLookupError):
                self._transport.terminate()

    def kill(self) -> None:
        if self._transport is not None and not self._exited.is_set():
            with suppress(ProcessLookupError):
                self._transport.kill()

    async def wait_until_ended(self, seconds: float | None = None) -> bool:
        """Wait for its end and its last output; returns False if that takes longer."""
        try:
            async with asyncio.timeout(seconds):
                await self._exited.wait()
                await self._errors_ended.wait()
        except TimeoutError:
            return self._exited.is_set()
        return True

    def close(self) -> None:
        """Close the connection; the program is killed if it still runs."""
        if self._transport is not None:
            self._transport.close()

    def _pipe(self, number: int) -> asyncio.BaseTransport | None:
        pipe = None if self._transport is None else self._transport.get_pipe_transport(number)
        return None if pipe is None or pipe.is_closing() else pipe

    # Called by asyncio

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        raw = cast("bytes", data)
        if fd == 1:
            self._receive(raw)
            return
        *lines, rest = (self._error_line + raw).split(b"\n")
        self._error_line = rest[:LONGEST_LINE]
        for line in lines:
            self._errors.append(line[:LONGEST_LINE])
            if self._complain is not None:
                self._complain(line[:LONGEST_LINE].decode("utf-8", "replace"))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._report_output_end()
        elif fd == 2:
            self._errors_ended.set()

    def process_exited(self) -> None:
        """Called when it has ended; its streams may still have data."""
        self._exited.set()
        asyncio.get_running_loop().call_later(AFTER_EXIT_SECONDS, self._mark_streams_ended)

    def _mark_streams_ended(self) -> None:
        """End both streams, which another process may hold for as long as it likes."""
        self._report_output_end()
        self._errors_ended.set()

    def _report_output_end(self) -> None:
        if not self._output_ended:
            self._output_ended = True
            self._lost()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
