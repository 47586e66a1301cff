"""The files of the page at `/`, read or made once and kept ready to send.

The page may only load these files and talk to this server: its content security policy allows no inline scripts, no
inline styles and no other origin. The files contain nothing about any session, so they need no token. Browsers cache
them and ask whether they have changed, which takes one short answer each.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterator

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pigeon.export.style import CONVERSATION_CSS
from pigeon.wire.commands import REPEATABLE_NAMES

FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "page")
INDEX, SIGN_IN = "index.html", "signin.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class PageFile(Struct, frozen=True):
    """One file, plain and compressed."""

    media: str
    plain: bytes
    packed: bytes
    tag: str


class PageFiles:
    """All files of the page, by name."""

    def __init__(self) -> None:
        made = {
            "conversation.css": CONVERSATION_CSS,
            "commands.js": f"export const REPEATABLE = new Set({json.dumps(sorted(REPEATABLE_NAMES))});\n",
        }
        self._files = {name: _prepare_file(name, text.encode()) for name, text in made.items()}
        for name in sorted(os.listdir(FOLDER)):
            with open(os.path.join(FOLDER, name), "rb") as file:
                self._files[name] = _prepare_file(name, file.read())

    def routes(self) -> Iterator[Route]:
        """The routes that need no token."""
        yield Route("/page/{name}", self._answer_asset)

    def answer_index(self, request: Request) -> Response:
        return self._answer_file(request, self._files[INDEX], 200)

    def answer_sign_in(self, request: Request) -> Response:
        """The page for browsers without a token, with instructions for getting a link."""
        return self._answer_file(request, self._files[SIGN_IN], 401)

    async def _answer_asset(self, request: Request) -> Response:
        request.scope["pattern"] = "/page/{name}"
        file = self._files.get(request.path_params["name"])
        if file is None or request.path_params["name"].endswith(".html"):
            return PlainTextResponse("There is no such file\n", 404)
        return self._answer_file(request, file, 200)

    def _answer_file(self, request: Request, file: PageFile, status: int) -> Response:
        headers = {
            "content-security-policy": POLICY,
            "cache-control": "no-cache" if status == 200 else "no-store",
            "vary": "accept-encoding, cookie",
            "etag": file.tag,
        }
        if status == 200 and file.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        content = file.plain
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"] = "gzip"
            content = file.packed
        return Response(content, status, {**headers, "content-type": file.media})


def _prepare_file(name: str, data: bytes) -> PageFile:
    tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
    return PageFile(TYPES[os.path.splitext(name)[1]], data, gzip.compress(data, 9, mtime=0), tag)
