"""Keys are found in the forms that programs give them, however the text is cut into pieces."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.secrets.redactor import IMAGE_WITH_KEY, MASK, RedactedStream, Redactor, is_distinctive, keys_in
from pigeon.system.shell.artifacts import Artifacts
from pigeon.system.shell.output import Capture
from pigeon.system.shell.truncation import OutputLimits
from pigeon.wire.content import ImageContent, TextContent
from pigeon.wire.messages import ToolResultMessage
from support.strategies import json_values, letters

KEYS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=10, max_size=80).filter(is_distinctive)
TEXTS = st.binary(max_size=40)
FORMS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda key: key,
    "url": lambda key: quote(key, safe="").encode(),
    "url with slashes": lambda key: quote(key).encode(),
    "url in lower case": lambda key: re.sub(rb"%[0-9A-F]{2}", lambda m: m[0].lower(), quote(key, safe="").encode()),
    "form": lambda key: quote_plus(key).encode(),
    "every byte escaped": lambda key: b"".join(b"%%%02X" % byte for byte in key),
    "hex": lambda key: key.hex().encode(),
    "upper hex": lambda key: key.hex().upper().encode(),
    "json": lambda key: json.dumps(key.decode())[1:-1].encode(),
    "json in json": lambda key: json.dumps(json.dumps(key.decode()))[3:-3].encode() if b"\\" not in key else key,
    "repr": lambda key: repr(key.decode())[1:-1].encode(),
    "bytes repr": lambda key: repr(key)[2:-1].encode(),
    "html": lambda key: html.escape(key.decode()).encode(),
}
# How one character may be escaped; which characters are, is for each program to say.
ESCAPES: dict[str, Callable[[str], str]] = {
    "json": lambda sign: f"\\u{ord(sign):04x}",
    "json in capitals": lambda sign: f"\\u{ord(sign):04X}",
    "json in json": lambda sign: f"\\\\u{ord(sign):04x}",
    "python": lambda sign: f"\\x{ord(sign):02x}",
    "javascript": lambda sign: f"\\u{{{ord(sign):x}}}",
    "octal": lambda sign: f"\\{ord(sign):03o}",
    "url": lambda sign: f"%{ord(sign):02X}",
    "url in lower case": lambda sign: f"%{ord(sign):02x}",
    "url in url": lambda sign: f"%25{ord(sign):02X}",
    "html": lambda sign: f"&#{ord(sign)};",
    "html in hexadecimal": lambda sign: f"&#x{ord(sign):X};",
    "shell": lambda sign: sign if sign.isalnum() else f"\\{sign}",
}
PARTLY = ("javascript", "url in url")
WITH_ANCHOR = KEYS.filter(lambda key: re.search("[A-Za-z0-9]{3}", key) is not None and "\\" not in key)


def redactor(*keys: str) -> Redactor:
    made = Redactor()
    made.learn_keys(("key", key) for key in keys)
    return made


@given(st.lists(KEYS, min_size=1, max_size=3), st.sampled_from(sorted(FORMS)), TEXTS, TEXTS, st.data())
def test_no_form_of_any_key_is_left_however_a_stream_is_cut(
    keys: list[str], form: str, before: bytes, after: bytes, data: st.DataObject
) -> None:
    found = FORMS[form](data.draw(st.sampled_from(keys)).encode())
    text = before + found + after
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    stream = RedactedStream(redactor(*keys))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    shown = b"".join(map(stream.feed, pieces)) + stream.feed(b"", final=True)
    assert found not in shown
    assert found not in redactor(*keys).mask(text)


@given(WITH_ANCHOR, st.sampled_from(sorted(ESCAPES)), st.booleans(), TEXTS, TEXTS, st.data())
def test_a_key_is_found_whichever_of_its_characters_are_escaped(
    key: str, style: str, every: bool, before: bytes, after: bytes, data: st.DataObject
) -> None:
    signs = {sign for sign in key if not sign.isalnum()}
    chosen = (
        set(key)
        if every and style not in PARTLY
        else data.draw(st.sets(st.sampled_from(sorted(signs))))
        if signs
        else set()
    )
    found = "".join(ESCAPES[style](sign) if sign in chosen else sign for sign in key).encode()
    text = before.replace(b"\\", b"") + found + after
    # A key that looks itself like an escape is known only when all of it is there.
    cuts = [] if set(key) & set("%&") else sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    stream = RedactedStream(redactor(key))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    shown = b"".join(map(stream.feed, pieces)) + stream.feed(b"", final=True)
    assert found not in shown
    assert found not in redactor(key).mask(text)
    assert found.decode() not in redactor(key).mask_text(found.decode())


def test_rows_of_escapes_do_not_make_the_search_slow() -> None:
    known = redactor("ab+cdefgh/ijk")
    for piece in (b"\\", b"%25", b"&amp;", b"\\u00", b"&#0", b"ab%2", b"ab\\"):
        text = piece * (1_000_000 // len(piece)) + b"cdefgh"
        began = process_time()
        known.mask(text)
        assert process_time() - began < 2


@given(KEYS, TEXTS, TEXTS, st.booleans(), st.sampled_from([0, 4, 60, 76]), st.sampled_from(["\n", "\r\n"]), st.data())
def test_a_key_inside_base64_is_found_at_every_place_and_over_lines(
    key: str, before: bytes, after: bytes, safe: bool, width: int, end: str, data: st.DataObject
) -> None:
    encode = base64.urlsafe_b64encode if safe else base64.b64encode
    encoded = encode(before + key.encode() + after)
    if width:
        encoded = end.encode().join(encoded[at : at + width] for at in range(0, len(encoded), width))
    masked = redactor(key).mask(encoded)
    assert MASK.encode() in masked
    line = json.dumps({"text": encoded.decode()}).encode()
    masked = redactor(key).mask(line)
    assert MASK in json.loads(masked)["text"]
    assert MASK in redactor(key).mask_text(encoded.decode())


@given(KEYS, st.integers(1, 30))
def test_base64_over_lines_is_found_in_a_stream(key: str, size: int) -> None:
    encoded = base64.encodebytes(b"x" * 70 + key.encode())
    stream = RedactedStream(redactor(key))
    shown = b"".join(stream.feed(encoded[at : at + size]) for at in range(0, len(encoded), size))
    assert MASK.encode() in shown + stream.feed(b"", final=True)


@given(st.lists(KEYS, min_size=1, max_size=3), json_values(letters('"\\%&+', most=30)))
def test_a_line_of_json_is_json_afterwards(keys: list[str], value: object) -> None:
    record = {"some": value, "keys": keys, "twice": [json.dumps(keys)]}
    assert json.loads(redactor(*keys).mask(json.dumps(record).encode())).keys() == record.keys()


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_what_holds_no_key_comes_out_as_it_was(data: bytes, cuts: list[int]) -> None:
    at = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    stream = RedactedStream(redactor("sk-canary-0f1e2d3c4b5a"))
    pieces = [data[a:b] for a, b in pairwise(at)]
    assert b"".join(map(stream.feed, pieces)) + stream.feed(b"", final=True) == data


def test_a_key_that_begins_with_another_is_masked_whole() -> None:
    stream = RedactedStream(redactor("canary-1234", "canary-1234-and-more"))
    shown = stream.feed(b"a canary-1234") + stream.feed(b"-and-more z") + stream.feed(b"", final=True)
    assert shown == b"a *** z"


def test_only_what_may_become_a_key_waits() -> None:
    stream = RedactedStream(redactor("sk-canary-0f1e2d3c4b5a"))
    assert stream.feed(b"listening on port 3000\n") == b"listening on port 3000\n"
    assert stream.feed(b"key: sk-can") == b"key: "
    assert stream.feed(b"dy\n") == b"sk-candy\n"


@pytest.mark.parametrize(
    "value",
    ["", "short", "ollama", "not-needed", "sk-no-key-required", "dummy-key", "lm-studio", "aaaaaaaaaaaa", "production"],
)
def test_common_values_are_not_masked(value: str) -> None:
    assert redactor(value).mask_text(f"a {value} b") == f"a {value} b"


@pytest.mark.parametrize(
    ("configured", "keys"),
    [
        ("sk-1", ["sk-1"]),
        ("Bearer tok-en", ["Bearer tok-en", "Bearer", "tok-en"]),
        ("Basic dXNlcjpwYXNzd29yZA==", ["Basic dXNlcjpwYXNzd29yZA==", "Basic", "dXNlcjpwYXNzd29yZA==", "password"]),
        ("Basic not/base64", ["Basic not/base64", "Basic", "not/base64", ""]),
        ("Basic abcde", ["Basic abcde", "Basic", "abcde"]),
        ("https://user:p%40ss@host/v1", ["p%40ss", "p@ss", "://user:p%40ss@"]),
        ("https://token@host", ["token"]),
        ("https://host/v1?api_key=abc&model=x", ["abc", "api_key=abc"]),
        ("https://host/v1", []),
        ("session=abc; theme=dark", ["session=abc; theme=dark", "session=abc", "abc", "theme=dark", "dark"]),
    ],
)
def test_keys_are_found_in_configured_values(configured: str, keys: list[str]) -> None:
    assert list(keys_in(configured)) == keys


@pytest.mark.parametrize(
    ("label", "value", "is_key"),
    [
        ("X-Api-Key", "a-plain-value", True),
        ("X-Team", "a-plain-value", False),
        ("X-Team", "a1b2c3d4e5f6", True),
        ("User-Agent", "agent-1.2.3-beta", False),
        ("X-Team $TEAM", "a-plain-value", True),
        ("X-User $USER", "a-plain-value", False),
        ("X-Folder $FOLDER", "/usr/bin", False),
        ("address", "https://user:a-plain-value@host", True),
        ("address", "https://host/a-plain-value", False),
    ],
)
def test_what_a_value_is_called_tells_whether_it_is_a_key(label: str, value: str, is_key: bool) -> None:
    made = Redactor()
    made.learn_keys([(label, value)])
    assert made.has_key(f"a {value.removeprefix('https://user:').removesuffix('@host')} b") == is_key


@pytest.mark.parametrize("size", [100, 1000, 4096])
def test_the_rest_of_a_key_at_the_beginning_of_a_long_output_is_not_shown(size: int) -> None:
    key = "sk-canary-0f1e2d3c4b5a"
    for offset in range(len(key)):
        capture = Capture(lambda: None, OutputLimits(lines=100, bytes=600), redactor(key))
        data = b"x" * offset + key.encode() * 400
        for at in range(0, len(data), size):
            capture.feed(data[at : at + size])
        shown = capture.visible_tail().text
        assert MASK in shown
        assert not [key[at:] for at in range(1, len(key) - 4) if key[at:] in shown]


@given(
    st.lists(st.sampled_from([b"\x1b[31m", b"\r", b"\n", b"canary-", b"0f1e2d3c4b5a", b"%2D", b"text\n"]), max_size=30)
)
def test_an_output_without_a_live_view_is_kept_and_ends_the_same(pieces: list[bytes]) -> None:
    kept = []
    for is_live in (True, False):
        with TemporaryDirectory() as folder:
            capture = Capture(
                partial(Artifacts(lambda folder=folder: folder, folder).create, "bash"),
                OutputLimits(lines=3, bytes=40),
                redactor("canary-0f1e2d3c4b5a"),
                is_live,
            )
            live = b"".join([*map(capture.feed, pieces), capture.finish()])
            on_disk = b"" if capture.artifact is None else Path(capture.artifact.path).read_bytes()
            kept.append((capture.visible_tail(), on_disk))
        assert is_live or live == b""
        assert not any(b"canary-0f1e2d3c4b5a" in text for text in (live, on_disk))
    assert kept[0] == kept[1]


def test_a_key_with_a_letter_behind_its_escape_is_learned() -> None:
    assert redactor("canary&élan-0f1e2d3c").mask_text("it is canary&élan-0f1e2d3c") == f"it is {MASK}"


def test_an_image_with_a_key_in_its_data_is_left_out_of_a_result() -> None:
    images = [
        ImageContent(data=base64.b64encode(b"\x89PNG" + text + b"..").decode(), mime_type="image/png")
        for text in (b"harmless", b"sk-canary-0f1e2d3c4b5a")
    ]
    message = ToolResultMessage(tool_call_id="1", tool_name="read", content=list(images), is_error=False, timestamp=0)
    masked = redactor("sk-canary-0f1e2d3c4b5a").mask_result(message)
    assert masked.content == [images[0], TextContent(text=IMAGE_WITH_KEY)]


def test_sources_are_asked_again_and_nothing_is_forgotten() -> None:
    values = [("key", "first-key-111")]
    made = Redactor()
    made.add_source(lambda: values)
    assert made.mask_text("first-key-111 second-key-222") == "*** second-key-222"
    values[:] = [("key", "second-key-222"), ("name", "a-plain-value-9")]
    made.learn_from_sources()
    assert made.mask_text("first-key-111 second-key-222") == "*** ***"
