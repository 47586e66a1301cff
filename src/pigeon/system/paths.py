"""Paths as people and models write them: relative to a folder, with a home, a mention sign or odd spaces."""

from __future__ import annotations

import os
import re
import unicodedata

from pigeon.wire.errors import ToolFailed

_ODD_SPACES = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")
_BEFORE_MERIDIEM = re.compile(r" (AM|PM)\b", re.IGNORECASE)

_PROCESS_MEMORY = re.compile(r"/proc/[^/]+/(?:task/[^/]+/)?(?:environ|mem|auxv)")


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


def resolved(path: str, cwd: str) -> str:
    """The absolute path that is meant: as written if that exists, else with a leading `@` and odd spaces put right."""
    checked(path)
    literal = _absolute(path, cwd)
    plain = _absolute(_plain(path), cwd)
    for candidate in (literal, plain):
        if _PROCESS_MEMORY.fullmatch(os.path.realpath(candidate)):
            raise ToolFailed(f"{path} shows the memory or environment of a process, which may hold keys.")
    if literal == plain or os.path.lexists(literal):
        return literal
    if not os.path.lexists(plain) and _has_own_folder(path, literal):
        return literal
    return plain


def resolved_for_reading(path: str, cwd: str) -> str:
    """The same, and if nothing is there, the spellings that screenshots and other systems give to file names."""
    target = resolved(path, cwd)
    if os.path.lexists(target):
        return target
    narrow = _BEFORE_MERIDIEM.sub("\u202f\\1", target)
    decomposed = unicodedata.normalize("NFD", target)
    for other in (narrow, decomposed, target.replace("'", "\u2019"), decomposed.replace("'", "\u2019")):
        if other != target and os.path.lexists(other):
            return other
    return target


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


def _plain(path: str) -> str:
    return _ODD_SPACES.sub(" ", path).removeprefix("@")


def _has_own_folder(path: str, literal: str) -> bool:
    return "/" in path.removeprefix("@") and os.path.isdir(os.path.dirname(literal))


def _absolute(path: str, cwd: str) -> str:
    if path.startswith("file://"):
        path = _from_url(path)
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser("~") + path[1:]
    return os.path.normpath(os.path.join(cwd, path))


def _from_url(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    return unquote(parts.path) or "/"
