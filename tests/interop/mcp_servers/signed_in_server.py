"""A tool server of the official Python SDK behind the authorization server of the same SDK, both on loopback.

python signed_in_server.py PORT

Tokens are good for a second, so that a client has to refresh them; a token to refresh with is good once.
"""

from __future__ import annotations

import secrets
import sys
import time
from typing import Any

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

LIFE = 1


class Grants:
    """Everything that was granted, in memory; whoever asks is let in."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refreshing: dict[str, RefreshToken] = {}
        self.refreshed = 0

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        assert params.resource is not None, "RFC 8707"
        code = AuthorizationCode(
            code=secrets.token_urlsafe(16),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(self, client: Any, authorization_code: str) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client: Any, authorization_code: AuthorizationCode) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._granted(client.client_id, authorization_code.scopes)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:
        return self.refreshing.get(refresh_token)

    async def exchange_refresh_token(self, client: Any, refresh_token: RefreshToken, scopes: list[str]) -> OAuthToken:
        del self.refreshing[refresh_token.token]
        self.refreshed += 1
        return self._granted(client.client_id, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: Any) -> None:
        self.access.pop(token.token, None)

    def _granted(self, client: str, scopes: list[str]) -> OAuthToken:
        token, refresh = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        until = int(time.time()) + LIFE
        self.access[token] = AccessToken(token=token, client_id=client, scopes=scopes, expires_at=until)
        self.refreshing[refresh] = RefreshToken(token=refresh, client_id=client, scopes=scopes)
        return OAuthToken(access_token=token, refresh_token=refresh, expires_in=LIFE, scope=" ".join(scopes) or None)


if __name__ == "__main__":
    port = int(sys.argv[1])
    grants = Grants()
    address = f"http://127.0.0.1:{port}"
    server = MCPServer(
        "guarded",
        auth_server_provider=grants,
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(address),
            resource_server_url=AnyHttpUrl(f"{address}/mcp"),
            client_registration_options=ClientRegistrationOptions(enabled=True),
        ),
    )

    @server.tool()
    def refreshed() -> str:
        """How often tokens were refreshed, after they have expired."""
        time.sleep(2.1)
        return f"refreshed {grants.refreshed}"

    server.run("streamable-http", port=port)
