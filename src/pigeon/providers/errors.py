"""What went wrong, as a `Failure`: status and code first, texts only where a provider sends nothing else.

The order decides: a context overflow is never retried, nor is an exhausted quota; then the server's `x-should-retry`,
the status, the error code; and last, phrases, because proxies wrap the failures of others in a status of their own. A
bare number counts as a status only if it is the whole text, and beside another status only if the text calls it a
status. `session/retry` and compaction act on the flags.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pigeon.agent.inference import Failure, report_failure
from pigeon.wire import codec
from pigeon.wire.errors import BadRecord

LONG_WAIT_MS = 60_000
MAX_BODY_CHARS = 4000
NO_STREAM = "Expected an event stream, got "
ErrorStyle = Literal["body", "message"]

_WORDLESS_OVERFLOW = "context_length_exceeded"
_OVERFLOW_CODES = {
    _WORDLESS_OVERFLOW,
    "request_too_large",
    "model_context_window_exceeded",
    "exceed_context_size_error",
}
_QUOTA_CODES = {
    "insufficient_quota",
    "billing_error",
    "billing_hard_limit_reached",
    "billing_not_active",
    "quota_exceeded",
    "usage_limit_reached",
    "credits_exhausted",
    "insufficient_balance",
}
_TRANSIENT_CODES = {
    "overloaded_error",
    "rate_limit_error",
    "rate_limit_exceeded",
    "api_error",
    "server_error",
    "server_is_overloaded",
    "slow_down",
    "internal_error",
    "internal_server_error",
    "timeout_error",
    "service_unavailable",
    "resource_exhausted",
    "unavailable",
    "internal",
    "deadline_exceeded",
    "aborted",
}
# Codes that only servers send.
SERVER_CODES = _OVERFLOW_CODES | _QUOTA_CODES | _TRANSIENT_CODES
_OVERFLOW = (
    r"prompt (?:is )?too long|prompt exceeds max(?:imum)? length|request_too_large"
    r"|input is too long for (?:the )?requested model"
    r"|exceeds? (?:the )?(?:model'?s )?context window|exceeds? (?:the )?(?:model'?s )?maximum context length"
    r"|input token count.{0,40}exceeds the maximum|maximum prompt length is \d|reduce the length of the messages"
    r"|maximum context length is \d|exceeds? (?:the )?maximum allowed input length"
    r"|is longer than the model'?s context length|exceeds? the limit of \d|exceeds? the available context size"
    r"|greater than the context length|context window exceeds limit|exceeded model token limit"
    r"|too large for model with \d+ maximum context|but the configured context size is"
    r"|exceeded (?:max(?:imum)? )?context length|range of input length should be"
    r"|context[_ ]?(?:length|window)[_ ]?exceeded|\btoo many tokens\b|\btoken limit exceeded\b"
    r"|\A(?:[\w -]+ API error \(413\):|413(?:\s|:|\Z))"
)
# A limit per minute is not an overflow, whatever its text mentions about tokens.
_NOT_OVERFLOW = r"\A(?:\d{3}:? )?(?:throttling error:|service unavailable:)|rate[ _-]?limit|too many requests"
_QUOTA = (
    r"insufficient[_ ](?:quota|balance|credits)|(?:Go|Free)UsageLimitError|monthly usage limit"
    r"|usage limit (?:has been )?reached|available balance|out of budget|\bquota exceeded\b|exceeded your current quota"
    r"|\bbilling\b|credit balance is too low"
    r"|subscription_sharing_(?:workplace_individual_)?usage_limit_exceeded"
    r'|"?code"?\s*:\s*"?1308(?!\d)'
)
_NUMBERS = r"(?:429|500|502|503|504|520|524|529)"
_TRANSIENT = (
    # Load.
    r"overloaded|server_busy|servers are currently busy|\bhigh demand\b|model is at capacity|rate[ _-]?limit"
    r"|too many requests|resource.?exhausted"
    # The server, or one behind it.
    r"|service.?(?:is.?)?(?:temporarily.?)?unavailable|server.?error|internal.?error|provider.?returned.?(?:an.?)?error"
    r"|exceeded request buffer limit while retrying upstream|unable to forward upstream|upstream.?request.?failed"
    r"|upstream_stream_read_error|stream was interrupted|http/?2 stream failed|request to \S+ failed, reason:"
    # The network.
    r"|network.?error|connection.?(?:error|refused|lost|reset|closed)|other side closed|peer closed connection"
    r"|fetch failed|getaddrinfo|ENOTFOUND|EAI_AGAIN|ECONNRESET|upstream.?connect|reset before headers"
    r"|socket (?:hang up|closed|connection was closed)|timed? ?out|\bterminated\b|websocket.?(?:closed|error)"
    # Streams that were cut.
    r"|ended (?:without|before)|http2 request did not get a response|stream disconnected before completion"
    r"|pending stream has been canceled"
    # The server asks for a retry.
    r"|\bretry delay\b|retry your request|try your request again|try again later"
    r"|subscription_sharing_(?:usage|user)_unavailable"
)
_STATUS_ALONE = rf"(?<![\w-])(?<!\d[.,]){_NUMBERS}(?![\w-])(?![.,]\d)"
_STATUS_BY_NAME = (
    rf"(?:status(?:[ _]code)?|\bhttp(?:/[\d.]+)?|\bcode|\berror|\breturned|\bsaid|\bgot)\W{{1,4}}{_NUMBERS}\b"
)
_NEVER_BY_STATUS = {501, 505}
_ALWAYS_BY_STATUS = {408, 409, 425, 429}


def _has_match(pattern: str, text: str) -> bool:
    """The patterns are large and rarely needed: `re` compiles them at their first use and keeps them."""
    return re.search(pattern, text, re.IGNORECASE | re.DOTALL) is not None


class StreamBroken(Exception):
    """The answer cannot continue; carries the failure to report."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def classify_failure(
    message: str,
    *,
    status: int | None = None,
    code: str | None = None,
    text: str = "",
    server_says: bool | None = None,
    retry_after_ms: int | None = None,
) -> Failure:
    """A failure with its retry and overflow flags decided; `text` is searched besides the message."""
    searched = f"{message}\n{text}"
    lowered = (code or "").lower()
    overflow = lowered in _OVERFLOW_CODES or _is_overflow(searched, status)
    return Failure(
        message=message,
        status=status,
        code=code,
        retryable=not overflow and _is_retryable(searched, status, lowered, server_says, retry_after_ms is not None),
        overflow=overflow,
        retry_after_ms=retry_after_ms,
    )


