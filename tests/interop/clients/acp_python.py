"""The editor's side of the Agent Client Protocol by the official Python SDK: one whole editing conversation.

    python acp_python.py WORK-FOLDER COMMAND...

Prints what happened as one JSON object; the test that starts it looks at that.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import acp
from acp.schema import (
    ClientCapabilities,
    CreateTerminalResponse,
    FileSystemCapabilities,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TerminalOutputResponse,
    WaitForTerminalExitResponse,
)


class Editor:
    """What the SDK calls a client."""

    def __init__(self, work: str) -> None:
        self.updates: list[Any] = []
        self.permissions: list[str] = []
        self.buffers = {os.path.join(work, "open.txt"): "unsaved text\n"}
        self.terminals: dict[str, Any] = {}
        self.released: list[str] = []
        self.sleeps = asyncio.Event()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **more: Any) -> Any:
        self.permissions.append(tool_call.title)
        wanted = "reject_once" if len(self.permissions) == 1 else "allow_once"
        option = next(one for one in options if one.kind == wanted)
        outcome = {"outcome": "selected", "optionId": option.option_id}
        return RequestPermissionResponse.model_validate({"outcome": outcome})

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        self.updates.append(update)

    async def read_text_file(self, session_id: str, path: str, **more: Any) -> ReadTextFileResponse:
        if path not in self.buffers:
            raise acp.RequestError.resource_not_found(path)
        return ReadTextFileResponse(content=self.buffers[path])

    async def write_text_file(self, session_id: str, path: str, content: str, **more: Any) -> None:
        self.buffers[path] = content

    async def create_terminal(self, session_id: str, command: str, args: Any = None, **more: Any) -> Any:
        process = await asyncio.create_subprocess_exec(
            command,
            *(args or ()),
            cwd=more.get("cwd"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        name = f"term-{len(self.terminals) + 1}"
        self.terminals[name] = {"process": process, "output": b"", "args": args}
        if "sleep" in " ".join(args or ()):
            self.sleeps.set()
        self.terminals[name]["reading"] = asyncio.ensure_future(self._read(self.terminals[name]))
        return CreateTerminalResponse(terminal_id=name)

    async def _read(self, terminal: Any) -> None:
        while data := await terminal["process"].stdout.read(1024):
            terminal["output"] += data

    async def terminal_output(self, session_id: str, terminal_id: str, **more: Any) -> Any:
        return TerminalOutputResponse(output=self.terminals[terminal_id]["output"].decode(), truncated=False)

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str, **more: Any) -> Any:
        await self.terminals[terminal_id]["reading"]
        code = await self.terminals[terminal_id]["process"].wait()
        return WaitForTerminalExitResponse(exit_code=code if code >= 0 else None)

    async def kill_terminal(self, session_id: str, terminal_id: str, **more: Any) -> None:
        process = self.terminals[terminal_id]["process"]
        if process.returncode is None:
            process.kill()

    async def release_terminal(self, session_id: str, terminal_id: str, **more: Any) -> None:
        self.released.append(terminal_id)
        await self.kill_terminal(session_id, terminal_id)

    def on_connect(self, conn: Any) -> None:
        pass


async def main(work: str, command: list[str]) -> None:
    editor = Editor(work)
    async with acp.spawn_agent_process(editor, *command, cwd=work, env=dict(os.environ)) as (agent, process):
        capabilities = ClientCapabilities(
            fs=FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=True
        )
        offered = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION, client_capabilities=capabilities)
        session = (await agent.new_session(cwd=work, mcp_servers=[])).session_id
        await agent.set_session_mode(session_id=session, mode_id="always-ask")
        edited = await agent.prompt(session_id=session, prompt=[acp.text_block("edit it")])
        running = asyncio.ensure_future(agent.prompt(session_id=session, prompt=[acp.text_block("run forever")]))
        await editor.sleeps.wait()
        await agent.cancel(session_id=session)
        cancelled = await running
        listed = await agent.list_sessions(cwd=work)
        fork = await agent.fork_session(session_id=session, cwd=work, mcp_servers=[])
        await agent.close_session(session_id=session)
        before = len(editor.updates)
        await agent.load_session(session_id=session, cwd=work, mcp_servers=[])
        replayed = [one.session_update for one in editor.updates[before:]]
        unknown = None
        try:
            await agent.prompt(session_id="none", prompt=[acp.text_block("x")])
        except acp.RequestError as error:
            unknown = error.code
    said = {
        "version": offered.protocol_version,
        "edited": edited.stop_reason,
        "cancelled": cancelled.stop_reason,
        "listed": [one.session_id == session for one in listed.sessions],
        "forked": fork.session_id != session,
        "replayed": replayed,
        "unknown": unknown,
        "permissions": editor.permissions,
        "buffers": editor.buffers,
        "terminals": [one["args"] for one in editor.terminals.values()],
        "released": editor.released,
        "kinds": sorted({one.session_update for one in editor.updates}),
        "code": process.returncode,
    }
    sys.stdout.write(json.dumps(said) + "\n")


asyncio.run(main(sys.argv[1], sys.argv[2:]))
