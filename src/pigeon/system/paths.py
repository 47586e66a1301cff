"""Paths as people and models write them: relative to a folder, with a home, a mention sign or odd spellings.

`PathResolver` is the one resolver of paths that models write. It returns a `HeldPath`: the file that the text meant at
that moment, held by a descriptor. Permission rules check its names and its place, and the tool opens it through the
same object, so that neither another spelling nor a link that is made later can make the two differ. `absolute_path` is
for paths in options and settings, which are not respelled.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import unicodedata
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from pigeon.wire.errors import ToolFailed

# Patterns as texts: `re` compiles them when they are first needed, which is after the first answer to the host.
_ODD_SPACES = "[\u00a0\u2000-\u200a\u202f\u205f\u3000]"
_BEFORE_MERIDIEM = r"(?i) (AM|PM)\b"
_CURLY = "\u2019"
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_F_GETPATH = 50
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# In every procfs, wherever it is mounted: files that show the arguments, the memory or the state of a process.
_PROCESS_MEMORY = (
    r"(.*)/proc/(?:\d+|self|thread-self)/(?:task/[^/]+/)?"
    r"(?:environ|cmdline|auxv|mem|maps|smaps|smaps_rollup|numa_maps|pagemap|stack|syscall|(?:fd|map_files)/.*)"
    r"|(.*)/proc/(?:kcore|vmcore|kmsg)"
)


def absolute_path(path: str, base: str, home: str) -> str:
    """Where a path leads that stands in options or settings: `~` is `home`, and a relative path begins at `base`.

    Replaces `os.path.abspath(os.path.expanduser(path))`, which takes both from the process.
    """
    return os.path.normpath(os.path.join(base, expand_home(path, home)))


def keep_absolute_entries(search_path: str | None) -> str:
    """The absolute entries of a PATH, or `os.defpath` without a PATH.

    An empty or relative entry would run programs of the working directory, which may be anything. This is for the
    programs that Pigeon itself looks for; the user's own commands keep the user's PATH.
    """
    entries = (os.defpath if search_path is None else search_path).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if os.path.isabs(entry))


def expand_home(path: str, home: str) -> str:
    """The path with a leading `~` or `~name` expanded; the name of an unknown user stays as it is."""
    if not path.startswith("~"):
        return path
    user, slash, rest = path[1:].partition("/")
    folder = _home_of(user) if user else home
    return path if folder is None else (folder.rstrip("/") + slash + rest) or "/"


def _home_of(user: str) -> str | None:
    import pwd

    try:
        return pwd.getpwnam(user).pw_dir
    except KeyError:
        return None


class HeldPath:
    """The file or folder that a path named when it was resolved; `close` releases it.

    `names` are the absolute paths that the text may have meant, links not followed. `place` is the real path of the
    chosen one. It is opened from the descriptor of its folder, or of the nearest existing folder, and no link is
    followed from there on: the opened file is at `place`, or opening fails.
    """

    def __init__(self, names: tuple[str, ...], folder: int, rest: list[str], place: str) -> None:
        self.names = names
        self.place = place
        self._folder: int | None = folder
        self._rest = rest

    @property
    def is_folder(self) -> bool:
        """True if the path named a folder."""
        return not self._rest

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

    def __enter__(self) -> HeldPath:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def resolve_and_hold(path: str, names: tuple[str, ...] = ()) -> HeldPath:
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
    return HeldPath(names or (path,), descriptor, rest, os.path.join(_path_of(descriptor) or folder, *rest))


def _path_of(descriptor: int) -> str | None:
    with suppress(OSError, ImportError):
        if sys.platform == "darwin":
            import fcntl

            return os.fsdecode(fcntl.fcntl(descriptor, _F_GETPATH, bytes(1024)).rstrip(b"\0"))
        return os.readlink(f"/proc/self/fd/{descriptor}")
    return None


class PathResolver(Struct, frozen=True):
    """Resolves paths for one working directory and one home directory, both absolute."""

    cwd: str
    home: str

    def hold_path(self, path: str, for_reading: bool = True) -> HeldPath:
        """The file of a path: as written if that exists, else with a leading `@` and odd spaces corrected.

        For reading, if nothing is there, the spellings that screenshots and other systems use are tried. Raises
        `ToolFailed` for files that no tool may open.
        """
        check_path(path)
        literal = self._to_absolute(path)
        plain = self._to_absolute(re.sub(_ODD_SPACES, " ", path).removeprefix("@"))
        target = plain
        if os.path.lexists(literal) or (not os.path.lexists(plain) and _has_own_folder(path, literal)):
            target = literal
        if for_reading:
            target = _existing_spelling(target)
        try:
            held = resolve_and_hold(target, tuple(dict.fromkeys((literal, plain, target))))
        except OSError as error:
            raise ToolFailed(f"Cannot look at {path}: {error.strerror or error}") from error
        if any(map(is_process_memory, (*held.names, held.place))):
            held.close()
            raise ToolFailed(f"{path} shows the memory, arguments or environment of a process, which may hold keys.")
        return held

    def make_hidden_path_test(self) -> Callable[[str], bool]:
        """A test for hidden real paths, made for one search: nothing is hidden here."""
        return lambda place: False

    def _to_absolute(self, path: str) -> str:
        if path.startswith("file://"):
            path = check_path(_path_from_url(path))
        if path == "~" or path.startswith("~/"):
            path = expand_home(path, self.home)
        return os.path.normpath(os.path.join(self.cwd, path))


def is_process_memory(place: str) -> bool:
    """True for system files that show the contents of a process: its environment, arguments, memory or files."""
    found = re.fullmatch(_PROCESS_MEMORY, place, re.DOTALL) if "/proc/" in place else None
    if found is None:
        return False
    if not (found[1] or found[2]):
        return True
    # Elsewhere it may be a copy, made as data for tests. Files of the system itself have no size.
    try:
        return os.stat(place).st_size == 0
    except OSError:
        return True


def check_path(path: str) -> str:
    """The path itself, if it is valid."""
    if not path:
        raise ToolFailed("The path is empty. Name a file or a directory.")
    if "\0" in path:
        raise ToolFailed("The path contains a NUL character, which no file name can have.")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise ToolFailed("The path contains half of a surrogate pair, which no file name can have.") from None
    return path


def fold_spelling(path: str) -> str:
    """The common form of all spellings of a path: composed, with plain spaces and quotes."""
    return re.sub(_ODD_SPACES, " ", unicodedata.normalize("NFC", path)).replace(_CURLY, "'")


def _existing_spelling(target: str) -> str:
    if os.path.lexists(target):
        return target
    narrow = re.sub(_BEFORE_MERIDIEM, "\u202f\\1", target)
    decomposed = unicodedata.normalize("NFD", target)
    for other in (narrow, decomposed, target.replace("'", _CURLY), decomposed.replace("'", _CURLY)):
        if other != target and os.path.lexists(other):
            return other
    return target


def _has_own_folder(path: str, literal: str) -> bool:
    return "/" in path.removeprefix("@") and os.path.isdir(os.path.dirname(literal))


def _path_from_url(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    try:
        return unquote(urlsplit(url).path) or "/"
    except ValueError:  # not a URL after all, but perhaps a name
        return url
