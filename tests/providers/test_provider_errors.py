from __future__ import annotations

import json
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.providers.errors import classify_failure, from_event, from_exception, from_response, read_retry_after
from pigeon.providers.http.network_errors import CertificateError, ConnectError, ReadError
from pigeon.wire.errors import UNEXPECTED
from support.strategies import json_values, words

OVERFLOWS = [
    "prompt is too long: 213462 tokens > 200000 maximum",
    "Your input exceeds the context window of this model.",
    "This model's maximum context length is 128000 tokens. However, your messages resulted in 213462 tokens.",
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "the request exceeds the available context size (4096 tokens), try increasing it",
    "This endpoint's maximum context length is 32768 tokens",
    "input is too long for requested model",
    "prompt too long; exceeded max context length by 12 tokens",
    "context_length_exceeded",
    "Requested token count exceeds the model's maximum context length of 131072 tokens.",
    "Range of input length should be [1, 30720]",
]


TRANSIENT = """
overloaded | overloaded_error | Overloaded | server_is_overloaded
Model overloaded. | currently experiencing high demand
rate limit | rate_limit_error | ratelimit | rate-limited | too many requests | ResourceExhausted | RESOURCE_EXHAUSTED
server_busy | The servers are currently busy | The model is at capacity
server error | server_error | internal server error | internal error | internal_error
service unavailable | service_unavailable | ServiceUnavailable | The service is temporarily unavailable
service temporarily unavailable | Provider returned error | provider_returned_error | The provider returned an error
exceeded request buffer limit while retrying upstream | unable to forward upstream | upstream request failed
upstream_request_failed | upstream_stream_read_error | stream was interrupted
HTTP/2 stream failed | http2 stream failed
request to https://a.invalid/v1 failed, reason: gone | network error | network_error | connection error
Connection error. | connection_error | connection refused | connection lost | connection reset by peer
other side closed | fetch failed | getaddrinfo ENOTFOUND a.invalid | EAI_AGAIN | upstream connect error
reset before headers | socket hang up | The socket connection was closed unexpectedly | timed out | time out | timeout
timeout_error | DeadlineTimeout | terminated | websocket closed | websocket_error | ended without sending chunks
stream ended before message_stop | stream ended before a terminal response event
http2 request did not get a response | stream disconnected before completion | pending stream has been canceled
retry delay of 3 s | you can retry your request | try your request again | please retry your request
subscription_sharing_usage_unavailable | subscription_sharing_user_unavailable
"""
NEVER = """
GoUsageLimitError | FreeUsageLimitError | Monthly usage limit reached | available balance | insufficient_quota
out of budget | quota exceeded | billing | subscription_sharing_usage_limit_exceeded
subscription_sharing_workplace_individual_usage_limit_exceeded | "code":"1308" | "code": 1308 | code:1308
insufficient balance | Your credit balance is too low | You exceeded your current quota
"""
TOO_LONG = """
prompt is too long | prompt too long | prompt exceeds max length | Prompt exceeds max length | request_too_large
input is too long for requested model | exceeds the context window | context window exceeded
litellm.ContextWindowExceededError | exceeds the maximum context length of 4,096 tokens
exceeds model's maximum context length (4096) | input token count (5) exceeds the maximum
maximum prompt length is 131072
Please reduce the length of the messages | maximum context length is 4096 tokens
exceeds the maximum allowed input length of 4,096 tokens
input (9 tokens) is longer than the model's context length (8 tokens) | exceeds the limit of 4096
exceeds the available context size | greater than the context length | context window exceeds limit
exceeded model token limit | too large for model with 4096 maximum context length
prompt has 9,000 tokens, but the configured context size is 4,096 tokens | model_context_window_exceeded
prompt too long; exceeded max context length | range of input length should be [1, 9] | context_length_exceeded
context length exceeded | too many tokens | token limit exceeded
"""
NEITHER = """
used 1500 tokens | request 5003 | req_502abc | id a-503-b | 500,000 tokens | 0.500 | 4290 bytes | 529er
invalid api key | the model was determined | code 13081 | undocumented error | context window is 4096
"""


