"""Completions of Tab and typing: commands behind a slash, files behind an at sign, and offers of tool servers for both.

Files are searched (`src/pigeon/system/project_files.py`) and compared in threads, since a folder may have many.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from pigeon.system.project_files import ProjectFiles

OFFERED = 50
# Commands that take a file name.
OF_FILES = ("image", "export")
# The prefix of the prompts of tool servers.
OF_SERVERS = "/mcp__"
_ARGUMENT = re.compile(r"/(\S+) +([^\s@]*)")
_AT_WORD = re.compile(r"(?:^|\s)@(\"[^\"]*|[^\s\"]*)$")


class ServerOffer(NamedTuple):
    """A completion from a tool server for the end of a text: `text` replaces `replaces` and is shown as `label`."""

    replaces: str
    text: str
    label: str
    about: str


class CompletedFiles(Protocol):
    """The files whose names are completed."""

    @property
    def is_small(self) -> bool:
        """Whether they are known, and few enough to be compared without a noticeable delay."""
        ...

    def find_files(self, wanted: str, most: int) -> list[str]: ...


class FilesOfAgent:
    """Those of this machine, or of the machine that the agent works on: then `ask` asks the agent, in a thread."""

    def __init__(
        self, here: ProjectFiles, is_elsewhere: Callable[[], bool], ask: Callable[[str, int], list[str]]
    ) -> None:
        self._here = here
        self._is_elsewhere = is_elsewhere
        self._ask = ask

    @property
    def is_small(self) -> bool:
        return not self._is_elsewhere() and self._here.is_small

    def find_files(self, wanted: str, most: int) -> list[str]:
        return self._ask(wanted, most) if self._is_elsewhere() else self._here.find_files(wanted, most)


class ChatCompleter(Completer):
    """Completes a command at the beginning, its arguments, and a file name behind `@` anywhere.

    `names` are commands with their help, `arguments` the values that some of them take. `servers` returns completions
    of tool servers for the end of a text.
    """

    def __init__(
        self,
        names: Mapping[str, str],
        files: CompletedFiles,
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
        """The completions at the cursor; the event loop continues during the search."""
        before = document.text_before_cursor
        if self._finds_quickly(before):
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

    def can_complete_instantly(self, document: Document) -> bool:
        """True if completions are found without a noticeable pause, and without asking tool servers."""
        before = document.text_before_cursor
        return self._finds_quickly(before) and (self._servers is None or not _may_name_server(before))

    def _finds_quickly(self, before: str) -> bool:
        argument = _ARGUMENT.fullmatch(before)
        names_file = argument is not None and argument[1] in OF_FILES
        return self._files.is_small or not (names_file or _AT_WORD.search(before))

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """The completions at the cursor, without those of tool servers; may take a moment."""
        before = document.text_before_cursor
        if before.startswith("/") and " " not in before and "\n" not in before:
            yield from self._command_completions(before[1:])
        elif argument := _ARGUMENT.fullmatch(before):
            yield from self._value_completions(*argument.groups())
        elif word := _AT_WORD.search(before):
            yield from self._path_completions(word[1])

    def _command_completions(self, typed: str) -> Iterable[Completion]:
        for name, about in self._names.items():
            if name.startswith(typed):
                yield Completion(f"{name} " if typed != name else name, -len(typed), f"/{name}", about[:80])

    def _value_completions(self, name: str, typed: str) -> Iterable[Completion]:
        values = self._files.find_files(typed.lower(), OFFERED) if name in OF_FILES else self._arguments.get(name, ())
        for value in values:
            if name in OF_FILES or typed.lower() in value.lower():
                yield Completion(value, -len(typed))

    def _path_completions(self, typed: str) -> Iterable[Completion]:
        wanted = typed.removeprefix('"').lower()
        for path in self._files.find_files(wanted, OFFERED):
            text = f'"{path}"' if " " in path else path
            yield Completion(text, -len(typed), path)


def _may_name_server(before: str) -> bool:
    if before.startswith("/"):
        return before.startswith("/m") and (before.startswith(OF_SERVERS) or OF_SERVERS.startswith(before))
    return _AT_WORD.search(before) is not None
