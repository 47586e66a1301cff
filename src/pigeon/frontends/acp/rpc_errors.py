"""Failures that are reported to the client as JSON-RPC errors: the code says what kind it is, the text what to do."""

from __future__ import annotations

from pigeon.wire.base import Json

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800
AUTH_REQUIRED = -32000
NOT_FOUND = -32002
UNSUPPORTED_VERSION = -32022


class RpcError(Exception):
    """An error with a code and a text: in answer to a request of the client, or received in answer to one of ours."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def to_record(self) -> dict[str, Json]:
        return {"code": self.code, "message": self.message, **({} if self.data is None else {"data": self.data})}


class OversizedAnswer(RpcError):
    """The peer's answer is longer than Pigeon accepts."""


class PeerGone(Exception):
    """The connection ended before the peer answered."""


def bad_params_error(text: str) -> RpcError:
    return RpcError(INVALID_PARAMS, text)


def no_session_error(session_id: str, text: str = "") -> RpcError:
    """There is no such session, or it is not open on this connection."""
    text = text or (
        f'No session "{session_id}" is open on this connection. Open it with session/load or session/resume, or start '
        "one with session/new"
    )
    return RpcError(NOT_FOUND, text, {"sessionId": session_id})
