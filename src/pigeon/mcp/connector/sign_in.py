"""Signing in to a server behind HTTP (OAuth): tokens that are kept and refreshed, and a browser where there are none.

The browser is led back to a port of this machine, or the person pastes the address that it was led to, which works from
another machine, too. Tokens and the registration of the client are told to the agent, which keeps them.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

CALLBACK = "/callback"
SIGN_IN_SECONDS = 600.0
PAGE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close\r\n\r\n"
    b"<!doctype html><title>Pigeon</title><p>You can close this page and go back to Pigeon.</p>"
)
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
# Asks a person to open an address; the answer is the address that the browser was led to, none for a refusal.
Ask = Callable[[str], Awaitable[str | None]]


class SignInNeeded(Exception):
    """A person has to sign in, and none can be asked now, or the sign-in was not finished."""


class SignIn:
    """One server's sign-in. `kept` is what was told before; `tell` gets what is to be kept."""

    def __init__(self, url: str, config: dict[str, Any], kept: dict[str, Any], tell: Callable[[dict[str, Any]], None]):
        self._kept = dict(kept)
        self._tell = tell
        self._config = config
        self._ask: Ask | None = None
        self._listener: socket.socket | None = None
        self._led_back: asyncio.Future[str] | None = None
        self._address = ""
        self.provider = _KeptTokens(
            url,
            OAuthClientMetadata(
                client_name="Pigeon",
                redirect_uris=[AnyUrl(self._redirect())],
                grant_types=["authorization_code", "refresh_token"],
                response_types=["code"],
                scope=config.get("scope"),
                token_endpoint_auth_method="none" if not config.get("client_secret") else "client_secret_post",
            ),
            storage=self,
            redirect_handler=self._redirected,
            callback_handler=self._called_back,
        )

    def allow(self, ask: Ask | None) -> None:
        """Ask a person this way where a sign-in is needed; with none, a sign-in that is needed fails."""
        self._ask = ask

    def close(self) -> None:
        """The port is no longer needed."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def restore(self, provider: OAuthClientProvider, fresh: bool) -> None:
        """Tell the provider what it does not keep itself; without `fresh` it refreshes before the next request."""
        with suppress(ValidationError):
            if self._kept.get("metadata"):
                provider.context.oauth_metadata = OAuthMetadata.model_validate(self._kept["metadata"])
        expires = self._kept.get("expires")
        provider.context.token_expiry_time = 1.0 if not fresh else expires if isinstance(expires, int | float) else None

    @property
    def can_refresh(self) -> bool:
        """Whether there is a token to refresh with."""
        tokens = self._kept.get("tokens")
        return isinstance(tokens, dict) and bool(tokens.get("refresh_token"))

    # What the provider asks for

    async def get_tokens(self) -> OAuthToken | None:
        """Those that are kept."""
        try:
            return OAuthToken.model_validate(self._kept["tokens"])
        except (KeyError, ValidationError):
            return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """New ones."""
        expires = None if tokens.expires_in is None else time.time() + tokens.expires_in
        metadata = self.provider.context.oauth_metadata
        self._keep(
            tokens=tokens.model_dump(mode="json", exclude_none=True),
            expires=expires,
            metadata=None if metadata is None else metadata.model_dump(mode="json", exclude_none=True),
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Our registration: the one of the configuration, or the one that is kept."""
        redirects = [AnyUrl(self._redirect())]
        if self._config.get("client_id"):
            return OAuthClientInformationFull(
                client_id=self._config["client_id"],
                client_secret=self._config.get("client_secret"),
                redirect_uris=redirects,
            )
        try:
            return OAuthClientInformationFull.model_validate(self._kept["client"])
        except (KeyError, ValidationError):
            return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """We were registered."""
        self._keep(client=client_info.model_dump(mode="json", exclude_none=True), redirect=self._redirect())

    def _keep(self, **values: Any) -> None:
        self._kept.update(values)
        self._tell(dict(self._kept))

    # The browser

    def _redirect(self) -> str:
        if self._listener is None:
            self._listener = _bound(self._config.get("port") or _port_of(self._kept.get("redirect")))
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}{CALLBACK}"

    async def _redirected(self, address: str) -> None:
        if self._ask is None:
            raise SignInNeeded("a sign-in is needed")
        self._address = address

    async def _called_back(self) -> AuthorizationCodeResult:
        ask = self._ask
        if ask is None or self._listener is None:
            raise SignInNeeded("a sign-in is needed")
        self._led_back = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(self._serve, sock=self._listener)
        self._listener = None
        pasted: asyncio.Future[str | None] = asyncio.ensure_future(ask(self._address))
        waiting: set[asyncio.Future[Any]] = {pasted, self._led_back}
        try:
            done, _ = await asyncio.wait(waiting, timeout=SIGN_IN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise SignInNeeded("the sign-in was not finished in time")
            led_to = self._led_back.result() if self._led_back in done else pasted.result()
        finally:
            pasted.cancel()
            self._led_back.cancel()
            server.close()
        if led_to is None:
            raise SignInNeeded("the sign-in was declined")
        query = parse_qs(urlsplit(led_to.strip()).query)
        if "error" in query:
            raise SignInNeeded(f"the sign-in has failed: {' '.join(query.get('error_description', query['error']))}")
        if "code" not in query:
            raise SignInNeeded("the address that was pasted has no code in it")
        return AuthorizationCodeResult(
            code=query["code"][0], state=query.get("state", [None])[0], iss=query.get("iss", [None])[0]
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                words = (await reader.readline()).decode("latin-1").split()
            target = words[1] if len(words) > 1 else ""
            ours = urlsplit(target).path == CALLBACK
            writer.write(PAGE if ours else NOT_FOUND)
            await writer.drain()
            if ours and self._led_back is not None and not self._led_back.done():
                self._led_back.set_result(target)
        except (OSError, ValueError, TimeoutError):
            return
        finally:
            writer.close()


class _KeptTokens(OAuthClientProvider):
    """Tokens that were kept are used with what is known of their end, and refreshed where they came from."""

    async def _initialize(self) -> None:
        await super()._initialize()
        storage = self.context.storage
        if isinstance(storage, SignIn):
            storage.restore(self, fresh=self.fresh)

    fresh = True

    def refresh_first(self) -> None:
        """Take the kept token for expired."""
        self.fresh = False
        self._initialized = False


def _bound(port: int | None) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port or 0))
    except OSError:
        listener.bind(("127.0.0.1", 0))
    return listener


def _port_of(address: Any) -> int | None:
    try:
        return urlsplit(address).port if isinstance(address, str) else None
    except ValueError:
        return None