def _is_overflow(text: str, status: int | None) -> bool:
    if status == 413:
        # If a request is too large for the limit per minute, a smaller one is worth a try.
        return not _has_match("rate limit|too many requests", text)
    # Proxies pass overflows on with their own status, even 503.
    return status not in (401, 402, 403, 429) and _has_match(_OVERFLOW, text) and not _has_match(_NOT_OVERFLOW, text)


def _is_retryable(text: str, status: int | None, code: str, server_says: bool | None, delay_named: bool) -> bool:
    if is_out_of_quota(text, status, code, delay_named=delay_named):
        return False
    if server_says is not None:
        return server_says
    if status is not None and (status in _ALWAYS_BY_STATUS or (status >= 500 and status not in _NEVER_BY_STATUS)):
        return True
    if (status is None and code in _TRANSIENT_CODES) or _has_match(_TRANSIENT, text):
        return True
    return _has_match(_STATUS_ALONE if status is None else _STATUS_BY_NAME, text)


def is_out_of_quota(text: str, status: int | None, code: str | None, *, delay_named: bool) -> bool:
    """Whether the account has nothing left."""
    # A limit per minute is worded like an empty account, but comes with a retry time.
    return (code or "").lower() in _QUOTA_CODES or status == 402 or (_has_match(_QUOTA, text) and not delay_named)


def from_response(
    status: int, headers: Mapping[str, str], body: bytes, style: ErrorStyle = "body", host: str = ""
) -> Failure:
    """An HTTP answer that is not a success."""
    text = body.decode("utf-8", "replace").strip()[:MAX_BODY_CHARS]
    error = error_object(body)
    said = message_of(error)
    shown = said if style == "message" and said else _describe_html_page(text) or text
    if 300 <= status < 400 and headers.get("location"):
        shown = f"the server sends requests on to {headers['location']}: set that as base URL. {shown}".rstrip()
    should = headers.get("x-should-retry")
    delay = read_retry_after(headers)
    wait = f" (the provider asks to wait {delay // 1000} s)" if delay is not None and delay > LONG_WAIT_MS else ""
    return classify_failure(
        (f"{status} {shown}" if shown else f"{status} (no body)") + wait,
        status=status,
        code=_WORDLESS_OVERFLOW if status == 400 and not text and _has_wordless_refusals(host) else code_of(error),
        text=f"{said}\n{text}",
        server_says=None if should not in ("true", "false") else should == "true",
        retry_after_ms=delay if delay is not None else _find_retry_delay(error),
    )


def _has_wordless_refusals(host: str) -> bool:
    """True for servers that refuse an overlong request without any text."""
    return f".{host}".endswith(".cerebras.ai")


def from_event(error: Any, shown: str) -> Failure:
    """An error that came inside the stream; `shown` is what people read."""
    status = error.get("code") if isinstance(error, dict) else None
    if not isinstance(status, int) or isinstance(status, bool) or not 400 <= status <= 599:
        status = None
    return classify_failure(
        shown[:MAX_BODY_CHARS],
        status=status,
        code=code_of(error),
        text=f"{message_of(error)}\n{_numeric_code_text(error)}",
        retry_after_ms=_find_retry_delay(error),
    )


