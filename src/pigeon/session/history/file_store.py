"""Session files as a session store: pi's files as they are, and beside them who may write which.

    DIR/--home-user-project--/2026-11-15T17-55-01-530Z_ID.jsonl     a session
    DIR/.leases/ID.json                                             its owner and epoch, once it was acquired

An agent of this machine writes its session file directly (`session_file.py`) and holds its lock, which this store takes
for the lease of another owner.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from msgspec import Struct

from pigeon.session.history.listing import header_of
from pigeon.session.history.session_folders import SessionFolders
from pigeon.session.history.text_search import has_message_with, read_file_lines
from pigeon.session.history.trash import SessionTrash
from pigeon.store.lines import check_line, read_header_facts, split_words
from pigeon.store.protocol import (
    Lease,
    PositionMismatch,
    SessionExists,
    SessionNotFound,
    StaleEpoch,
    StoredSession,
)
from pigeon.system import clock
from pigeon.system.append_file import PRIVATE_FILE, AppendFile, FileInUse, is_locked_by_writer, make_private_folder
from pigeon.system.files import replace_file_atomically
from pigeon.wire import codec
from pigeon.wire.answers import SessionRow
from pigeon.wire.base import value_or_default
from pigeon.wire.errors import BadRecord, Refusal, StartupError

_LEASES = ".leases"
_UNSAFE = ("/", "\\", "\0", "\n")
# Inside the class, `list` is the method.
_Rows = list[SessionRow]
_Sessions = list[StoredSession]


class _LeaseNote(Struct, rename="camel"):
    """What is noted of a session beside its file; `owner` is empty if the lease was released."""

    owner: str = ""
    epoch: int = 0
    expires_at: float = 0.0


class FileStore:
    """Sessions as the files of pi, one folder for each working directory.

    Args:
        folder: the folder of these folders; `~/.pigeon/agent/sessions` for an agent of this user

    Example:
        import asyncio

        import pigeon

        async def find_sessions(folder: str, text: str) -> list[str]:
            return [session.session_id for session in await pigeon.FileStore(folder).search(text)]
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.fspath(folder)
        self._folders = SessionFolders(self.folder)
        self._paths: dict[str, str] = {}

    @property
    def address(self) -> str:
        """How `--store` names this store."""
        return f"file:{self.folder}"

    async def close(self) -> None:
        """Nothing is kept open between calls."""

    async def create(self, session_id: str, header: bytes) -> None:
        """Create a session without entries; raises `SessionExists`."""
        await asyncio.to_thread(self._create, session_id, header)

    async def acquire(self, session_id: str, owner: str, seconds: float) -> Lease | None:
        """Become the owner; None while another owner's lease lives, or an agent writes the file."""
        return await asyncio.to_thread(self._acquire, session_id, owner, seconds)

    async def renew(self, lease: Lease, seconds: float) -> bool:
        """Extend a lease from now on; also one that has ended, as long as the session has no other owner."""

        return await asyncio.to_thread(self._renew, lease, seconds)

    async def release(self, lease: Lease) -> None:
        """Give the lease up before its end."""

        await asyncio.to_thread(self._release, lease)

    async def append(self, session_id: str, lines: Sequence[bytes], *, epoch: int, position: int) -> int:
        """Add these entries, all or none; returns the position behind them."""
        return await asyncio.to_thread(self._append, session_id, lines, epoch, position)

    async def read(self, session_id: str, after: int = 0) -> list[bytes]:
        """The header and all entries, or the entries behind the first `after` ones."""

        def read() -> list[bytes]:
            lines = read_file_lines(self._require_path(session_id))
            return lines[after + 1 :] if after > 0 else lines

        return await asyncio.to_thread(read)

    async def list(
        self, *, cwd: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[StoredSession], str | None]:
        """Sessions of one working directory or of all, those changed last first, and where the next page begins."""

        def list_them() -> tuple[list[StoredSession], str | None]:
            rows, following = self._list_rows(cwd, limit, cursor, lambda row: True)
            return [_to_stored(row) for row in rows], following

        return await asyncio.to_thread(list_them)

    async def search(self, text: str, *, cwd: str | None = None, limit: int = 50) -> _Sessions:
        """Sessions with a message that has all words of the text, those changed last first."""
        words = split_words(text)
        if not words:
            return []

        def search() -> list[StoredSession]:
            rows, _ = self._list_rows(cwd, limit, None, lambda row: has_message_with(row.reference, words))
            return [_to_stored(row) for row in rows]

        return await asyncio.to_thread(search)

    async def delete(self, session_id: str, *, epoch: int) -> None:
        """Move a session to the trash."""

        await asyncio.to_thread(self._delete, session_id, epoch)

    async def find(self, session_id: str) -> StoredSession | None:
        """The session with this id, if there is one."""

        def find() -> StoredSession | None:
            path = self._find_path(session_id)
            row = (
                None
                if path is None
                else next(iter(self._folders.find_rows_by_id([os.path.dirname(path)], session_id)), None)
            )
            return None if row is None else _to_stored(row)

        return await asyncio.to_thread(find)

    async def list_leases(self, session_id: str | None = None) -> Sequence[tuple[Lease, str]]:
        """The living leases, and when each ends."""

        def list_them() -> Sequence[tuple[Lease, str]]:
            found = []
            for name in _list_names(os.path.join(self.folder, _LEASES)):
                known, ending = os.path.splitext(name)
                note = self._read_note(known) if ending == ".json" and session_id in (None, known) else _LeaseNote()
                if note.owner and note.expires_at > time.time():
                    found.append((Lease(known, note.owner, note.epoch), clock.to_iso(int(note.expires_at * 1000))))
            return sorted(found, key=lambda one: one[0].session_id)

        return await asyncio.to_thread(list_them)

    # In threads

    def _create(self, session_id: str, header: bytes) -> None:
        check_line(header)
        _check_id(session_id)
        facts = read_header_facts(header)
        with self._locked_note(session_id):
            if self._find_path(session_id, by_name=True) is not None:
                raise SessionExists(f"There is a session {session_id} already")
            folder = self._folders.folder_of(facts.cwd)
            path = self._folders.new_file_path(folder, session_id, _to_milliseconds(facts.created))
            file = AppendFile(path, True)
            try:
                file.append(header + b"\n")
                file.sync()
            finally:
                file.close()
            self._paths[session_id] = path

    def _acquire(self, session_id: str, owner: str, seconds: float) -> Lease | None:
        with self._locked_note(session_id) as note:
            path = self._require_path(session_id)
            held = note.owner not in ("", owner) and note.expires_at > time.time()
            if held or is_locked_by_writer(path):
                return None
            self._write_note(session_id, _LeaseNote(owner, note.epoch + 1, time.time() + seconds))
            return Lease(session_id, owner, note.epoch + 1)

    def _renew(self, lease: Lease, seconds: float) -> bool:
        with self._locked_note(lease.session_id) as note:
            if not _is_of(note, lease):
                return False
            self._write_note(lease.session_id, _LeaseNote(lease.owner, lease.epoch, time.time() + seconds))
            return True

    def _release(self, lease: Lease) -> None:
        with self._locked_note(lease.session_id) as note:
            if _is_of(note, lease):
                self._write_note(lease.session_id, _LeaseNote("", lease.epoch))

    def _delete(self, session_id: str, epoch: int) -> None:
        with self._locked_note(session_id) as note:
            path = self._require_path(session_id)
            if note.epoch != epoch:
                raise StaleEpoch
            try:
                SessionTrash(self._folders, clock.now_ms).move_to_trash(path)
            except StartupError as error:
                raise Refusal(str(error)) from None
            self._paths.pop(session_id, None)
            self._write_note(session_id, _LeaseNote("", epoch))

    def _append(self, session_id: str, lines: Sequence[bytes], epoch: int, position: int) -> int:
        for line in lines:
            check_line(line)
        with self._locked_note(session_id) as note:
            path = self._require_path(session_id)
            if note.epoch != epoch or not epoch:
                raise StaleEpoch
            try:
                file = AppendFile(path, False)
            except FileInUse:
                raise StaleEpoch(f"An agent of this machine writes the session {session_id}") from None
            try:
                there = read_file_lines(path)[1:]
                if position == len(there):
                    file.append(_lead_of(path) + b"".join(line + b"\n" for line in lines))
                    file.sync()
                    now = time.time_ns()
                    os.utime(path, ns=(now, now))
                elif position < 0 or there[position : position + len(lines)] != [*lines]:
                    raise PositionMismatch(f"The session {session_id} has {len(there)} entries, not {position}")
            finally:
                file.close()
        return position + len(lines)

    def _list_rows(
        self, cwd: str | None, limit: int, cursor: str | None, is_wanted: Callable[[SessionRow], bool]
    ) -> tuple[_Rows, str | None]:
        folders = [self.folder, *self._folders.folders()]
        return self._folders.list_sessions(
            folders, cursor, limit, lambda row: cwd in (None, row.cwd) and is_wanted(row)
        )

    def _require_path(self, session_id: str) -> str:
        path = self._find_path(session_id)
        if path is None:
            raise SessionNotFound(f"There is no session {session_id} in {self.folder}")
        return path

    def _find_path(self, session_id: str, by_name: bool = False) -> str | None:
        """The file of a session; `by_name` reads no other file, and does not find one that was given another name."""
        known = self._paths.get(session_id)
        header = header_of(known) if known is not None else None
        if header is not None and header["id"] == session_id:
            return known
        folders = (self.folder, *self._folders.folders())
        named = (self._folders.find_by_name(folder, session_id) for folder in folders)
        path = next((path for path in named if path is not None), None)
        if path is not None or by_name:
            return path
        for folder in folders:
            path = self._folders.find_by_id(folder, session_id)
            if path is not None and header_of(path) is not None:
                self._paths[session_id] = path
                return path
        return None

    @contextmanager
    def _locked_note(self, session_id: str) -> Iterator[_LeaseNote]:
        """The note of a session, while no other process or thread can change it."""
        _check_id(session_id)
        folder = os.path.join(self.folder, _LEASES)
        make_private_folder(folder)
        descriptor = os.open(os.path.join(folder, f"{session_id}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield self._read_note(session_id)
        finally:
            os.close(descriptor)

    def _read_note(self, session_id: str) -> _LeaseNote:
        try:
            with open(os.path.join(self.folder, _LEASES, f"{session_id}.json"), "rb") as file:
                return codec.convert(codec.decode(file.read()), _LeaseNote)
        except FileNotFoundError:
            return _LeaseNote()
        except (OSError, BadRecord) as error:
            raise Refusal(f"The lease of the session {session_id} cannot be read: {error}") from None

    def _write_note(self, session_id: str, note: _LeaseNote) -> None:
        path = os.path.join(self.folder, _LEASES, f"{session_id}.json")
        replace_file_atomically(path, codec.encode(note) + b"\n", PRIVATE_FILE)


def _is_of(note: _LeaseNote, lease: Lease) -> bool:
    return (note.owner, note.epoch) == (lease.owner, lease.epoch)


def _check_id(session_id: str) -> None:
    if not session_id or session_id.startswith(".") or any(one in session_id for one in _UNSAFE):
        raise Refusal("The id of a session in files is a text without slashes that does not begin with a dot")


def _lead_of(path: str) -> bytes:
    """What ends an incomplete last line."""
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return b"" if file.read() == b"\n" else b"\n"


def _list_names(folder: str) -> list[str]:
    with suppress(OSError):
        return os.listdir(folder)
    return []


def _count_entries(path: str) -> int:
    try:
        return max(0, len(read_file_lines(path)) - 1)
    except OSError:
        return 0


def _to_stored(row: SessionRow) -> StoredSession:
    return StoredSession(
        row.id,
        row.cwd,
        value_or_default(row.name, ""),
        _count_entries(row.reference),
        row.created,
        row.modified,
        value_or_default(row.first_message, ""),
        value_or_default(row.parent_session, ""),
    )


def _to_milliseconds(created: str) -> int:
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(created).timestamp() * 1000)
    except ValueError:
        return clock.now_ms()
