"""Secrets that are masked by their looks, and texts that only look a little like one."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.secrets.shapes import mask_secret_shapes

SECRETS = [
    "sk-ant-api03-Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4-AA",
    "sk-proj-Abc123Def456Ghi789Jkl012Mno345",
    "sk-or-v1-" + "0123456789abcdef" * 4,
    "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "AIza" + "SyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY",
    "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a",
    "github_pat_" + "11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUV",
    "glpat-" + "ABCdefGHIjklMNOpqrST",
    "npm_" + "0123456789abcdefghijABCDEFGHIJ012345",
    "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567",
    "xoxb-" + "123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx",
    "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
]
HARMLESS = [
    "the task-force-of-2024-has-a-long-name-with-dashes",
    "class sk-loading-indicator-of-the-page-number-1",
    "risk-assessment-0123456789abcdef",
    "commit 3f0e75277a480b3683a18dc288f0885675e00000",
    "0193aa11-2233-7bbb-8ccc-123456789012",
    "postgres://user:password@localhost/db",
    "postgres://user:$PASSWORD@localhost/db",
    "Authorization: Bearer <your token here>",
    "AKIA is how they begin",
    "see https://a.example:8080/x@y",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA\n-----END PUBLIC KEY-----",
]
AROUND = ['"{}"', "key={}\n", "key: {},", "https://x/?k={}&y", "\n{}\n", "({})", "'{}';", "`{}`", "\x1b[31m{}\x1b[0m"]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("around", AROUND)
def test_a_secret_is_masked_wherever_it_stands_and_in_json(secret: str, around: str) -> None:
    text = around.format(secret)
    for form in (text, json.dumps({"text": text}), json.dumps(json.dumps(text))):
        masked = mask_secret_shapes(form.encode()).decode()
        assert secret not in masked
        assert secret[-8:] not in masked
        assert "***" in masked
    assert json.loads(mask_secret_shapes(json.dumps({"text": text}).encode()))["text"]


@pytest.mark.parametrize("text", HARMLESS)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert mask_secret_shapes(text.encode()).decode() == text


def test_passwords_in_addresses_bearer_tokens_and_private_keys_are_masked() -> None:
    assert mask_secret_shapes(b"git clone https://me:hunter2-x9@host/x") == b"git clone https://me:***@host/x"
    assert mask_secret_shapes(b"Authorization: Bearer 0123456789abcdefABCDEF0123") == b"Authorization: Bearer ***"
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEowIBAAKCAQEA\n" * 9 + "-----END RSA PRIVATE KEY-----\n"
    assert b"MIIE" not in mask_secret_shapes(key.encode())
    assert "MIIE" not in json.loads(mask_secret_shapes(json.dumps([key, "x"]).encode()))[0]


def test_a_private_key_that_begins_in_one_text_does_not_end_in_another() -> None:
    data = json.dumps(["-----BEGIN PRIVATE KEY-----" + "x" * 50, "y" * 50 + "-----END PRIVATE KEY-----"]).encode()
    assert json.loads(mask_secret_shapes(data))[1].startswith("yyy")


@given(st.binary(min_size=2_000, max_size=4_000))
def test_the_data_of_a_picture_is_left_alone(data: bytes) -> None:
    encoded = b'"' + base64.b64encode(b"\x89PNG" + data) + b'"'
    for shape in (b"AKIAIOSFODNN7EXAMPLE", b"AIzaSyD9tSrke72PouQMnMXa7eZSW0jkFMBWYQQ"):
        whole = encoded[:500] + shape + encoded[500:]
        assert mask_secret_shapes(whole) == whole


@given(st.text())
def test_any_json_stays_json(text: str) -> None:
    for secret in SECRETS[:3]:
        json.loads(mask_secret_shapes(json.dumps([text + secret, secret + text]).encode()))
