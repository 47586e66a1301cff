"""Paths as people and models write them: relative to a folder, with a home, a mention sign or odd spellings.

`PathResolver` is the one resolver of paths that models write. It returns a `HeldPath`: the file that the text meant at
that moment, held by a descriptor. Permission rules check its names and its place, and the tool opens it through the
same object, so that neither another spelling nor a link that is made later can make the two differ. `absolute_path` is
for paths in options and settings, which are not respelled.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from pigeon.system.file_view import LOCAL_FILES, FileView
from pigeon.system.files import run_in_thread
from pigeon.system.held_paths import HeldPath
from pigeon.wire.errors import ToolFailed

_T = TypeVar("_T")
# Patterns as texts: `re` compiles them when they are first needed, which is after the first answer to the host.
_ODD_SPACES = "[\u00a0\u2000-\u200a\u202f\u205f\u3000]"
_BEFORE_MERIDIEM = r"(?i) (AM|PM)\b"
_CURLY = "\u2019"
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


class _Viewer(Struct, frozen=True, kw_only=True):
    view: FileView = LOCAL_FILES


class PathResolver(_Viewer, frozen=True):
    """Resolves paths for one working directory and one home directory, both absolute, of the machine that `view`
    shows."""

    cwd: str
    home: str

    def hold_path(self, path: str, for_reading: bool = True) -> HeldPath:
        """The file of a path: as written if that exists, else with a leading `@` and odd spaces corrected.

        For reading, if nothing is there, the spellings that screenshots and other systems use are tried. Raises
        `ToolFailed` for files that no tool may open.
        """
        literal, plain = self.list_likely_places(path)
        target = plain
        exists = self.view.lexists
        if exists(literal) or (not exists(plain) and self._has_own_folder(path, literal)):
            target = literal
        if for_reading:
            target = self._find_existing_spelling(target)
        try:
            held = self.view.hold(target, tuple(dict.fromkeys((literal, plain, target))))
        except OSError as error:
            raise ToolFailed(f"Cannot look at {path}: {error.strerror or error}") from error
        if any(is_process_memory(place, self.view) for place in (*held.names, held.place)):
            held.close()
            raise ToolFailed(f"{path} shows the memory, arguments or environment of a process, which may hold keys.")
        return held

    def make_hidden_path_test(self) -> Callable[[str], bool]:
        """A test for hidden real paths, made for one search: nothing is hidden here."""
        return lambda place: False

    def list_likely_places(self, path: str) -> tuple[str, str]:
        """The absolute path as written, and with odd spellings corrected; raises `ToolFailed` for an impossible one."""
        check_path(path)
        return self._to_absolute(path), self._to_absolute(re.sub(_ODD_SPACES, " ", path).removeprefix("@"))

    async def decide(self, question: Callable[[PathResolver], _T]) -> _T:
        """The answer to a question about files, asked with a resolver that can answer it."""
        return question(self)

    async def decide_in_thread(self, question: Callable[[PathResolver], _T], ahead: Sequence[str] = ()) -> _T:
        """The same for one that takes time; `ahead` are paths in the working directory that it will read."""
        return await run_in_thread(lambda: question(self))

    def _find_existing_spelling(self, target: str) -> str:
        exists = self.view.lexists
        if exists(target):
            return target
        narrow = re.sub(_BEFORE_MERIDIEM, "\u202f\\1", target)
        decomposed = unicodedata.normalize("NFD", target)
        for other in (narrow, decomposed, target.replace("'", _CURLY), decomposed.replace("'", _CURLY)):
            if other != target and exists(other):
                return other
        return target

    def _has_own_folder(self, path: str, literal: str) -> bool:
        return "/" in path.removeprefix("@") and self.view.is_folder(os.path.dirname(literal))

    def _to_absolute(self, path: str) -> str:
        if path.startswith("file://"):
            path = check_path(_path_from_url(path))
        if path == "~" or path.startswith("~/"):
            path = expand_home(path, self.home)
        return os.path.normpath(os.path.join(self.cwd, path))


def is_process_memory(place: str, view: FileView = LOCAL_FILES) -> bool:
    """True for system files that show the contents of a process: its environment, arguments, memory or files."""
    found = re.fullmatch(_PROCESS_MEMORY, place, re.DOTALL) if "/proc/" in place else None
    if found is None:
        return False
    if not (found[1] or found[2]):
        return True
    # Elsewhere it may be a copy, made as data for tests. Files of the system itself have no size.
    try:
        return view.size_of(place) == 0
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


def _path_from_url(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    try:
        return unquote(urlsplit(url).path) or "/"
    except ValueError:  # not a URL after all, but perhaps a name
        return url
