"""Keys in addresses: masked by their place, with everything else left as it is."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.secrets.addresses import mask_addresses, mask_configuration

_SECRETS = st.text(string.ascii_letters + string.digits + "-_.~!$'()*+,;:=%", min_size=3, max_size=30).map(
    lambda text: f"Q7{text}Q7"
)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://host/v1", "https://host/v1"),
        ("https://user:pw@host:8080/v1", "https://user:***@host:8080/v1"),
        ("https://user:12345@host", "https://user:***@host"),
        ("https://user:p@ss@host/x", "https://user:***@host/x"),
        ("https://user:a/b@host/x", "https://user:***@host/x"),
        ("https://:pw@host", "https://:***@host"),
        ("https://abcdefghijklmnop1@host", "https://***@host"),
        ("ssh://git@host/team/repo.git", "ssh://git@host/team/repo.git"),
        ("https://medium.com:443/@user", "https://medium.com:443/@user"),
        ("https://h/?q=python&api_key=x#top", "https://h/?q=python&api_key=***#top"),
        ("https://h/?exaApiKey=x&keyword=y", "https://h/?exaApiKey=***&keyword=y"),
        ("https://h/x#token=abc", "https://h/x#token=***"),
        ('{"url": "https://h/?token=abc"}', '{"url": "https://h/?token=***"}'),
        ("set HTTPS_PROXY=http://user:$PASSWORD@proxy", "set HTTPS_PROXY=http://user:$PASSWORD@proxy"),
        ("a ://b and c:// too", "a ://b and c:// too"),
    ],
)
def test_an_address_shows_everything_but_its_keys(text: str, masked: str) -> None:
    assert mask_addresses(text) == masked
    assert mask_addresses(masked) == masked


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://h/v1?api-version=2024-10-01&k=abc", "https://h/v1?api-version=2024-10-01&k=***"),
        ("https://h/v1?S3cret&v#frag-S3cret", "https://h/v1?***&v#***"),
        ("https://h/v1;S3cret/x?alt", "https://h/v1;***"),
        ("https://h/s/NTQ5ZmE1abcdef0123456789/mcp", "https://h/s/***/mcp"),
        ("https://h/openai/deployments/gpt-4.1-mini/chat", "https://h/openai/deployments/gpt-4.1-mini/chat"),
        ("npx server ghp_0123456789abcdefghijABCDEFGHIJ012345", "npx server ghp_***"),
        ("/home/me/.pigeon/agent/settings.json", "/home/me/.pigeon/agent/settings.json"),
    ],
)
def test_a_configured_address_shows_only_what_is_known_to_be_harmless(text: str, masked: str) -> None:
    assert mask_configuration(text) == masked


@given(
    st.sampled_from(
        [
            "http://u:{}@h/",
            "socks5://u:{}@h:1",
            "https://h/?a=b&token={}",
            "wss://h/p?x-api-key={}#f",
            "https://h/?SIG={}",
        ]
    ),
    _SECRETS,
    st.sampled_from(["{}", "got <{}> back", '{{"a": "{}"}}', "'{}' failed", "x\n{}\ny", "{} {}"]),
)
def test_no_key_at_a_place_for_keys_is_ever_shown(address: str, secret: str, around: str) -> None:
    written = address.replace("{}", secret.replace("'", "%27"))
    text = around.replace("{{", "{").replace("}}", "}").replace("{}", written)
    assert secret.replace("'", "%27") not in mask_addresses(text)
    assert secret.replace("'", "%27") not in mask_configuration(text)


@given(st.text())
def test_any_text_without_an_address_stays(text: str) -> None:
    assert mask_addresses(text.replace("://", "")) == text.replace("://", "")
