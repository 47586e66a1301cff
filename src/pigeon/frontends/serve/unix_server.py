"""The Unix socket of `pigeon serve --socket PATH`: clients run as the same user and have the scope `admin`.

A client speaks JSON lines. Its first line says which conversation it wants, or that it wants a new one:

    {"type":"attach","session":"0198...","after":17}
    {"type":"attach","cwd":"/home/me/project","model":"demo"}

It is answered like a command; after that, both sides speak the protocol of `--mode rpc`. A failed `attach` may also be
reported later, and then it ends the connection for good.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Literal

from pigeon.frontends.serve.client_session import ClientSession
from pigeon.frontends.serve.conversation_record import list_offers
from pigeon.frontends.serve.conversations import Conversations
from pigeon.frontends.serve.wake_queue import TooMany
from pigeon.transport.reader import CHUNK, DEFAULT_CAP, Frame, Framing
from pigeon.transport.unix_socket import listen, user_of
from pigeon.wire import codec
from pigeon.wire.answers import failure_response, success_response
from pigeon.wire.base import ABSENT, Absent, Json, Record
from pigeon.wire.errors import PigeonError, Refusal

FIRST_SECONDS = 10.0
MOST_CLIENTS = 512
TOO_MANY = f"{MOST_CLIENTS} clients are connected to this socket, which is the limit"
DELETED = "The session was deleted"
NOTHING_ASKED = 'attach needs "session", the id of a conversation, or "cwd", the folder of a new one'


class AttachRequest(Record, kw_only=True):
    """The first line of a client: a conversation with the last event it has (`after`), or a folder for a new one."""

    type: Literal["attach"]
    id: Json | Absent = ABSENT
    session: str | Absent = ABSENT
    after: int | Absent = ABSENT
    cwd: str | Absent = ABSENT
    model: str | Absent = ABSENT
    plans: bool = False
    agents: bool = False


class UnixServer:
    """Listens at a path that only our user may open."""

    def __init__(self, path: str, conversations: Conversations) -> None:
        self._path = path
        self._conversations = conversations
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen; raises `OSError` that names the path."""
        self._server = await asyncio.start_unix_server(self._accept, sock=listen(self._path))

    async def close(self) -> None:
        """Disconnect all clients and stop listening."""
        if self._server is None:
            return
        self._server.close()
        with suppress(OSError):
            os.unlink(self._path)
        for client in self._clients:
            client.cancel()
        if self._clients:
            await asyncio.wait(set(self._clients))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            if user_of(writer.get_extra_info("socket")) in (None, os.geteuid()):
                await self._serve(_LineStream(reader, writer))
        except asyncio.CancelledError:
            # The service is ending and waits for this task; streams of asyncio would report it as an error.
            pass
        except (OSError, TimeoutError):
            pass
        finally:
            self._clients.discard(task)
            writer.close()

    async def _serve(self, stream: _LineStream) -> None:
        async with asyncio.timeout(FIRST_SECONDS):
            first = await stream.read_first_line()
        if first is None:
            return
        id: Json | Absent = ABSENT
        try:
            value = codec.decode(first)
            given = value.get("id") if isinstance(value, dict) else None
            id = ABSENT if given is None else given
            client = await self._open_client(codec.convert(value, AttachRequest))
        except (PigeonError, OSError) as error:
            await stream.send([codec.encode(failure_response("attach", str(error), id, _error_code_of(error)))])
            return
        try:
            conversation = client.conversation
            data = {"session": conversation.record.id, "cwd": conversation.record.cwd, "seq": client.start}
            await stream.send([codec.encode(success_response("attach", data, id))])
            await _relay_both_ways(stream, client)
        finally:
            client.stop_watching()

    async def _open_client(self, request: AttachRequest) -> ClientSession:
        if len(self._clients) > MOST_CLIENTS:
            raise TooMany(TOO_MANY)
        after = None if isinstance(request.after, Absent) else request.after
        if after is not None and after < 0:
            raise Refusal('"after" must be the number of an event')
        if not isinstance(request.session, Absent):
            conversation = self._conversations.find_conversation(request.session)
        elif not isinstance(request.cwd, Absent):
            conversation = self._conversations.create_conversation(
                request.cwd, request.model or None, offers=list_offers(request)
            )
        else:
            raise Refusal(NOTHING_ASKED)
        client = ClientSession(self._conversations, conversation, "admin", after)
        try:
            await client.wake_and_watch()
        except (PigeonError, OSError):
            if isinstance(request.session, Absent):
                # An empty conversation would stay in the list for ever.
                await self._conversations.forget_conversation(conversation.record.id)
            raise
        return client


class _LineStream:
    """Reads and writes lines over the connection of one client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._framing = Framing(DEFAULT_CAP)
        self._waiting: list[Frame] = []

    async def read_first_line(self) -> bytes | None:
        """The first line, or None if there is no whole one, or if it is too long to be an `attach`."""
        frames = await self.read_frames()
        if not frames or not isinstance(frames[0], bytes):
            return None
        self._waiting = frames[1:]
        return frames[0]

    async def read_frames(self) -> list[Frame]:
        """The next lines; an empty list at the end."""
        frames, self._waiting = self._waiting, []
        while not frames:
            data = await self._reader.read(CHUNK)
            if not data:
                return self._framing.finish_input()
            frames = self._framing.feed(data)
        return frames

    async def send(self, lines: list[bytes]) -> None:
        """Send lines, and wait until the client has read most of what was sent."""
        self._writer.write(b"\n".join((*lines, b"")))
        await self._writer.drain()


async def _relay_both_ways(stream: _LineStream, client: ClientSession) -> None:
    """Relay both ways until the client has disconnected or does not read its answers."""
    receiving = asyncio.ensure_future(_receive_commands(stream, client))
    sending = asyncio.ensure_future(_send_events(stream, client))
    try:
        await asyncio.wait({receiving, sending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (receiving, sending):
            task.cancel()
        await asyncio.wait({receiving, sending})


async def _receive_commands(stream: _LineStream, client: ClientSession) -> None:
    while frames := await stream.read_frames():
        for frame in frames:
            await client.handle_frame(frame)


async def _send_events(stream: _LineStream, client: ClientSession) -> None:
    async for lines in client.stream_lines():
        await stream.send(lines)
    if client.end_reason == "deleted":
        # Otherwise the client would reconnect and restore the session.
        await stream.send([codec.encode(failure_response("attach", DELETED))])


def _error_code_of(error: Exception) -> str | Absent:
    """The error code, which tells a client whether to try again."""
    return "overloaded" if isinstance(error, TooMany) else ABSENT
