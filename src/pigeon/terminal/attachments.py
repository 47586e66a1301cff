"""Images for the next message: named with `@`, with `/image`, or pasted."""

from __future__ import annotations

import os
import re

from pigeon.sdk.images import image_of
from pigeon.system.paths import absolute
from pigeon.wire.content import ImageInput
from pigeon.wire.errors import Refusal

_AT_FILE = re.compile(r"(?:^|\s)@(?:\"([^\"]+)\"|(\S+))")
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")


class Attachments:
    """What waits to be sent. Paths begin at `cwd`."""

    def __init__(self, cwd: str, home: str) -> None:
        self._cwd = cwd
        self._home = home
        self._waiting: list[ImageInput] = []

    @property
    def count(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def add(self, image: str | bytes) -> None:
        """Attach a file or the bytes of an image; raises a `Refusal` that says why it is none."""
        if isinstance(image, str):
            path = absolute(_plain_path(image), self._cwd, self._home)
            self._waiting.append(image_of(path, "image"))
        else:
            self._waiting.append(image_of(image, "the clipboard"))

    def is_picture(self, text: str) -> bool:
        """Whether a pasted text is the path of a picture."""
        path = _plain_path(text)
        return (
            path.lower().endswith(PICTURES)
            and "\n" not in path
            and os.path.isfile(absolute(path, self._cwd, self._home))
        )

    def taken(self, text: str) -> list[ImageInput]:
        """The images of a message: those that wait, and the pictures that it names; the next has none of them."""
        images, self._waiting = self._waiting, []
        for quoted, plain in _AT_FILE.findall(text):
            name = quoted or plain
            if name.lower().endswith(PICTURES):
                try:
                    images.append(image_of(absolute(name, self._cwd, self._home), name))
                except Refusal:
                    self._waiting = images
                    raise
        return images


def _plain_path(text: str) -> str:
    """A path as terminals paste it: quoted, with escaped spaces, or as an address."""
    return text.strip().strip("'\"").removeprefix("file://").replace("\\ ", " ")
