"""A web back end: prompts come by HTTP, events go out as server-sent events, and a reader who leaves ends the run.

    python examples/web_backend.py --model demo --port 8000
    curl -N http://127.0.0.1:8000/chat -d '{"message": "list the files"}'

`POST /chat` takes `message` and, to go on with a conversation, the `conversation` that the last event named. It serves
this machine only and knows no users: put your own server with its log-in in front, or move `answer` into one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any

import pigeon

MOST_BYTES = 1 << 20
Event = tuple[str, dict[str, Any]]


class Conversations:
    """The open conversations by their ids, all in this process."""

    def __init__(self, model: str, folder: str) -> None:
        self._model = model
        self._folder = folder
        self._agents: dict[str, pigeon.Agent] = {}
        self._opening = asyncio.Lock()

    async def agent(self, id: str) -> pigeon.Agent:
        """The agent of a conversation; one that was closed meanwhile, or before a restart, is opened from its file."""
        async with self._opening:
            if id not in self._agents:
                self._agents[id] = await self._opened(id)
        return self._agents[id]

    async def _opened(self, id: str) -> pigeon.Agent:
        # Strangers may look, and change nothing.
        tools = ["read", "ls", "grep", "find"]
        agent = pigeon.Agent(model=self._model, cwd=self._folder, session_id=id, builtin_tools=tools)
        await agent.open()
        return agent

    async def close(self) -> None:
        """End all of them."""
        for agent in self._agents.values():
            await agent.close()


async def answer(agent: pigeon.Agent, message: str, conversation: str) -> AsyncIterator[Event]:
    """What a browser needs of a run, as names and data of server-sent events."""
    # With `async with`, leaving early waits until the run is aborted, so that the next prompt finds the agent idle.
    async with agent.prompt(message, limits=pigeon.Limits(turns=20, cost=0.50, seconds=300)) as events:
        async for event in events:
            if isinstance(event, pigeon.TextDelta):
                yield "text", {"delta": event.delta}
            elif isinstance(event, pigeon.ToolExecutionStart):
                yield "tool", {"name": event.tool_name, "arguments": event.args}
            elif isinstance(event, pigeon.AgentSettled):
                yield "end", {"reason": event.reason, "conversation": conversation}


class Server:
    """HTTP by hand, as little as this needs: one request for each connection."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection; a run ends with the connection that asked for it."""
        try:
            message, id = await asyncio.wait_for(_request(reader), 10)
        except (ValueError, TypeError, KeyError, EOFError, asyncio.LimitOverrunError, TimeoutError) as error:
            writer.write(_response("400 Bad Request", {"error": f"no usable request: {error!r}"}))
            writer.close()
            return
        sending = asyncio.create_task(self._send_run(writer, message, id))
        # A browser sends nothing after its request: what can still be read is that it has gone.
        leaving = asyncio.create_task(reader.read(1))
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        sending.cancel()
        leaving.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)
        writer.close()

    async def _send_run(self, writer: asyncio.StreamWriter, message: str, id: str) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        try:
            agent = await self._conversations.agent(id)
            async with aclosing(answer(agent, message, id)) as events:
                async for name, data in events:
                    writer.write(head + f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())
                    head = b""
                    await writer.drain()  # a slow reader slows the reading of events, not the memory of this process
        except pigeon.PigeonError as error:  # a `Refusal` where another request has this conversation busy
            if head:
                writer.write(_response("409 Conflict", {"error": str(error)}))


async def _request(reader: asyncio.StreamReader) -> tuple[str, str]:
    """The message, and the id of its conversation; raises what it meets where it is no such request."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
    if not first.startswith("POST /chat "):
        raise ValueError("only POST /chat is served")
    headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
    length = int(headers["content-length"])
    if not 0 < length <= MOST_BYTES:
        raise ValueError("the body is empty or too long")
    body = json.loads(await reader.readexactly(length))
    # The id becomes part of the name of a file, so it must be one that was made here.
    return str(body["message"]), str(uuid.UUID(body["conversation"]) if "conversation" in body else uuid.uuid4())


def _response(status: str, data: dict[str, Any]) -> bytes:
    body = json.dumps(data).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


async def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--folder", default=".")
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free")
    options = parser.parse_args()
    conversations = Conversations(options.model, options.folder)
    server = await asyncio.start_server(Server(conversations).serve, "127.0.0.1", options.port)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/chat", flush=True)
    try:
        await server.serve_forever()
    finally:
        await conversations.close()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