def _numeric_code_text(error: Any) -> str:
    """The provider's code as text if it is a number."""
    code = error.get("code") if isinstance(error, dict) else None
    return f"code: {code}" if isinstance(code, int) else ""


def from_exception(error: BaseException) -> Failure:
    """A request that failed below HTTP: name resolution, connection, TLS, a broken transfer."""
    from pigeon.providers.http.network_errors import NetworkError, ReadError, ReadTimeout

    if isinstance(error, _DEFECTS):
        return report_failure(error)
    reason = str(error).strip()
    cause = error.__cause__ or error.__context__
    if not reason and cause is not None:
        reason = str(cause).strip()
    kind: type[NetworkError] | None = None
    if isinstance(error, NetworkError):
        kind = type(error)
    elif isinstance(error, TimeoutError | ConnectionError):  # of the system
        kind = ReadTimeout if isinstance(error, TimeoutError) else ReadError
    if kind is None:
        return Failure(message=f"Request failed: {reason or type(error).__name__}", code="request_failed")
    if not reason:
        reason = kind.usual_reason or type(error).__name__
    return Failure(message=f"{kind.lead}: {reason}", code=kind.code, retryable=kind.retryable)


# Exceptions that no network and no server causes: defects of our own.
_DEFECTS = (LookupError, TypeError, AttributeError, AssertionError, RecursionError)


def malformed_stream_error(what: str, reason: str) -> StreamBroken:
    """The error for a piece of the stream that cannot be read."""
    return StreamBroken(Failure(message=f"{what} cannot be read: {reason}", code="malformed_stream"))


def no_events_failure(head: bytes, content_type: str) -> Failure:
    """The failure for a successful answer whose body is not an event stream: a login page, a proxy's notice, nothing at
    all."""
    text = " ".join(head.decode("utf-8", "replace").split())[:200]
    if not text:
        return Failure(message="The provider's answer was empty", code="empty_stream", retryable=True)
    kind = "an HTML page" if text.startswith("<") else f"{content_type or 'something'} that is no event stream"
    return Failure(message=f"{NO_STREAM}{kind}: {text}", code="not_a_stream", retryable=True)


def truncated_stream_error(what: str) -> StreamBroken:
    """The error for a stream that ended before its final event."""
    return StreamBroken(Failure(message=f"The stream ended before {what}", code="truncated", retryable=True))


def unknown_stop_failure(reason: str) -> Failure:
    """The failure for a stop reason that the API does not document."""
    return classify_failure(f"The model stopped for an unknown reason: {reason}", code=code_of({"code": reason}))


def error_object(body: bytes) -> Any:
    """The error inside a JSON body, at any depth; None if there is none."""
    try:
        value = codec.decode(body)
    except BadRecord:
        return None
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        inner = value.get("error", value.get("detail"))
        return inner if inner else value
    return value


def message_of(error: Any) -> str:
    """The provider's error message, and that of the server behind it; empty if there is neither."""
    if isinstance(error, str):
        return error
    if not isinstance(error, dict):
        return ""
    message = error.get("message") or error.get("detail") or ""
    text = message if isinstance(message, str) else codec.encode(message).decode()
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if raw:
        detail = raw if isinstance(raw, str) else codec.encode(raw).decode()
        text = text if detail in text else f"{text}\n{detail}".strip()
    return text[:MAX_BODY_CHARS]


def code_of(error: Any) -> str | None:
    """The provider's own code for the error."""
    if not isinstance(error, dict):
        return None
    for key in ("code", "type", "status"):
        value = error.get(key)
        if isinstance(value, str) and value and value != "error":
            return value
    return None


def _describe_html_page(text: str) -> str:
    if not text.startswith("<"):
        return ""
    title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
    plain = title[1] if title else re.sub(r"<[^>]*>", " ", text)
    return "an HTML page: " + " ".join(plain.split())[:200]


def read_retry_after(headers: Mapping[str, str]) -> int | None:
    """The pause that the server asks for, in milliseconds."""
    exact = headers.get("retry-after-ms")
    if exact:
        try:
            return max(0, int(float(exact)))
        except (ValueError, OverflowError):
            pass
    value = headers.get("retry-after")
    if not value:
        return None
    try:
        return max(0, int(float(value) * 1000))
    except (ValueError, OverflowError):
        return _ms_until(value)


def _ms_until(date: str) -> int | None:
    from email.utils import parsedate_to_datetime

    from pigeon.system.clock import now_ms

    try:
        moment = parsedate_to_datetime(date)
    except (TypeError, ValueError):
        return None
    return max(0, int(moment.timestamp() * 1000) - now_ms())


def _find_retry_delay(error: Any) -> int | None:
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        found = re.fullmatch(r"(\d+(?:\.\d+)?)s", delay) if isinstance(delay, str) else None
        if found:
            return int(float(found[1]) * 1000)
    return None
