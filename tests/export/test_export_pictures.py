"""Pictures on an exported page: those whose bytes can contain no program, and a line in the place of others."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.export.pictures import picture_html
from pigeon.wire.content import ImageContent

BEGINNINGS = {"png": b"\x89PNG\r\n\x1a\n", "jpeg": b"\xff\xd8\xff", "gif": b"GIF89a", "webp": b"RIFF1234WEBP"}


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_a_picture_is_shown_as_what_its_bytes_say(kind: str) -> None:
    data = base64.b64encode(BEGINNINGS[kind] + b"rest").decode()
    shown = picture_html(ImageContent(data=f"{data[:4]}\n{data[4:]}", mime_type="text/html"))
    assert shown.startswith("<img ")
    assert f"data:image/{kind};base64,{data}" in shown


@pytest.mark.parametrize("data", ["a", "a*b=", "ÄÖ==", "=", "abcde"])
def test_data_that_is_no_base64_is_told(data: str) -> None:
    shown = picture_html(ImageContent(data=data, mime_type="image/<png>"))
    assert "its data is not valid base64" in shown
    assert "image/&lt;png&gt;" in shown


@given(st.binary(max_size=30), st.text(max_size=30))
def test_other_bytes_and_any_type_are_a_line_of_text(data: bytes, kind: str) -> None:
    if not data.startswith((b"\x89PNG", b"\xff\xd8\xff", b"GIF", b"RIFF")):
        shown = picture_html(ImageContent(data=base64.b64encode(data).decode(), mime_type=kind))
        assert "<img" not in shown
        assert "only PNG, JPEG, GIF and WebP are shown" in shown