def fragments(table: str) -> list[str]:
    return [one.strip() for line in table.strip().splitlines() for one in line.split("|")]


def body(message: str, **more: object) -> bytes:
    return json.dumps({"error": {"message": message, **more}}).encode()


@pytest.mark.parametrize("words", OVERFLOWS)
def test_an_overflow_is_known_by_its_words_and_never_retried(words: str) -> None:
    failure = from_response(400, {}, body(words))
    assert failure.overflow
    assert not failure.retryable


@pytest.mark.parametrize("words", fragments(TRANSIENT))
def test_every_transient_text_is_retried_in_a_stream_and_behind_a_status(words: str) -> None:
    for failure in (
        classify_failure(words),
        from_event({"message": words}, words),
        from_response(400, {}, body(words)),
    ):
        assert failure.retryable
        assert not failure.overflow


@pytest.mark.parametrize("words", fragments(NEVER))
def test_an_empty_account_is_never_retried_whatever_else_is_said(words: str) -> None:
    for text in (words, f"429 Too many requests: {words}", f"503 overloaded: {words}"):
        assert not classify_failure(text).retryable
    for status in (400, 429, 500, 503):
        assert not from_response(status, {}, body(words), "message").retryable


@pytest.mark.parametrize("words", fragments(TOO_LONG))
@pytest.mark.parametrize("status", [None, 400, 413, 422, 500, 503])
def test_every_overflow_is_known_behind_any_status(words: str, status: int | None) -> None:
    failure = classify_failure(words) if status is None else from_response(status, {}, body(words))
    assert (failure.overflow, failure.retryable) == (True, False)
    assert classify_failure(words.upper()).overflow


@pytest.mark.parametrize("words", fragments(NEITHER))
def test_what_only_looks_like_it_is_neither(words: str) -> None:
    for failure in (classify_failure(words), from_response(400, {}, body(words))):
        assert (failure.overflow, failure.retryable) == (False, False)


@pytest.mark.parametrize("number", [429, 500, 502, 503, 504, 520, 524])
def test_a_status_in_a_text_counts_where_it_stands_alone(number: int) -> None:
    for text in (f"{number}", f"{number}: bad gateway", f"upstream said {number}", f"({number})"):
        assert classify_failure(text).retryable
    for text in (f"1{number}", f"{number}0", f"req_{number}", f"x{number}", f"{number}ms", f"{number}.5"):
        assert not classify_failure(text).retryable
    assert from_response(400, {}, body(f"upstream returned {number}")).retryable
    assert not from_response(400, {}, body(f"at most {number} items")).retryable


def test_one_server_says_nothing_at_all_when_a_request_is_too_long() -> None:
    assert from_response(400, {}, b"", host="api.cerebras.ai").overflow
    assert not from_response(400, {}, b"no", host="api.cerebras.ai").overflow
    assert not from_response(400, {}, b"", host="cerebras.ai.invalid").overflow
    assert not from_response(400, {}, b"").overflow


def test_any_413_is_an_overflow() -> None:
    assert from_response(413, {}, b"").overflow
    assert from_response(413, {}, b"<html><title>Request Entity Too Large</title></html>").overflow
    assert from_response(413, {}, body("Limit 6000, requested 7000", code="rate_limit_exceeded")).overflow
    assert not from_response(413, {}, body("rate limit reached")).overflow
    for text in ("413", "413 too big", "413: too big", "OpenAI API error (413): x"):
        assert classify_failure(text).overflow
    for text in ("4130", "x 413", "the 413 items", "error 4131"):
        assert not classify_failure(text).overflow


