"""Content blocks, and the forms in which a host may send images and documents for them.

Accepted with a prompt are `{data, mimeType}`, `{source: {type: "base64", mediaType, data}}`,
`{source: {type: "url", url: "data:..."}}`, a data URL in `data`, and `attachments` of the kinds image and document.
`user_blocks` normalises all of them; emitted is only `{type, data, mimeType}`.
"""

from __future__ import annotations

import binascii
import re
from typing import Literal

from msgspec import field

from pigeon.wire.base import ABSENT, Absent, Json, Record
from pigeon.wire.errors import BadRecord

_FILE = re.compile(r'<file name="([^"\n]*)">.*?(?:</file>|\Z)\s*', re.DOTALL)
_URL_SAFE = str.maketrans("-_", "+/")


class TextContent(Record, tag_field="type", tag="text", kw_only=True):
    """Plain text; the signature is opaque data that the provider gets back."""

    text: str
    text_signature: str | Absent = ABSENT


class ThinkingContent(Record, tag_field="type", tag="thinking", kw_only=True):
    """Reasoning text. A redacted block keeps its encrypted payload in the signature."""

    thinking: str
    thinking_signature: str | Absent = ABSENT
    redacted: bool | Absent = ABSENT


class ImageContent(Record, tag_field="type", tag="image", kw_only=True):
    """An image as base64 without a data-URL prefix."""

    data: str
    mime_type: str


class ToolCall(Record, tag_field="type", tag="toolCall", kw_only=True):
    """The model calls a tool; with `argumentsError`, the arguments could not be read and are empty."""

    id: str
    name: str
    arguments: dict[str, Json]
    arguments_error: str | Absent = ABSENT
    thought_signature: str | Absent = ABSENT
    namespace: str | Absent = ABSENT


AssistantBlock = TextContent | ThinkingContent | ToolCall
UserBlock = TextContent | ImageContent


def text_of(blocks: str | list[UserBlock] | list[AssistantBlock]) -> str:
    """The text of a message's content: all text blocks, concatenated with nothing between.

    Example:
        import pigeon

        result = pigeon.run_sync("list the files", model="demo")
        answers = [one for one in result.messages if isinstance(one, pigeon.AssistantMessage)]
        assert pigeon.text_of(answers[-1].content) == result.text
    """
    if isinstance(blocks, str):
        return blocks
    return "".join(block.text for block in blocks if isinstance(block, TextContent))


def shorten_file_blocks(text: str) -> str:
    """A prompt for a list: files that were included (`pigeon -p @notes.md ...`) appear by name only."""
    return _FILE.sub(lambda found: f"@{found[1].rpartition('/')[2]} ", text).strip() if "<file name=" in text else text


def has_images(blocks: str | list[UserBlock]) -> bool:
    return not isinstance(blocks, str) and any(isinstance(block, ImageContent) for block in blocks)


AttachmentKind = Literal["image", "document"]
ImageSourceKind = Literal["base64", "url"]


class Attachment(Record, kw_only=True):
    """A file that came along with a prompt in the protocol's early form; null counts as absent."""

    type: AttachmentKind
    file_name: str = ""
    mime_type: str = ""
    content: str = ""
    id: str | Absent = ABSENT
    size: int | Absent = ABSENT
    extracted_text: str | Absent | None = ABSENT
    preview: str | Absent | None = ABSENT

    def __post_init__(self) -> None:
        if self.extracted_text is None:
            self.extracted_text = ABSENT
        if self.preview is None:
            self.preview = ABSENT


class ImageSource(Record, kw_only=True):
    """Where the bytes are, in the form of the forks' documents."""

    type: ImageSourceKind | Absent = ABSENT
    data: str | Absent = ABSENT
    media_type: str | Absent = ABSENT
    mime_type: str | Absent = ABSENT
    url: str | Absent = ABSENT
    snake_media_type: str | Absent = field(default=ABSENT, name="media_type")


class ImageInput(Record, kw_only=True):
    """One image of a prompt: base64 data with its MIME type, or a source."""

    type: Literal["image"] | Absent = ABSENT
    data: str | Absent = ABSENT
    mime_type: str | Absent = ABSENT
    source: ImageSource | Absent = ABSENT


def user_blocks(
    message: str, images: list[ImageInput] | Absent = ABSENT, attachments: list[Attachment] | Absent = ABSENT
) -> list[UserBlock]:
    """The content of a user message: its text, then images and documents in the order given."""
    blocks: list[UserBlock] = [TextContent(text=message)]
    if not isinstance(images, Absent):
        blocks.extend(to_image_content(image, f"images[{index}]") for index, image in enumerate(images))
    if not isinstance(attachments, Absent):
        for index, attachment in enumerate(attachments):
            blocks.extend(_attachment_blocks(attachment, f"attachments[{index}]"))
    return blocks


def to_image_content(image: ImageInput, where: str) -> ImageContent:
    """The one form in which an image is stored; `where` names the field in a refusal."""
    if not isinstance(image.source, Absent):
        return _image_from_source(image.source, f"{where}.source")
    if isinstance(image.data, Absent):
        raise BadRecord(f'Missing field "{where}.data": send {{"type":"image","data":<base64>,"mimeType":...}}')
    if image.data.startswith("data:"):
        return _image_from_data_url(image.data, f"{where}.data")
    return _make_image_content(image.data, image.mime_type, where)


def _image_from_source(source: ImageSource, where: str) -> ImageContent:
    if not isinstance(source.url, Absent):
        return _image_from_data_url(source.url, f"{where}.url")
    if isinstance(source.data, Absent):
        raise BadRecord(f'Missing field "{where}.data"')
    if source.data.startswith("data:"):
        return _image_from_data_url(source.data, f"{where}.data")
    named = (source.media_type, source.snake_media_type, source.mime_type)
    mime = next((name for name in named if not isinstance(name, Absent)), ABSENT)
    return _make_image_content(source.data, mime, where)


def _image_from_data_url(url: str, where: str) -> ImageContent:
    head, comma, data = url.partition(",")
    if not head.startswith("data:") or not comma or not head.endswith(";base64"):
        raise BadRecord(f'Field "{where}" must be a base64 data URL; Pigeon does not fetch images from the network')
    return _make_image_content(data, head[len("data:") : -len(";base64")].split(";")[0], where)


def _make_image_content(data: str, mime: str | Absent, where: str, field: str = "data") -> ImageContent:
    if isinstance(mime, Absent) or not mime:
        raise BadRecord(f'Missing field "{where}.mimeType" (for example "image/png")')
    if "-" in data or "_" in data:
        data = data.translate(_URL_SAFE)
    try:
        empty = not binascii.a2b_base64(data)
    except (binascii.Error, ValueError):
        raise BadRecord(f'Field "{where}.{field}" is not valid base64') from None
    if empty:
        raise BadRecord(f'Field "{where}.{field}" is empty: send the bytes of the image as base64')
    return ImageContent(data=_remove_whitespace(data), mime_type=mime)


def _remove_whitespace(data: str) -> str:
    """Removes line breaks of some encoders, which providers refuse."""
    return "".join(data.split()) if any(map(data.__contains__, " \n\r\t")) else data


def _attachment_blocks(attachment: Attachment, where: str) -> list[UserBlock]:
    if attachment.type == "image":
        return [_make_image_content(attachment.content, attachment.mime_type, where, "content")]
    if isinstance(attachment.extracted_text, Absent) or not attachment.extracted_text:
        return []
    return [TextContent(text=f"\n\n[Document: {attachment.file_name}]\n{attachment.extracted_text}")]
