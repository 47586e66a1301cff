"""The HTTP server: where it listens, for whom, and with which limits."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from msgspec import Struct

from pigeon.frontends.serve.conversations import Conversations
from pigeon.frontends.serve.counts import ServeCounts
from pigeon.frontends.serve.http.application import ServeApplication
from pigeon.frontends.serve.http.boundary import HttpBoundary
from pigeon.frontends.serve.http.connections import (
    ACCEPTED_AT_ONCE,
    HEADER_BYTES,
    ConnectionLimits,
    Connections,
    LimitedHttp,
    LimitedWebSocket,
)
from pigeon.frontends.serve.http.entrance import Entrance, WrongTokens
from pigeon.frontends.serve.http.tokens import Tokens
from pigeon.frontends.serve.service_log import ServiceLog
from pigeon.system.append_file import make_private_folder
from pigeon.system.files import replace_file
from pigeon.wire import codec
from pigeon.wire.errors import BadRecord, StartupError

FRAME_BYTES = 32 * 1024 * 1024
# Files that are open without any client, with a reserve.
OWN_FILES = 64
HANDSHAKE_SECONDS = 10.0
PING_SECONDS = 20.0
# How long clients may take to close their connections at shutdown.
CLOSE_SECONDS = 2
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
ADDRESS_FILE = "address.json"
NOT_SAFE = (
    "{} can be reached from other machines, and without TLS anyone along the way can read the tokens. Use --tls-cert "
    "and --tls-key, or --behind-proxy if a proxy in front handles TLS, or --insecure"
)


class ServeOptions(Struct, frozen=True, kw_only=True):
    """Where and for whom to serve. `allowed_hosts` are further names of this server besides those of the machine."""

    host: str = "127.0.0.1"
    port: int = 7463
    socket: str | None = None
    allowed_hosts: Sequence[str] = ()
    tls_cert: str | None = None
    tls_key: str | None = None
    behind_proxy: bool = False
    insecure: bool = False
    connections: ConnectionLimits = ConnectionLimits()
    frame_bytes: int = FRAME_BYTES
    drain_seconds: float = 30.0


class ServerAddress(Struct, frozen=True):
    """Where a running server can be reached from this machine, and its public address."""

    url: str
    public: str
    pid: int
    tls_cert: str | None = None


class HttpServer(uvicorn.Server):
    """Serves conversations over HTTP; raises `StartupError` if it cannot."""

    def __init__(
        self,
        conversations: Conversations,
        tokens: Tokens,
        options: ServeOptions,
        counts: ServeCounts,
        log: ServiceLog,
    ) -> None:
        self._tls = _make_tls_context(options)
        self._listener = _open_listener(options)
        self._options = options
        self._exit_requested = asyncio.Event()
        port = self._listener.getsockname()[1]
        names = [f"{name}:{port}" for name in (*LOOPBACK, _to_url_host(options.host))]
        self._connections = Connections(options.connections, counts, by_peer=not options.behind_proxy)
        entrance = Entrance(tokens, [*names, *options.allowed_hosts], counts, WrongTokens(), options.behind_proxy)
        self._application = ServeApplication(conversations, entrance, tokens, self._connections, counts, log)
        super().__init__(
            uvicorn.Config(
                HttpBoundary(self._application.asgi, counts, log),
                http=self._make_protocol,  # type: ignore[arg-type]
                ws=LimitedWebSocket,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=options.connections.idle_seconds,
                h11_max_incomplete_event_size=HEADER_BYTES,
                ws_max_size=options.frame_bytes,
                ws_per_message_deflate=False,
                timeout_graceful_shutdown=CLOSE_SECONDS,
                ws_ping_interval=PING_SECONDS,
                ws_ping_timeout=PING_SECONDS,
            )
        )

    @property
    def address(self) -> ServerAddress:
        options = self._options
        port = self._listener.getsockname()[1]
        scheme = "https" if self._tls else "http"
        everywhere = options.host in ("0.0.0.0", "::", "")
        url = f"{scheme}://{'127.0.0.1' if everywhere else _to_url_host(options.host)}:{port}"
        public = url
        if options.allowed_hosts:
            name = options.allowed_hosts[0]
            own = "" if options.behind_proxy or _has_port(name) else f":{port}"
            public = f"{'https' if self._tls or options.behind_proxy else 'http'}://{name}{own}"
        return ServerAddress(url, public, os.getpid(), options.tls_cert)

    def request_exit(self) -> None:
        """Stop serving; `serve` returns soon."""
        self.should_exit = True
        self._exit_requested.set()

    async def main_loop(self) -> None:
        """Wait for the end. uvicorn would look for it ten times a second, and set the date of later answers."""
        await self._exit_requested.wait()

    def stop_accepting(self) -> None:
        """Accept no further connections; existing ones continue."""
        for one in self.servers:
            one.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; a TLS handshake is limited to the time of a request."""
        loop = asyncio.get_running_loop()
        limit = None if self._tls is None else HANDSHAKE_SECONDS
        protocol: Callable[[], asyncio.Protocol] = functools.partial(
            self._make_protocol, config=self.config, server_state=self.server_state, app_state={}
        )
        self.servers = [
            await loop.create_server(
                protocol, sock=self._listener, ssl=self._tls, backlog=ACCEPTED_AT_ONCE, ssl_handshake_timeout=limit
            )
        ]
        self._watching_tokens = asyncio.ensure_future(self._application.disconnect_revoked())
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._watching_tokens.cancel()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: `NetworkService` handles them."""
        yield

    def _make_protocol(self, **given: Any) -> LimitedHttp:
        return LimitedHttp(self._connections, **given)


def store_address(folder: str, address: ServerAddress) -> None:
    """Store the address for `pigeon serve --link`."""
    make_private_folder(folder)
    replace_file(os.path.join(folder, ADDRESS_FILE), codec.encode(address), 0o600)


def delete_address(folder: str) -> None:
    with suppress(OSError):
        os.unlink(os.path.join(folder, ADDRESS_FILE))


def read_address(folder: str) -> ServerAddress | None:
    try:
        with open(os.path.join(folder, ADDRESS_FILE), "rb") as file:
            return codec.convert(codec.decode(file.read()), ServerAddress)
    except (OSError, BadRecord):
        return None


class FileShares(Struct, frozen=True):
    """How many conversations and connections the limit of open files allows."""

    awake: int
    known: int
    unknown: int


def divide_file_limit(files: int) -> FileShares:
    """What a limit of open files allows.

    Each conversation has its worker's connection, process and log open; each client its connection and the log.
    """
    rest = max(0, files - OWN_FILES)
    return FileShares(max(1, rest * 45 // 300), max(1, rest * 45 // 200), max(1, rest // 10))


def _open_listener(options: ServeOptions) -> socket.socket:
    if not (_is_loopback(options.host) or options.tls_cert or options.behind_proxy or options.insecure):
        raise StartupError(NOT_SAFE.format(options.host or "Every address"))
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.host, options.port))
        listener.listen(ACCEPTED_AT_ONCE)
    except OSError as error:
        listener.close()
        where = f"{_to_url_host(options.host)}:{options.port}"
        why = f"Cannot listen on {where}: {error.strerror}. Choose another with --host or --port"
        raise StartupError(why) from None
    return listener


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _make_tls_context(options: ServeOptions) -> ssl.SSLContext | None:
    if options.tls_cert is None and options.tls_key is None:
        return None
    if options.tls_cert is None:
        raise StartupError("--tls-key needs --tls-cert")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # An encrypted key would make OpenSSL ask for its password at a terminal.
        context.load_cert_chain(options.tls_cert, options.tls_key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        files = " and ".join(filter(None, (options.tls_cert, options.tls_key)))
        why = error.strerror or "they do not belong together, or are not PEM files without a password"
        raise StartupError(f"{files} cannot be used for TLS: {why}") from None
    return context


def _to_url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _has_port(name: str) -> bool:
    return name.rpartition(":")[2].isdigit() and ":" in name
