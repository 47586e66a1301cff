"""Asking for a token while a person signs in on another device: how often, how long, and what ends it."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from pigeon.mcp.connector.device_grant import DeviceCode, SignInNeeded, parse_device_code, wait_for_token

CODE = DeviceCode("WDJB", "https://x.example/activate", None, "hidden", 5.0, 600.0)
TOKEN = httpx2.Response(200, json={"access_token": "t"})


def refusal(error: str) -> httpx2.Response:
    return httpx2.Response(400, json={"error": error})


async def pauses_before(*answers: httpx2.Response | Exception, code: DeviceCode = CODE) -> list[float]:
    """The pauses before each question for the token."""
    pauses: list[float] = []
    left = list(answers)

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async def ask_token() -> httpx2.Response:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def wait_for_person() -> bool:
        await asyncio.Event().wait()
        return True

    assert await wait_for_token(code, ask_token, wait_for_person(), pause) is TOKEN
    return pauses


async def test_it_is_asked_in_the_interval_that_the_server_wants_and_slower_when_told_so() -> None:
    pending = refusal("authorization_pending")
    assert await pauses_before(pending, refusal("slow_down"), pending, refusal("slow_down"), TOKEN) == [
        5,
        5,
        10,
        10,
        15,
    ]


async def test_a_network_that_fails_is_asked_less_often() -> None:
    assert await pauses_before(httpx2.ConnectError("down"), httpx2.ReadTimeout("slow"), TOKEN) == [5, 10, 20]


async def test_a_code_that_nobody_enters_expires() -> None:
    pending = [refusal("authorization_pending")] * 1000
    with pytest.raises(SignInNeeded, match="expired"):
        await pauses_before(*pending)


async def test_a_person_who_says_that_they_sign_in_is_waited_for_and_one_who_does_not_is_not() -> None:
    async def ask_token() -> httpx2.Response:
        return TOKEN

    async def show_code(answer: bool) -> bool:
        return answer

    async def pause(seconds: float) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    assert await wait_for_token(CODE, ask_token, show_code(True), pause) is TOKEN
    with pytest.raises(SignInNeeded, match="declined"):
        await wait_for_token(CODE, ask_token, show_code(False), pause)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({}, "without a sign-in code"),
        ({"user_code": "A", "device_code": "b", "verification_uri": "javascript:alert(1)"}, "without a sign-in code"),
        ({"user_code": "A", "device_code": "b", "verification_uri": "https://x/\x1b[2J"}, "without a sign-in code"),
        ({"user_code": "A", "device_code": 7, "verification_uri": "https://x/"}, "without a sign-in code"),
        ([1], "without a sign-in code"),
    ],
)
def test_an_answer_without_a_usable_code_is_said(answer: object, said: str) -> None:
    with pytest.raises(SignInNeeded, match=said):
        parse_device_code(httpx2.Response(200, json=answer))


def test_what_an_authorization_server_says_is_taken_within_bounds() -> None:
    given = {"device_code": "b", "verification_url": "https://x/", "user_code": "A\x1b[31mB", "interval": -1}
    code = parse_device_code(httpx2.Response(200, json={**given, "expires_in": 1e9}))
    assert (code.code, code.interval, code.seconds, code.complete) == ("A[31mB", 5.0, 1800.0, None)
    assert parse_device_code(httpx2.Response(200, json={**given, "interval": 0})).interval == 0.2
    with pytest.raises(SignInNeeded, match="400 Bad Request: no such client"):
        parse_device_code(httpx2.Response(400, json={"error": "x", "error_description": "no such client"}))
