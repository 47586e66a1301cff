"""What Tab and typing offer: commands behind a slash, files behind an at sign, and what tool servers have for both.

Files are looked for and compared in threads: a folder may have many, and its disk may be slow.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from pigeon.system.ignore_files import Ignored, user_ignore_file

MOST_FILES = 20_000
FEW_FILES = 1_000
FRESH_SECONDS = 5.0
# How long the first look may take before what it has found by then is offered.
FIRST_SECONDS = 0.2
OFFERED = 50
# Commands that take the name of a file.
OF_FILES = ("image", "export")
# How the prompts of tool servers begin.
OF_SERVERS = "/mcp__"
_ARGUMENT = re.compile(r"/(\S+) +([^\s@]*)")
_AT_WORD = re.compile(r"(?:^|\s)@(\"[^\"]*|[^\s\"]*)$")


class ServerOffer(NamedTuple):
    """What a tool server has for the end of a text: `text` in the place of `replaces`, shown as `label`."""

    replaces: str
    text: str
    label: str
    about: str


class ChatCompleter(Completer):
    """Completes a command at the beginning, what stands behind it, and a file name behind `@` anywhere.

    `names` are commands with their help, `arguments` what some of them may be given. `servers` says what tool servers
    have for the end of a text.
    """

    def __init__(
        self,
        names: Mapping[str, str],
        files: ProjectFiles,
        arguments: Mapping[str, Sequence[str]],
        servers: Callable[[str], Awaitable[Sequence[ServerOffer]]] | None = None,
    ) -> None:
        self._names = names
        self._files = files
        self._arguments = arguments
        self._servers = servers

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """What could stand at the cursor; the event loop goes on while it is looked for."""
        before = document.text_before_cursor
        if self._few(before):
            found = list(self.get_completions(document, complete_event))
        else:
            found = await asyncio.to_thread(lambda: list(self.get_completions(document, complete_event)))
        for one in found:
            yield one
        if self._servers is not None and _may_name_server(before):
            shown = {one.text.rstrip() for one in found}
            for offer in await self._servers(before):
                if offer.text not in shown:
                    yield Completion(offer.text, -len(offer.replaces), offer.label or offer.text, offer.about[:80])

    def at_once(self, document: Document) -> bool:
        """Whether `get_completions` takes no time to speak of."""
        before = document.text_before_cursor
        return self._few(before) and (self._servers is None or not _may_name_server(before))

    def _few(self, before: str) -> bool:
        argument = _ARGUMENT.fullmatch(before)
        names_file = argument is not None and argument[1] in OF_FILES
        return self._files.few or not (names_file or _AT_WORD.search(before))

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """The same, which may take a moment."""
        before = document.text_before_cursor
        if before.startswith("/") and " " not in before and "\n" not in before:
            yield from self._commands(before[1:])
        elif argument := _ARGUMENT.fullmatch(before):
            yield from self._values(*argument.groups())
        elif word := _AT_WORD.search(before):
            yield from self._paths(word[1])

    def _commands(self, typed: str) -> Iterable[Completion]:
        for name, about in self._names.items():
            if name.startswith(typed):
                yield Completion(f"{name} " if typed != name else name, -len(typed), f"/{name}", about[:80])

    def _values(self, name: str, typed: str) -> Iterable[Completion]:
        values = self._files.matching(typed.lower(), OFFERED) if name in OF_FILES else self._arguments.get(name, ())
        for value in values:
            if name in OF_FILES or typed.lower() in value.lower():
                yield Completion(value, -len(typed))

    def _paths(self, typed: str) -> Iterable[Completion]:
        wanted = typed.removeprefix('"').lower()
        for path in self._files.matching(wanted, OFFERED):
            text = f'"{path}"' if " " in path else path
            yield Completion(text, -len(typed), path)


def _may_name_server(before: str) -> bool:
    if before.startswith("/"):
        return before.startswith("/m") and (before.startswith(OF_SERVERS) or OF_SERVERS.startswith(before))
    return _AT_WORD.search(before) is not None


class ProjectFiles:
    """The files below a folder that git would not ignore, looked for again when that was done long ago.

    Until a new look is over, those of the one before are offered; during the first, those that it has found.
    """

    def __init__(self, root: str, variables: Mapping[str, str], home: str) -> None:
        self._root = root
        self._variables = variables
        self._home = home
        self._paths: list[str] = []
        self._looked = float("-inf")
        self._looking: threading.Thread | None = None
        self._starting = threading.Lock()

    @property
    def few(self) -> bool:
        """Whether they are known, and so few that they are compared in no time."""
        return self._looked_once and len(self._paths) <= FEW_FILES

    def matching(self, wanted: str, most: int) -> list[str]:
        """Paths that have the letters in this order; those that have them together, and in the name, come first."""
        self._look()
        paths = list(self._paths)
        ranked = sorted((rank, len(path), path) for path in paths if (rank := _rank(path.lower(), wanted)) is not None)
        return [path for _, _, path in ranked[:most]]

    def _look(self) -> None:
        """Begin to look where it is time to; wait a moment for the first result."""
        with self._starting:
            if self._looking is None and time.monotonic() - self._looked > FRESH_SECONDS:
                found = [] if self._looked_once else self._paths
                # A thread of its own, which ends with the program: a disk that does not answer holds nothing up.
                self._looking = threading.Thread(target=self._find, args=(found,), daemon=True, name="pigeon-files")
                self._looking.start()
            looking = None if self._looked_once else self._looking
        if looking is not None:
            looking.join(FIRST_SECONDS)

    @property
    def _looked_once(self) -> bool:
        return self._looked > float("-inf")

    def _find(self, found: list[str]) -> None:
        try:
            self._walk(found)
        finally:
            self._paths = found
            self._looked = time.monotonic()
            self._looking = None

    def _walk(self, found: list[str]) -> None:
        ignored = Ignored(self._root, user_ignore_file(self._variables, self._home))
        folders = [""]
        while folders and len(found) < MOST_FILES:
            folder = folders.pop(0)
            try:
                entries = sorted(os.scandir(os.path.join(self._root, folder)), key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in entries:
                path = os.path.join(folder, entry.name)
                is_folder = entry.is_dir(follow_symlinks=False)
                if entry.name == ".git" or ignored(path, is_folder):
                    continue
                if is_folder:
                    folders.append(path)
                    found.append(path + os.sep)
                else:
                    found.append(path)


def _rank(path: str, wanted: str) -> int | None:
    if not wanted:
        return path.count(os.sep)
    if os.path.basename(path.rstrip(os.sep)).startswith(wanted):
        return 0
    if path.startswith(wanted):
        return 1
    if wanted in path:
        return 2
    letters = iter(path)
    return 3 if all(letter in letters for letter in wanted) else None
