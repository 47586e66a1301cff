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

from pigeon.frontends.serve.client_rights import FolderMissing, FolderRefused, has_needed_scope
from pigeon.frontends.serve.client_session import ClientSession
from pigeon.frontends.serve.conversation import ServedConversation
from pigeon.frontends.serve.conversation_record import list_offers
from pigeon.frontends.serve.conversations import Conversations, UnknownConversation
from pigeon.frontends.serve.counts import CONTENT_TYPE, Gauge, ServeCounts, prometheus_text_of
from pigeon.frontends.serve.http import api
from pigeon.frontends.serve.http.connections import RETRY_SECONDS, Connections
from pigeon.frontends.serve.http.entrance import COOKIE, SUBPROTOCOL, Entrance, HttpRefusal
from pigeon.frontends.serve.http.page_files import PageFiles
from pigeon.frontends.serve.http.tokens import COOKIE_SECONDS, LINK_SECONDS, Token, Tokens
from pigeon.frontends.serve.resources import proportional_memory
from pigeon.frontends.serve.served_worker import ConversationState
from pigeon.frontends.serve.service_log import ServiceLog
from pigeon.frontends.serve.wake_queue import TooMany
from pigeon.session.history.session_folders import SessionFolders
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.errors import BadRecord, PigeonError, Refusal, StartupError
from pigeon.workspaces.errors import WrongWorkspace

