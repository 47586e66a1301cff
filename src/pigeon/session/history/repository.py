"""The journals of one agent: `SessionRepository` creates new ones, opens files, and copies branches into new files. A
file that another process writes is opened for reading. `SessionFolders` knows where files are."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from pigeon.session.history.agent_files import find_agent_folders
from pigeon.session.history.entry_line import EntryLine
from pigeon.session.history.journal import Journal, make_header
from pigeon.session.history.reading import LoadedSession, load_session, read_header, stamp_of
from pigeon.session.history.session_file import Namesake, SessionFile
from pigeon.session.history.session_folders import SessionFolders
from pigeon.session.history.text_search import has_message_with
from pigeon.session.history.trash import SessionTrash
from pigeon.store.lines import split_words
from pigeon.system.append_file import agree_on_path, remove_agreement_link
from pigeon.system.ids import RANDOM_IDS, Ids
from pigeon.wire.answers import SessionRow
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.errors import Refusal, StartupError

READ_AHEAD = 256 * 1024


class SessionRepository:
    """Creates the journals of one agent; `persistent` is False if nothing is written to disk."""

    def __init__(  # noqa: PLR0913, PLR0917 - what is true of all conversations of an agent
        self,
        folder: str,
        store: SessionFolders,
        persistent: bool,
        now: Callable[[], int],
        report: Callable[[str], None],
        absolute: Callable[[str], str],
        mask: Callable[[bytes], bytes] = lambda line: line,
        ids: Ids = RANDOM_IDS,
        workspace: str | None = None,
    ) -> None:
        """`workspace` is the URL of the machine that the conversations work on, if it is another one."""
        self._workspace = workspace
        self.folder = folder
        self.store = store
        self.persistent = persistent
        self._now = now
        self.report = report
        self._absolute = absolute
        self._mask = mask
        self._ids = ids
        self._keeps_open_calls = False

    def keep_open_calls(self) -> None:
        """From now on, calls that a crash has left open stay open when a session is opened: its run may go on."""
        self._keeps_open_calls = True

    def folders(self) -> list[str]:
        return list(dict.fromkeys([self.folder, *self.store.folders()]))

    def create_journal(self, cwd: str, parent: str | Absent = ABSENT, session_id: str | None = None) -> Journal:
        """An empty conversation; its file is created with the first message."""
        now = self._now()
        name = session_id or self._ids.session_id(now)
        path = self.store.new_file_path(self.folder, name, now)
        find = partial(self.store.find_by_id, self.folder, name)
        namesake = Namesake(self._lock_link_of(name), find) if session_id else None
        file = self._session_file(path, namesake) if self.persistent else None
        return Journal(name, cwd, self._make_header(name, now, cwd, parent), file, self._now, self._mask, self._ids)

    def new_session_id(self) -> str:
        return self._ids.session_id(self._now())

    def create_agent_journal(self, parent: Journal, cwd: str, name: str) -> Journal:
        """An empty conversation of an agent with this id that `parent` starts, kept below it."""
        now = self._now()
        if parent.file is None:
            return Journal(name, cwd, self._make_header(name, now, cwd), None, self._now, self._mask, self._ids)
        path = self.store.new_file_path(self.store.agents_folder_of(parent.file), name, now)
        header = self._make_header(name, now, cwd, parent.file)
        return Journal(name, cwd, header, self._session_file(path), self._now, self._mask, self._ids)

    def find_agent_folder(self, path: str) -> str | None:
        """The working folder of an agent's session, if it names one."""
        cwd = (read_header(path) or {}).get("cwd")
        return cwd if isinstance(cwd, str) else None

    def open_agent_journal(self, path: str) -> Journal:
        """The conversation of an agent that has ended, to continue it; raises `Refusal`."""
        header = read_header(path)
        if header is None:
            raise Refusal(f"The session of this agent is gone: {path}")
        cwd = header.get("cwd")
        if not isinstance(cwd, str) or (self._workspace is None and not os.path.isdir(cwd)):
            raise Refusal(f"The folder that this agent worked in is gone: {cwd}")
        store = self._session_file(path)
        store.adopt(header["version"])
        try:
            journal = self._load_journal(header, cwd, store, None)
            if store.is_read_only:
                raise store.make_refusal()
            journal.close_open_calls()
        except Refusal:
            store.close()
            raise
        return journal

    async def prepare_session(self, path: str, current: Journal | None = None) -> Any:
        """What `open` needs and takes long: the contents of a long file."""
        return await asyncio.to_thread(self.preload_session, path)

    async def list_sessions(
        self,
        cwd: str | None,
        *,
        limit: int,
        cursor: str | None = None,
        search: str | None = None,
        session_id: str | None = None,
        agents: bool = False,
    ) -> tuple[list[SessionRow], str | None]:
        """A page of the sessions of this folder, or, if `cwd` is None, of all; those of started `agents` too."""
        folders = self.folders() if cwd is None else [self.folder]
        if agents:
            folders = [*folders, *(below for folder in folders for below in find_agent_folders(folder))]
        if session_id is not None:
            return self.store.find_rows_by_id(folders, session_id), None
        if search is None:
            return self.store.list_sessions(folders, cursor, limit)
        words = split_words(search)
        return await asyncio.to_thread(
            self.store.list_sessions,
            folders,
            cursor,
            limit,
            lambda row: bool(words) and has_message_with(row.reference, words),
        )

    async def delete_session(self, reference: str) -> SessionRow:
        """Move a session to the trash; raises `Refusal`. The file is held while it is moved."""
        trash = SessionTrash(self.store, self._now)
        try:
            return (await asyncio.to_thread(trash.move_to_trash, self.resolve_path(reference))).row
        except StartupError as error:
            raise Refusal(str(error)) from None

    async def close_store(self) -> None:
        """Files are closed with their journals."""

    def preload_session(self, path: str) -> LoadedSession | None:
        """The contents of a file, for `open`; may run in a thread. None for a short file, and for one that is not a
        session."""
        path = self._to_absolute_path(path)
        stamp = stamp_of(path)
        if stamp is None or stamp[2] < READ_AHEAD:
            return None
        with suppress(Refusal):
            return load_session(path)
        return None

    def open(self, path: str, cwd: str, current: Journal | None = None, ahead: LoadedSession | None = None) -> Journal:
        """The conversation in a file; a missing or empty file becomes a new conversation bound to that path.

        A file that another process writes, or of an unknown version of the format, is opened for reading, which is
        reported. If there is a `current` conversation, the file must exist, so that a mistyped name does not become a
        new session. The file of the current conversation may be opened again: its lock is released first.
        """
        path = self._to_absolute_path(path)
        if current is not None and not os.path.lexists(path):
            raise Refusal(f"Session file not found: {path}")
        header = read_header(path)
        if header is None:
            return self._create_bound_journal(path, cwd)
        where = header.get("cwd")
        where = self._resolve_folder(where) if isinstance(where, str) and where else cwd
        self._check_workspace(header.get("workspace"), path)
        if self._workspace is None and not os.path.isdir(where):
            raise Refusal(
                f"Stored session working directory does not exist: {where}\n"
                f"Session file: {path}\nCurrent working directory: {cwd}"
            )
        if current is not None and self.is_file_of(path, current):
            current.close()
        store = self._session_file(path)
        store.adopt(header["version"])
        try:
            journal = self._load_journal(header, where, store, ahead)
        except Refusal:
            store.close()
            raise
        self._set_folder_of(path)
        if store.is_read_only:
            self.report(str(store.make_refusal()))
        return journal

    def _make_header(self, name: str, now: int, cwd: str, parent: str | Absent = ABSENT) -> bytes:
        return make_header(name, now, cwd, parent, ABSENT if self._workspace is None else self._workspace)

    def _check_workspace(self, named: object, path: str) -> None:
        """Raise `Refusal` for a conversation that works on another machine than this agent."""
        if isinstance(named, str) and self._workspace is None:
            raise Refusal(f"This conversation works in the workspace {named}: start with --session {path}")
        if named is None and self._workspace is not None:
            raise Refusal(f"This conversation works on this machine, and the agent in {self._workspace}")

    def _to_absolute_path(self, path: str) -> str:
        if "\0" in path:
            raise Refusal("The path of a session cannot contain a NUL character")
        return self._absolute(path)

    def _resolve_folder(self, where: str) -> str:
        """The folder that a file names, as an absolute path: commands run in other folders."""
        if not os.path.isabs(where):
            return self._absolute(os.path.join(os.curdir, where))
        is_link = self._workspace is None and where.lstrip("/").startswith("proc/")
        return os.path.realpath(where) if is_link else where

    def resolve_path(self, path: str) -> str:
        """The path of a session as an absolute path; raises `Refusal` for an impossible one."""
        return self._to_absolute_path(path)

    def find_newest(self, folder: str) -> tuple[str, str | None]:
        """The resolved folder, and its newest session with a message; raises if nothing is kept on disk."""
        if not self.persistent:
            raise Refusal("open_session requires session persistence (omit --no-session)")
        folder = self._to_absolute_path(folder)
        if os.path.lexists(folder) and not os.path.isdir(folder):
            raise Refusal(f"The session folder is not a folder: {folder}")
        return folder, self.store.find_newest_with_message(folder)

    def set_folder(self, folder: str) -> None:
        self.check_folder(folder)
        self.folder = folder

    def is_file_of(self, path: str, journal: Journal) -> bool:
        """True if the journal is kept at this path."""
        path = self._to_absolute_path(path)
        if journal.file is None or path == journal.file:
            return path == journal.file
        return os.path.realpath(path) == os.path.realpath(journal.file)

    def copy(
        self,
        lines: Iterable[EntryLine],
        cwd: str,
        parent: str | Absent,
        session_id: str | None = None,
        report: Callable[[str], None] | None = None,
    ) -> Journal:
        """A new conversation with these entries; saved at once if it contains a message. May run in a thread, if
        `report` is not the one of the repository.

        Raises `Refusal` if there is a session with the requested id.
        """
        kept = list(lines)
        saved = self.persistent and any(line.type == "message" for line in kept)
        now = self._now()
        name = session_id or self._ids.session_id(now)
        path = self.store.new_file_path(self.folder, name, now)
        agreed = saved and session_id is not None
        taken = Refusal(f"Session already exists with id '{session_id}'")
        if agreed and agree_on_path(self._lock_link_of(name), path) != path:
            raise taken
        try:
            if session_id and self.store.find_by_id(self.folder, session_id) is not None:
                raise taken
            store = SessionFile(path, report or self.report) if self.persistent else None
            header = self._make_header(name, now, cwd, parent)
            journal = Journal(name, cwd, header, store, self._now, self._mask, self._ids)
            journal.load(LoadedSession({}, b"", kept, needs_newline=False, rewritten=False))
            if saved:
                journal.save_all()
        finally:
            if agreed:
                remove_agreement_link(self._lock_link_of(name))
        return journal

    def _lock_link_of(self, session_id: str) -> str:
        return os.path.join(self.folder, f".{session_id}.lock")

    def _load_journal(
        self, header: dict[str, Any], cwd: str, store: SessionFile, ahead: LoadedSession | None
    ) -> Journal:
        """The journal of an adopted file; read only now, because another process may have written until the lock was
        taken."""
        journal = Journal(header["id"], cwd, b"", store, self._now, self._mask, self._ids)
        journal.load_file(store, ahead, self._keeps_open_calls)
        return journal

    def _create_bound_journal(self, path: str, cwd: str) -> Journal:
        """Creates nothing on disk before there is a message to keep, but checks that it could."""
        self.check_folder(os.path.dirname(path))
        now = self._now()
        name = self._ids.session_id(now)
        self._set_folder_of(path)
        return Journal(
            name, cwd, self._make_header(name, now, cwd), self._session_file(path), self._now, self._mask, self._ids
        )

    @staticmethod
    def check_folder(folder: str) -> None:
        """Raise `Refusal` if no session can be kept in a folder, which need not exist yet."""
        above = folder
        while not os.path.lexists(above):
            above = os.path.dirname(above)
        if not os.path.isdir(above):
            raise Refusal(f"Session folder cannot be made: {folder}: {above} is not a folder")
        if not os.access(above, os.W_OK | os.X_OK):
            raise Refusal(f"Session folder cannot be written: {folder}: permission denied")

    def _set_folder_of(self, path: str) -> None:
        """Opening a file makes the agent keep its later sessions beside that file."""
        self.persistent = True
        self.folder = os.path.dirname(path)

    def _session_file(self, path: str, namesake: Namesake | None = None) -> SessionFile:
        return SessionFile(path, self.report, namesake=namesake)