@pytest.mark.parametrize(
    "words",
    ["Throttling error: too many tokens", "Service unavailable: prompt is too long", "rate limit: too many tokens"],
)
def test_a_limit_on_speed_is_no_overflow(words: str) -> None:
    assert not classify_failure(words).overflow
    assert not from_response(503, {}, body(words), "message").overflow


def test_a_numbered_code_of_an_event_is_read() -> None:
    assert not from_event({"code": 1308, "message": "rate limit"}, "rate limit").retryable
    assert from_event({"code": 1302, "message": "rate limit"}, "rate limit").retryable


def test_an_overflow_is_known_by_its_code() -> None:
    assert from_response(400, {}, body("no", code="context_length_exceeded")).overflow


def test_too_large_is_an_overflow() -> None:
    assert from_response(413, {}, body("Request too large", type="request_too_large")).overflow


@pytest.mark.parametrize("words", ["too many tokens per minute: rate limit", "Throttling error: too many tokens"])
def test_a_rate_limit_that_speaks_of_tokens_is_no_overflow(words: str) -> None:
    failure = from_response(429, {}, body(words))
    assert failure.retryable
    assert not failure.overflow


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 520, 524, 529])
def test_transient_statuses_are_retried(status: int) -> None:
    assert from_response(status, {}, b"").retryable


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 422, 501])
def test_other_statuses_are_not(status: int) -> None:
    failure = from_response(status, {}, body("about 1500 tokens, 503 of them"))
    assert not failure.retryable
    assert failure.status == status


def test_the_servers_own_word_wins() -> None:
    assert not from_response(529, {"x-should-retry": "false"}, b"").retryable
    assert from_response(400, {"x-should-retry": "true"}, b"").retryable


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (429, {"code": "insufficient_quota", "message": "You exceeded your current quota"}),
        (429, {"message": "monthly usage limit reached"}),
        (402, {"message": "pay"}),
        (400, {"message": "Your credit balance is too low to access the API"}),
        (403, {"message": "check your billing details"}),
    ],
)
def test_an_empty_account_is_not_asked_again(status: int, error: dict[str, object]) -> None:
    assert not from_response(status, {}, json.dumps({"error": error}).encode()).retryable


def test_a_quota_per_minute_is_retried_when_the_server_says_when() -> None:
    error = {
        "code": 429,
        "status": "RESOURCE_EXHAUSTED",
        "message": "You exceeded your current quota, check your plan and billing details",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}],
    }
    failure = from_response(429, {}, json.dumps([{"error": error}]).encode())
    assert failure.retryable
    assert failure.retry_after_ms == 34_500
    assert failure.code == "RESOURCE_EXHAUSTED"


def test_the_bare_number_500_inside_other_numbers_means_nothing() -> None:
    assert not classify_failure("used 1500 tokens of 25003").retryable
    assert classify_failure("upstream said 500").retryable


def test_errors_inside_a_stream_are_classified_by_code_or_words() -> None:
    assert from_event({"type": "overloaded_error", "message": "Overloaded"}, "x").retryable
    assert not from_event({"type": "invalid_request_error", "message": "no"}, "no").retryable
    assert from_event({"code": 503, "message": "later"}, "later").status == 503
    assert from_event("peer closed connection", "peer closed connection").retryable


def test_the_text_is_the_status_and_what_the_body_says() -> None:
    data = body("bad thing", type="invalid_request_error")
    assert from_response(400, {}, data).message == f"400 {data.decode()}"
    assert from_response(400, {}, data, "message").message == "400 bad thing"
    assert from_response(503, {}, b"").message == "503 (no body)"
    assert from_response(502, {}, b"<html><title>Bad gateway</title></html>").message == "502 an HTML page: Bad gateway"


def test_what_a_router_passes_on_is_shown() -> None:
    data = body("Provider returned error", metadata={"raw": "upstream is on fire"})
    assert "on fire" in from_response(400, {}, data, "message").message


def test_long_bodies_are_cut() -> None:
    assert len(from_response(400, {}, b"x" * 100_000).message) < 4100


