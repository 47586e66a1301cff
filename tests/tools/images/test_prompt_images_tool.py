"""Images that came with a message: what the first bytes tell, and what becomes of those that models refuse."""

from __future__ import annotations

import base64
import io
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, features

from fakes.tool_run import PlainFitter
from pigeon.tools.images.header import Header, header_of
from pigeon.tools.images.prompt_images import HEAD_CHARS, NOT_AN_IMAGE, PromptImages
from pigeon.tools.images.resizing import Profile, fit_image
from pigeon.wire.content import ImageContent

TAKEN = [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("GIF", "image/gif"), ("WEBP", "image/webp")]
FOREIGN = [("BMP", "image/bmp"), ("TIFF", "image/tiff"), ("ICO", "image/x-icon")]


def encode_image(form: str, size: tuple[int, int] = (30, 20), mode: str = "RGB", **options: object) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, "red").save(out, form, **options)
    return out.getvalue()


def image_of(data: bytes, mime: str = "image/png") -> ImageContent:
    return ImageContent(data=base64.b64encode(data).decode(), mime_type=mime)


def size_of(image: ImageContent | None) -> tuple[int, int]:
    assert image is not None
    with Image.open(io.BytesIO(base64.b64decode(image.data))) as opened:
        return opened.size


@pytest.mark.parametrize(("form", "mime"), TAKEN)
@given(width=st.integers(1, 300), height=st.integers(1, 300))
def test_a_header_tells_type_and_size(form: str, mime: str, width: int, height: int) -> None:
    assert header_of(encode_image(form, (width, height))) == Header(mime, (width, height))


@pytest.mark.parametrize(
    ("form", "options"),
    [("JPEG", {"progressive": True}), ("WEBP", {"lossless": True}), ("WEBP", {"exif": b"Exif\0\0x"})],
)
def test_every_variant_of_a_format_tells_its_size(form: str, options: dict[str, object]) -> None:
    assert header_of(encode_image(form, (31, 17), **options)) == Header(dict(TAKEN)[form], (31, 17))


def test_the_size_of_a_photo_is_found_behind_its_metadata() -> None:
    head = encode_image("JPEG", (31, 17), exif=b"Exif\0\0" + b"x" * 60_000, icc_profile=b"y" * 20_000)
    assert header_of(head) == Header("image/jpeg", (31, 17))
    assert header_of(head[:30_000]) == Header("image/jpeg", None)


@pytest.mark.parametrize(("form", "mime"), FOREIGN)
def test_formats_that_models_do_not_take_are_known(form: str, mime: str) -> None:
    assert header_of(encode_image(form)) == Header(mime)


@given(st.one_of(st.binary(max_size=64), st.sampled_from([form for form, _ in TAKEN]).flatmap(
    lambda form: st.integers(0, 60).map(lambda end: encode_image(form)[:end]))))  # fmt: skip
def test_any_bytes_are_looked_at(head: bytes) -> None:
    header = header_of(head)
    assert header is None or header.size is None or min(header.size) > 0


@pytest.mark.parametrize(("form", "mime"), TAKEN)
def test_an_ordinary_image_is_the_very_same_at_once(form: str, mime: str) -> None:
    image = image_of(encode_image(form), mime)
    picture = PromptImages(PlainFitter()).prepare_quickly(image)
    assert picture is not None
    assert picture.image is image
    assert picture.notes == ()


