"""Images of messages, converted for models. `session/context/images.py` uses this before a message is sent.

The first bytes decide. An ordinary image is not touched and nothing is loaded for it; one that is too large, or of a
type that models do not accept, is converted as by `read`.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from typing import TYPE_CHECKING

from pigeon.agent.interfaces import PreparedImage
from pigeon.wire.content import ImageContent

if TYPE_CHECKING:
    from pigeon.tools.images.fitting import ImageFitter
    from pigeon.tools.images.resizing import Profile

HEAD_CHARS = 128 << 10
TAIL_CHARS = 32
NOT_AN_IMAGE = "[Image omitted: the data is not a readable image.]"


class PromptImages:
    """Converts images for sending; `fitter` decodes them, `resize` is called for each."""

    def __init__(self, fitter: ImageFitter, resize: Callable[[], bool] = lambda: True) -> None:
        self._fitter = fitter
        self._resize = resize

    def prepare_quickly(self, image: ImageContent) -> PreparedImage | None:
        """The result if the first bytes are enough, or None if the image has to be decoded."""
        from pigeon.tools.images.header import header_of
        from pigeon.tools.images.resizing import SENT_AS_IS

        try:
            head = binascii.a2b_base64(image.data[:HEAD_CHARS])
        except ValueError:  # perhaps only because the cut was not at a multiple of four characters
            return None
        header = header_of(head)
        if header is None:
            return PreparedImage(None, (NOT_AN_IMAGE,), readable=False)
        if header.mime not in SENT_AS_IS:
            return None
        if header.size is None:
            return None if len(image.data) > HEAD_CHARS else PreparedImage(None, (NOT_AN_IMAGE,), readable=False)
        profile = self._profile()
        if profile is not None and not profile.has_room_for(header.size, len(image.data)):
            return None
        return PreparedImage(_with_type(image, header.mime)) if _has_complete_ending(image.data, header.mime) else None

    async def fit_image(self, image: ImageContent) -> PreparedImage:
        """The result for any image; decoding may take seconds."""
        from pigeon.tools.images.header import header_of
        from pigeon.tools.images.resizing import NEEDS_PILLOW

        try:
            data = binascii.a2b_base64(image.data)
        except ValueError:
            return PreparedImage(None, (NOT_AN_IMAGE,), readable=False)
        header = header_of(data)
        if header is None:
            return PreparedImage(None, (NOT_AN_IMAGE,), readable=False)
        made = await self._fitter.fit_image(data, header.mime, self._profile())
        if made.data is None:
            # What only Pillow could read may well be an image.
            return PreparedImage(None, made.hints, readable=header.size is not None or NEEDS_PILLOW in made.hints)
        if made.data is data:
            return PreparedImage(_with_type(image, header.mime), made.hints)
        return PreparedImage(ImageContent(data=made.to_base64(), mime_type=made.mime), made.hints)

    def _profile(self) -> Profile | None:
        from pigeon.tools.images.resizing import Profile

        return Profile() if self._resize() else None


def _has_complete_ending(data: str, mime: str) -> bool:
    """True if the last bytes are those of a complete image; False if only decoding can tell."""
    from pigeon.tools.images.header import COMPLETE_ENDS

    end = COMPLETE_ENDS.get(mime)
    if end is None:
        return True
    text = data.rstrip("=")
    tail = text[len(text) - len(text) % 4 - TAIL_CHARS :] if len(text) > 2 * TAIL_CHARS else text
    try:
        return binascii.a2b_base64(tail + "=" * (-len(tail) % 4)).endswith(end)
    except ValueError:
        return False


def _with_type(image: ImageContent, mime: str) -> ImageContent:
    """The image with its true type: models refuse an image whose declared type is wrong."""
    return image if image.mime_type == mime else ImageContent(data=image.data, mime_type=mime)
