"""Files and terminals of the editor, where a client of version 1 offers them, for the tools of one session.

So the agent reads and changes text that is open and not saved, and commands appear in the editor's own terminals. A
terminal is always released, however the command ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pigeon.frontends.acp.incoming import CreateTerminalResult, ReadTextFileResult, TerminalExit, TerminalOutputResult
from pigeon.frontends.acp.rpc_errors import INTERNAL_ERROR, OversizedAnswer, PeerGone, RpcError
from pigeon.frontends.acp.rpc_peer import RpcPeer
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Json, value_or_default
from pigeon.wire.commands import HostServiceResult
from pigeon.wire.events import HostCommandRun, HostFileRead, HostFileWrite

OUTPUT_BYTES = 1 << 20
LONGEST_REASON = 500
STOP_SECONDS = 4.0


class ClientServices:
    """The client's files and terminals for one session. `show_terminal` is called with the terminal of a tool call."""

    def __init__(self, peer: RpcPeer, session_id: str, show_terminal: Callable[[str, str], None]) -> None:
        self._peer = peer
        self._session_id = session_id
        self._show_terminal = show_terminal

    async def read(self, request: HostFileRead) -> str | HostServiceResult:
        """The text as the editor has it; raises `RpcError` if the editor cannot provide it."""
        try:
            read: ReadTextFileResult = await self._request("fs/read_text_file", ReadTextFileResult, path=request.path)
        except OversizedAnswer as failure:
            # The editor may have changes that are not on disk.
            return HostServiceResult(
                error=f"{request.path} is too large to be read from the editor: {failure}", final=True
            )
        return read.content

    async def write(self, request: HostFileWrite) -> None:
        """Set the text of a file in the editor; raises `RpcError` if that fails."""
        params = {"sessionId": self._session_id, "path": request.path, "content": request.content}
        result = await self._peer.send_request("fs/write_text_file", params)
        if result and not isinstance(result, dict):
            # Some clients report a failure as a result.
            raise RpcError(INTERNAL_ERROR, str(result)[:LONGEST_REASON])

    async def run(self, request: HostCommandRun) -> HostServiceResult:
        """Run a command in a terminal of the editor; when cancelled, stop it and return what it printed."""
        creating = asyncio.ensure_future(self._create_terminal(request))
        stopped = False
        try:
            terminal = await asyncio.shield(creating)
        except asyncio.CancelledError:
            # The terminal may have been created all the same, and must be released.
            stopped = True
            terminal = await asyncio.wait_for(creating, STOP_SECONDS)
        try:
            self._show_terminal(value_or_default(request.tool_call_id, ""), terminal)
            ended = None if stopped else await self._wait_for_exit(terminal)
            if ended is None:
                await self._request_quietly("terminal/kill", terminal)
            return await self._fetch_command_result(terminal, ended)
        finally:
            await self._request_quietly("terminal/release", terminal)

    async def _create_terminal(self, request: HostCommandRun) -> str:
        env = [{"name": name, "value": value} for name, value in request.env.items()]
        created: CreateTerminalResult = await self._request(
            "terminal/create",
            CreateTerminalResult,
            command=request.command[0],
            args=request.command[1:],
            env=env,
            cwd=request.cwd,
            outputByteLimit=OUTPUT_BYTES,
        )
        return created.terminal_id

    async def _wait_for_exit(self, terminal: str) -> TerminalExit | None:
        """How the command ended; None if it must be stopped."""
        try:
            params = {"sessionId": self._session_id, "terminalId": terminal}
            # Killing the command ends this request as well.
            ended = await self._peer.send_request("terminal/wait_for_exit", params, withdraws=False)
        except asyncio.CancelledError:
            return None
        return codec.convert(ended, TerminalExit)

    async def _fetch_command_result(self, terminal: str, ended: TerminalExit | None) -> HostServiceResult:
        asked = self._request("terminal/output", TerminalOutputResult, terminalId=terminal)
        output: TerminalOutputResult = await asyncio.wait_for(asked, None if ended is not None else STOP_SECONDS)
        ended = ended or output.exit_status or TerminalExit()
        return HostServiceResult(
            output=output.output, truncated=True if output.truncated is True else ABSENT, exit_code=ended.code
        )

    async def _request_quietly(self, method: str, terminal: str) -> None:
        """Send a request and ignore its failure."""
        with suppress(RpcError, PeerGone, TimeoutError):
            await asyncio.wait_for(self._request(method, None, terminalId=terminal), STOP_SECONDS)

    async def _request(self, method: str, kind: type[Any] | None, **params: Json) -> Any:
        result = await self._peer.send_request(method, {"sessionId": self._session_id, **params})
        return None if kind is None else codec.convert(result, kind)
