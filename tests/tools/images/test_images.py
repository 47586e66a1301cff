from __future__ import annotations

import base64
import io
import random
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fakes.tool_run import PlainFitter, call_tool, images_of, paths_in, text_of
from pigeon.tools.images.resizing import NEEDS_PILLOW, Fitted, Profile, fit_image, image_type
from pigeon.tools.read import ReadTool


def encode_image(form: str, size: tuple[int, int] = (30, 20), mode: str = "RGB", **options: object) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, 200 if mode in ("L", "1") else "red").save(out, form, **options)
    return out.getvalue()


def noise(width: int, height: int) -> bytes:
    out = io.BytesIO()
    Image.frombytes("RGB", (width, height), random.Random(1).randbytes(width * height * 3)).save(out, "PNG")
    return out.getvalue()


def size_of(data: bytes | None) -> tuple[int, int]:
    with Image.open(io.BytesIO(data or b"")) as image:
        return image.size


@pytest.mark.parametrize(
    ("form", "mime"),
    [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("GIF", "image/gif"), ("WEBP", "image/webp"), ("BMP", "image/bmp")],
)
def test_images_are_known_by_their_first_bytes(form: str, mime: str) -> None:
    assert image_type(encode_image(form)) == mime


@pytest.mark.parametrize(
    "head", [b"", b"BM is how this text begins", b"\xff\xd8\xff\xf7rest", b"RIFFxxxxWAVE", b"<svg/>"]
)
def test_other_bytes_are_no_image(head: bytes) -> None:
    assert image_type(head) is None


def test_an_animated_png_is_no_image() -> None:
    frames = [Image.new("RGB", (5, 5), colour) for colour in ("red", "blue")]
    out = io.BytesIO()
    frames[0].save(out, "PNG", save_all=True, append_images=frames[1:])
    assert image_type(out.getvalue()) is None


async def test_a_small_image_is_handed_over_unchanged(tmp_path: Path) -> None:
    data = encode_image("PNG")
    (tmp_path / "picture.txt").write_bytes(data)
    outcome = await call_tool(ReadTool(paths_in(tmp_path), PlainFitter()), path="picture.txt")
    assert text_of(outcome) == "Read image file [image/png]"
    assert [(image.mime_type, base64.b64decode(image.data)) for image in images_of(outcome)] == [("image/png", data)]


async def test_a_large_image_is_scaled_and_the_factor_told(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(encode_image("PNG", (4000, 1000)))
    outcome = await call_tool(ReadTool(paths_in(tmp_path), PlainFitter()), path="x.png")
    assert text_of(outcome) == (
        "Read image file [image/png]\n[Image: original 4000x1000, displayed at 2000x500. "
        "Multiply coordinates by 2.00 to map to original image.]"
    )
    assert size_of(base64.b64decode(images_of(outcome)[0].data)) == (2000, 500)


async def test_resizing_can_be_switched_off(tmp_path: Path) -> None:
    data = encode_image("PNG", (4000, 10))
    (tmp_path / "x.png").write_bytes(data)
    outcome = await call_tool(ReadTool(paths_in(tmp_path), PlainFitter(), resize_images=lambda: False), path="x.png")
    assert base64.b64decode(images_of(outcome)[0].data) == data


def test_forms_that_models_do_not_take_are_converted() -> None:
    image = fit_image(encode_image("BMP"), "image/bmp", Profile())
    assert (image.mime, image.hints) == ("image/png", ("[Image converted from image/bmp to image/png.]",))
    assert size_of(image.data) == (30, 20)


def test_a_heavy_image_becomes_a_jpeg_or_smaller() -> None:
    data = noise(300, 300)
    lighter = fit_image(data, "image/png", Profile(encoded_bytes=150_000))
    assert lighter.mime == "image/jpeg"
    assert size_of(lighter.data) == (300, 300)
    small = fit_image(data, "image/png", Profile(encoded_bytes=8_000))
    assert size_of(small.data)[0] < 300
    assert "Multiply coordinates" in small.hints[0]
    assert len(small.to_base64()) <= 8_000


def test_an_image_that_cannot_be_small_enough_is_left_out() -> None:
    image = fit_image(noise(50, 50), "image/png", Profile(encoded_bytes=20))
    assert image.data is None
    assert "omitted" in image.hints[0]


def test_a_turned_photo_is_put_upright_when_it_is_encoded_anew() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    image = fit_image(encode_image("JPEG", (3000, 1000), exif=exif), "image/jpeg", Profile())
    assert size_of(image.data) == (667, 2000)


def test_a_photo_of_any_size_is_scaled_and_other_giants_are_left_out() -> None:
    photo = fit_image(encode_image("JPEG", (9_000, 8_000), "L"), "image/jpeg", Profile())
    assert size_of(photo.data) == (2000, 1778)
    assert "original 9000x8000" in photo.hints[0]
    assert fit_image(encode_image("PNG", (9_000, 8_000), "1"), "image/png", Profile()).data is None


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "CMYK", "I;16"])
def test_every_kind_of_pixel_can_be_scaled(mode: str) -> None:
    out = io.BytesIO()
    Image.new(mode, (2100, 5)).save(out, "TIFF")
    assert size_of(fit_image(out.getvalue(), "image/png", Profile()).data)[0] == 2000


