"""What can go wrong below a provider's answer. Each class declares how the failure is reported."""

from __future__ import annotations

from typing import ClassVar


class NetworkError(Exception):
    """A request that could not be sent, or an answer that did not arrive whole."""

    lead: ClassVar[str] = "Connection lost"
    code: ClassVar[str] = "connection_lost"
    retryable: ClassVar[bool] = True
    usual_reason: ClassVar[str] = ""  # for an error without a text


class ConnectError(NetworkError):
    """There is no connection to the server."""

    lead = "Connection failed"
    code = "connection_failed"


class CertificateError(ConnectError):
    """The server's certificate is not trusted."""

    lead = "TLS failed"
    code = "tls_failed"
    retryable = False


class ConnectTimeout(NetworkError):
    """The server took too long to accept the connection."""

    lead = "Connection timed out"
    code = "connection_timeout"


class ReadError(NetworkError):
    """The connection broke, or was closed before the answer was complete."""

    usual_reason = "the other side closed it before the answer was complete"


class ReadTimeout(NetworkError):
    """The system gave up waiting for the server."""

    lead = "The connection timed out"
    code = "read_timeout"


class StaleConnection(ReadError):
    """The server closed a connection that had been used before, before a byte of the new answer came."""


class ProtocolError(NetworkError):
    """The server's answer is not HTTP/1.1."""


class ProxyError(NetworkError):
    """The proxy did not open a connection to the server."""

    lead = "The proxy refused"
    code = "proxy_failed"


class ProxyUnreachable(ConnectError):
    """There is no connection to the proxy."""

    code = "proxy_unreachable"


class DecodingError(NetworkError):
    """The body does not match its `content-encoding`."""

    lead = "The answer cannot be decompressed"
    code = "malformed_stream"
    retryable = False


class InvalidURL(NetworkError, ValueError):
    """A base URL that no request can be sent to."""

    lead = "Bad base URL"
    code = "bad_url"
    retryable = False


class InvalidProxy(NetworkError, ValueError):
    """A proxy that no request can be sent through."""

    lead = "Request failed"
    code = "request_failed"
    retryable = False


class InvalidHeader(NetworkError, ValueError):
    """A header that cannot be sent. Its value is not shown: it may be a key."""

    lead = "The request cannot be sent"
    code = "bad_request"
    retryable = False


def list_failure_leads() -> dict[str, str]:
    """The beginning of the text of each failure, with its code; of several with one beginning, the general one."""
    leads: dict[str, str] = {}
    for kind in _all_classes(NetworkError):
        leads.setdefault(f"{kind.lead}: ", kind.code)
    return leads


# Names that recordings made by earlier versions have.
_EARLIER_NAMES = {"RemoteProtocolError": ProtocolError, "LocalProtocolError": InvalidHeader, "WriteError": ReadError}


def find_error_class(name: str) -> type[Exception]:
    """The class of an error that a recording names; any other name is an error of its own."""
    for kind in (*_all_classes(NetworkError), TimeoutError, ConnectionResetError, BrokenPipeError):
        if kind.__name__ == name:
            return kind
    return _EARLIER_NAMES.get(name) or type(name or "RecordedFailure", (Exception,), {})


def _all_classes(kind: type[NetworkError]) -> list[type[NetworkError]]:
    return [kind, *(found for below in kind.__subclasses__() for found in _all_classes(below))]
