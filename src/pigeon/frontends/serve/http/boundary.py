"""What all HTTP answers have in common: security headers, a line in the log, a count."""

from __future__ import annotations

import asyncio
import os
import time
import traceback

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pigeon.frontends.serve.counts import ServeCounts
from pigeon.frontends.serve.http.connections import HEADER_BYTES, LONG_HEADERS, PeerConnection
from pigeon.frontends.serve.service_log import ServiceLog
from pigeon.wire import codec

# An answer must be produced and read within this time. (WebSockets have their own rules.)
ANSWER_SECONDS = 120.0
HEADERS: dict[bytes, bytes] = {
    b"content-security-policy": b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-embedder-policy": b"require-corp",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")


class HttpBoundary:
    """ASGI middleware around the application."""

    def __init__(self, application: ASGIApp, counts: ServeCounts, log: ServiceLog) -> None:
        self._application = application
        self._counts = counts
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._application(scope, receive, _wrap_send_with_headers(send))
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.monotonic()
        status = 0

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        connection = scope.get("state", {}).get("connection")
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                wrong = _find_refusal_reason(scope)
                if wrong is not None:
                    self._counts.count_refusal("bad_request")
                    await _send_refusal(_wrap_send_with_headers(send_and_note_status), *wrong)
                else:
                    await self._application(scope, receive, _wrap_send_with_headers(send_and_note_status))
        except Exception as error:
            self._log.error("fault", failure=type(error).__name__, place=_source_line_of(error))
            if isinstance(connection, PeerConnection) and status:
                connection.close_or_abort()
        finally:
            route = _route_of(scope)
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._counts.count_answer(method, route, status)
            took = round((time.monotonic() - started) * 1000, 1)
            peer = scope["client"][0] if scope.get("client") else ""
            tell = self._log.warning if status in (401, 403, 429, 503) else self._log.debug
            tell("request", method=method, route=route, status=status, ms=took, peer=peer)


def _wrap_send_with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            given = list(message.get("headers", []))
            names = {name.lower() for name, _ in given}
            message = {**message, "headers": [*given, *(pair for pair in HEADERS.items() if pair[0] not in names)]}
        await send(message)

    return send_with_headers


def _find_refusal_reason(scope: Scope) -> tuple[int, str] | None:
    """Returns the status and reason with which a request is refused before the application sees it, or None."""
    if scope["http_version"] not in ("1.0", "1.1"):
        return 505, "This server speaks HTTP/1.1"
    length = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    if length + len(scope["raw_path"]) + len(scope["query_string"]) > HEADER_BYTES:
        return 431, LONG_HEADERS
    names = [name for name, _ in scope["headers"]]
    if b"transfer-encoding" in names and (b"content-length" in names or scope["http_version"] == "1.0"):
        # A proxy might see a different end of this request (request smuggling).
        return 400, "The length of the body is given in two ways"
    return None


async def _send_refusal(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": codec.encode({"error": text})})


def _route_of(scope: Scope) -> str:
    """The route pattern of a request, never its address, which may contain anything, even a token."""
    return str(scope.get("pattern", "-"))


def _source_line_of(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
