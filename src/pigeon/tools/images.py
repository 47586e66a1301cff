"""Images for the model: told by their first bytes, and small enough to send."""

from __future__ import annotations

import base64

from pigeon.system.files import read_whole
from pigeon.wire.content import ImageContent, TextContent
from pigeon.wire.events import ToolOutcome

SNIFFED_BYTES = 4100
BIGGEST_FILE = 64 << 20


def image_type(head: bytes) -> str | None:
    """The mime type that the first bytes of a file tell; nothing if they are no still image that models take."""
    if head.startswith(b"\xff\xd8\xff"):
        return None if head[3:4] == b"\xf7" else "image/jpeg"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return None if b"acTL" in head.partition(b"IDAT")[0] else "image/png"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    if head.startswith(b"BM") and len(head) >= 26 and head[6:10] == b"\0\0\0\0" and head[14] in (12, 40, 56, 108, 124):
        return "image/bmp"
    return None


def prepared_image(path: str, mime: str, resize: bool = True) -> ToolOutcome:
    """The result of reading an image file."""
    data = read_whole(path, BIGGEST_FILE)
    return ToolOutcome(
        content=[
            TextContent(text=f"Read image file [{mime}]"),
            ImageContent(data=base64.b64encode(data).decode("ascii"), mime_type=mime),
        ]
    )
