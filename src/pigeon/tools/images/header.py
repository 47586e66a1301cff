"""The true type and the size of an image by its first bytes, without decoding anything."""

from __future__ import annotations

from msgspec import Struct

_FOREIGN = (
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\0\0\1\0", "image/x-icon"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "image/jp2"),
)
_BRANDS = {b"avif": "image/avif", b"avis": "image/avif", b"heic": "image/heic", b"heix": "image/heic"}
_NO_FRAME = (0xC4, 0xC8, 0xCC)
# The last bytes of a complete image; of other types only decoding can tell.
COMPLETE_ENDS = {"image/png": b"IEND\xaeB`\x82", "image/jpeg": b"\xff\xd9", "image/gif": b";"}


class Header(Struct, frozen=True):
    """The type of an image; no size if the given bytes end before it."""

    mime: str
    size: tuple[int, int] | None = None


def header_of(head: bytes) -> Header | None:
    """The header of any known image type, even one that models do not accept; None for other data."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return Header("image/png", _read_png_size(head))
    if head.startswith(b"\xff\xd8\xff") and head[3:4] != b"\xf7":
        return Header("image/jpeg", _read_jpeg_size(head))
    if head.startswith((b"GIF87a", b"GIF89a")):
        return Header("image/gif", _size_or_none(_read_little_endian(head, 6, 2), _read_little_endian(head, 8, 2)))
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return Header("image/webp", _read_webp_size(head))
    if head.startswith(b"BM") and head[6:10] == b"\0\0\0\0" and head[14:15] in (b"\x0c", b"(", b"8", b"l", b"|"):
        return Header("image/bmp")
    if head[4:8] == b"ftyp" and head[8:12] in _BRANDS:
        return Header(_BRANDS[head[8:12]])
    return next((Header(mime) for start, mime in _FOREIGN if head.startswith(start)), None)


def _read_png_size(head: bytes) -> tuple[int, int] | None:
    if head[12:16] != b"IHDR" or len(head) < 24:
        return None
    return _size_or_none(int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big"))


def _read_jpeg_size(head: bytes) -> tuple[int, int] | None:
    """The size is in the first frame segment, after any number of others, each with its length."""
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        kind = head[at + 1]
        if kind == 0xFF:
            at += 1
        elif 0xC0 <= kind <= 0xCF and kind not in _NO_FRAME:
            return _size_or_none(
                int.from_bytes(head[at + 7 : at + 9], "big"), int.from_bytes(head[at + 5 : at + 7], "big")
            )
        else:
            at += 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return None


def _read_webp_size(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if len(head) < 30:
        return None
    if kind == b"VP8X":
        return _read_little_endian(head, 24, 3) + 1, _read_little_endian(head, 27, 3) + 1
    if kind == b"VP8L" and head[20] == 0x2F:
        bits = _read_little_endian(head, 21, 4)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        return _size_or_none(_read_little_endian(head, 26, 2) & 0x3FFF, _read_little_endian(head, 28, 2) & 0x3FFF)
    return None


def _read_little_endian(head: bytes, at: int, width: int) -> int:
    return int.from_bytes(head[at : at + width], "little")


def _size_or_none(width: int, height: int) -> tuple[int, int] | None:
    return (width, height) if width and height else None
