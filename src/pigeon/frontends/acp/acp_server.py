"""The methods of the protocol for one connection: which there are in each version, and which params each takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pigeon.frontends.acp.editions.auth_methods import KEY_METHOD, NO_KEY, SETUP_METHOD
from pigeon.frontends.acp.editions.edition import Edition
from pigeon.frontends.acp.editions.version_1 import EditionOne
from pigeon.frontends.acp.editions.version_2 import EditionTwo
from pigeon.frontends.acp.incoming import (
    AuthenticateParams,
    CancelTerminalParams,
    CancelToolCallParams,
    ClientCapabilities,
    InitializeParams,
    ListSessionsParams,
    NewSessionParams,
    NoParams,
    OpenSessionParams,
    PromptParams,
    SessionParams,
    SetConfigOptionParams,
    SetModelParams,
    SetModeParams,
    SetTitleParams,
    decode_leniently,
)
from pigeon.frontends.acp.rpc_errors import (
    AUTH_REQUIRED,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    RpcError,
    bad_params_error,
)
from pigeon.frontends.acp.rpc_peer import CANCEL_REQUEST, RpcPeer
from pigeon.transport.writer import LineSink
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.errors import BadRecord

if TYPE_CHECKING:
    from pigeon.frontends.acp.sessions import Begin, EditorSessions

NOTIFICATIONS = ("session/cancel", CANCEL_REQUEST)
EDITIONS: dict[int, type[Edition]] = {1: EditionOne, 2: EditionTwo}
Method = tuple[type[Any], Callable[[Any], Any]]


class AcpServer:
    """One connection. `begin` makes conversations; requests without a folder look for sessions and keys in `cwd`."""

    def __init__(self, sink: LineSink, begin: Begin, version: str, home: str, cwd: str) -> None:
        self.peer = RpcPeer(sink, self._on_request, self._on_notification)
        self._begin = begin
        self._version = version
        self._home = home
        self._cwd = cwd
        self._edition: Edition | None = None
        self._opened: EditorSessions | None = None
        self._known: dict[str, Method] = {}

    def _on_request(self, method: str, params: Json) -> Any:
        """Carry out a request; returns its result, or a coroutine for it. Raises `RpcError`."""
        if method == "initialize":
            return self._initialize(_decode_params(params, InitializeParams))
        if self._edition is None:
            raise RpcError(INVALID_REQUEST, "The connection is not initialized: send initialize first")
        methods = self._build_method_table(self._edition.version)
        if method in NOTIFICATIONS:
            raise RpcError(METHOD_NOT_FOUND, f'"{method}" is a notification: send it without "id"')
        if method not in methods:
            raise RpcError(METHOD_NOT_FOUND, _unknown_method_text(method, sorted(methods), self._edition.version))
        kind, run = methods[method]
        return run(_decode_params(params, kind))

    def _on_notification(self, method: str, params: Json) -> None:
        """Carry out a notification; unknown ones are ignored. Raises `RpcError` for wrong params."""
        if method == "session/cancel" and self._opened is not None:
            self._opened.cancel(_decode_params(params, SessionParams).session_id)

    def _initialize(self, params: InitializeParams) -> dict[str, Json]:
        """Agree on the highest version that both sides know, without importing what only sessions need."""
        if self._edition is not None:
            raise RpcError(
                INVALID_REQUEST,
                f"The connection is initialized already, with version {self._edition.version}; start another process",
            )
        newest = int(params.protocol_version)
        version = max((known for known in EDITIONS if known <= newest), default=None)
        if version is None:
            raise RpcError(
                UNSUPPORTED_VERSION,
                f"Version {params.protocol_version} of the protocol is not known; Pigeon speaks versions 1 and 2",
                {"requested": params.protocol_version, "supported": list(EDITIONS)},
            )
        given = params.capabilities if version > 1 else params.client_capabilities
        self._edition = EDITIONS[version](decode_leniently(given, ClientCapabilities))
        return self._edition.initialization_result(self._version)

    def _build_method_table(self, version: int) -> dict[str, Method]:
        """Every method but initialize, in this version."""
        if not self._known:
            sessions = self._ensure_sessions()
            self._known = {
                "session/new": (NewSessionParams, sessions.create_session),
                "session/resume": (OpenSessionParams, sessions.resume),
                "session/fork": (OpenSessionParams, sessions.fork),
                "session/list": (ListSessionsParams, sessions.list_sessions),
                "session/close": (SessionParams, sessions.close_session),
                "session/delete": (SessionParams, sessions.delete),
                "session/set_title": (SetTitleParams, sessions.set_title),
                "session/status": (SessionParams, sessions.session_status),
                "session/prompt": (PromptParams, sessions.prompt),
                "session/set_config_option": (SetConfigOptionParams, sessions.set_config_option),
                "auth/status": (NoParams, self._get_auth_status),
            }
            if version == 1:
                self._known |= {
                    "authenticate": (AuthenticateParams, self._authenticate),
                    "logout": (NoParams, self._log_out),
                    "session/load": (OpenSessionParams, sessions.load),
                    "session/set_mode": (SetModeParams, sessions.set_mode),
                    "session/set_model": (SetModelParams, sessions.set_model),
                }
            else:
                self._known |= {
                    "auth/login": (AuthenticateParams, self._authenticate),
                    "auth/logout": (NoParams, self._log_out),
                    "tool_call/cancel": (CancelToolCallParams, sessions.cancel_call),
                    "terminal/cancel": (CancelTerminalParams, sessions.cancel_terminal),
                }
        return self._known

    def _ensure_sessions(self) -> EditorSessions:
        if self._opened is None:
            from pigeon.system.garbage import pausing_garbage_collection

            with pausing_garbage_collection():
                from pigeon.frontends.acp.sessions import EditorSessions

            assert self._edition is not None
            self._opened = EditorSessions(self._begin, self.peer, self._edition, self._home, self._cwd)
        return self._opened

    async def _authenticate(self, params: AuthenticateParams) -> dict[str, Json]:
        """Look for a key again: one may have been added meanwhile."""
        if params.method_id == SETUP_METHOD:
            raise bad_params_error(f'"{SETUP_METHOD}" is for a terminal: run Pigeon with the arguments of the method')
        if params.method_id != KEY_METHOD:
            raise bad_params_error(f'There is no way to authenticate called "{params.method_id}" (known: {KEY_METHOD})')
        if not await self._ensure_sessions().has_key():
            raise RpcError(AUTH_REQUIRED, NO_KEY)
        self._ensure_sessions().set_logged_out(False)
        return {}

    def _log_out(self, params: NoParams) -> dict[str, Json]:
        self._ensure_sessions().set_logged_out(True)
        return {}

    async def _get_auth_status(self, params: NoParams) -> dict[str, Json]:
        return {"state": "authenticated" if await self._ensure_sessions().can_begin() else "unauthenticated"}

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()
        await self.peer.close()


def _unknown_method_text(method: str, names: list[str], version: int) -> str:
    from difflib import get_close_matches

    near = get_close_matches(method, names, 1)
    meant = f' Did you mean "{near[0]}"?' if near else f" Known are: initialize, {', '.join(names)}"
    return f'There is no method "{method[:100]}" in version {version} of the protocol.{meant}'


def _decode_params(params: Json, kind: type[Any]) -> Any:
    if params is None or params == []:
        # Some languages encode an empty object as an array.
        params = {}
    if not isinstance(params, dict):
        raise bad_params_error('"params" must be an object, with the members by their names')
    try:
        return codec.convert(params, kind)
    except BadRecord as error:
        raise bad_params_error(str(error)) from None
