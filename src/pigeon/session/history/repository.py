"""Where sessions are kept: `SessionRepository` makes new journals, opens files, and copies branches into new files.

Folders and file names are exactly those of pi, so that both programs find the same sessions. When a file is opened,
tool calls that a crash left without a result get one on record; they are not run again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from pigeon.session.history.entry_line import EntryLine
from pigeon.session.history.journal import Journal, new_header
from pigeon.session.history.listing import all_folders
from pigeon.session.history.reading import InvalidSession, LoadedSession, header_in, load_session
from pigeon.session.history.session_file import SessionFile
from pigeon.system import clock, ids
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.content import TextContent, ToolCall
from pigeon.wire.entries import ContextEdit
from pigeon.wire.errors import Refusal
from pigeon.wire.messages import AssistantMessage, ToolResultMessage

INTERRUPTED = "The tool call was interrupted before it finished. It was not run again."


def default_folder(agent_dir: str, cwd: str) -> str:
    """The folder of one working directory's sessions."""
    flat = cwd[1:] if cwd[:1] in ("/", "\\") else cwd
    for separator in "/\\:":
        flat = flat.replace(separator, "-")
    return os.path.join(agent_dir, "sessions", f"--{flat}--")


def file_name(session_id: str, now_ms: int) -> str:
    """`<time>_<id>.jsonl`, with the characters of the time that file systems dislike replaced."""
    return f"{clock.iso(now_ms).replace(':', '-').replace('.', '-')}_{session_id}.jsonl"


def artifact_folder(session_file: str) -> str:
    """Where the full outputs of a session's tools are kept."""
    return session_file.removesuffix(".jsonl")


def answer_dangling_calls(journal: Journal, now_ms: int) -> int:
    """Append a result for every open call of the last answer; returns how many there were."""
    calls = dangling_calls(journal.branch)
    for call in calls:
        journal.append_message(
            ToolResultMessage(
                tool_call_id=call.id,
                tool_name=call.name,
                content=[TextContent(text=INTERRUPTED)],
                details={},
                is_error=True,
                timestamp=now_ms,
            )
        )
    return len(calls)


def dangling_calls(branch: list[EntryLine]) -> list[ToolCall]:
    """The calls of the last answer that have no result after it; an answer that was taken back asks for none."""
    answered: set[str] = set()
    taken_back: dict[str, bool] = {}
    for line in reversed(branch):
        if line.role == "user":
            return []
        if line.type == "context_edit":
            edit = line.entry
            if isinstance(edit, ContextEdit):
                taken_back.setdefault(edit.target_id, edit.replacement is None)
        message = None if taken_back.get(line.id) else line.message
        if isinstance(message, ToolResultMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AssistantMessage):
            if message.stop_reason in ("error", "aborted"):
                return []
            calls = [block for block in message.content if isinstance(block, ToolCall)]
            return [call for call in calls if call.id not in answered]
    return []


class SessionRepository:
    """Makes the journals of one agent; `persistent` is false where nothing is written to disk."""

    def __init__(
        self,
        folder: str,
        everywhere: str,
        persistent: bool,
        now: Callable[[], int],
        report: Callable[[str], None],
        absolute: Callable[[str], str],
        mask: Callable[[bytes], bytes] = lambda line: line,
    ) -> None:
        self.folder = folder
        self.everywhere = everywhere
        self.persistent = persistent
        self._now = now
        self._report = report
        self._absolute = absolute
        self._mask = mask

    def folders(self) -> list[str]:
        """Every folder that may hold sessions of this user."""
        return list(dict.fromkeys([self.folder, *all_folders(self.everywhere)]))

    def new(self, cwd: str, parent: str | Absent = ABSENT, session_id: str | None = None) -> Journal:
        """An empty conversation; its file comes with the first message."""
        now = self._now()
        name = session_id or ids.session_id(now)
        store = self._store(os.path.join(self.folder, file_name(name, now))) if self.persistent else None
        return Journal(name, cwd, new_header(name, now, cwd, parent), store, self._now, self._mask)

    def open(self, path: str, cwd: str, current: Journal | None = None) -> Journal:
        """The conversation in a file; a missing or empty file becomes a new conversation bound to that path.

        The file of `current` may be opened again: its lock is let go first.
        """
        path = self._checked(path)
        header = header_in(path)
        if header is None:
            return self._bound(path, cwd)
        where = header.get("cwd")
        where = self._meant_folder(where) if isinstance(where, str) and where else cwd
        if not os.path.isdir(where):
            raise Refusal(
                f"Stored session working directory does not exist: {where}\n"
                f"Session file: {path}\nCurrent working directory: {cwd}"
            )
        if current is not None and self.is_file_of(path, current):
            current.close()
        store = self._store(path)
        store.adopt()
        try:
            journal = self._filled(path, where, store)
        except Refusal:
            store.close()
            raise
        self._keep_beside(path)
        return journal

    def _checked(self, path: str) -> str:
        if "\0" in path:
            raise Refusal("The path of a session cannot contain a NUL character")
        return self._absolute(path)

    def _meant_folder(self, where: str) -> str:
        """The folder that a file names, as a path that means the same to every process: commands run in others."""
        if not os.path.isabs(where):
            return self._absolute(os.path.join(os.curdir, where))
        return os.path.realpath(where) if where.lstrip("/").startswith("proc/") else where

    def is_file_of(self, path: str, journal: Journal) -> bool:
        """True if this path is where the journal is kept."""
        path = self._checked(path)
        if journal.file is None or path == journal.file:
            return path == journal.file
        return os.path.realpath(path) == os.path.realpath(journal.file)

    def copy(
        self, lines: Iterable[EntryLine], cwd: str, parent: str | Absent, session_id: str | None = None
    ) -> Journal:
        """A new conversation with these entries; saved at once if it holds a message."""
        journal = self.new(cwd, parent, session_id)
        kept = list(lines)
        journal.load(LoadedSession({}, b"", kept, needs_newline=False, rewritten=False))
        if any(line.type == "message" for line in kept):
            journal.save_all()
        return journal

    def _filled(self, path: str, cwd: str, store: SessionFile) -> Journal:
        """The journal of a locked file; read only now, because until the lock was taken another process may have
        written."""
        loaded = load_session(path)
        if loaded is None:
            raise InvalidSession(path)
        journal = Journal(loaded.header["id"], cwd, loaded.header_line, store, self._now, self._mask)
        journal.load(loaded)
        store.mend(loaded.needs_newline, loaded.rewritten, journal.every_line)
        answer_dangling_calls(journal, self._now())
        return journal

    def _bound(self, path: str, cwd: str) -> Journal:
        """Nothing is made on disk before there is a message to keep; but that must be possible."""
        folder = above = os.path.dirname(path)
        while not os.path.lexists(above):
            above = os.path.dirname(above)
        if not os.path.isdir(above):
            raise Refusal(f"Session folder cannot be made: {folder}: {above} is not a folder")
        if not os.access(above, os.W_OK | os.X_OK):
            raise Refusal(f"Session folder cannot be written: {folder}: permission denied")
        now = self._now()
        name = ids.session_id(now)
        self._keep_beside(path)
        return Journal(name, cwd, new_header(name, now, cwd), self._store(path), self._now, self._mask)

    def _keep_beside(self, path: str) -> None:
        """Opening a file makes the agent keep its sessions, from now on beside that file."""
        self.persistent = True
        self.folder = os.path.dirname(path)

    def _store(self, path: str) -> SessionFile:
        return SessionFile(path, self._report)
