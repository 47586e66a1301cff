"""Reads git's configuration as git does: every key with its value, including those of included files.

It names programs, folders of hooks and further files, which the sandbox has to protect. Everything that git might read
counts: every `includeIf` condition counts as true, and a line that git would refuse is skipped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from pigeon.sandbox.policy import Unprotectable
from pigeon.system.files import read_whole

_LARGEST = 1 << 20
_DEEPEST = 10
_SECTION = re.compile(r'\[\s*([-.\w]+)\s*(?:"((?:[^"\\\n]|\\.)*)"\s*)?\]')
_KEY = re.compile(r"([A-Za-z][-\w]*)[ \t]*(=?)[ \t]*")
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b"}


class GitSetting(Struct, frozen=True):
    """One line of a configuration: its key in lower case, without the quoted part, and its value."""

    key: str
    value: str


class GitFile(Struct, frozen=True):
    """A configuration file: its settings, and the absolute paths of the files that it includes."""

    path: str
    settings: tuple[GitSetting, ...]
    includes: tuple[str, ...]


class GitConfigReader:
    """Reads configuration files, and reads each again only if it has changed; `~` may mean any of `homes`."""

    def __init__(self, homes: Sequence[str] = ()) -> None:
        self._homes = tuple(homes)
        self._known: dict[str, tuple[tuple[int, int, int], GitFile]] = {}

    def read_with_includes(self, paths: Sequence[str]) -> Iterator[GitFile]:
        """These files and all that they include, each once, even missing ones."""
        waiting = [(path, 0) for path in reversed(paths)]
        seen: set[str] = set()
        while waiting:
            path, depth = waiting.pop()
            if path in seen or depth > _DEEPEST:
                continue
            seen.add(path)
            found = self._read(path)
            yield found
            waiting += [(included, depth + 1) for included in reversed(found.includes)]

    def _read(self, path: str) -> GitFile:
        try:
            status = os.stat(path)
        except OSError:
            return GitFile(path, (), ())
        signature = (status.st_mtime_ns, status.st_size, status.st_ino)
        known = self._known.get(path)
        if known is not None and known[0] == signature:
            return known[1]
        try:
            text = read_whole(path, _LARGEST).decode("utf-8", "surrogateescape")
        except FileNotFoundError:
            return GitFile(path, (), ())
        except OSError as error:
            raise Unprotectable(
                f"{path} cannot be read ({error.strerror or error}), so Pigeon cannot tell what git takes from it. "
                "Fix the file, or start without the sandbox"
            ) from error
        settings = tuple(parse_settings(text))
        folder = os.path.dirname(os.path.realpath(path))
        named = (one.value for one in settings if one.key in ("include.path", "includeif.path"))
        includes = tuple(found for value in named for found in self.resolve_value(value, folder))
        read = GitFile(path, settings, includes)
        self._known[path] = (signature, read)
        return read

    def resolve_value(self, value: str, folder: str) -> list[str]:
        """The places that a path in a value means, relative to a folder: as written, and with links resolved."""
        paths = self.paths_of_value(value, folder)
        return list(dict.fromkeys([*map(os.path.normpath, paths), *map(os.path.realpath, paths)]))

    def paths_of_value(self, value: str, folder: str) -> list[str]:
        """The path that a value names, relative to a folder; several if `~` may mean several homes."""
        if not value or "\0" in value:
            return []
        if value == "~" or value.startswith("~/"):
            return [f"{home}/{value[2:]}" for home in self._homes]
        return [os.path.join(folder, value)]


def parse_settings(text: str) -> Iterator[GitSetting]:
    """The keys and values in the text of a file, in their order."""
    section, at, text = "", 0, text.removeprefix("\ufeff").replace("\r\n", "\n")
    while at < len(text):
        sign = text[at]
        if sign.isspace():
            at += 1
        elif sign in "#;":
            at = _find_next_line(text, at)
        elif sign == "[":
            begun = _SECTION.match(text, at)
            # A section name with a dot is the old form of one with quotes.
            section = "" if begun is None else begun[1].partition(".")[0].lower()
            at = _find_next_line(text, at) if begun is None else begun.end()
        elif section and (key := _KEY.match(text, at)) is not None:
            value, at = _parse_value(text, key.end()) if key[2] else ("true", _find_next_line(text, key.end()))
            yield GitSetting(f"{section}.{key[1].lower()}", value)
        else:
            at = _find_next_line(text, at)


def _find_next_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _parse_value(text: str, at: int) -> tuple[str, int]:
    """The value that begins at `at`, without quotes, escapes and comments, and where the next line begins."""
    found: list[str] = []
    quoted, kept = False, 0
    while at < len(text):
        sign = text[at]
        at += 1
        if sign == "\n":
            break
        if sign == "\\" and at < len(text):
            sign, at = text[at], at + 1
            if sign != "\n":
                found.append(_ESCAPES.get(sign, sign))
                kept = len(found)
        elif sign == '"':
            quoted = not quoted
        elif sign in "#;" and not quoted:
            at = _find_next_line(text, at)
            break
        else:
            found.append(sign)
            kept = len(found) if quoted or not sign.isspace() else kept
    return "".join(found[:kept]), at
