"""Images in the forms of programs (a path, bytes, an image of Pillow), converted for a prompt."""

from __future__ import annotations

import asyncio
import io
import os
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.content import ImageContent, ImageInput
from pigeon.wire.errors import Refusal


class SavableImage(Protocol):
    """The used part of an image of Pillow, which need not be installed."""

    def save(self, fp: Any, format: str) -> None:
        """Write the image to a file in this format."""
        ...


ImageLike = str | os.PathLike[str] | bytes | SavableImage | ImageInput | ImageContent


async def images_of(given: Sequence[ImageLike]) -> list[ImageInput] | Absent:
    """The images of a prompt; raises `Refusal` that names an unusable one."""
    if not given:
        return ABSENT
    if isinstance(given, str | bytes | bytearray | memoryview) or not isinstance(given, Iterable):
        raise Refusal("images must be a list, even if there is only one")
    return [await asyncio.to_thread(image_of, image, f"images[{index}]") for index, image in enumerate(given)]


def image_of(image: ImageLike, where: str = "image") -> ImageInput:
    """One image, read from its file if a path is given."""
    if isinstance(image, ImageInput):
        return image
    if isinstance(image, ImageContent):
        return ImageInput(type="image", data=image.data, mime_type=image.mime_type)
    if isinstance(image, str | os.PathLike):
        try:
            with open(image, "rb") as file:
                return _encode_image(file.read(), f"{where} ({os.fspath(image)})")
        except (OSError, ValueError) as error:
            raise Refusal(f"{where}: {os.fspath(image)}: {getattr(error, 'strerror', None) or error}") from None
    if isinstance(image, bytes | bytearray | memoryview):
        return _encode_image(bytes(image), where)
    if hasattr(image, "save"):
        return _encode_image(_to_png(image, where), where)
    raise Refusal(f"{where}: a {type(image).__name__} is not an image; give a path, bytes or a Pillow image")


def _to_png(image: SavableImage, where: str) -> bytes:
    """An image of Pillow as a PNG file; its colours are converted if PNG does not support them (CMYK, HSV, ...)."""
    mode = str(getattr(image, "mode", ""))
    try:
        try:
            return _save_png(image)
        except OSError:
            kept: Any = image
            return _save_png(kept.convert("RGBA" if mode.endswith(("A", "a")) else "RGB"))
    except Exception as error:  # the exceptions of Pillow depend on the image
        raise Refusal(f"{where}: the image cannot be saved as PNG: {error}") from error


def _save_png(image: SavableImage) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def _encode_image(data: bytes, where: str) -> ImageInput:
    from pigeon.tools.images.header import header_of

    header = header_of(data)
    if header is None:
        raise Refusal(f"{where}: these bytes are not a supported image (PNG, JPEG, GIF or WebP)")
    return ImageInput(type="image", data=b64encode(data).decode(), mime_type=header.mime)
