"""Searches on another machine: ripgrep runs there, or the helper's own search with the same output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable

from pigeon.workspaces.local_search import FileRecords, TextRecords, make_path_test, select_files, text_options
from pigeon.workspaces.records import Match, SearchEnd, SearchQuery
from pigeon.workspaces.remote import messages
from pigeon.workspaces.remote.connection import Answers, HelperConnection
from pigeon.workspaces.ripgrep import COMMON_OPTIONS
from pigeon.workspaces.workspace import OnFound

_LONGEST_REST = 1 << 16


def search_request(id: int, place: bytes, held: bool, query: SearchQuery, is_folder: bool) -> messages.Search:
    options = ["--files", "--null"]
    names = ""
    if query.what == "text":
        chosen, _ = select_files(query.glob) if is_folder else ([], None)
        options = [*text_options(query), *chosen, *([] if is_folder else ["--text"])]
        names = names_of(chosen)
    return messages.Search(
        id=id,
        path=place,
        held=held,
        what=query.what,
        options=[*COMMON_OPTIONS, *options],
        pattern=query.pattern,
        literal=query.literal,
        ignore_case=query.ignore_case,
        names=names,
        context=query.context,
    )


def names_of(options: list[str]) -> str:
    """The glob for a search without ripgrep that has the effect of these options."""
    for option in options:
        if option.startswith("--type-add=wanted:"):
            return option.removeprefix("--type-add=wanted:")
        if option.startswith("--glob="):
            return option.removeprefix("--glob=")
    return ""


async def read_search(
    connection: HelperConnection,
    answers: Answers,
    query: SearchQuery,
    folder: str,
    is_folder: bool,
    on_found: OnFound,
) -> SearchEnd:
    """What a search finds, as it comes; stops it when there is enough or its time is up."""
    reader: TextRecords | _PathRecords
    if query.what == "text":
        reader = TextRecords(on_found, select_files(query.glob)[1] if is_folder else None)
    else:
        reader = _PathRecords(on_found, make_path_test(query.pattern, folder))
    buffer = bytearray()
    deadline = time.monotonic() + query.time_box
    with contextlib.suppress(TimeoutError):
        while True:
            async with asyncio.timeout(deadline - time.monotonic()):
                record, body = await answers.next()
            if isinstance(record, messages.Output):
                buffer += body
                if reader.consume_until_full(buffer):
                    connection.send_at_once(messages.KillCommand(id=answers.number))
                    return SearchEnd(stopped=True)
                del buffer[_LONGEST_REST:]
                await connection.send(messages.Credit(id=answers.number, bytes=len(body)))
            elif isinstance(record, messages.RequestFailed):
                return SearchEnd(record.text, unread=True)
            elif isinstance(record, messages.CommandEnded):
                complaint = buffer.decode("utf-8", "replace").strip() if record.exit_code == 2 else ""
                return SearchEnd(complaint, record.exit_code == 2)
    connection.send_at_once(messages.KillCommand(id=answers.number))
    return SearchEnd(out_of_time=True)


class _PathRecords:
    """Reads the names of files up to an empty one, and then those of folders (`d`) and other things (`o`)."""

    def __init__(self, on_found: OnFound, matches: Callable[[str], bool]) -> None:
        self._on_found = on_found
        self._matches = matches
        self._files = FileRecords(on_found, matches)
        self._has_files = False

    def consume_until_full(self, buffer: bytearray) -> bool:
        if not self._has_files:
            end = 0 if buffer.startswith(b"\0") else buffer.find(b"\0\0") + 1
            if end == 0 and not buffer.startswith(b"\0"):
                return self._files.consume_until_full(buffer)
            files = bytearray(buffer[:end])
            del buffer[: end + 1]
            self._has_files = True
            if self._files.consume_until_full(files):
                return True
        *paths, rest = bytes(buffer).split(b"\0")
        buffer[:] = rest
        unlisted = [(os.fsdecode(raw[1:]), raw[:1] == b"d") for raw in paths]
        found = [
            Match(path, kind="folder" if is_folder else "other")
            for path, is_folder in unlisted
            if path not in self._files.folders and self._matches(path)
        ]
        return bool(found) and self._on_found(found)
