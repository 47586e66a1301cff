"""Paths as people and models write them: relative to a folder, with a home, a mention sign or odd spellings.

`PathResolver` is the one resolver of what models write. Every tool opens what `target` names, and permission rules are
held against all that `resolve` gives for the same text, so that a spelling which is added here is known to both.
`absolute` is for paths in options and settings, which have no spellings.
"""

from __future__ import annotations

import os
import re
import unicodedata

from msgspec import Struct

from pigeon.wire.errors import ToolFailed

# Patterns as texts: `re` compiles them when they are first needed, which is after the first answer to the host.
_ODD_SPACES = "[\u00a0\u2000-\u200a\u202f\u205f\u3000]"
_BEFORE_MERIDIEM = r"(?i) (AM|PM)\b"
_CURLY = "\u2019"
_PROCESS_MEMORY = r"/proc/[^/]+/(?:task/[^/]+/)?(?:environ|mem|auxv)"


def absolute(path: str, base: str, home: str) -> str:
    """Where a path leads that stands in options or settings: `~` is `home`, and a relative path begins at `base`.

    Takes the place of `os.path.abspath(os.path.expanduser(path))`, which asks the process for both.
    """
    return os.path.normpath(os.path.join(base, expand_home(path, home)))


def expand_home(path: str, home: str) -> str:
    """The path with its leading `~` or `~name` filled in; a name that no user has stays as it is."""
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


class ResolvedPath(Struct, frozen=True):
    """One path as absolute paths: read as it is written, with `@` and odd spaces put right, and what a tool opens."""

    literal: str
    plain: str
    target: str

    def places(self) -> list[str]:
        """Everything that the path may stand for, and where each of these really leads."""
        names = dict.fromkeys((self.literal, self.plain, self.target))
        return list(dict.fromkeys([*names, *(os.path.realpath(name) for name in names)]))


class PathResolver(Struct, frozen=True):
    """Resolves paths for one working directory and one home directory, both absolute."""

    cwd: str
    home: str

    def resolve(self, path: str, for_reading: bool = True) -> ResolvedPath:
        """Where a path leads: as written if that exists, else with a leading `@` and odd spaces put right.

        For reading, if nothing is there, the spellings that screenshots and other systems give to names are tried.
        """
        checked(path)
        literal = self._absolute(path)
        plain = self._absolute(re.sub(_ODD_SPACES, " ", path).removeprefix("@"))
        target = plain
        if os.path.lexists(literal) or (not os.path.lexists(plain) and _has_own_folder(path, literal)):
            target = literal
        return ResolvedPath(literal, plain, _existing_spelling(target) if for_reading else target)

    def target(self, path: str, for_reading: bool = True) -> str:
        """The absolute path to open; raises `ToolFailed` for what no tool may open."""
        resolved = self.resolve(path, for_reading)
        if any(re.fullmatch(_PROCESS_MEMORY, place) for place in resolved.places()):
            raise ToolFailed(f"{path} shows the memory or environment of a process, which may hold keys.")
        return resolved.target

    def _absolute(self, path: str) -> str:
        if path.startswith("file://"):
            path = checked(_from_url(path))
        if path == "~" or path.startswith("~/"):
            path = expand_home(path, self.home)
        return os.path.normpath(os.path.join(self.cwd, path))


def checked(path: str) -> str:
    """The path itself, if it can be one."""
    if not path:
        raise ToolFailed("The path is empty. Name a file or a directory.")
    if "\0" in path:
        raise ToolFailed("The path contains a NUL character, which no file name can have.")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise ToolFailed("The path contains half of a surrogate pair, which no file name can have.") from None
    return path


def folded(path: str) -> str:
    """The path in the form that is the same for all its spellings: composed, with plain spaces and quotes."""
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


def _from_url(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    try:
        return unquote(urlsplit(url).path) or "/"
    except ValueError:  # no URL after all, but perhaps a name
        return url