def test_retry_after_is_read_in_all_its_forms() -> None:
    assert read_retry_after({"retry-after-ms": "1500"}) == 1500
    assert read_retry_after({"retry-after": "2"}) == 2000
    assert read_retry_after({"retry-after": "0.5"}) == 500
    later = read_retry_after({"retry-after": formatdate(4_000_000_000, usegmt=True)})
    assert later is not None
    assert later > 1_000_000
    assert read_retry_after({"retry-after": formatdate(0, usegmt=True)}) == 0
    assert read_retry_after({"retry-after": "soon"}) is None
    assert read_retry_after({}) is None
    # Numbers without an end, as a broken proxy may send them.
    assert read_retry_after({"retry-after": "inf"}) is None
    assert read_retry_after({"retry-after": "1e999"}) is None
    assert read_retry_after({"retry-after-ms": "inf", "retry-after": "1"}) == 1000
    assert read_retry_after({"retry-after-ms": "soon", "retry-after": "1"}) == 1000


def test_a_wait_of_more_than_a_minute_is_named_in_the_text() -> None:
    assert from_response(429, {"retry-after": "60"}, b"slow down").message == "429 slow down"
    longer = from_response(429, {"retry-after": "61"}, b"slow down")
    assert longer.message == "429 slow down (the provider asks to wait 61 s)"
    assert longer.retry_after_ms == 61_000


def test_connection_failures_say_what_happened() -> None:
    refused = from_exception(ConnectError("models.example:443: refused"))
    assert (refused.message, refused.code) == ("Connection failed: models.example:443: refused", "connection_failed")
    assert refused.retryable
    tls = from_exception(CertificateError("certificate verify failed"))
    assert (tls.code, tls.retryable) == ("tls_failed", False)
    unknown = from_exception(OSError(28, "No space left on device"))
    assert (unknown.message, unknown.retryable) == ("Request failed: [Errno 28] No space left on device", False)


def test_a_defect_below_http_shows_no_insides(capsys: pytest.CaptureFixture[str]) -> None:
    for error in (KeyError("x"), TypeError("x"), AttributeError("x"), RecursionError("x")):
        failure = from_exception(error)
        assert (failure.message, failure.retryable) == (UNEXPECTED, False)
        assert type(error).__name__ in capsys.readouterr().err


@given(st.binary(max_size=200), st.integers(400, 599))
def test_any_body_becomes_a_failure(data: bytes, status: int) -> None:
    failure = from_response(status, {}, data, "message")
    assert failure.message.startswith(str(status))


@given(json_values(keys=words("message", "code", "type", "details", "metadata", "raw")))
def test_any_error_object_becomes_a_failure(error: object) -> None:
    assert from_event(error, "shown").message == "shown"


def test_a_redirect_names_where_it_leads() -> None:
    failure = from_response(308, {"location": "https://elsewhere.invalid/v1"}, b"")
    assert "https://elsewhere.invalid/v1" in failure.message
    assert not failure.retryable


@pytest.mark.parametrize(
    ("kind", "reason", "cause", "message"),
    [
        (ReadError, "", "connection reset", "Connection lost: connection reset"),
        (ReadError, "", "", "Connection lost: the other side closed it before the answer was complete"),
        (ConnectionResetError, "", None, "Connection lost: the other side closed it before the answer was complete"),
        (TimeoutError, "", None, "The connection timed out: TimeoutError"),
        (BrokenPipeError, "broken pipe", "something deeper", "Connection lost: broken pipe"),
    ],
)
def test_an_error_without_a_text_has_that_of_its_cause_or_its_name(
    kind: type[Exception], reason: str, cause: str | None, message: str
) -> None:
    error = kind(reason)
    error.__cause__ = None if cause is None else OSError(cause)
    failure = from_exception(error)
    assert (failure.message, failure.retryable) == (message, True)
