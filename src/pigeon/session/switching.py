"""Changing the conversation: a new one, another file, a fork, a copy. Extensions may refuse before anything changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Literal

from pigeon.session.context.transcript import Transcript
from pigeon.session.history.entry_line import EntryLine, line_from_bytes
from pigeon.session.history.journal import Journal
from pigeon.session.history.repository import SessionRepository
from pigeon.session.history.views import encode_list
from pigeon.session.hooks import Hooks, wait_for_result
from pigeon.wire import codec
from pigeon.wire.answers import ForkMessage
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.content import text_of
from pigeon.wire.entries import CompactionEntry, LabelEntry, MessageEntry
from pigeon.wire.errors import Refusal
from pigeon.wire.messages import UserMessage

Reason = Literal["new", "resume", "fork"]


class Switching:
    """Moves the session from one journal to another.

    `trust` decides about the folder of the other conversation; `enter` is called once the old work has ended, and
    `entered` when extensions have been informed.
    """

    def __init__(
        self,
        repository: SessionRepository,
        hooks: Hooks,
        transcript: Transcript,
        settle: Callable[[], Awaitable[None]],
        trust: Callable[[str], Awaitable[None]],
        enter: Callable[[Journal, Reason], None],
        entered: Callable[[], None],
    ) -> None:
        self._repository = repository
        self._hooks = hooks
        self._transcript = transcript
        self._settle = settle
        self._trust = trust
        self._enter = enter
        self._entered = entered

    async def veto_or_open_new(self, parent: str | Absent = ABSENT) -> bool:
        """Begin an empty conversation; returns True, and changes nothing, if an extension vetoes that."""
        if await wait_for_result(self._hooks.should_refuse_switch("new", None)):
            return True
        await self._settle()
        await self._switch_journal_with_hooks(
            self._repository.create_journal(self._transcript.journal.cwd, parent or ABSENT), "new"
        )
        return False

    async def veto_or_open(self, path: str) -> bool:
        """Open the conversation in a file; returns True, and changes nothing, if an extension vetoes that. Nothing
        changes either if the file cannot be used."""
        if await wait_for_result(self._hooks.should_refuse_switch("resume", path)):
            return True
        if self._repository.is_file_of(path, self._transcript.journal):
            await self._settle()
        # A long file takes seconds to read; everything else continues meanwhile.
        current = self._transcript.journal
        ahead = await self._repository.prepare_session(path, current)
        journal = self._repository.open(path, current.cwd, current, ahead)
        await self._settle()
        await self._switch_journal_with_hooks(journal, "resume")
        return False

    async def open_newest(self, folder: str) -> tuple[bool, bool]:
        """Open the newest conversation with a message in a folder, else an empty one there; returns whether an
        extension refused, and whether there was one."""
        folder, path = self._repository.find_newest(folder)
        journal = self._transcript.journal
        if path is not None:
            opened = self._repository.is_file_of(path, journal)
            return (False if opened else await self.veto_or_open(path)), True
        empty = not any(line.type == "message" for line in journal.lines)
        if empty and self._repository.store.is_in_folder(journal.file, folder):
            return False, False
        if await wait_for_result(self._hooks.should_refuse_switch("new", None)):
            return True, False
        await self._settle()
        self._repository.set_folder(folder)
        await self._switch_journal_with_hooks(self._repository.create_journal(self._transcript.journal.cwd), "new")
        return False, False

    async def fork(
        self,
        entry_id: str,
        name: Literal["forking", "branching"],
        settled: Callable[[], Awaitable[None]] | None = None,
    ) -> tuple[str, bool]:
        """Begin a conversation that ends before a user message; returns that message's text, and whether an extension
        refused. `settled` is called in between, when the old work has ended."""
        text = self.find_user_text(entry_id, name)
        if await wait_for_result(self._hooks.should_refuse_fork(entry_id, "before")):
            return text, True
        await self._settle()
        if settled is not None:
            await settled()
        line = self._transcript.journal.find_line(entry_id)
        assert line is not None
        await self._branch_off(line.parent_id)
        return text, False

    async def veto_or_clone(self) -> bool:
        """Copy the active branch to a new conversation; returns True, and changes nothing, if an extension
        vetoes that."""
        leaf = self._transcript.journal.leaf_id
        if leaf is None or not any(line.type == "message" for line in self._transcript.journal.branch):
            raise Refusal("Cannot clone session: no current entry selected")
        if await wait_for_result(self._hooks.should_refuse_fork(leaf, "at")):
            return True
        await self._settle()
        await self._branch_off(self._transcript.journal.leaf_id)
        return False

    async def _switch_journal_with_hooks(self, journal: Journal, reason: Reason) -> None:
        previous = self._transcript.journal.file
        if journal.cwd != self._transcript.journal.cwd:
            await self._trust(journal.cwd)
        await wait_for_result(self._hooks.on_session_ending(reason, journal.file))
        await self._transcript.journal.wait_until_saved()
        self._enter(journal, reason)
        await wait_for_result(self._hooks.on_session_started(reason, previous))
        self._entered()

    async def _branch_off(self, leaf: str | None) -> None:
        journal, loop = self._transcript.journal, asyncio.get_running_loop()

        def report(text: str) -> None:
            loop.call_soon_threadsafe(self._repository.report, text)

        def copy_journal() -> Journal:
            lines = copy_branch_entries(journal.path_to(leaf), list(journal.lines))
            return self._repository.copy(lines, journal.cwd, journal.reference or ABSENT, report=report)

        await self._switch_journal_with_hooks(await asyncio.to_thread(copy_journal), "fork")

    def find_user_text(self, entry_id: str, name: str) -> str:
        """The text of a user message; raises `Refusal` for any other entry."""
        line = self._transcript.journal.find_line(entry_id)
        message = line.message if line is not None else None
        if not isinstance(message, UserMessage):
            raise Refusal(f"Invalid entry ID for {name}")
        return text_of(message.content)


def copy_branch_entries(path: list[EntryLine], everything: list[EntryLine]) -> list[EntryLine]:
    """A path as the beginning of another session: without labels, which are added again at the end where they apply."""
    behind = _entries_behind_labels(path)
    copied: list[EntryLine] = []
    for line in path:
        if line.type != "label":
            changes = _find_kept_entry_changes(line, behind) if line.type == "compaction" else {}
            copied.append(_copy_with_changes(line, {"parentId": copied[-1].id if copied else None, **changes}))
    ids = {line.id for line in copied}
    labels: dict[str, EntryLine] = {}
    for line in everything:
        entry = line.entry if line.type == "label" else None
        if isinstance(entry, LabelEntry) and entry.target_id in ids:
            labels.pop(entry.target_id, None)
            if entry.label:
                labels[entry.target_id] = line
    for line in labels.values():
        copied.append(_copy_with_changes(line, {"parentId": copied[-1].id}))
    return copied


def _entries_behind_labels(path: list[EntryLine]) -> dict[str, str]:
    """For each label, the first later entry that is not a label."""
    behind: dict[str, str] = {}
    following = ""
    for line in reversed(path):
        if line.type == "label":
            behind[line.id] = following
        else:
            following = line.id
    return behind


def _find_kept_entry_changes(line: EntryLine, behind: dict[str, str]) -> dict[str, Any]:
    """A compaction that kept everything from a label on keeps everything from the entry after it."""
    entry = line.entry
    first = entry.first_kept_entry_id if isinstance(entry, CompactionEntry) else ""
    return {"firstKeptEntryId": behind[first]} if first in behind else {}


def _copy_with_changes(line: EntryLine, changes: dict[str, Any]) -> EntryLine:
    """The entry with changed values, or unchanged byte for byte if they are equal."""
    if changes == {"parentId": line.parent_id}:
        return line
    moved = line_from_bytes(codec.encode({**line.to_plain(), **changes}))
    assert moved is not None
    return moved


def encode_fork_messages(lines: Iterable[EntryLine]) -> Iterator[bytes]:
    """The answer of `get_fork_messages`: every user message with text, in order, on every branch."""
    yield b'{"messages":'
    yield from encode_list(map(_encode_fork_message, lines))
    yield b"}"


def _encode_fork_message(line: EntryLine) -> bytes:
    entry = line.parse_uncached() if line.role == "user" else None
    message = entry.message if isinstance(entry, MessageEntry) else None
    text = text_of(message.content) if isinstance(message, UserMessage) else ""
    return codec.encode(ForkMessage(entry_id=line.id, text=text)) if text else b""
