"""Images on their way into the conversation: what a model would refuse must not get there, since it would be sent again
with every later request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from pigeon.agent.interfaces import Sendable, SendableT
from pigeon.agent.scope import Scope
from pigeon.wire.content import ImageContent, TextContent, UserBlock
from pigeon.wire.errors import Aborted

STOPPED = "[Image omitted: the run was stopped before the image was made ready to send.]"


class Picture(Protocol):
    """What became of an image."""

    @property
    def image(self) -> ImageContent | None:
        """The image that can be sent; none if there is no way."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What the model is told about it."""
        ...

    @property
    def readable(self) -> bool:
        """False if the data is no image at all, as far as can be told."""
        ...


class Pictures(Protocol):
    """Knows what models take."""

    def at_once(self, image: ImageContent) -> Picture | None:
        """The answer if a short look is enough; none if it takes work."""
        ...

    def fitted(self, image: ImageContent) -> Picture:
        """The answer for any image; it may take seconds."""
        ...


class AsGiven:
    """Takes every image for a good one."""

    def at_once(self, image: ImageContent) -> Picture | None:
        """The same image."""
        return _Kept(image)

    def fitted(self, image: ImageContent) -> Picture:
        """The same image."""
        return _Kept(image)


class _Kept:
    def __init__(self, image: ImageContent | None, *notes: str) -> None:
        self.image = image
        self.notes = notes
        self.readable = True


def has_images(message: Sendable) -> bool:
    """True if there is an image to look at."""
    return not isinstance(message.content, str) and any(isinstance(block, ImageContent) for block in message.content)


async def ready_to_send(
    message: SendableT, pictures: Pictures, keeps_unreadable: bool, scope: Scope | None
) -> SendableT:
    """The message with images that models take, and notes behind its text for those that were changed or left out.

    Data that is no image goes on as it is if `keeps_unreadable`. The very same message if there was nothing to do.
    """
    assert not isinstance(message.content, str)
    images = [block for block in message.content if isinstance(block, ImageContent)]
    first = [pictures.at_once(image) for image in images]
    if None in first:
        first = list(await _worked_on(images, first, pictures, scope))
    found: list[Picture] = []
    for image, picture in zip(images, first, strict=True):
        assert picture is not None
        found.append(_Kept(image) if keeps_unreadable and not picture.readable else picture)
    if all(image is picture.image for image, picture in zip(images, found, strict=True)):
        return message
    return replace(message, content=_content(message.content, found))


async def _worked_on(
    images: list[ImageContent], first: list[Picture | None], pictures: Pictures, scope: Scope | None
) -> list[Picture]:
    def work() -> list[Picture]:
        return [picture or pictures.fitted(image) for image, picture in zip(images, first, strict=True)]

    working = asyncio.to_thread(work)
    try:
        return await (working if scope is None else scope.wait(working))
    except Aborted:
        return [picture or _Kept(None, STOPPED) for picture in first]


def _content(blocks: list[UserBlock], found: list[Picture]) -> list[UserBlock]:
    pictures = iter(found)
    notes = "\n".join(note for picture in found for note in picture.notes)
    out: list[UserBlock] = []
    for block in blocks:
        if isinstance(block, ImageContent):
            image = next(pictures).image
            if image is not None:
                out.append(image)
        elif notes:
            out.append(TextContent(text=f"{block.text}\n\n{notes}" if block.text else notes))
            notes = ""
        else:
            out.append(block)
    return [TextContent(text=notes), *out] if notes else out
