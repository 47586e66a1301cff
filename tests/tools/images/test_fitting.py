"""Images are decoded where they can do no harm: small ones here, the others in a process with limits."""

from __future__ import annotations

import io
import struct
from collections.abc import AsyncIterator

import pytest
from PIL import Image

from pigeon.system.process.start import ProcessOwner
from pigeon.tools.images.fitting import SMALL_PIXELS, GuardedFitter
from pigeon.tools.images.resizing import Profile, SizeExceeded, fit_image


@pytest.fixture
async def owner() -> AsyncIterator[ProcessOwner]:
    owner = ProcessOwner()
    yield owner
    await owner.kill_everything()


def encode_image(form: str, size: tuple[int, int], mode: str = "L") -> bytes:
    out = io.BytesIO()
    Image.new(mode, size).save(out, form)
    return out.getvalue()


LARGE = encode_image("PNG", (2500, 1800))


async def test_a_large_image_is_made_the_same_elsewhere_as_here(owner: ProcessOwner) -> None:
    assert SMALL_PIXELS < 2500 * 1800
    assert await GuardedFitter(owner).fit_image(LARGE, "image/png", Profile()) == fit_image(
        LARGE, "image/png", Profile()
    )


async def test_an_image_of_a_rare_type_is_converted_elsewhere(owner: ProcessOwner) -> None:
    made = await GuardedFitter(owner).fit_image(encode_image("TIFF", (30, 20)), "image/tiff", Profile())
    assert (made.mime, made.hints) == ("image/png", ("[Image converted from image/tiff to image/png.]",))


async def test_a_small_image_needs_no_process() -> None:
    small = encode_image("PNG", (30, 20))
    nobody: ProcessOwner = None  # type: ignore[assignment]
    assert (await GuardedFitter(nobody).fit_image(small, "image/png", Profile())).data is small


async def test_what_takes_too_much_memory_is_left_out(owner: ProcessOwner) -> None:
    huge = encode_image("PNG", (7000, 7000), "RGB")
    made = await GuardedFitter(owner, most_memory=200 << 20).fit_image(huge, "image/png", Profile())
    assert (made.data, made.hints) == (None, ("[Image omitted: decoding it takes too much memory.]",))


async def test_what_takes_too_long_is_left_out(owner: ProcessOwner) -> None:
    made = await GuardedFitter(owner, seconds=0).fit_image(LARGE, "image/png", Profile())
    assert (made.data, made.hints) == (None, ("[Image omitted: decoding took longer than 0 s.]",))


def test_a_frame_larger_than_its_picture_is_not_decoded_here() -> None:
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, 60_000, 60_000, 0) + b"\x02\x02\x44\x01\x00"
    gif = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff" + frame + b"\x3b"
    with pytest.raises(SizeExceeded):
        fit_image(gif, "image/gif", Profile(), most_pixels=SMALL_PIXELS)