MOST_BODY = 64 * 1024
# Header of the response that accepts a WebSocket: its events begin after this number, which a client needs to
# reconnect.
SEQ_HEADER = b"pigeon-seq"
PIECE = 256 * 1024
CHECK_SECONDS = 2.0
RPC = "/api/sessions/{id}/rpc"
NO_TEXT, OVERLOADED, BAD_REQUEST, NOT_ADMITTED, NOT_FOUND, TOO_SLOW = 1003, 1013, 4000, 4001, 4004, 4008
# How a WebSocket is closed, by the reason why its client's session ended.
ENDS = {
    "too slow": (TOO_SLOW, "The client does not read its answers"),
    "revoked": (NOT_ADMITTED, "The token was revoked"),
    "deleted": (NOT_FOUND, "The session was deleted"),
}
# The HTTP status of failures; any other is a bad request.
STATUSES: dict[type[Exception], int] = {
    UnknownConversation: 404,
    FolderMissing: 404,
    FolderRefused: 403,
    WrongWorkspace: 400,
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
        self._document = codec.encode(api.make_openapi_document())
        self._clients: dict[ClientSession, Token] = {}
        self.asgi = Starlette(
            routes=[*self._routes(), WebSocketRoute(RPC, self._serve_websocket)],
            exception_handlers={
                PigeonError: _answer_refusal,
                OSError: self._answer_system_failure,
                HTTPException: _answer_unknown_route,
                ClientDisconnect: _answer_disconnected,
            },
        )
        self.asgi.router.redirect_slashes = False

    async def disconnect_revoked(self) -> None:
        """Disconnect clients soon after their tokens were revoked; runs until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for client, token in list(self._clients.items()):
                if not self._entrance.is_valid(token):
                    client.end_watch("revoked")

    def _routes(self) -> Iterator[BaseRoute]:
        """One route for each path, so that the answer to a wrong method lists the right ones."""
        handlers: dict[str, Handler] = {
            "listSessions": self._list_sessions,
            "openSession": self._open_session,
            "showSession": self._show_session,
            "deleteSession": self._delete_session,
            "exportSession": self._export_session,
            "listFolders": self._list_folders,
            "makeLink": self._create_link,
            "openapi": self._get_openapi,
            "health": self._get_health,
            "metrics": self._get_metrics,
        }
        by_path: dict[str, list[api.Operation]] = {}
        for operation in api.OPERATIONS:
            by_path.setdefault(operation.path, []).append(operation)
        yield Route("/", self._serve_page)
        yield from self._page.routes()
        for path, operations in by_path.items():
            methods = [*(operation.method for operation in operations), "OPTIONS"]
            endpoint = self._make_endpoint(path, {one.method: (one, handlers[one.id]) for one in operations})
            yield Route(path, endpoint, methods=methods)

    def _make_endpoint(
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
            return await handler(request, api.parse_parameters(operation, request.query_params.multi_items()))

        return answer

    async def _answer_system_failure(self, request: Request, error: Exception) -> Response:
        """Answer a failure of the system: a full disk, or too many open files."""
        assert isinstance(error, OSError)
        self._log.error("fault", failure=type(error).__name__, number=error.errno)
        why = error.strerror or type(error).__name__
        refusal = HttpRefusal(503, "machine", f"This cannot be done now: {why}", RETRY_SECONDS)
        return await _answer_refusal(request, refusal)

    # The page and the operations

    async def _serve_page(self, request: Request) -> Response:
        """Serve the page; a browser without a token gets instructions for a link instead."""
        try:
            return self._answer_page_request(request)
        except HttpRefusal as refusal:
            if refusal.status != 401 or "text/html" not in request.headers.get("accept", ""):
                raise
            return self._page.answer_sign_in(request)

    def _answer_page_request(self, request: Request) -> Response:
        """Return the page, or exchange the one-time link in the address for a cookie; raises `HttpRefusal`."""
        if "token" in request.query_params and request.method == "GET":
            value, page_key = self._entrance.redeem_link(request)
            # What follows # stays in the browser; the page takes it from there (`dom.js`).
            page = f"/#key={page_key}"
            self._log.info("link_used", peer=self._entrance.peer_of(request))
            response: Response = RedirectResponse(page, 303)
            if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
                # A browser that comes from another site would not send the cookie with a redirect.
                response = Response(status_code=200, headers={"refresh": f"0; url={page}"}, media_type=api.HTML_TYPE)
            secure = self._entrance.scheme_of(request) == "https"
            response.set_cookie(COOKIE, value, max_age=COOKIE_SECONDS, httponly=True, samesite="strict", secure=secure)
            return response
        self._entrance.admit_to_page(request)
        return self._page.answer_index(request)

    async def _get_health(self, request: Request, asked: dict[str, str | int]) -> Response:
        return PlainTextResponse("ok\n")

    async def _get_openapi(self, request: Request, asked: dict[str, str | int]) -> Response:
        return Response(self._document, media_type=api.JSON_TYPE)

    async def _list_sessions(self, request: Request, asked: dict[str, str | int]) -> Response:
        cwd, query, cursor = (str(asked.get(name, "")) or None for name in ("cwd", "query", "cursor"))
        limit = int(asked.get("limit", api.LISTED))
        rows, following = await asyncio.to_thread(self._conversations.list_sessions, cwd, query, limit, cursor)
        known = {one.record.id: one for one in self._conversations.known_conversations}
        by_file = {one.session_file: one for one in self._conversations.known_conversations if one.session_file}
        listed = [
            {**codec.to_plain(row), **_describe_state(by_file.get(row.reference) or known.get(row.id))} for row in rows
        ]
        if cursor is None:
            seen = {row.id for row in rows}
            fresh = (
                one
                for one in known.values()
                if one.record.id not in seen and not SessionFolders.has_file(one.session_file)
            )
            wanted = [one for one in fresh if cwd in (None, one.record.cwd) and query is None]
            listed[:0] = [{"id": one.record.id, "cwd": one.record.cwd, **_describe_state(one)} for one in wanted]
        answer: dict[str, Json] = {"sessions": listed, "scope": request.scope["token"].scope}
        if following is not None:
            answer["nextCursor"] = following
        return _make_json_response(answer)

    async def _open_session(self, request: Request, asked: dict[str, str | int]) -> Response:
        body = codec.convert(await _read_body(request), api.SessionRequest)
        if body.model and _is_file(body.model) and not has_needed_scope(request.scope["token"].scope, "admin"):
            raise HttpRefusal(403, "scope", "This model is a file on the server, which needs the scope admin")
        if body.workspace is not None and not has_needed_scope(request.scope["token"].scope, "admin"):
            raise HttpRefusal(403, "scope", "A workspace elsewhere is reached with the server's keys: scope admin")
        made, new = self._find_or_create(body)
        try:
            await self._conversations.wait_until_wakeable(made)
            await made.wake()
        except (PigeonError, OSError):
            if new:
                await self._conversations.forget_conversation(made.record.id)
            raise
        headers = {"location": f"/api/sessions/{made.record.id}"}
        return _make_json_response(_describe_conversation(made), 201 if new else 200, headers)

    def _find_or_create(self, body: api.SessionRequest) -> tuple[ServedConversation, bool]:
        if body.session_id is not None:
            try:
                return self._conversations.find_conversation(body.session_id), False
            except UnknownConversation:
                if body.cwd is None and body.workspace is None:
                    raise
        if body.workspace is not None:
            if body.cwd is not None:
                raise BadRecord('Either "cwd" or "workspace", which names its folder itself')
            offers = list_offers(body)
            return self._conversations.create_elsewhere(body.workspace, body.model, body.session_id, offers), True
        if body.cwd is None:
            raise BadRecord('"cwd" must be a folder, "workspace" a URL, or "sessionId" the id of a session')
        return self._conversations.create_conversation(body.cwd, body.model, body.session_id, list_offers(body)), True

    async def _show_session(self, request: Request, asked: dict[str, str | int]) -> Response:
        return _make_json_response(
            _describe_conversation(self._conversations.find_conversation(request.path_params["id"]))
        )

    async def _delete_session(self, request: Request, asked: dict[str, str | int]) -> Response:
        id = request.path_params["id"]
        await self._conversations.delete_session(id)
        self._log.info("session_deleted", session=id)
        return Response(status_code=204)

    async def _export_session(self, request: Request, asked: dict[str, str | int]) -> Response:
        one = self._conversations.find_conversation(request.path_params["id"])
        await self._conversations.wait_until_wakeable(one)
        path = os.path.join(one.log_folder, f"export-{os.urandom(8).hex()}.html")
        try:
            answer = await one.send_request({"type": "export_html", "outputPath": path})
            if not answer.get("success"):
                raise HttpRefusal(409, "conflict", str(answer.get("error")))
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        finally:
            with suppress(OSError):
                os.unlink(path)
        headers = {"content-security-policy": PAGE_POLICY, "content-length": str(os.fstat(descriptor).st_size)}
        return StreamingResponse(_read_pieces(descriptor), media_type=api.HTML_TYPE, headers=headers)

    async def _list_folders(self, request: Request, asked: dict[str, str | int]) -> Response:
        allowed = self._conversations.paths
        path = str(asked.get("path", "")) or allowed.roots[0]
        folders = await asyncio.to_thread(allowed.list_folders, path)
        parent = os.path.dirname(path)
        above = parent if allowed.can_open(parent) and parent != path else None
        return _make_json_response({"path": path, "parent": above, "folders": folders, "roots": allowed.roots})

    async def _create_link(self, request: Request, asked: dict[str, str | int]) -> Response:
        body = codec.convert(await _read_body(request), api.LinkRequest)
        path = f"/?token={self._tokens.create_link(body.scope)}"
        return _make_json_response({"path": path, "seconds": int(LINK_SECONDS)}, 201)

    async def _get_metrics(self, request: Request, asked: dict[str, str | int]) -> Response:
        known = self._conversations.known_conversations
        states = dict.fromkeys(get_args(ConversationState), 0.0)
        for one in known:
            states[one.state] += 1
        pids = {one.pid for one in known if one.pid is not None}
        memory = await asyncio.to_thread(proportional_memory, pids)
        own = await asyncio.to_thread(proportional_memory, [os.getpid()])
        gauges: Sequence[Gauge] = (
            Gauge("pigeon_conversations", "Conversations that were used since the start.", "state", states),
            Gauge("pigeon_runs", "Runs under way.", "", {"": sum(one.work.running for one in known)}),
            Gauge("pigeon_questions", "Questions without an answer.", "", {"": _count_questions(known)}),
            Gauge("pigeon_clients", "Clients of conversations.", "", {"": sum(one.clients.count for one in known)}),
            Gauge("pigeon_connections", "Connections, by whether they had a token.", "kind",
                  {"known": self._connections.known_count, "unknown": self._connections.unknown_count}),
            Gauge("pigeon_worker_memory_bytes", "Real memory of all workers.", "", {"": memory}),
            Gauge("pigeon_supervisor_memory_bytes", "Real memory of the supervisor.", "", {"": own}),
        )  # fmt: skip
        return Response(prometheus_text_of(self._counts, gauges), headers={"content-type": CONTENT_TYPE})

    # The conversation itself

    async def _serve_websocket(self, socket: WebSocket) -> None:
        try:
            token = self._entrance.admit(socket, "read")
        except HttpRefusal as refusal:
            self._log.warning("refused", route=RPC, reason=refusal.reason, peer=self._entrance.peer_of(socket))
            await socket.send_denial_response(await _answer_refusal(None, refusal))
            return
        try:
            after = _parse_number(socket.query_params.get("after"))
            conversation = self._conversations.find_conversation(socket.path_params["id"])
            client = ClientSession(self._conversations, conversation, token.scope, after)
            await client.wake_and_watch()
        except (PigeonError, OSError) as error:
            code = NOT_FOUND if isinstance(error, UnknownConversation) else BAD_REQUEST
            # A page only learns the reason if the socket was open before it is closed.
            with suppress(OSError, WebSocketDisconnect):
                await socket.accept(_choose_subprotocol(socket))
                await socket.close(OVERLOADED if isinstance(error, TooMany) else code, _close_reason_of(str(error)))
            return
        try:
            await socket.accept(_choose_subprotocol(socket), headers=[(SEQ_HEADER, str(client.start).encode())])
        except OSError:
            # The client has gone while its conversation woke.
            client.stop_watching()
            return
        self._clients[client] = token
        session = conversation.record.id
        self._log.info("client_joined", session=session, peer=self._entrance.peer_of(socket), scope=token.scope)
        try:
            await self._relay_both_ways(socket, client)
        finally:
            del self._clients[client]
            client.stop_watching()
            self._log.info("client_left", session=session, why=client.end_reason)

    async def _relay_both_ways(self, socket: WebSocket, client: ClientSession) -> None:
        """Relay both ways until the client has gone or is disconnected; then accept nothing more from it."""
        ways = [
            asyncio.ensure_future(self._receive_commands(socket, client)),
            asyncio.ensure_future(self._send_events(socket, client)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for way in ways:
                with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                    await way

    async def _receive_commands(self, socket: WebSocket, client: ClientSession) -> None:
        while (message := await socket.receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            if text is None:
                await socket.close(NO_TEXT, "Records are sent in text frames")
                break
            line = text.encode("utf-8", "surrogatepass")
            self._counts.count("received_bytes", len(line))
            await client.handle_frame(line)

    async def _send_events(self, socket: WebSocket, client: ClientSession) -> None:
        web_socket = socket.scope["state"]["connection"].web_socket
        try:
            async for lines in client.stream_lines():
                self._counts.count("sent_bytes", sum(map(len, lines)))
                await web_socket.send_lines(lines)
        except (PigeonError, OSError) as error:
            # The missed events cannot be read now; the client will reconnect.
            await socket.close(OVERLOADED, _close_reason_of(str(error)))
            return
        await socket.close(*ENDS[client.end_reason or "too slow"])


def _is_file(model: str) -> bool:
    """True if the name of a model is the path of a script or a recording."""
    from pigeon.providers.local_models import FILE_MODELS

    return model.startswith(FILE_MODELS)


async def _read_body(request: Request) -> Json:
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > MOST_BODY:
            raise HttpRefusal(413, "too_long", f"The body is longer than {MOST_BODY} bytes")
    try:
        return codec.decode(data)
    except BadRecord as error:
        raise HttpRefusal(400, "bad_request", f"The body is not JSON: {error}") from None


def _choose_subprotocol(socket: WebSocket) -> str | None:
    """A browser that offers some closes the socket unless one is chosen."""
    return SUBPROTOCOL if SUBPROTOCOL in socket.scope["subprotocols"] else None


def _parse_number(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Refusal('"after" must be the number of an event')
    return int(text)


def _describe_state(one: ServedConversation | None) -> dict[str, Json]:
    if one is None:
        return {"state": "asleep", "running": False, "questions": 0, "clients": 0}
    return {
        "state": one.state,
        "running": one.work.running,
        "questions": len(one.work.questions),
        "clients": one.clients.count,
    }


def _describe_conversation(one: ServedConversation) -> dict[str, Json]:
    open_seq = None if one.work.first_open_number is None else one.work.first_open_number - 1
    about = {"seq": one.log.number, "pid": one.pid, "openSeq": open_seq, "askedAgo": one.log.question_ages}
    return {
        "id": one.record.id,
        "cwd": one.record.cwd,
        **_describe_state(one),
        **about,
        "queue": one.work.queued_messages,
    }


def _count_questions(known: list[ServedConversation]) -> int:
    return sum(len(one.work.questions) for one in known)


def _read_pieces(descriptor: int) -> Iterator[bytes]:
    with open(descriptor, "rb") as file:
        while piece := file.read(PIECE):
            yield piece


def _close_reason_of(text: str) -> str:
    """A text cut to the length that a close frame allows."""
    return text.encode("utf-8", "replace")[:120].decode("utf-8", "ignore")


def _make_json_response(value: Json, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(codec.encode(value), status, headers, api.JSON_TYPE)


async def _answer_refusal(request: Request | None, error: Exception) -> Response:
    headers: dict[str, str] = {}
    status = next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 400)
    retry = RETRY_SECONDS if isinstance(error, TooMany) else None
    if isinstance(error, HttpRefusal):
        status, retry = error.status, error.retry_after
    if retry is not None:
        headers["retry-after"] = str(retry)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    response = _make_json_response({"error": str(error)}, status, headers)
    if isinstance(error, HttpRefusal) and error.reason == "no_page_key":
        # A cookie that is good for nothing would keep the browser from the page that says how to get in.
        response.delete_cookie(COOKIE)
    return response


async def _answer_unknown_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "There is nothing at this address", 405: "This address does not support that method"}
    text = words.get(error.status_code, "The request cannot be answered")
    return _make_json_response({"error": text}, error.status_code, dict(error.headers or {}))


async def _answer_disconnected(request: Request, error: Exception) -> Response:
    """Answer a client that disconnected during its request, for the log and the counters; it is not read."""
    return Response(status_code=400)
