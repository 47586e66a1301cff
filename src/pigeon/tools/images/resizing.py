"""Images within the limits of models: recognized by their first bytes, scaled and re-encoded by Pillow if needed."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from pigeon.tools.images.header import COMPLETE_ENDS, header_of

if TYPE_CHECKING:
    from PIL.Image import Image

SNIFFED_BYTES = 4100
MOST_PIXELS = 64_000_000
SENT_AS_IS = ("image/png", "image/jpeg", "image/gif", "image/webp")
# For the model and for people: a command would only invite a model to run it.
NEEDS_PILLOW = (
    "[Image omitted: it has to be converted, resized or checked, which needs Pillow. "
    "It is not installed; the user can install pigeon-agent[images].]"
)
_QUALITIES = (80, 85, 70, 55, 40)
_SHRINK = 0.75
_ORIENTATION = 0x0112
_LYING = (5, 6, 7, 8)


class Profile(Struct, frozen=True):
    """The limits of a model: sides in pixels, and bytes as base64."""

    width: int = 2000
    height: int = 2000
    encoded_bytes: int = 4_718_592

    def has_room_for(self, size: tuple[int, int], encoded_bytes: int) -> bool:
        return size[0] <= self.width and size[1] <= self.height and encoded_bytes <= self.encoded_bytes


class SizeExceeded(Exception):
    """The image has more pixels than may be decoded here."""


class Fitted(Struct, frozen=True):
    """An image that can be sent, with a note for the model; no data if it cannot be sent."""

    data: bytes | None
    mime: str
    hints: tuple[str, ...] = ()

    def to_base64(self) -> str:
        return base64.b64encode(self.data or b"").decode("ascii")


def image_type(head: bytes) -> str | None:
    """The MIME type by the first bytes of a file; None if it is not a still image that models accept."""
    header = header_of(head)
    if header is None or header.mime not in (*SENT_AS_IS, "image/bmp"):
        return None
    moves = header.mime == "image/png" and b"acTL" in head.partition(b"IDAT")[0]
    return None if moves else header.mime


def fit_image(data: bytes, mime: str, profile: Profile | None = None, most_pixels: int | None = None) -> Fitted:
    """The image within the profile: the same bytes if they fit, else scaled and re-encoded. No profile: any size.

    Raises `SizeExceeded` if it has more than `most_pixels`, before any of them is decoded.
    """
    try:
        return _decode_and_fit(data, mime, profile, most_pixels)
    except SizeExceeded:
        raise
    except MemoryError:
        return Fitted(None, mime, ("[Image omitted: decoding it takes too much memory.]",))
    except ImportError:
        return _fit_undecoded(data, mime, profile)
    except Exception as error:  # a decoder may raise anything on a broken file
        return Fitted(None, mime, (f"[Image omitted: it could not be decoded ({_reason(error)}).]",))


def _reason(error: Exception) -> str:
    name = type(error).__name__
    return "the format is unknown" if name == "UnidentifiedImageError" else f"{name}: {error}"


def _fit_undecoded(data: bytes, mime: str, profile: Profile | None) -> Fitted:
    """Without Pillow: an image that is seen to fit and to be complete, as it is."""
    header = header_of(data)
    size = None if header is None else header.size
    fits = size is not None and (profile is None or profile.has_room_for(size, _base64_size(data)))
    if fits and mime in SENT_AS_IS and data.endswith(COMPLETE_ENDS.get(mime, b"")):
        return Fitted(data, mime)
    return Fitted(None, mime, (NEEDS_PILLOW,))


def _decode_and_fit(data: bytes, mime: str, profile: Profile | None, most_pixels: int | None) -> Fitted:
    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = None  # the limit below is ours, and no warning goes to stderr
    with Image.open(io.BytesIO(data)) as image:
        width, height = image.size
        if most_pixels is not None and width * height > most_pixels:
            raise SizeExceeded
        small = profile is None or profile.has_room_for((width, height), _base64_size(data))
        if small and mime in SENT_AS_IS:
            if width * height <= MOST_PIXELS:
                image.load()  # a provider refuses an incomplete one, and every request after it
            return Fitted(data, mime)
        if profile is not None:
            image.draft(None, (profile.width, profile.height))  # a JPEG need not be decoded at full size
        if image.width * image.height > MOST_PIXELS:
            return Fitted(None, mime, (f"[Image omitted: {width}x{height} pixels are too many.]",))
        original = (height, width) if image.getexif().get(_ORIENTATION, 1) in _LYING else (width, height)
        ImageOps.exif_transpose(image, in_place=True)
        shrunk = _shrink_to_fit(_to_plain_mode(image), profile or Profile(width, height, 1 << 40))
    if shrunk is None:
        return Fitted(None, mime, ("[Image omitted: it could not be made small enough to send.]",))
    encoded, new_mime, size = shrunk
    hints: list[str] = []
    if mime not in SENT_AS_IS:
        hints.append(f"[Image converted from {mime} to {new_mime}.]")
    if size != original:
        factor = max(original[0] / size[0], original[1] / size[1])
        hints.append(
            f"[Image: original {original[0]}x{original[1]}, displayed at {size[0]}x{size[1]}. "
            f"Multiply coordinates by {factor:.2f} to map to original image.]"
        )
    return Fitted(encoded, new_mime, tuple(hints))


def _to_plain_mode(image: Image) -> Image:
    if image.mode in ("RGB", "RGBA", "L"):
        return image
    if image.mode.startswith("I"):  # 16 bits of grey, which a conversion would cut off at 255
        return image.convert("I").point(lambda grey: grey * (1 / 256)).convert("L")
    transparent = "transparency" in image.info or image.mode in ("LA", "PA", "La", "RGBa")
    return image.convert("RGBA" if transparent else "RGB")


def _shrink_to_fit(image: Image, profile: Profile) -> tuple[bytes, str, tuple[int, int]] | None:
    """Try PNG, then JPEG at several qualities, then the same with smaller sides, until it fits."""
    from PIL.Image import Resampling

    factor = min(1.0, profile.width / image.width, profile.height / image.height)
    while True:
        size = max(1, round(image.width * factor)), max(1, round(image.height * factor))
        scaled = image if size == image.size else image.resize(size, Resampling.LANCZOS)
        for mime, encoded in _encode_variants(scaled):
            if _base64_size(encoded) <= profile.encoded_bytes:
                return encoded, mime, size
        if size == (1, 1):
            return None
        factor *= _SHRINK


def _encode_variants(image: Image) -> Iterator[tuple[str, bytes]]:
    png = io.BytesIO()
    image.save(png, "PNG")
    yield "image/png", png.getvalue()
    opaque = _flatten_on_white(image)
    for quality in _QUALITIES:
        jpeg = io.BytesIO()
        opaque.save(jpeg, "JPEG", quality=quality)
        yield "image/jpeg", jpeg.getvalue()


def _flatten_on_white(image: Image) -> Image:
    if image.mode != "RGBA":
        return image
    from PIL.Image import new

    paper = new("RGB", image.size, "white")
    paper.paste(image, mask=image.getchannel("A"))
    return paper


def _base64_size(data: bytes) -> int:
    return (len(data) + 2) // 3 * 4
