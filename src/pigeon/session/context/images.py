"""Images on their way into the conversation: a model would refuse an invalid one in every later request too."""

from __future__ import annotations

from msgspec.structs import replace

from pigeon.agent.interfaces import ImagePreparer, PreparedImage, SendableT
from pigeon.agent.scope import Scope
from pigeon.wire.content import ImageContent, TextContent, UserBlock
from pigeon.wire.errors import Aborted

STOPPED = "[Image omitted: the run was stopped before the image was made ready to send.]"


async def prepare_images(
    message: SendableT, preparer: ImagePreparer, keeps_unreadable: bool, scope: Scope | None
) -> SendableT:
    """The message with images that models accept, and notes behind its text for those that were changed or left out.

    Data that is not an image is kept if `keeps_unreadable`. Returns the same object if there was nothing to do.
    """
    if isinstance(message.content, str):
        return message
    images = [block for block in message.content if isinstance(block, ImageContent)]
    first = [preparer.prepare_quickly(image) for image in images]
    if None in first:
        first = list(await _prepare_remaining(images, first, preparer, scope))
    found: list[PreparedImage] = []
    for image, prepared in zip(images, first, strict=True):
        assert prepared is not None
        found.append(PreparedImage(image) if keeps_unreadable and not prepared.readable else prepared)
    if all(image is prepared.image for image, prepared in zip(images, found, strict=True)):
        return message
    return replace(message, content=_replace_images(message.content, found))


async def _prepare_remaining(
    images: list[ImageContent], first: list[PreparedImage | None], preparer: ImagePreparer, scope: Scope | None
) -> list[PreparedImage]:
    found = list(first)
    try:
        for index, image in enumerate(images):
            if found[index] is None:
                working = preparer.fit_image(image)
                found[index] = await (working if scope is None else scope.wait(working))
    except Aborted:
        pass
    return [prepared or PreparedImage(None, (STOPPED,)) for prepared in found]


def _replace_images(blocks: list[UserBlock], found: list[PreparedImage]) -> list[UserBlock]:
    prepared = iter(found)
    notes = "\n".join(note for one in found for note in one.notes)
    out: list[UserBlock] = []
    for block in blocks:
        if isinstance(block, ImageContent):
            image = next(prepared).image
            if image is not None:
                out.append(image)
        elif notes:
            out.append(TextContent(text=f"{block.text}\n\n{notes}" if block.text else notes))
            notes = ""
        else:
            out.append(block)
    return [TextContent(text=notes), *out] if notes else out
