"""The application that answers HTTP: routes from `api.py`; `entrance.py` checks each request."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import get_args

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from pigeon.frontends.serve.client_session import ClientSession
from pigeon.frontends.serve.conversation import ConversationState, ServedConversation
from pigeon.frontends.serve.conversations import (
    Conversations,
    FolderMissing,
    FolderRefused,
    TooMany,
    UnknownConversation,
)
from pigeon.frontends.serve.counts import CONTENT_TYPE, Gauge, ServeCounts, text_of
from pigeon.frontends.serve.http import api
from pigeon.frontends.serve.http.connections import RETRY_SECONDS, Connections
from pigeon.frontends.serve.http.entrance import COOKIE, Entrance, HttpRefusal
from pigeon.frontends.serve.http.page_files import PageFiles
from pigeon.frontends.serve.http.tokens import COOKIE_SECONDS, LINK_SECONDS, Token, Tokens
from pigeon.frontends.serve.resources import shared_out_memory
from pigeon.frontends.serve.scopes import covers
from pigeon.frontends.serve.service_log import ServiceLog
from pigeon.providers.local_models import FILE_MODELS
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.errors import BadRecord, PigeonError, Refusal, StartupError

MOST_BODY = 64 * 1024
# Header of the answer to a WebSocket: its events begin after this number, which a client needs to reconnect.
SEQ_HEADER = b"pigeon-seq"
PIECE = 256 * 1024
LOOK_SECONDS = 2.0
RPC = "/api/sessions/{id}/rpc"
NO_TEXT, OVERLOADED, BAD_REQUEST, NOT_ADMITTED, NOT_FOUND, TOO_SLOW = 1003, 1013, 4000, 4001, 4004, 4008
# How a WebSocket is closed, by the reason why its client's session ended.
ENDS = {
    "too slow": (TOO_SLOW, "The client does not read its answers"),
    "revoked": (NOT_ADMITTED, "The token was revoked"),
    "deleted": (NOT_FOUND, "The session was deleted"),
}
# The HTTP status of failures; all others are a bad request.
STATUSES: dict[type[Exception], int] = {
    UnknownConversation: 404,
    FolderMissing: 404,
    FolderRefused: 403,
    StartupError: 409,
    TooMany: 503,
}
# A page of a session shows what models and tools have written: it may run nothing and has no origin.
PAGE_POLICY = (
    "sandbox allow-popups; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
)
Handler = Callable[[Request, dict[str, str | int]], Awaitable[Response]]


class ServeApplication:
    """Conversations over HTTP. `connections` are those of the server."""

    def __init__(
        self,
        conversations: Conversations,
        entrance: Entrance,
        tokens: Tokens,
        connections: Connections,
        counts: ServeCounts,
        log: ServiceLog,
    ) -> None:
        self._conversations = conversations
        self._entrance = entrance
        self._tokens = tokens
        self._connections = connections
        self._counts = counts
        self._log = log
        self._page = PageFiles()
        self._document = codec.encode(api.openapi())
        self._clients: dict[ClientSession, Token] = {}
        self.asgi = Starlette(
            routes=[*self._routes(), WebSocketRoute(RPC, self._rpc)],
            exception_handlers={
                PigeonError: _refused,
                OSError: self._failed,
                HTTPException: _no_route,
                ClientDisconnect: _left,
            },
        )
        self.asgi.router.redirect_slashes = False

    async def look_after(self) -> None:
        """Disconnect the clients whose tokens were revoked."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for client, token in list(self._clients.items()):
                if not self._entrance.holds(token):
                    client.end("revoked")

    def _routes(self) -> Iterator[BaseRoute]:
        """One route for each path, so that the answer to a wrong method lists the right ones."""
        handlers: dict[str, Handler] = {
            "listSessions": self._list,
            "openSession": self._open,
            "showSession": self._show,
            "deleteSession": self._delete,
            "exportSession": self._export,
            "listFolders": self._folders,
            "makeLink": self._link,
            "openapi": self._openapi,
            "health": self._health,
            "metrics": self._metrics,
        }
        by_path: dict[str, list[api.Operation]] = {}
        for operation in api.OPERATIONS:
            by_path.setdefault(operation.path, []).append(operation)
        yield Route("/", self._enter)
        yield from self._page.routes()
        for path, operations in by_path.items():
            methods = [*(operation.method for operation in operations), "OPTIONS"]
            endpoint = self._endpoint(path, {one.method: (one, handlers[one.id]) for one in operations})
            yield Route(path, endpoint, methods=methods)

    def _endpoint(
        self, path: str, operations: dict[str, tuple[api.Operation, Handler]]
    ) -> Callable[[Request], Awaitable[Response]]:
        allowed = ", ".join([*operations, *(["HEAD"] if "GET" in operations else []), "OPTIONS"])

        async def answer(request: Request) -> Response:
            request.scope["pattern"] = path
            if request.method == "OPTIONS":
                # The preflight answer for other sites: no permission.
                return Response(status_code=204, headers={"allow": allowed})
            operation, handler = operations["GET" if request.method == "HEAD" else request.method]
            if operation.needed is not None:
                request.scope["token"] = self._entrance.admit(request, operation.needed)
            return await handler(request, api.asked(operation, request.query_params.multi_items()))

        return answer

    async def _failed(self, request: Request, error: Exception) -> Response:
        """Answer a failure of the system: a full disk, or too many open files."""
        assert isinstance(error, OSError)
        self._log.error("fault", failure=type(error).__name__, number=error.errno)
        why = error.strerror or type(error).__name__
        refusal = HttpRefusal(503, "machine", f"This cannot be done now: {why}", RETRY_SECONDS)
        return await _refused(request, refusal)

    # The page and the operations

    async def _enter(self, request: Request) -> Response:
        """Serve the page; a browser without a token is shown how to get a link."""
        try:
            return self._entered(request)
        except HttpRefusal as refusal:
            if refusal.status != 401 or "text/html" not in request.headers.get("accept", ""):
                raise
            return self._page.sign_in(request)

    def _entered(self, request: Request) -> Response:
        """Exchange a one-time link for a cookie."""
        if "token" in request.query_params and request.method == "GET":
            value = self._entrance.redeemed(request)
            self._log.info("link_used", peer=self._entrance.peer(request))
            response: Response = RedirectResponse("/", 303)
            if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
                # A browser that comes from another site would not send the cookie with a redirect.
                response = Response(status_code=200, headers={"refresh": "0; url=/"}, media_type=api.HTML_TYPE)
            secure = self._entrance.scheme(request) == "https"
            response.set_cookie(COOKIE, value, max_age=COOKIE_SECONDS, httponly=True, samesite="strict", secure=secure)
            return response
        self._entrance.admit(request, "read")
        return self._page.index(request)

    async def _health(self, request: Request, asked: dict[str, str | int]) -> Response:
        return PlainTextResponse("ok\n")

    async def _openapi(self, request: Request, asked: dict[str, str | int]) -> Response:
        return Response(self._document, media_type=api.JSON_TYPE)

    async def _list(self, request: Request, asked: dict[str, str | int]) -> Response:
        cwd, query, cursor = (str(asked.get(name, "")) or None for name in ("cwd", "query", "cursor"))
        limit = int(asked.get("limit", api.LISTED))
        rows, following = await asyncio.to_thread(self._conversations.rows, cwd, query, limit, cursor)
        known = {one.record.id: one for one in self._conversations.known}
        by_file = {one.session_file: one for one in self._conversations.known if one.session_file}
        listed = [{**codec.to_plain(row), **_state(by_file.get(row.path) or known.get(row.id))} for row in rows]
        if cursor is None:
            seen = {row.id for row in rows}
            fresh = (one for one in known.values() if one.record.id not in seen and _has_no_file(one))
            wanted = [one for one in fresh if cwd in (None, one.record.cwd) and query is None]
            listed[:0] = [{"id": one.record.id, "cwd": one.record.cwd, **_state(one)} for one in wanted]
        answer: dict[str, Json] = {"sessions": listed, "scope": request.scope["token"].scope}
        if following is not None:
            answer["nextCursor"] = following
        return _json(answer)

    async def _open(self, request: Request, asked: dict[str, str | int]) -> Response:
        body = codec.convert(await _body(request), api.SessionRequest)
        if (body.model or "").startswith(FILE_MODELS) and not covers(request.scope["token"].scope, "admin"):
            raise HttpRefusal(403, "scope", "This model is a file on the server, which needs the scope admin")
        made, new = self._wanted(body)
        try:
            await self._conversations.ready(made)
            await made.wake()
        except (PigeonError, OSError):
            if new:
                await self._conversations.remove(made.record.id)
            raise
        headers = {"location": f"/api/sessions/{made.record.id}"}
        return _json(_described(made), 201 if new else 200, headers)

    def _wanted(self, body: api.SessionRequest) -> tuple[ServedConversation, bool]:
        if body.session_id is not None:
            try:
                return self._conversations.conversation(body.session_id), False
            except UnknownConversation:
                if body.cwd is None:
                    raise
        if body.cwd is None:
            raise BadRecord('"cwd" must be a folder, or "sessionId" the id of a session')
        return self._conversations.new(body.cwd, body.model, body.session_id), True

    async def _show(self, request: Request, asked: dict[str, str | int]) -> Response:
        return _json(_described(self._conversations.conversation(request.path_params["id"])))

    async def _delete(self, request: Request, asked: dict[str, str | int]) -> Response:
        id = request.path_params["id"]
        await self._conversations.delete(id)
        self._log.info("session_deleted", session=id)
        return Response(status_code=204)

    async def _export(self, request: Request, asked: dict[str, str | int]) -> Response:
        one = self._conversations.conversation(request.path_params["id"])
        await self._conversations.ready(one)
        path = os.path.join(one.log_folder, f"export-{os.urandom(8).hex()}.html")
        try:
            answer = await one.ask({"type": "export_html", "outputPath": path})
            if not answer.get("success"):
                raise HttpRefusal(409, "conflict", str(answer.get("error")))
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        finally:
            with suppress(OSError):
                os.unlink(path)
        headers = {"content-security-policy": PAGE_POLICY, "content-length": str(os.fstat(descriptor).st_size)}
        return StreamingResponse(_pieces(descriptor), media_type=api.HTML_TYPE, headers=headers)

    async def _folders(self, request: Request, asked: dict[str, str | int]) -> Response:
        path = str(asked.get("path", "")) or self._conversations.roots[0]
        folders = await asyncio.to_thread(self._conversations.folders, path)
        parent = os.path.dirname(path)
        above = parent if self._conversations.may_open(parent) and parent != path else None
        return _json({"path": path, "parent": above, "folders": folders, "roots": self._conversations.roots})

    async def _link(self, request: Request, asked: dict[str, str | int]) -> Response:
        body = codec.convert(await _body(request), api.LinkRequest)
        path = f"/?token={self._tokens.link(body.scope)}"
        return _json({"path": path, "seconds": int(LINK_SECONDS)}, 201)

    async def _metrics(self, request: Request, asked: dict[str, str | int]) -> Response:
        known = self._conversations.known
        states = dict.fromkeys(get_args(ConversationState), 0.0)
        for one in known:
            states[one.state] += 1
        pids = [one.pid for one in known if one.pid is not None]
        memory = await asyncio.to_thread(shared_out_memory, pids)
        own = await asyncio.to_thread(shared_out_memory, [os.getpid()])
        gauges: Sequence[Gauge] = (
            Gauge("pigeon_conversations", "Conversations that were used since the start.", "state", states),
            Gauge("pigeon_runs", "Runs under way.", "", {"": sum(one.work.running for one in known)}),
            Gauge("pigeon_questions", "Questions without an answer.", "", {"": _questions(known)}),
            Gauge("pigeon_clients", "Clients of conversations.", "", {"": sum(one.watched for one in known)}),
            Gauge("pigeon_connections", "Connections, by whether they had a token.", "kind",
                  {"known": self._connections.known, "unknown": self._connections.unknown}),
            Gauge("pigeon_worker_memory_bytes", "Real memory of all workers.", "", {"": memory}),
            Gauge("pigeon_supervisor_memory_bytes", "Real memory of the supervisor.", "", {"": own}),
        )  # fmt: skip
        return Response(text_of(self._counts, gauges), headers={"content-type": CONTENT_TYPE})

    # The conversation itself

    async def _rpc(self, socket: WebSocket) -> None:
        try:
            token = self._entrance.admit(socket, "read")
        except HttpRefusal as refusal:
            self._log.warning("refused", route=RPC, reason=refusal.reason, peer=self._entrance.peer(socket))
            await socket.send_denial_response(await _refused(None, refusal))
            return
        try:
            after = _number(socket.query_params.get("after"))
            conversation = self._conversations.conversation(socket.path_params["id"])
            client = ClientSession(self._conversations, conversation, token.scope, after)
            await client.open()
        except (PigeonError, OSError) as error:
            code = NOT_FOUND if isinstance(error, UnknownConversation) else BAD_REQUEST
            # A page only learns the reason if the socket was open before it is closed.
            with suppress(OSError, WebSocketDisconnect):
                await socket.accept()
                await socket.close(OVERLOADED if isinstance(error, TooMany) else code, _reason(str(error)))
            return
        try:
            await socket.accept(headers=[(SEQ_HEADER, str(client.start).encode())])
        except OSError:
            # It has gone while its conversation woke.
            client.close()
            return
        self._clients[client] = token
        session = conversation.record.id
        self._log.info("client_joined", session=session, peer=self._entrance.peer(socket), scope=token.scope)
        try:
            await self._serve(socket, client)
        finally:
            del self._clients[client]
            client.close()
            self._log.info("client_left", session=session, why=client.ended)

    async def _serve(self, socket: WebSocket, client: ClientSession) -> None:
        """Relay both ways until the client has gone or is disconnected; then nothing more from it is accepted."""
        ways = [asyncio.ensure_future(self._take(socket, client)), asyncio.ensure_future(self._send(socket, client))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for way in ways:
                with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                    await way

    async def _take(self, socket: WebSocket, client: ClientSession) -> None:
        while (message := await socket.receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            if text is None:
                await socket.close(NO_TEXT, "Records are sent in text frames")
                break
            line = text.encode("utf-8", "surrogatepass")
            self._counts.count("received_bytes", len(line))
            await client.take(line)

    async def _send(self, socket: WebSocket, client: ClientSession) -> None:
        try:
            async for lines in client.lines():
                for line in lines:
                    self._counts.count("sent_bytes", len(line))
                    await socket.send_text(line.decode("utf-8", "replace"))
        except (PigeonError, OSError) as error:
            # The missed events cannot be read now; the client will reconnect.
            await socket.close(OVERLOADED, _reason(str(error)))
            return
        await socket.close(*ENDS[client.ended or "too slow"])


async def _body(request: Request) -> Json:
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > MOST_BODY:
            raise HttpRefusal(413, "too_long", f"The body is longer than {MOST_BODY} bytes")
    try:
        return codec.decode(data)
    except BadRecord as error:
        raise HttpRefusal(400, "bad_request", f"The body is not JSON: {error}") from None


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Refusal('"after" must be the number of an event')
    return int(text)


def _state(one: ServedConversation | None) -> dict[str, Json]:
    if one is None:
        return {"state": "asleep", "running": False, "questions": 0, "clients": 0}
    return {
        "state": one.state,
        "running": one.work.running,
        "questions": len(one.work.questions),
        "clients": one.watched,
    }


def _has_no_file(one: ServedConversation) -> bool:
    """Whether the conversation has no session file yet."""
    return one.session_file is None or not os.path.exists(one.session_file)


def _described(one: ServedConversation) -> dict[str, Json]:
    open_seq = None if one.work.first is None else one.work.first - 1
    about = {"seq": one.log.number, "pid": one.pid, "openSeq": open_seq, "askedAgo": one.log.asked_ago}
    return {"id": one.record.id, "cwd": one.record.cwd, **_state(one), **about, "queue": one.work.queued}


def _questions(known: list[ServedConversation]) -> int:
    return sum(len(one.work.questions) for one in known)


def _pieces(descriptor: int) -> Iterator[bytes]:
    with open(descriptor, "rb") as file:
        while piece := file.read(PIECE):
            yield piece


def _reason(text: str) -> str:
    """A text cut to the length that a close frame allows."""
    return text.encode("utf-8", "replace")[:120].decode("utf-8", "ignore")


def _json(value: Json, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(codec.encode(value), status, headers, api.JSON_TYPE)


async def _refused(request: Request | None, error: Exception) -> Response:
    headers: dict[str, str] = {}
    status = next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 400)
    retry = RETRY_SECONDS if isinstance(error, TooMany) else None
    if isinstance(error, HttpRefusal):
        status, retry = error.status, error.retry_after
    if retry is not None:
        headers["retry-after"] = str(retry)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return _json({"error": str(error)}, status, headers)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "There is nothing at this address", 405: "This address does not support that method"}
    text = words.get(error.status_code, "The request cannot be answered")
    return _json({"error": text}, error.status_code, dict(error.headers or {}))


async def _left(request: Request, error: Exception) -> Response:
    """Answer a client that disconnected in the middle of its request; it will not read this."""
    return Response(status_code=400)
