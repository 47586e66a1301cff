"""Files and folders that are held from the decision about a call to its end.

`resolve_and_hold` opens what a path names on this machine; permission rules check its names and its place, and the tool
opens it through the same object, so that neither another spelling nor a link that is made later can make the two
differ. Where files are elsewhere, a `HeldPath` has the real path alone, and it is reached without following links.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import Self

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_F_GETPATH = 50
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class HeldPath(str):
    """The real path that a text named when it was resolved: an operation reaches exactly this place, or it fails.

    It is a `str` so that whatever takes a path takes it. `names` are the absolute paths that the text may have meant,
    links not followed. `close` releases what is held.
    """

    names: tuple[str, ...]
    place: str
    is_folder: bool

    def __new__(cls, place: str, names: tuple[str, ...], is_folder: bool) -> Self:
        held = super().__new__(cls, place)
        held.place = place
        held.names = names
        held.is_folder = is_folder
        return held

    @property
    def name(self) -> str:
        """Its name in the folder that contains it; `.` for a folder, which is itself held."""
        return "." if self.is_folder else os.path.basename(self.place)

    def close(self) -> None:
        """Nothing is held beyond the path itself."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class OpenedPath(HeldPath):
    """A path on this machine, held by a descriptor.

    Its place is opened from the descriptor of its folder, or of the nearest existing folder, and no link is followed
    from there on: the opened file is at `place`, or opening fails.
    """

    _folder: int | None
    _rest: list[str]

    @classmethod
    def hold(cls, names: tuple[str, ...], folder: int, rest: list[str], place: str) -> OpenedPath:
        """The path below a folder whose descriptor is given away; without a `rest`, the folder itself."""
        held = cls(place, names, not rest)
        held._folder = folder
        held._rest = rest
        return held

    @property
    def name(self) -> str:
        """Its name in `folder`; `.` for a folder, which is itself held."""
        return self._rest[-1] if self._rest else "."

    def open(self, flags: int) -> int:
        return os.open(self.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.open_folder())

    def open_folder(self, make: bool = False) -> int:
        """The descriptor of the folder that contains `name`, which stays ours; missing folders can be created.

        Raises `OSError` if there is none, or if there is a link by now. Nothing is created at a path that is too long
        for other programs, although a descriptor reaches it.
        """
        if self._folder is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.place)
        if make and len(os.fsencode(self.place)) >= os.pathconf("/", "PC_PATH_MAX"):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), self.place)
        while len(self._rest) > 1:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(self._rest[0], dir_fd=self._folder)
            below = os.open(self._rest[0], _FOLDER | os.O_NOFOLLOW, dir_fd=self._folder)
            os.close(self._folder)
            self._folder = below
            del self._rest[0]
        return self._folder

    def close(self) -> None:
        """Release the descriptor; nothing can be opened through this object any more."""
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None


def resolve_and_hold(path: str, names: tuple[str, ...] = ()) -> OpenedPath:
    """The file that an absolute path names now, with all links resolved; raises `OSError` if the system has no
    descriptors left."""
    rest: list[str] = []
    folder = os.path.realpath(path)
    while True:
        try:
            descriptor = os.open(folder, _FOLDER)
            break
        except OSError as error:
            if error.errno in _NO_ROOM or folder == "/":
                raise
        folder, name = os.path.split(folder)
        rest.insert(0, name)
    # The descriptor shows the real place; a link may have replaced a folder since the path was resolved.
    return OpenedPath.hold(names or (path,), descriptor, rest, os.path.join(_path_of(descriptor) or folder, *rest))


def hold_place(place: str) -> OpenedPath:
    """The file at a real path; no link is followed on the way, so one that was made since makes opening it fail."""
    names = [name for name in place.split("/") if name]
    folder = os.open("/", _FOLDER)
    while names:
        try:
            below = os.open(names[0], _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        except OSError as error:
            if error.errno in _NO_ROOM:
                os.close(folder)
                raise
            break
        os.close(folder)
        folder = below
        del names[0]
    return OpenedPath.hold((place,), folder, names, place)


def _path_of(descriptor: int) -> str | None:
    with suppress(OSError, ImportError):
        if sys.platform == "darwin":
            import fcntl

            return os.fsdecode(fcntl.fcntl(descriptor, _F_GETPATH, bytes(1024)).rstrip(b"\0"))
        return os.readlink(f"/proc/self/fd/{descriptor}")
    return None
