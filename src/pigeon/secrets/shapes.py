"""Secrets that are recognized by their shape: keys with the prefixes of their issuers, signed tokens, private keys,
passwords in addresses; and variables, also by name.

`Redactor` masks the keys that Pigeon holds itself; a session may show others, of services that it does not know, and a
page is made to be shared. Shapes are masked in pages only, and only those that hardly any other text has, because text
masked by mistake is lost to the reader. Variables that look like secrets are hidden from commands behind the sandbox. A
text is searched for the beginnings first, because that is fast.
"""

from __future__ import annotations

import re
from functools import lru_cache

from pigeon.secrets.redactor import MASK, is_distinctive

_MASKED = MASK.encode()
_WORD = rb"[A-Za-z0-9_-]"
# The beginning of each shape, and what follows. The beginning of a secret is kept, so that readers see its kind.
_SHAPES = (
    # Names have dashes, too; a key has a digit and a long part without any.
    (b"sk-", rb"(?=" + _WORD + rb"{0,80}[0-9])(?=" + _WORD + rb"{0,80}[A-Za-z0-9]{12})" + _WORD + rb"{20,300}"),
    (b"sk_live_", rb"[A-Za-z0-9]{16,250}"),
    (b"sk_test_", rb"[A-Za-z0-9]{16,250}"),
    (b"rk_live_", rb"[A-Za-z0-9]{16,250}"),
    (b"AKIA", rb"[A-Z2-7]{16}(?![A-Za-z0-9])"),
    (b"ASIA", rb"[A-Z2-7]{16}(?![A-Za-z0-9])"),
    (b"AIza", _WORD + rb"{35}(?!" + _WORD + rb")"),
    (b"ya29.", _WORD + rb"{20,2000}"),
    (b"ghp_", rb"[A-Za-z0-9]{36,255}"),
    (b"gho_", rb"[A-Za-z0-9]{36,255}"),
    (b"ghu_", rb"[A-Za-z0-9]{36,255}"),
    (b"ghs_", rb"[A-Za-z0-9]{36,255}"),
    (b"ghr_", rb"[A-Za-z0-9]{36,255}"),
    (b"github_pat_", rb"[A-Za-z0-9_]{36,255}"),
    (b"glpat-", _WORD + rb"{20,200}"),
    (b"npm_", rb"[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    (b"pypi-", rb"AgEI" + _WORD + rb"{50,1000}"),
    (b"hf_", rb"[A-Za-z0-9]{30,60}(?![A-Za-z0-9])"),
    (b"gsk_", rb"[A-Za-z0-9]{40,80}"),
    (b"xai-", rb"[A-Za-z0-9]{60,120}"),
    (b"r8_", rb"[A-Za-z0-9]{37}(?![A-Za-z0-9])"),
    (b"xoxb-", rb"[0-9A-Za-z-]{20,200}"),
    (b"xoxp-", rb"[0-9A-Za-z-]{20,200}"),
    (b"xoxa-", rb"[0-9A-Za-z-]{20,200}"),
    (b"xoxs-", rb"[0-9A-Za-z-]{20,200}"),
    (b"xapp-", rb"[0-9A-Za-z-]{20,200}"),
    (b"SG.", rb"[A-Za-z0-9_-]{20,24}\.[A-Za-z0-9_-]{40,50}"),
    (b"dop_v1_", rb"[a-f0-9]{64}"),
    (b"eyJ", rb"[A-Za-z0-9_-]{10,4000}\.eyJ[A-Za-z0-9_-]{10,8000}\.[A-Za-z0-9_-]{20,2000}"),
)
# The character before a shape that is a part of something longer, such as the data of a picture.
_INSIDE = re.compile(rb"[A-Za-z0-9]\Z")
_INSIDE_BASE64 = re.compile(rb"[A-Za-z0-9+/]\Z")
# In JSON the end of a line may come directly before, and in the output of commands a change of colour.
_SEQUENCE = re.compile(rb"(?:\\[nrt]|\[[0-9;]{0,20}[mK])\Z")
_PRIVATE_KEY = re.compile(rb"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----)[^\"<>]{40,20000}?(-----END )")
_PASSWORD = re.compile(rb"(://[A-Za-z0-9._~%-]{1,100}:)([^\s/@:\"'<>\\&$*{}]{6,200})(@[A-Za-z0-9.\[-])")
_BEARER = re.compile(rb"([Bb]earer )([A-Za-z0-9._~+/=-]{24,4000})")

# Parts of the name of a variable that holds a secret, and ends of one.
_SECRET_PARTS = frozenset(
    {
        *("TOKEN", "SECRET", "SECRETS", "PASSWORD", "PASSWORDS", "PASSWD", "PASS", "PASSPHRASE", "PASSCODE", "PAT"),
        *("CREDENTIAL", "CREDENTIALS", "CREDS", "APIKEY", "AUTH", "AUTHTOKEN", "COOKIE", "PRIVATEKEY", "PGPASSWORD"),
    }
)
_SECRET_ENDS = ("_KEY", "_KEYS", "_DSN", "TOKEN", "PASSWORD", "SECRET", "_PW", "_PWD")


@lru_cache(maxsize=4096)
def is_secret_variable(name: str, value: str) -> bool:
    """Whether a variable probably holds a secret, by its name or value; a proxy never counts."""
    upper = name.upper()
    if upper.endswith("_PROXY") or not value:
        return False
    by_name = not _SECRET_PARTS.isdisjoint(upper.split("_")) or upper.endswith(_SECRET_ENDS)
    data = value.encode("utf-8", "surrogateescape")
    return by_name or mask_secret_shapes(data) != data


def mask_secret_shapes(data: bytes) -> bytes:
    """The text, plain or as JSON or HTML, with everything masked that looks like a secret."""
    for beginning, rest in _SHAPES:
        if beginning in data:
            # Compiled where one occurs: few texts contain any, and the start of Pigeon waits for all.
            data = re.sub(b"(" + re.escape(beginning) + b")" + rest, _mask_token, data)
    if b"PRIVATE KEY" in data:
        data = _PRIVATE_KEY.sub(rb"\1" + _MASKED + rb"\2", data)
    if b"://" in data:
        data = _PASSWORD.sub(_mask_password, data)
    if b"earer " in data:
        data = _BEARER.sub(_mask_bearer, data)
    return data


def _mask_token(found: re.Match[bytes]) -> bytes:
    before = found.string[max(0, found.start() - 24) : found.start()]
    inside = _INSIDE if found[1][-1:] in b"_-." else _INSIDE_BASE64
    return found[0] if inside.search(before) and not _SEQUENCE.search(before) else found[1] + _MASKED


def _mask_password(found: re.Match[bytes]) -> bytes:
    return found[1] + _MASKED + found[3] if is_distinctive(found[2].decode("utf-8", "replace")) else found[0]


def _mask_bearer(found: re.Match[bytes]) -> bytes:
    word = found[2]
    random = re.search(rb"[0-9]", word) is not None and re.search(rb"[A-Za-z]", word) is not None
    return found[1] + _MASKED if random else found[0]
