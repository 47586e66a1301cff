"""What a server may ask a person to open: addresses of web servers, and nothing else."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp import types
from pigeon.mcp.connector.device_grant import SignInNeeded, parse_device_code
from pigeon.mcp.connector.open_work import Elicitation
from pigeon.mcp.connector.records import ElicitAnswer
from pigeon.mcp.connector.web_address import parse_web_address

SCHEMES = (
    "javascript", "JavaScript", "java\tscript", " javascript", "\x01javascript", "vbscript", "data", "file", "blob",
    "ftp",
    "about", "chrome", "vscode", "ms-msdt", "mailto", "tel", "ssh", "view-source", "intent", "jar", "ws", "",
)  # fmt: skip
DANGEROUS = (
    *(f"{scheme}:{rest}" for scheme in SCHEMES for rest in ("alert(1)", "//host/x", "text/html,<b>", "///etc/passwd")),
    "https:evil", "https:/evil", "https://", "https:///x", "http://user@host", "https://good.example@evil.example/",
    "https://good.example\\@evil.example/", "https://host/\njavascript:alert(1)", "https://host/\u202egpj", "//host/x",
    "https://[host/", "https://host:port/", "https://host/ x", "\thttps://host", "host", 7, None,
)  # fmt: skip


async def ask(url: Any) -> tuple[list[str | None], types.ElicitResult]:
    """What the person is asked to open, and what the server gets."""
    offered: list[str | None] = []

    async def answer(server: str, question: Any) -> ElicitAnswer:
        offered.append(question.url)
        return ElicitAnswer(action="accept")

    params = types.ElicitRequestURLParams(mode="url", message="m", url=url, elicitation_id="e")
    return offered, await Elicitation("s", answer).ask(params)


@pytest.mark.parametrize(
    "url", ["https://host.example/x?y=z#f", "HTTP://127.0.0.1:80/", "https://[::1]/", "http://ü.example"]
)
async def test_an_address_of_the_web_is_offered(url: str) -> None:
    offered, answer = await ask(url)
    assert offered == [url]
    assert answer.action == "accept"


@pytest.mark.parametrize("url", [url for url in DANGEROUS if isinstance(url, str)])
async def test_no_other_address_is_ever_offered(url: str) -> None:
    offered, answer = await ask(url)
    assert offered == []
    assert answer.action == "decline"


@pytest.mark.parametrize("url", DANGEROUS)
def test_a_sign_in_shows_no_such_address(url: Any) -> None:
    with pytest.raises(SignInNeeded):
        parse_device_code(httpx2.Response(200, json={"verification_uri": url, "user_code": "A", "device_code": "d"}))


@given(st.text(max_size=30) | st.from_regex(r"[A-Za-z]{2,10}:/{0,3}[!-~]{0,20}"))
def test_only_addresses_of_the_web_pass(text: str) -> None:
    if parse_web_address(text) is not None:
        assert text.lower().startswith(("http://", "https://"))
        assert text.isprintable()
