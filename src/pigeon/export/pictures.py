"""Pictures as data inside the page.

The declared type of an image is not trusted: only bytes that begin like PNG, JPEG, GIF or WebP are shown.
"""

from __future__ import annotations

import base64
import binascii

from pigeon.export.escaping import escape_html
from pigeon.wire.content import ImageContent

_BEGINNINGS = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF87a", "gif"), (b"GIF89a", "gif"))


def picture_html(image: ImageContent) -> str:
    """The picture, if its bytes are of a type that cannot contain a program; else a line that names what is missing."""
    try:
        data = base64.b64decode("".join(image.data.split()), validate=True)
    except (binascii.Error, ValueError):
        return _missing_picture_html(image, "its data is not valid base64")
    kind = _image_format_of(data)
    if kind is None:
        return _missing_picture_html(image, "only PNG, JPEG, GIF and WebP are shown")
    encoded = base64.b64encode(data).decode("ascii")
    return f'<img alt="picture ({kind}, {len(data):,} bytes)" src="data:image/{kind};base64,{encoded}">'


def _image_format_of(data: bytes) -> str | None:
    """The kind by the first bytes, whatever type the session names."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return next((kind for beginning, kind in _BEGINNINGS if data.startswith(beginning)), None)


def _missing_picture_html(image: ImageContent, why: str) -> str:
    return f'<p class="note">[picture of type {escape_html(image.mime_type[:100])} left out: {why}]</p>'
