"""A tool server behind HTTP, in this process and without the package of the protocol: the streamable form, the older
one with server-sent events, and a sign-in (OAuth) in front of both if it is wanted."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route


class WebToolServer:
    """Answers under `/mcp`, and in the older form under `/sse`. With `signs_in` a token is needed."""

    def __init__(
        self,
        signs_in: bool = False,
        streams: bool = False,
        header: tuple[str, str] | None = None,
        device: bool = False,
        browser: bool = True,
        only_older: int | None = None,
    ) -> None:
        """`device` and `browser` say by which ways its authorization server lets a person sign in. With `only_older`,
        messages posted to `/mcp` get this status, and the older form is under the same address."""
        self.only_older = only_older
        self.signs_in = signs_in
        self.device = device
        self.browser = browser
        self.forms: list[dict[str, str]] = []
        self.client_secrets: list[str] = []
        self.registered: list[dict[str, Any]] = []
        self.device_answers: list[str] = []
        self.rotates = True
        self.streams = streams
        self.header = header
        self.seen: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.tokens: set[str] = set()
        self.refresh_tokens: set[str] = set()
        self.grants: list[str] = []
        self.on_refused: Callable[[], object] = lambda: None
        self.expires_in = 3600
        self.huge = False
        self._codes: dict[str, str] = {}
        self._old: dict[str, asyncio.Queue[str]] = {}
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None
        self.base = ""

    async def __aenter__(self) -> WebToolServer:
        routes = [
            Route("/mcp", self._mcp, methods=["GET", "POST", "DELETE"]),
            Route("/sse", self._sse),
            Route("/messages", self._messages, methods=["POST"]),
            Route("/.well-known/oauth-protected-resource/mcp", self._resource),
            Route("/.well-known/oauth-protected-resource", self._resource),
            Route("/.well-known/oauth-authorization-server", self._metadata),
            Route("/register", self._register, methods=["POST"]),
            Route("/authorize", self._authorize),
            Route("/token", self._token, methods=["POST"]),
            Route("/device", self._device, methods=["POST"]),
        ]
        config = uvicorn.Config(Starlette(routes=routes), port=0, log_level="critical", lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        started = asyncio.Event()
        startup = self._server.startup

        async def start_and_note(*given: Any, **more: Any) -> None:
            await startup(*given, **more)
            started.set()

        self._server.startup = start_and_note  # type: ignore[method-assign]
        self._server.capture_signals = _nothing  # type: ignore[method-assign]
        self._task = asyncio.ensure_future(self._server.serve())
        await started.wait()
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.base = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        assert self._task is not None
        self._server.should_exit = self._server.force_exit = True
        for queue in self._old.values():
            queue.put_nowait("")
        await self._task

    # The protocol

    def _refusal_of(self, request: Request) -> Response | None:
        self.headers.append(dict(request.headers))
        if self.header is not None and request.headers.get(self.header[0]) != self.header[1]:
            return Response("who are you?", 403)
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.signs_in and token not in self.tokens:
            where = f'Bearer resource_metadata="{self.base}/.well-known/oauth-protected-resource"'
            return Response(status_code=401, headers={"WWW-Authenticate": where})
        return None

    async def _mcp(self, request: Request) -> Response:
        refused = self._refusal_of(request)
        if refused is not None:
            return refused
        if self.only_older is not None:
            return await self._sse(request) if request.method == "GET" else Response("no", self.only_older)
        if request.method != "POST":
            return Response(status_code=405 if request.method == "GET" else 200)
        message = await request.json()
        answer = self._answer(message)
        if answer is None:
            return Response(status_code=202)
        headers = {"Mcp-Session-Id": "one"} if message["method"] == "initialize" else {}
        if self.huge and message["method"] == "tools/call":
            return StreamingResponse(_huge(), media_type="application/json")
        if self.streams:
            body = f"event: message\ndata: {json.dumps(answer)}\n\n"
            return Response(body, media_type="text/event-stream", headers=headers)
        return JSONResponse(answer, headers=headers)

    async def _sse(self, request: Request) -> Response:
        refused = self._refusal_of(request)
        if refused is not None:
            return refused
        id = secrets.token_hex(4)
        queue = self._old[id] = asyncio.Queue()

        async def events() -> Any:
            yield f"event: endpoint\ndata: /messages?session_id={id}\n\n"
            while text := await queue.get():
                yield f"event: message\ndata: {text}\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    async def _messages(self, request: Request) -> Response:
        answer = self._answer(await request.json())
        if answer is not None:
            self._old[request.query_params["session_id"]].put_nowait(json.dumps(answer))
        return Response(status_code=202)

    def _answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        self.seen.append(message)
        if "id" not in message or "method" not in message:
            return None
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": message.get("params", {}).get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "web", "version": "2"},
            },
            "tools/list": {"tools": [{"name": "hello", "description": "Greets", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "hello from the web"}]},
            "ping": {},
        }
        method = message["method"]
        if method not in results:
            return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no such method"}}
        return {"jsonrpc": "2.0", "id": message["id"], "result": results[method]}

    # The sign-in

    async def _resource(self, request: Request) -> Response:
        return JSONResponse({"resource": f"{self.base}/mcp", "authorization_servers": [self.base]})

    async def _metadata(self, request: Request) -> Response:
        ways = {}
        if self.browser:
            ways["authorization_endpoint"] = f"{self.base}/authorize"
        if self.device:
            ways["device_authorization_endpoint"] = f"{self.base}/device"
        return JSONResponse(
            {
                "issuer": self.base,
                **ways,
                "token_endpoint": f"{self.base}/token",
                "registration_endpoint": f"{self.base}/register",
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
            }
        )

    async def _device(self, request: Request) -> Response:
        await self._form(request)
        return JSONResponse(
            {
                "device_code": "device-secret-77",
                "user_code": "WDJB-MJHT",
                "verification_uri": f"{self.base}/activate",
                "verification_uri_complete": f"{self.base}/activate?user_code=WDJB-MJHT",
                "expires_in": 60,
                "interval": 0,
            }
        )

    async def _form(self, request: Request) -> dict[str, str]:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        self.forms.append(form)
        basic = request.headers.get("authorization", "").removeprefix("Basic ")
        secret = form.pop("client_secret", base64.b64decode(basic).decode().partition(":")[2])
        self.client_secrets += [secret] if secret else []
        return form

    async def _register(self, request: Request) -> Response:
        given = await request.json()
        self.registered.append(given)
        return JSONResponse({**given, "client_id": "client-1", "client_id_issued_at": 1}, 201)

    async def _authorize(self, request: Request) -> Response:
        code = secrets.token_hex(8)
        self._codes[code] = request.query_params["code_challenge"]
        back = request.query_params["redirect_uri"]
        return RedirectResponse(f"{back}?{urlencode({'code': code, 'state': request.query_params['state']})}", 302)

    async def _token(self, request: Request) -> Response:
        form = await self._form(request)
        self.grants.append(form["grant_type"])
        if form["grant_type"] == "authorization_code":
            challenge = self._codes.pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            good = challenge == base64.urlsafe_b64encode(digest).decode().rstrip("=")
        elif form["grant_type"] == "refresh_token":
            good = form["refresh_token"] in self.refresh_tokens
            if self.rotates:
                self.refresh_tokens.discard(form["refresh_token"])
        else:
            answer = self.device_answers.pop(0) if self.device_answers else ""
            if answer:
                return JSONResponse({"error": answer}, 400)
            good = form["device_code"] == "device-secret-77"
        if not good:
            self.on_refused()
            return JSONResponse({"error": "invalid_grant"}, 400)
        token, refresh = f"access-{secrets.token_hex(12)}", f"refresh-{secrets.token_hex(12)}"
        self.tokens.add(token)
        self.refresh_tokens.add(refresh)
        return JSONResponse(
            {"access_token": token, "token_type": "Bearer", "expires_in": self.expires_in, "refresh_token": refresh}
        )


async def follow(address: str) -> str:
    """What a browser does: it goes to an address and to where that leads; returns the last one."""
    while True:
        place = urlsplit(address)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        target = f"{place.path}?{place.query}"
        writer.write(f"GET {target} HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        writer.close()
        if " 302 " not in head.split("\r\n")[0]:
            return address
        address = next(line.split(": ", 1)[1] for line in head.split("\r\n") if line.lower().startswith("location"))


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


async def _huge() -> Any:
    yield b'{"jsonrpc":"2.0","id":9,"result":{"content":[{"type":"text","text":"'
    for _ in range(64):
        yield b"x" * 1024 * 1024
