"""The application that answers HTTP: routes, and what stands before each of them (`serve/http/entrance.py`)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from pigeon.serve.client_session import ClientSession
from pigeon.serve.conversation import ServedConversation
from pigeon.serve.conversations import Conversations, TooMany, UnknownConversation
from pigeon.serve.http.entrance import COOKIE, Entrance
from pigeon.wire import codec
from pigeon.wire.answers import SessionRow
from pigeon.wire.base import Json
from pigeon.wire.errors import BadRecord, PigeonError, Refusal

MOST_BODY = 64 * 1024
# In the answer to a WebSocket: the number behind which its events begin, which a client needs to come back.
SEQ_HEADER = b"pigeon-seq"
TOO_SLOW, NOT_FOUND, BAD_REQUEST, OVERLOADED = 4008, 4004, 4000, 1013


class ServeApplication:
    """Conversations over HTTP."""

    def __init__(self, conversations: Conversations, entrance: Entrance) -> None:
        self._conversations = conversations
        self._entrance = entrance
        self.asgi = Starlette(
            routes=[
                Route("/", self._enter),
                Route("/healthz", self._health),
                Route("/api/sessions", self._list, methods=["GET"]),
                Route("/api/sessions", self._create, methods=["POST"]),
                Route("/api/sessions/{id}", self._show, methods=["GET"]),
                Route("/api/sessions/{id}", self._remove, methods=["DELETE"]),
                WebSocketRoute("/api/sessions/{id}/rpc", self._rpc),
            ],
            exception_handlers={Refusal: _refused},
        )

    async def _enter(self, request: Request) -> Response:
        """The link that was printed at the start becomes a cookie, once."""
        if "token" in request.query_params:
            secret = self._entrance.redeemed(request)
            response = RedirectResponse("/", 303)
            response.set_cookie(COOKIE, secret, httponly=True, samesite="strict", secure=request.url.scheme == "https")
            return response
        self._entrance.admit(request, "read")
        return PlainTextResponse("Pigeon\n")

    async def _health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _list(self, request: Request) -> Response:
        self._entrance.admit(request, "read")
        rows = await asyncio.to_thread(self._conversations.rows, request.query_params.get("cwd"))
        return JSONResponse({"sessions": [self._row(row) for row in rows]})

    async def _create(self, request: Request) -> Response:
        self._entrance.admit(request, "admin")
        body = await _body(request)
        cwd, model, id = body.get("cwd"), body.get("model"), body.get("sessionId")
        if id is not None:
            made = self._conversations.conversation(str(id))
        elif isinstance(cwd, str):
            made = self._conversations.new(cwd, model if isinstance(model, str) else None)
        else:
            raise Refusal('"cwd" must be a folder')
        await self._conversations.ready(made)
        await made.wake()
        return JSONResponse(_described(made), 201)

    async def _show(self, request: Request) -> Response:
        self._entrance.admit(request, "read")
        return JSONResponse(_described(self._conversations.conversation(request.path_params["id"])))

    async def _remove(self, request: Request) -> Response:
        self._entrance.admit(request, "admin")
        await self._conversations.remove(request.path_params["id"])
        return Response(status_code=204)

    def _row(self, row: SessionRow) -> dict[str, Json]:
        shown: dict[str, Json] = codec.to_plain(row)
        known = next((one for one in self._conversations.known if one.record.id == row.id), None)
        return {**shown, "state": "asleep" if known is None else known.state}

    async def _rpc(self, socket: WebSocket) -> None:
        scope = self._entrance.admit_socket(socket)
        if scope is None:
            await socket.close(4001)
            return
        try:
            after = _number(socket.query_params.get("after"))
            conversation = self._conversations.conversation(socket.path_params["id"])
            client = ClientSession(self._conversations, conversation, scope, after)
            await client.open()
        except (PigeonError, OSError) as error:
            await socket.accept()
            code = NOT_FOUND if isinstance(error, UnknownConversation) else BAD_REQUEST
            await socket.close(OVERLOADED if isinstance(error, TooMany) else code, str(error)[:120])
            return
        await socket.accept(headers=[(SEQ_HEADER, str(client.start).encode())])
        try:
            await _serve(socket, client)
        finally:
            client.close()


async def _serve(socket: WebSocket, client: ClientSession) -> None:
    sending = asyncio.ensure_future(_send(socket, client))
    try:
        with suppress(WebSocketDisconnect):
            while not sending.done():
                await client.take((await socket.receive_text()).encode("utf-8", "surrogatepass"))
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
            await sending


async def _send(socket: WebSocket, client: ClientSession) -> None:
    async for lines in client.lines():
        for line in lines:
            await socket.send_text(line.decode("utf-8", "replace"))
    await socket.close(TOO_SLOW, "The client does not read its answers")


async def _body(request: Request) -> dict[str, Json]:
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > MOST_BODY:
            raise Refusal(f"The body is longer than {MOST_BODY} bytes")
    try:
        value = codec.decode(data)
    except BadRecord as error:
        raise Refusal(f"The body is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refusal("The body must be a JSON object")
    return value


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Refusal('"after" must be the number of an event')
    return int(text)


def _described(one: ServedConversation) -> dict[str, Json]:
    return {
        "id": one.record.id,
        "cwd": one.record.cwd,
        "state": one.state,
        "running": one.work.running,
        "questions": len(one.work.questions),
        "clients": one.watched,
        "seq": one.number,
        "pid": one.pid,
        "openSeq": None if one.work.first is None else one.work.first - 1,
    }


async def _refused(request: Request, error: Exception) -> Response:
    code = 404 if isinstance(error, UnknownConversation) else 503 if isinstance(error, TooMany) else 400
    return JSONResponse({"error": str(error)}, getattr(error, "status", code))
