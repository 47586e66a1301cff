"""Images decoded without risk to the agent: small ones here, all others in a process with a limit on its memory.

A file of a few kilobytes can decode to gigabytes, and a decoder in C may do anything with a hostile file. So everything
but a small image of a common type is decoded by a short-lived process (`main`), one at a time for each agent; an abort
kills it. `read` and the images of messages (`prompt_images.py`) decode here and nowhere else.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Protocol

from pigeon.system.process.start import ProcessOwner
from pigeon.system.process.variables import own_environment
from pigeon.wire import codec
from pigeon.wire.errors import BadRecord

if TYPE_CHECKING:
    from pigeon.tools.images.resizing import Fitted, Profile

SMALL_PIXELS = 4_200_000
MOST_MEMORY = 1 << 30
SECONDS = 30.0
_SIMPLE = ("image/png", "image/jpeg", "image/gif")


class ImageFitter(Protocol):
    """Makes an image fit for a model."""

    async def fit_image(self, data: bytes, mime: str, profile: Profile | None) -> Fitted:
        """The image within the profile, as from `resizing.fit_image`."""
        ...


class GuardedFitter:
    """Decodes one image at a time; larger ones in a process of `owner`."""

    def __init__(self, owner: ProcessOwner, most_memory: int = MOST_MEMORY, seconds: float = SECONDS) -> None:
        self._owner = owner
        self._most_memory = most_memory
        self._seconds = seconds
        self._turn = asyncio.Lock()

    async def fit_image(self, data: bytes, mime: str, profile: Profile | None) -> Fitted:
        """The image within the profile; left out, with a note, if that takes too much memory or time."""
        from pigeon.tools.images.resizing import SizeExceeded, fit_image

        async with self._turn:
            if _can_decode_here(data, mime):
                try:
                    return await asyncio.to_thread(fit_image, data, mime, profile, SMALL_PIXELS)
                except SizeExceeded:  # a frame may be larger than the header states
                    pass
            return await self._fit_in_process(data, mime, profile)

    async def _fit_in_process(self, data: bytes, mime: str, profile: Profile | None) -> Fitted:
        from pigeon.system.process.python_programs import make_python_command
        from pigeon.system.process.run_program import run_program

        order = codec.encode({"mime": mime, "profile": profile, "memory": self._most_memory})
        try:
            result = await run_program(
                self._owner,
                make_python_command(__name__),
                cwd="/",
                environment=own_environment({}),
                timeout=self._seconds,
                stdin=order + b"\n" + data,
                term_grace=0,
            )
        except OSError as error:
            return _omit_image(mime, f"the decoder cannot be started: {error}")
        if result.killed:
            return _omit_image(mime, f"decoding took longer than {self._seconds:g} s")
        return _parse_answer(result.stdout, mime) if result.code == 0 else _omit_image(mime, "the decoder failed on it")


def _can_decode_here(data: bytes, mime: str) -> bool:
    """True if the header promises an image that may be decoded here: few pixels, and a decoder that respects the
    limit."""
    from pigeon.tools.images.header import header_of

    header = header_of(data)
    if mime not in _SIMPLE or header is None or header.size is None:
        return False
    return header.size[0] * header.size[1] <= SMALL_PIXELS


def _parse_answer(printed: bytes, mime: str) -> Fitted:
    from pigeon.tools.images.resizing import Fitted

    head, _, data = printed.partition(b"\n")
    try:
        made = codec.decode(head)
    except BadRecord:
        return _omit_image(mime, "the decoder failed on it")
    return Fitted(data if made["sent"] else None, made["mime"], tuple(made["hints"]))


def _omit_image(mime: str, reason: str) -> Fitted:
    from pigeon.tools.images.resizing import Fitted

    return Fitted(None, mime, (f"[Image omitted: {reason}.]",))


def main() -> None:
    """Run as the decoding process: a request and an image on stdin, the result on stdout."""
    import resource

    from pigeon.tools.images.resizing import Profile, fit_image

    head, _, data = sys.stdin.buffer.read().partition(b"\n")
    order = codec.decode(head)
    resource.setrlimit(resource.RLIMIT_AS, (order["memory"], order["memory"]))
    profile = None if order["profile"] is None else codec.convert(order["profile"], Profile)
    made = fit_image(data, order["mime"], profile)
    answer = {"sent": made.data is not None, "mime": made.mime, "hints": made.hints}
    sys.stdout.buffer.write(codec.encode(answer) + b"\n" + (made.data or b""))
