"""Every form in which a host may send an image or a document becomes one kind of block, or is refused by its place."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from pigeon.wire import codec
from pigeon.wire.base import ABSENT
from pigeon.wire.content import (
    Attachment,
    ImageContent,
    ImageInput,
    TextContent,
    shorten_file_blocks,
    text_of,
    to_image_content,
    user_blocks,
)
from pigeon.wire.errors import BadRecord

DATA = base64.b64encode(bytes(range(250, 256)) * 2).decode()
PNG = ImageContent(data=DATA, mime_type="image/png")


def blocks(*images: dict[str, Any]) -> list[Any]:
    """The blocks of a prompt with these images, as a host sends them."""
    return user_blocks("look", [codec.convert(image, ImageInput) for image in images])


def blocks_with(**fields: Any) -> list[Any]:
    """The blocks of a prompt with one attachment."""
    return user_blocks("look", attachments=[codec.convert(fields, Attachment)])


@pytest.mark.parametrize(
    "image",
    [
        {"type": "image", "data": DATA, "mimeType": "image/png"},
        {"data": f"data:image/png;base64,{DATA}"},
        {"data": f"data:image/png;charset=x;base64,{DATA}", "mimeType": "text/plain"},
        {"source": {"type": "base64", "mediaType": "image/png", "data": DATA}},
        {"source": {"type": "base64", "media_type": "image/png", "data": DATA}},
        {"source": {"mimeType": "image/png", "data": DATA}},
        {"source": {"data": f"data:image/png;base64,{DATA}"}},
        {"source": {"type": "url", "url": f"data:image/png;base64,{DATA}"}},
        {"data": DATA.replace("+", "-").replace("/", "_"), "mimeType": "image/png"},
        {"data": f"{DATA[:4]}\r\n {DATA[4:]}\t", "mimeType": "image/png"},
    ],
)
def test_every_form_becomes_the_same_block(image: dict[str, Any]) -> None:
    assert "+" in DATA
    assert "/" in DATA
    assert blocks(image) == [TextContent(text="look"), PNG]


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ({}, 'Missing field "images[0].data"'),
        ({"data": DATA}, 'Missing field "images[0].mimeType"'),
        ({"data": DATA, "mimeType": ""}, 'Missing field "images[0].mimeType"'),
        ({"data": "", "mimeType": "image/png"}, 'Field "images[0].data" is empty'),
        ({"data": "A", "mimeType": "image/png"}, 'Field "images[0].data" is not valid base64'),
        ({"data": "data:image/png,plain"}, 'Field "images[0].data" must be a base64 data URL'),
        ({"data": "data:image/png;base64"}, 'Field "images[0].data" must be a base64 data URL'),
        ({"source": {}}, 'Missing field "images[0].source.data"'),
        ({"source": {"data": DATA}}, 'Missing field "images[0].source.mimeType"'),
        ({"source": {"url": "https://x.invalid/a.png"}}, 'Field "images[0].source.url" must be a base64 data URL'),
    ],
)
def test_what_is_no_image_is_refused_by_its_place(image: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRecord) as refused:
        blocks(image)
    assert str(refused.value).startswith(reason)


def test_the_place_of_a_bad_image_is_its_own() -> None:
    good = {"data": DATA, "mimeType": "image/png"}
    with pytest.raises(BadRecord, match=r"images\[2\]"):
        blocks(good, good, {"data": DATA})


def test_an_attached_image_is_an_image() -> None:
    assert blocks_with(type="image", mimeType="image/png", content=DATA)[1:] == [PNG]
    with pytest.raises(BadRecord, match=r'"attachments\[0\].content" is empty'):
        blocks_with(type="image", mimeType="image/png")


def test_an_attached_document_is_its_text_under_its_name() -> None:
    (_, block) = blocks_with(type="document", fileName="plan.pdf", extractedText="First\nthen")
    assert block == TextContent(text="\n\n[Document: plan.pdf]\nFirst\nthen")


@pytest.mark.parametrize("nothing", [{}, {"extractedText": ""}, {"extractedText": None, "preview": None}])
def test_a_document_without_text_adds_nothing(nothing: dict[str, Any]) -> None:
    assert blocks_with(type="document", fileName="plan.pdf", **nothing) == [TextContent(text="look")]


def test_null_of_an_attachment_is_kept_as_absent() -> None:
    file = codec.convert({"type": "document", "extractedText": None, "preview": None}, Attachment)
    assert (file.extracted_text, file.preview) == (ABSENT, ABSENT)
    assert b"null" not in codec.encode(file)


def test_images_come_before_attachments_in_the_order_given() -> None:
    image = ImageInput(data=DATA, mime_type="image/gif")
    file = Attachment(type="document", file_name="a", extracted_text="b")
    kinds = [block.__struct_config__.tag for block in user_blocks("look", [image, image], [file])]
    assert kinds == ["text", "image", "image", "text"]


def test_the_text_of_blocks_is_what_stands_in_them_without_anything_between() -> None:
    assert text_of([TextContent(text="a"), PNG, TextContent(text="b")]) == "ab"
    assert text_of("plain") == "plain"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("plain", "plain"),
        ('<file name="/a/b.md">\nhello\n</file>\n\nwhat is it?', "@b.md what is it?"),
        ('<file name="/a/b.png"></file>\n<file name="/a/c d">x</file>', "@b.png @c d"),
        ('<file name="/a/cut off', '<file name="/a/cut off'),
        ('<file name="/a/long">the end is missing', "@long"),
    ],
)
def test_a_prompt_in_a_list_names_its_files(said: str, shown: str) -> None:
    assert shorten_file_blocks(said) == shown


@pytest.mark.parametrize(("sent", "kept"), [("-_-_", "+/+/"), ("----", "++++"), ("____", "////"), ("+/+/", "+/+/")])
def test_base64_for_addresses_becomes_that_of_providers(sent: str, kept: str) -> None:
    assert to_image_content(ImageInput(data=sent, mime_type="image/png"), "images[0]").data == kept
