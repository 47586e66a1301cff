"""OAuth for requests to a server: the flow of the package `mcp`, and what that lacks.

    a request is refused (401)         1. another agent of ours has newer tokens: those
                                       2. there is a token to refresh with: refreshed
                                       3. a person signs in: with a browser that is led back here, or on a device
    the authorization server           offers the device flow: noted, which the package does not read

The package does discovery (RFC 9728, RFC 8414), registration, PKCE, `resource` (RFC 8707), state and issuer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Protocol

import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientMetadata,
    OAuthMetadata,
    ProtectedResourceMetadata,
)
from pydantic import ValidationError

from pigeon.mcp.connector.device_grant import DEVICE_GRANT, DeviceCode, SignInNeeded, parse_device_code, wait_for_token
from pigeon.mcp.connector.web import WebStatus, make_http_client

# How long another agent may take between using up a refresh token and storing what it got for it.
_LOOKS_FOR_NEWER_TOKENS = 10
_SECONDS_BETWEEN_LOOKS = 0.1
_METADATA = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")


class TokenKeeper(TokenStorage, Protocol):
    """What stores tokens and the registration, and asks the person; implemented by `SignIn`."""

    def read_stored_metadata(self) -> tuple[dict[str, Any] | None, dict[str, Any] | None, float | None]:
        """What is stored besides the tokens: the authorization server, the resource, and when the tokens expire."""
        ...

    async def reload_tokens(self) -> bool:
        """Read the stored tokens again; returns whether they have changed."""
        ...

    async def keep_sign_in_address(self, address: str) -> None:
        """Called with the address to open in a browser."""
        ...

    async def wait_for_callback(self) -> AuthorizationCodeResult:
        """Wait for the redirect and return its parameters."""
        ...

    async def show_code(self, code: DeviceCode) -> bool:
        """Show a code; returns False if the person refuses."""
        ...


class ServerAuthorization(OAuthClientProvider):
    """The authorization for one server. `flow` is `browser`, `device`, or `either`: the device flow if `remote` and it
    is offered."""

    def __init__(
        self,
        url: str,
        client: OAuthClientMetadata,
        keeper: TokenKeeper,
        *,
        flow: str = "either",
        remote: bool = False,
        client_metadata_url: str | None = None,
        client_to_ask: Callable[[], httpx2.AsyncClient] = lambda: make_http_client(WebStatus()),
    ) -> None:
        super().__init__(
            url,
            client,
            keeper,
            keeper.keep_sign_in_address,
            keeper.wait_for_callback,
            client_metadata_url=client_metadata_url,
        )
        self._keeper = keeper
        self._flow = flow
        self._remote = remote
        self._scope = client.scope
        self._client_to_ask = client_to_ask
        # The addresses for the device flow, by issuer.
        self._device_addresses: dict[str, str] = {}
        self._no_browser: set[str] = set()
        self._device_request: httpx2.Request | None = None
        # The reason if the last request failed because a sign-in was needed.
        self.needed = ""

    async def _initialize(self) -> None:
        await super()._initialize()
        metadata, resource, expires = self._keeper.read_stored_metadata()
        context = self.context
        try:
            context.oauth_metadata = None if metadata is None else OAuthMetadata.model_validate(metadata)
            context.protected_resource_metadata = (
                None if resource is None else ProtectedResourceMetadata.model_validate(resource)
            )
        except ValidationError:
            pass
        context.token_expiry_time = expires
        self._choose_authentication()

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if request.method == "DELETE":
            # The session is closing: refreshed tokens could not be stored, and the old ones would be used up.
            self._add_auth_header(request)
            yield request
            return
        if self._initialized and not self.context.is_token_valid():
            await self._try_use_newer_tokens()
        flow = super()._auth_flow(request)
        refused = 0
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is self._device_request:
                    response = await self._run_device_flow(outgoing)
                else:
                    response = yield outgoing
                if outgoing is request and response.status_code == 401:
                    refused += 1
                if outgoing is request and response.status_code == 401 and refused == 1:
                    renewed = await self._try_use_newer_tokens()
                    if not renewed and self.context.can_refresh_token():
                        renewed = await self._handle_refresh_response((yield await self._refresh_token()))
                        renewed = renewed or await self._wait_for_newer_tokens()
                    if renewed:
                        self._add_auth_header(request)
                        response = yield request
                outgoing = await flow.asend(await self._patch_metadata(outgoing, response))
        except StopAsyncIteration:
            self.needed = ""
            return
        except SignInNeeded as needed:
            self.needed = str(needed)
            raise
        finally:
            await flow.aclose()

    async def _try_use_newer_tokens(self) -> bool:
        """Use the stored tokens if another agent has refreshed them: an old refresh token no longer works."""
        if not await self._keeper.reload_tokens():
            return False
        await self._initialize()
        return self.context.is_token_valid()

    async def _wait_for_newer_tokens(self) -> bool:
        """A refresh that is refused may have been another agent's a moment ago, which is about to store its tokens."""
        for _ in range(_LOOKS_FOR_NEWER_TOKENS):
            if await self._try_use_newer_tokens():
                return True
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        return False

    # Browser or device flow

    async def _patch_metadata(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Note what the package ignores in the metadata of an authorization server."""
        if response.status_code != 200 or not any(place in request.url.path for place in _METADATA):
            return response
        try:
            given = msgspec.json.decode(await response.aread())
        except ValueError:
            return response
        address = given.get("device_authorization_endpoint") if isinstance(given, dict) else None
        issuer = given.get("issuer") if isinstance(given, dict) else None
        if not isinstance(issuer, str) or not isinstance(address, str) or not address.startswith(("https:", "http:")):
            return response
        self._device_addresses[issuer.rstrip("/")] = address
        if self._should_use_device(issuer) or not given.get("authorization_endpoint"):
            grants = self.context.client_metadata.grant_types
            if DEVICE_GRANT not in grants:
                self.context.client_metadata.grant_types = [*grants, DEVICE_GRANT]
        if given.get("authorization_endpoint"):
            return response
        # The package requires a browser endpoint; a server without one only offers the device flow.
        self._no_browser.add(issuer.rstrip("/"))
        filled = msgspec.json.encode({**given, "authorization_endpoint": issuer})
        return httpx2.Response(200, content=filled, request=request, headers={"content-type": "application/json"})

    def _should_use_device(self, issuer: str) -> bool:
        return self._flow == "device" or (self._flow == "either" and self._remote)

    async def _perform_authorization(self) -> httpx2.Request:
        if self._scope is not None:
            # The package would request the scope that the server names; one in the configuration takes precedence.
            self.context.client_metadata.scope = self._scope
        self._choose_authentication()
        metadata = self.context.oauth_metadata
        issuer = "" if metadata is None else str(metadata.issuer).rstrip("/")
        address = self._device_addresses.get(issuer)
        if address is not None and (issuer in self._no_browser or self._should_use_device(issuer)):
            self._device_request = self._build_form_request(address, {})
            return self._device_request
        if self._flow == "device":
            raise SignInNeeded(
                "its authorization server offers no sign-in on another device; leave oauth.flow out to sign in with a "
                "browser"
            )
        return await super()._perform_authorization()

    def _choose_authentication(self) -> None:
        """Send a configured client secret in a way that the authorization server accepts."""
        client, metadata = self.context.client_info, self.context.oauth_metadata
        if client is None or not client.client_secret or client.token_endpoint_auth_method is not None:
            return
        known = None if metadata is None else metadata.token_endpoint_auth_methods_supported
        only_basic = known is not None and "client_secret_post" not in known
        client.token_endpoint_auth_method = "client_secret_basic" if only_basic else "client_secret_post"

    # The device flow

    def _build_form_request(self, address: str, more: dict[str, str]) -> httpx2.Request:
        context = self.context
        client = context.client_info
        if client is None:
            raise SignInNeeded("the authorization server has not registered Pigeon")
        form = {"client_id": client.client_id, **more}
        if context.client_metadata.scope and "grant_type" not in form:
            form["scope"] = context.client_metadata.scope
        if context.should_include_resource_param(context.protocol_version):
            form["resource"] = context.get_resource_url()
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        form, headers = context.prepare_token_auth(form, headers)
        return httpx2.Request("POST", address, data=form, headers=headers)

    async def _run_device_flow(self, request: httpx2.Request) -> httpx2.Response:
        async with self._client_to_ask() as client:
            code = parse_device_code(await client.send(request))

            async def ask_token() -> httpx2.Response:
                form = {"grant_type": DEVICE_GRANT, "device_code": code.secret}
                return await client.send(self._build_form_request(self._get_token_endpoint(), form))

            shown: Awaitable[bool] = self._keeper.show_code(code)
            return await wait_for_token(code, ask_token, shown)
