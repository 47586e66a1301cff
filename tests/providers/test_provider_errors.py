from __future__ import annotations

import json
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.providers.errors import classified, from_event, from_exception, from_response, retry_after

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


def body(message: str, **more: object) -> bytes:
    return json.dumps({"error": {"message": message, **more}}).encode()


@pytest.mark.parametrize("words", OVERFLOWS)
def test_an_overflow_is_known_by_its_words_and_never_retried(words: str) -> None:
    failure = from_response(400, {}, body(words))
    assert failure.overflow
    assert not failure.retryable


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
    failure = from_response(status, {}, body("about 1500 tokens, 503 of them, timeout"))
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
    assert not classified("used 1500 tokens of 25003").retryable
    assert classified("upstream said 500").retryable


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
    assert retry_after({"retry-after-ms": "1500"}) == 1500
    assert retry_after({"retry-after": "2"}) == 2000
    assert retry_after({"retry-after": "0.5"}) == 500
    later = retry_after({"retry-after": formatdate(4_000_000_000, usegmt=True)})
    assert later is not None
    assert later > 1_000_000
    assert retry_after({"retry-after": formatdate(0, usegmt=True)}) == 0
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({}) is None


def test_a_wait_of_more_than_a_minute_is_named_in_the_text() -> None:
    assert from_response(429, {"retry-after": "60"}, b"slow down").message == "429 slow down"
    longer = from_response(429, {"retry-after": "61"}, b"slow down")
    assert longer.message == "429 slow down (the provider asks to wait 61 s)"
    assert longer.retry_after_ms == 61_000


def test_connection_failures_say_what_happened() -> None:
    class ConnectError(Exception):
        pass

    refused = from_exception(ConnectError("All connection attempts failed"))
    assert (refused.code, refused.retryable) == ("connection_failed", True)
    tls = from_exception(ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"))
    assert (tls.code, tls.retryable) == ("tls_failed", False)
    unknown = from_exception(KeyError("x"))
    assert not unknown.retryable


@given(st.binary(max_size=200), st.integers(400, 599))
def test_any_body_becomes_a_failure(data: bytes, status: int) -> None:
    failure = from_response(status, {}, data, "message")
    assert failure.message.startswith(str(status))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["message", "code", "type", "details", "metadata", "raw"]), inner, max_size=3
            )
        ),
        max_leaves=8,
    )
)
def test_any_error_object_becomes_a_failure(error: object) -> None:
    assert from_event(error, "shown").message == "shown"


def test_a_redirect_names_where_it_leads() -> None:
    failure = from_response(308, {"location": "https://elsewhere.invalid/v1"}, b"")
    assert "https://elsewhere.invalid/v1" in failure.message
    assert not failure.retryable


@pytest.mark.parametrize(
    ("name", "reason", "cause", "message"),
    [
        ("ReadError", "", "connection reset", "Connection lost: connection reset"),
        ("ReadError", "", "", "Connection lost: the other side closed it before the answer was complete"),
        ("RemoteProtocolError", "", None, "Connection lost: the other side closed it before the answer was complete"),
        ("ReadTimeout", "", None, "The connection timed out: ReadTimeout"),
        ("WriteError", "broken pipe", "something deeper", "Connection lost: broken pipe"),
    ],
)
def test_an_error_without_a_text_has_that_of_its_cause_or_its_name(
    name: str, reason: str, cause: str | None, message: str
) -> None:
    error = type(name, (Exception,), {})(reason)
    error.__cause__ = None if cause is None else OSError(cause)
    failure = from_exception(error)
    assert (failure.message, failure.retryable) == (message, True)
