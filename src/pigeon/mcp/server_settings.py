"""The configuration of a tool server as it is used: with variables and answers filled in, and with its sign-in.

Sign-ins are stored in `auth.json`, each for the address of its server only. Secret values are masked from the moment
they are known.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pigeon.config.credentials import AuthFile
from pigeon.mcp.connector.records import LinkConfig, LinkSignIn, StoredSignIn
from pigeon.mcp.questions import Questions
from pigeon.mcp.server_config import ServerConfig, WrongServer
from pigeon.mcp.variables import Surroundings
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.errors import BadRecord

if TYPE_CHECKING:
    from pigeon.mcp.configured_servers import AgentParts

_KEPT = "mcp:"


class ServerSettings:
    """Completes the configuration of all servers of one agent; remembers what the person has answered."""

    def __init__(self, parts: AgentParts, questions: Questions, report: Callable[[str], None]) -> None:
        self._parts = parts
        self._questions = questions
        self._report = report
        self._auth = AuthFile(os.path.join(parts.agent_dir, "auth.json"))
        self._answers: dict[str, str] = {}
        self._unsaved: dict[str, dict[str, Json]] = {}
        self._saving: asyncio.Task[None] | None = None

    async def fill_in_config(self, config: ServerConfig) -> ServerConfig:
        """The server with all variables filled in; their values are masked from now on. Raises `WrongServer`."""
        parts = self._parts
        around = self._make_surroundings()
        for id, question in around.find_needed_questions(config).items():
            unasked = parts.unattended
            answer = question.default if unasked else await self._questions.ask_input(config.name, question)
            if answer is None:
                raise WrongServer(f"the input {id!r} was not answered")
            self._answers[id] = answer
            if not question.choices:
                parts.learn([(f"token {id}", answer)])
        filled = around.fill_in_config(config)
        parts.learn([(f"header {name}", value) for name, value in filled.headers.items()])
        parts.learn([(name, value) for name, value in filled.env.items()])
        parts.learn([("url", filled.url), ("secret", filled.oauth.client_secret or "")])
        return filled

    def make_link_config(self, config: ServerConfig, may_ask: bool) -> LinkConfig:
        """The server's configuration, which is filled in already, in the form that the connector expects."""
        parts = self._parts
        return LinkConfig(
            transport=config.transport or "stdio",
            url=config.url,
            headers=dict(config.headers),
            folder=parts.cwd(),
            start_seconds=config.start_seconds,
            version=parts.version,
            is_interactive=may_ask and not parts.unattended,
            sign_in=self._make_link_sign_in(config),
        )

    def read_sign_in(self, config: ServerConfig) -> StoredSignIn:
        """The stored sign-in for the server's address; an unusable one counts as none."""
        return self._read_sign_in_for(self._address_of(config))

    def store_sign_in(self, config: ServerConfig, stored: StoredSignIn) -> None:
        """Store the result of a sign-in for the server's address, in the background; it counts from now on."""
        self._register_secret_tokens(stored)
        self._unsaved[_KEPT + self._address_of(config)] = codec.to_plain(stored)
        if self._saving is None or self._saving.done():
            self._saving = asyncio.ensure_future(self._save_sign_ins())

    async def finish_saving(self, seconds: float) -> None:
        """Wait until all sign-ins are on disk, but no longer than this."""
        if self._saving is not None:
            await asyncio.wait({self._saving}, timeout=seconds)

    async def _save_sign_ins(self) -> None:
        while self._unsaved:
            name, entry = next(iter(self._unsaved.items()))
            problem = await asyncio.to_thread(self._auth.store_credential, name, entry)
            if problem is not None:
                self._report(problem)
            if self._unsaved[name] is entry:
                del self._unsaved[name]

    def _make_surroundings(self) -> Surroundings:
        parts = self._parts
        return Surroundings(
            parts.variables, parts.cwd(), parts.home, self._answers, parts.is_secret, parts.has_provider_key
        )

    def _address_of(self, config: ServerConfig) -> str:
        return self._make_surroundings().fill_in_config(config).url

    def _make_link_sign_in(self, config: ServerConfig) -> LinkSignIn | None:
        oauth = config.oauth
        has_header = any(name.lower() == "authorization" for name in config.headers)
        if config.transport == "stdio" or has_header or not oauth.wanted:
            return None
        return LinkSignIn(
            client_id=oauth.client_id,
            client_secret=oauth.client_secret,
            scope=oauth.scope,
            port=oauth.port,
            flow=oauth.flow,
            client_metadata_url=oauth.client_metadata_url,
            is_remote=_is_remote(self._parts.variables),
            stored=self._read_sign_in_for(config.url),
        )

    def _read_sign_in_for(self, url: str) -> StoredSignIn:
        try:
            name = _KEPT + url
            stored = codec.convert(self._unsaved.get(name) or self._auth.read_all().get(name, {}), StoredSignIn)
        except BadRecord:
            return StoredSignIn()
        self._register_secret_tokens(stored)
        return stored

    def _register_secret_tokens(self, stored: StoredSignIn) -> None:
        tokens, client = stored.tokens or {}, stored.client or {}
        found = [tokens.get("access_token"), tokens.get("refresh_token"), client.get("client_secret")]
        self._parts.learn([("token", value) for value in found if isinstance(value, str)])


def _is_remote(variables: Mapping[str, str]) -> bool:
    """Whether the person's browser probably cannot be redirected to this machine."""
    if any(variables.get(name) for name in ("SSH_CONNECTION", "SSH_TTY", "SSH_CLIENT")):
        return True
    return sys.platform == "linux" and not any(variables.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
