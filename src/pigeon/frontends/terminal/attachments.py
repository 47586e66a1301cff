"""Images for the next message: named with `@` or `/image`, or pasted."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pigeon.system.paths import absolute_path

if TYPE_CHECKING:
    from pigeon.wire.content import ImageInput

_AT_FILE = re.compile(r"(?:^|\s)@(?:\"([^\"]+)\"|(\S+))")
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")


class Attachments:
    """Images that wait to be sent. Relative paths begin at `cwd`."""

    def __init__(self, cwd: str, home: str) -> None:
        self._cwd = cwd
        self._home = home
        self._waiting: list[ImageInput] = []

    @property
    def count(self) -> int:
        return len(self._waiting)

    def add(self, image: str | bytes) -> None:
        """Attach a file or the bytes of an image; raises a `Refusal` with the reason if it is not an image."""
        from pigeon.sdk.images import image_of

        if isinstance(image, str):
            path = absolute_path(_unquote_path(image), self._cwd, self._home)
            self._waiting.append(image_of(path, "image"))
        else:
            self._waiting.append(image_of(image, "the clipboard"))

    def is_picture(self, text: str) -> bool:
        """Whether a pasted text is the path of a picture."""
        path = _unquote_path(text)
        return (
            path.lower().endswith(PICTURES)
            and "\n" not in path
            and os.path.isfile(absolute_path(path, self._cwd, self._home))
        )

    def load_named_images(self, text: str) -> list[ImageInput]:
        """The pictures that a message names; raises a `Refusal` for one that cannot be read."""
        from pigeon.sdk.images import image_of

        names = [quoted or plain for quoted, plain in _AT_FILE.findall(text)]
        pictures = [name for name in names if name.lower().endswith(PICTURES)]
        return [image_of(absolute_path(name, self._cwd, self._home), name) for name in pictures]

    def pop_all(self) -> list[ImageInput]:
        """Remove and return the waiting images, for the message that is sent now."""
        images, self._waiting = self._waiting, []
        return images

    def restore(self, images: Sequence[ImageInput]) -> None:
        """Put images back in front, because the message that had them did not arrive."""
        self._waiting = [*images, *self._waiting]


def _unquote_path(text: str) -> str:
    """A path as terminals paste it: quoted, with escaped spaces, or as a `file:` address."""
    return text.strip().strip("'\"").removeprefix("file://").replace("\\ ", " ")