def test_transparency_becomes_white_in_a_jpeg() -> None:
    out = io.BytesIO()
    Image.new("RGBA", (40, 40), (0, 0, 0, 0)).save(out, "PNG")
    noisy = Image.open(io.BytesIO(noise(200, 200))).convert("RGBA")
    noisy.putalpha(0)
    out = io.BytesIO()
    noisy.save(out, "PNG")
    image = fit_image(out.getvalue(), "image/png", Profile(encoded_bytes=20_000))
    assert image.mime == "image/jpeg"
    with Image.open(io.BytesIO(image.data or b"")) as shown:
        assert shown.getpixel((5, 5)) == (255, 255, 255)


async def test_a_broken_image_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(encode_image("PNG")[:20])
    outcome = await call_tool(ReadTool(paths_in(tmp_path), PlainFitter()), path="x.png")
    assert images_of(outcome) == []
    assert "could not be decoded" in text_of(outcome)


@given(st.sampled_from(["PNG", "JPEG", "GIF", "WEBP", "BMP"]), st.binary(max_size=40), st.integers(0, 200))
def test_no_bytes_break_the_decoder(form: str, junk: bytes, at: int) -> None:
    data = encode_image(form)
    broken = data[:at] + junk + data[at + len(junk) :]
    fit_image(broken, f"image/{form.lower()}", Profile(width=10, height=10))


def test_without_pillow_small_images_still_work(monkeypatch: pytest.MonkeyPatch) -> None:
    images = {form: encode_image(form) for form in ("PNG", "JPEG", "GIF", "WEBP", "BMP")}
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert fit_image(images["PNG"][:-1], "image/png").data is None
    assert fit_image(images.pop("BMP"), "image/bmp", Profile()).hints == (NEEDS_PILLOW,)
    for form, data in images.items():
        mime = f"image/{form.lower()}"
        assert fit_image(data, mime, Profile()) == Fitted(data, mime)
        assert fit_image(data, mime) == Fitted(data, mime)
        # Too wide, too large, cut off: a provider would refuse it, and every request after it.
        assert fit_image(data, mime, Profile(width=1)).hints == (NEEDS_PILLOW,)
        assert fit_image(data, mime, Profile(encoded_bytes=10)).hints == (NEEDS_PILLOW,)
        assert fit_image(data[:12], mime, Profile()).hints == (NEEDS_PILLOW,)


def test_sixteen_bits_of_grey_keep_their_shades_when_scaled() -> None:
    shades = [0, 64 * 256, 128 * 256, 255 * 256]
    image = Image.new("I;16", (4, 1))
    for place, shade in enumerate(shades):
        image.putpixel((place, 0), shade)
    out = io.BytesIO()
    image.resize((4000, 10), Image.Resampling.NEAREST).save(out, "PNG")
    made = fit_image(out.getvalue(), "image/png", Profile())
    with Image.open(io.BytesIO(made.data or b"")) as shown:
        grey = shown.convert("L")
        assert [grey.getpixel((place, 2)) for place in (250, 750, 1250, 1750)] == pytest.approx(
            [0, 64, 128, 255], abs=2
        )


async def test_an_image_that_is_cut_off_is_left_out_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(noise(30, 20)[:200])
    outcome = await call_tool(ReadTool(paths_in(tmp_path), PlainFitter()), path="x.png")
    assert "Image omitted" in text_of(outcome)
    assert images_of(outcome) == []


def test_the_factor_is_that_of_the_side_that_shrank() -> None:
    made = fit_image(encode_image("PNG", (1, 30000)), "image/png", Profile())
    assert "Multiply coordinates by 15.00" in made.hints[0]