@pytest.mark.parametrize(("form", "mime"), TAKEN[:3])
async def test_an_image_that_is_cut_off_is_not_taken_for_a_good_one(form: str, mime: str) -> None:
    whole = encode_image(form, (300, 300))
    image = image_of(whole[: len(whole) * 2 // 3], mime)
    assert PromptImages(PlainFitter()).prepare_quickly(image) is None
    assert (await PromptImages(PlainFitter()).fit_image(image)).image is None


def test_nothing_is_loaded_for_an_ordinary_image() -> None:
    data = image_of(encode_image("PNG")).data
    code = (
        "import sys\nfrom pigeon.tools.images.prompt_images import PromptImages\n"
        "from pigeon.wire.content import ImageContent\n"
        f"assert PromptImages(None).prepare_quickly(ImageContent(data={data!r}, mime_type='image/png')).image\n"
        "assert 'PIL' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_a_wrong_type_is_put_right() -> None:
    picture = PromptImages(PlainFitter()).prepare_quickly(image_of(encode_image("JPEG"), "image/png"))
    assert picture is not None
    assert picture.image == image_of(encode_image("JPEG"), "image/jpeg")


@pytest.mark.parametrize("size", [(2001, 10), (10, 2001)])
async def test_an_image_with_too_many_pixels_is_scaled_as_read_does_it(size: tuple[int, int]) -> None:
    data = encode_image("PNG", size)
    images = PromptImages(PlainFitter())
    assert images.prepare_quickly(image_of(data)) is None
    picture = await images.fit_image(image_of(data))
    assert max(size_of(picture.image)) == 2000
    assert picture.image is not None
    assert picture.image.data == fit_image(data, "image/png", Profile()).to_base64()
    assert f"original {size[0]}x{size[1]}" in picture.notes[0]


async def test_an_image_with_too_many_bytes_is_made_smaller() -> None:
    data = encode_image("PNG") + b"\0" * 3_600_000
    images = PromptImages(PlainFitter())
    assert images.prepare_quickly(image_of(data)) is None
    picture = await images.fit_image(image_of(data))
    assert picture.image is not None
    assert len(picture.image.data) < 4_718_592
    assert size_of(picture.image) == (30, 20)


@pytest.mark.parametrize(("form", "mime"), FOREIGN)
@pytest.mark.parametrize("resize", [True, False])
async def test_a_foreign_format_is_converted(form: str, mime: str, resize: bool) -> None:
    images = PromptImages(PlainFitter(), lambda: resize)
    image = image_of(encode_image(form, (64, 64)), mime)
    assert images.prepare_quickly(image) is None
    picture = await images.fit_image(image)
    assert picture.image is not None
    assert picture.image.mime_type == "image/png"
    assert picture.notes == (f"[Image converted from {mime} to image/png.]",)


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")
async def test_a_format_is_converted_if_pillow_knows_it() -> None:
    picture = await PromptImages(PlainFitter()).fit_image(image_of(encode_image("AVIF"), "image/avif"))
    assert picture.image is not None
    assert picture.image.mime_type == "image/png"


def test_no_size_is_too_large_when_images_are_not_resized() -> None:
    image = image_of(encode_image("PNG", (3000, 3000)))
    picture = PromptImages(PlainFitter(), lambda: False).prepare_quickly(image)
    assert picture is not None
    assert picture.image is image


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n", b"hello", b"\xff\xd8\xff\xe0", b"<svg/>", b"%!PS-Adobe-3.0"])
def test_what_is_no_image_is_told_at_once(data: bytes) -> None:
    picture = PromptImages(PlainFitter()).prepare_quickly(image_of(data))
    assert picture is not None
    assert (picture.image, picture.notes, picture.readable) == (None, (NOT_AN_IMAGE,), False)


@pytest.mark.parametrize("data", ["abc", "ümlaut", "=", "\ud800"])
async def test_data_that_is_not_even_base64_is_no_image(data: str) -> None:
    images, image = PromptImages(PlainFitter()), ImageContent(data=data, mime_type="image/png")
    picture = images.prepare_quickly(image) or await images.fit_image(image)
    assert (picture.image, picture.readable) == (None, False)


async def test_what_is_no_image_is_told_too_if_the_first_characters_could_not_be_read_alone() -> None:
    lines = "\n" + base64.encodebytes(b"hello " * HEAD_CHARS).decode()
    image = ImageContent(data=lines, mime_type="image/png")
    assert PromptImages(PlainFitter()).prepare_quickly(image) is None
    picture = await PromptImages(PlainFitter()).fit_image(image)
    assert (picture.image, picture.notes, picture.readable) == (None, (NOT_AN_IMAGE,), False)


async def test_a_format_that_cannot_be_converted_is_not_readable() -> None:
    heic = image_of(b"\0\0\0\x18ftypheic" + b"\0" * 40, "image/heic")
    images = PromptImages(PlainFitter())
    assert images.prepare_quickly(heic) is None
    picture = await images.fit_image(heic)
    assert (picture.image, picture.readable) == (None, False)
    assert picture.notes == ("[Image omitted: it could not be decoded (the format is unknown).]",)


async def test_a_large_image_that_is_cut_off_is_known_for_an_image() -> None:
    picture = await PromptImages(PlainFitter()).fit_image(image_of(encode_image("PNG", (3000, 3000))[:200]))
    assert (picture.image, picture.readable) == (None, True)
    assert "could not be decoded" in picture.notes[0]


async def test_lines_in_the_data_do_not_hide_an_image() -> None:
    lines = base64.encodebytes(encode_image("PNG") + b"\0" * HEAD_CHARS).decode()
    images = PromptImages(PlainFitter())
    picture = images.prepare_quickly(ImageContent(data=lines, mime_type="image/png")) or await images.fit_image(
        ImageContent(data=lines, mime_type="image/png")
    )
    assert size_of(picture.image) == (30, 20)
