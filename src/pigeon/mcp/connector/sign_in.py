"""Signing in to a server behind HTTP (OAuth): what is stored, and how the person is asked.

The browser is redirected to a port of this machine, or the person pastes the address that it was redirected to, which
also works from another machine; or a code is entered on any device. Tokens and the client registration are sent to the
agent, which stores them.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from msgspec.structs import replace
from pydantic import AnyUrl, ValidationError

from pigeon.mcp.connector.authorization import ServerAuthorization
from pigeon.mcp.connector.device_grant import DeviceCode, SignInNeeded
from pigeon.mcp.connector.records import Answer, LinkSignIn, SignInAnswer, SignInQuestion, StoredSignIn
from pigeon.mcp.connector.web_address import parse_web_address
from pigeon.wire.base import Json

CALLBACK = "/callback"
SIGN_IN_SECONDS = 600.0
PAGE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close\r\n\r\n"
    b"<!doctype html><title>Pigeon</title><p>You can close this page and go back to Pigeon.</p>"
)
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
# Asks a person to sign in; the answer is a `SignInAnswer` unless the person refuses.
Ask = Callable[[SignInQuestion], Awaitable[Answer]]


class SignIn:
    """One server's sign-in. `store` sends what is to be stored, `read` returns what is stored now, perhaps by another
    agent."""

    def __init__(
        self,
        url: str,
        config: LinkSignIn,
        store: Callable[[StoredSignIn], None],
        read: Callable[[], Awaitable[StoredSignIn]],
    ) -> None:
        self._stored = config.stored
        self._store = store
        self._read = read
        self._config = config
        self._ask: Ask | None = None
        self._listener: socket.socket | None = None
        self._port: int | None = None
        self._led_back: asyncio.Future[str] | None = None
        self._address = ""
        self.provider = ServerAuthorization(
            url,
            OAuthClientMetadata(
                client_name="Pigeon",
                redirect_uris=[AnyUrl(self._ensure_redirect_address())],
                grant_types=["authorization_code", "refresh_token"],
                response_types=["code"],
                scope=config.scope,
                token_endpoint_auth_method="none" if not config.client_secret else "client_secret_post",
            ),
            self,
            flow=config.flow or "either",
            remote=config.is_remote,
            client_metadata_url=config.client_metadata_url,
        )

    def set_asker(self, ask: Ask | None) -> None:
        """Set how to ask a person; without it, a request that needs a sign-in fails."""
        self._ask = ask

    def close(self) -> None:
        """The port is no longer needed."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    # Called by the provider

    def read_stored_metadata(self) -> tuple[dict[str, Json] | None, dict[str, Json] | None, float | None]:
        """What is stored besides the tokens: the authorization server, the resource, and when the tokens expire."""
        return self._stored.metadata, self._stored.resource, self._stored.expires

    async def reload_tokens(self) -> bool:
        """Read the stored tokens again; returns whether they have changed."""
        stored = await self._read()
        if stored.tokens is None or stored.tokens == self._stored.tokens:
            return False
        self._stored = stored
        return True

    async def get_tokens(self) -> OAuthToken | None:
        """Returns the stored tokens, if there are any."""
        try:
            return OAuthToken.model_validate(self._stored.tokens)
        except ValidationError:
            return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store new tokens and the time when they expire."""
        context = self.provider.context
        found = {"metadata": context.oauth_metadata, "resource": context.protected_resource_metadata}
        self._store_values(
            tokens=tokens.model_dump(mode="json", exclude_none=True),
            expires=None if tokens.expires_in is None else time.time() + tokens.expires_in,
            **{name: one.model_dump(mode="json", exclude_none=True) for name, one in found.items() if one is not None},
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The client registration from the configuration, or the stored one."""
        redirects = [AnyUrl(self._ensure_redirect_address())]
        if self._config.client_id:
            return OAuthClientInformationFull(
                client_id=self._config.client_id,
                client_secret=self._config.client_secret,
                redirect_uris=redirects,
            )
        try:
            return OAuthClientInformationFull.model_validate(self._stored.client)
        except ValidationError:
            return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store the registration of this client."""
        self._store_values(
            client=client_info.model_dump(mode="json", exclude_none=True), redirect=self._ensure_redirect_address()
        )

    def _store_values(self, **values: Any) -> None:
        self._stored = replace(self._stored, **values)
        self._store(self._stored)

    async def show_code(self, code: DeviceCode) -> bool:
        """Show a code; returns False if the person refuses."""
        answer = await self._ask_person(SignInQuestion(url=code.address, code=code.code, complete_url=code.complete))
        return answer is not None

    async def _ask_person(self, question: SignInQuestion) -> SignInAnswer | None:
        if self._ask is None:
            raise SignInNeeded("a sign-in is needed")
        answer = await self._ask(question)
        return answer if isinstance(answer, SignInAnswer) else None

    # The browser

    def _ensure_redirect_address(self) -> str:
        if self._port is None:
            self._listener = _bind_listener(self._config.port or _port_of(self._stored.redirect))
            self._port = self._listener.getsockname()[1]
        return f"http://127.0.0.1:{self._port}{CALLBACK}"

    async def keep_sign_in_address(self, address: str) -> None:
        """Called with the address to open in a browser."""
        if self._ask is None:
            raise SignInNeeded("a sign-in is needed")
        if parse_web_address(address) is None:
            raise SignInNeeded("the authorization server names an address that no browser should open")
        self._address = address

    async def wait_for_callback(self) -> AuthorizationCodeResult:
        """The parameters of the redirect, from the browser or from the address that the person pasted."""
        listener, self._listener = self._listener or _bind_listener(self._port), None
        self._led_back = asyncio.get_running_loop().create_future()
        # If the port was taken meanwhile, this is another one, and only a pasted address can arrive.
        server = await asyncio.start_server(self._serve_callback, sock=listener)
        pasted = asyncio.ensure_future(self._ask_person(SignInQuestion(url=self._address)))
        waiting: set[asyncio.Future[Any]] = {pasted, self._led_back}
        try:
            done, _ = await asyncio.wait(waiting, timeout=SIGN_IN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise SignInNeeded("the sign-in was not finished in time")
            if self._led_back in done:
                led_to: str | None = self._led_back.result()
            else:
                answer = pasted.result()
                led_to = None if answer is None else answer.redirect
        finally:
            pasted.cancel()
            self._led_back.cancel()
            server.close()
        if led_to is None:
            raise SignInNeeded("the sign-in was declined")
        query = parse_qs(urlsplit(led_to.strip()).query)
        if "code" not in query and "error" not in query:
            raise SignInNeeded("the pasted address contains no code")
        if not self._has_current_state(led_to):
            raise SignInNeeded("the pasted address belongs to another sign-in")
        if "error" in query:
            raise SignInNeeded(f"the sign-in failed: {' '.join(query.get('error_description', query['error']))}")
        return AuthorizationCodeResult(
            code=query["code"][0], state=query.get("state", [None])[0], iss=query.get("iss", [None])[0]
        )

    def _has_current_state(self, led_to: str) -> bool:
        """Whether an address has the state of the sign-in that is under way."""
        given, wanted = (parse_qs(urlsplit(one.strip()).query).get("state", [""])[0] for one in (led_to, self._address))
        return bool(wanted) and hmac.compare_digest(given.encode(), wanted.encode())

    async def _serve_callback(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                words = (await reader.readline()).decode("latin-1").split()
            target = words[1] if len(words) > 1 else ""
            # Any web page can call this port; a request without the right state is ignored.
            ours = urlsplit(target).path == CALLBACK and self._has_current_state(target)
            writer.write(PAGE if ours else NOT_FOUND)
            await writer.drain()
            if ours and self._led_back is not None and not self._led_back.done():
                self._led_back.set_result(target)
        except (OSError, ValueError, TimeoutError):
            return
        finally:
            writer.close()


def _bind_listener(port: int | None) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port or 0))
    except OSError:
        listener.bind(("127.0.0.1", 0))
    return listener


def _port_of(address: str | None) -> int | None:
    try:
        return None if address is None else urlsplit(address).port
    except ValueError:
        return None
