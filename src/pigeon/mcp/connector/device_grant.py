"""Signing in on another device (RFC 8628): a person opens an address anywhere and enters a code; meanwhile the token
endpoint is polled at the interval that the authorization server allows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import msgspec

from pigeon.mcp.connector.web_address import parse_web_address

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
# Defaults for values that the authorization server does not send, and bounds for those it sends. In seconds.
INTERVAL = 5.0
SHORTEST_INTERVAL = 0.2
LONGEST_INTERVAL = 60.0
SLOWER = 5.0
EXPIRES = 600.0
LONGEST_LIFE = 1800.0
Pause = Callable[[float], Awaitable[None]]


class SignInNeeded(Exception):
    """A sign-in is needed but no person can be asked, or it was not completed."""


class DeviceCode(msgspec.Struct, frozen=True):
    """What the person enters, and where; `complete` is the address with the code. `secret` is never shown."""

    code: str
    address: str
    complete: str | None
    secret: str
    interval: float
    seconds: float


def parse_device_code(response: httpx2.Response) -> DeviceCode:
    """The code from the answer of the authorization server; raises `SignInNeeded` if it has none."""
    given = _parse_json_object(response)
    if response.status_code != 200:
        raise SignInNeeded(f"the authorization server gave no sign-in code: {error_text(response)}")
    # Some servers still use the name of an early draft.
    address = parse_web_address(given.get("verification_uri") or given.get("verification_url"))
    code, secret = given.get("user_code"), given.get("device_code")
    if address is None or not isinstance(code, str) or not code.strip() or not isinstance(secret, str):
        raise SignInNeeded("the authorization server answered without a sign-in code or address")
    return DeviceCode(
        code="".join(sign for sign in code if sign.isprintable())[:100],
        address=address,
        complete=parse_web_address(given.get("verification_uri_complete")),
        secret=secret,
        interval=min(max(_parse_number(given.get("interval"), INTERVAL), SHORTEST_INTERVAL), LONGEST_INTERVAL),
        seconds=min(_parse_number(given.get("expires_in"), EXPIRES), LONGEST_LIFE),
    )


async def wait_for_token(
    code: DeviceCode,
    ask_token: Callable[[], Awaitable[httpx2.Response]],
    shown: Awaitable[bool],
    pause: Pause = asyncio.sleep,
) -> httpx2.Response:
    """Poll until the person has signed in; returns the response with the token. Raises `SignInNeeded`.

    `shown` is the question to the person: False if they refuse, True if they confirm.
    """
    loop = asyncio.get_running_loop()
    question = asyncio.ensure_future(shown)
    interval, waited = code.interval, 0.0
    try:
        while True:
            waiting = asyncio.ensure_future(pause(interval))
            try:
                if not question.done():
                    await asyncio.wait({question, waiting}, return_when=asyncio.FIRST_COMPLETED)
                if question.done() and not question.result():
                    raise SignInNeeded("the sign-in was declined")
                await waiting
            finally:
                waiting.cancel()
            waited += interval
            if waited > code.seconds:
                raise SignInNeeded(_EXPIRED)
            began = loop.time()
            try:
                response = await ask_token()
            except httpx2.TransportError:
                # The network may come back; until then the interval grows, as the standard asks.
                interval = min(interval * 2, LONGEST_INTERVAL)
                waited += loop.time() - began
                continue
            if response.status_code in (200, 201):
                return response
            error = _parse_json_object(response).get("error")
            if error == "slow_down":
                interval = min(interval + SLOWER, LONGEST_INTERVAL)
            elif error == "expired_token":
                raise SignInNeeded(_EXPIRED)
            elif error == "access_denied":
                raise SignInNeeded("the sign-in was declined at the authorization server")
            elif error != "authorization_pending":
                raise SignInNeeded(f"the sign-in failed: {error_text(response)}")
    finally:
        question.cancel()


_EXPIRED = "the sign-in code expired before it was entered"


def error_text(response: httpx2.Response) -> str:
    """The error that an authorization server reports; the rest of its answer may contain a token."""
    given = _parse_json_object(response)
    said = given.get("error_description") or given.get("error")
    status = f"{response.status_code} {response.reason_phrase}".strip()
    return f"{status}: {said[:300]}" if isinstance(said, str) else status


def _parse_json_object(response: httpx2.Response) -> dict[str, Any]:
    """The members of a JSON object; empty if the response is anything else."""
    try:
        given = msgspec.json.decode(response.content)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def _parse_number(given: Any, default: float) -> float:
    return float(given) if isinstance(given, int | float) and not isinstance(given, bool) and given >= 0 else default
