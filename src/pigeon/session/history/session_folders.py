"""The folders of sessions: where the files are on disk, and what they are called. Everything else gets these from here.

    AGENT_DIR/sessions/--home-user-project--/         the sessions of one working directory
        2026-11-15T17-55-01-530Z_ID.jsonl             a session: a header, then an entry on each line
        2026-11-15T17-55-01-530Z_ID/                  the full outputs of its tools
        2026-11-15T17-55-01-530Z_ID-agents/           the sessions of the agents that it has started
    AGENT_DIR/trash/2026-11-16T09-00-00-000Z_ID/      a deleted session, with a note of where it was

Folders and file names are exactly those of pi, so that both programs find the same sessions. A session may also be in
any other folder that an option or a host names; its file is called the same there.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from msgspec.structs import replace

from pigeon.session.history.listing import has_message, header_of, make_row, row_of, title_of
from pigeon.system import clock
from pigeon.system.append_file import is_locked_by_writer
from pigeon.wire.answers import SessionRow
from pigeon.wire.errors import Refusal

_SUFFIX = ".jsonl"
_AGENTS_SUFFIX = "-agents"
MOST_NAMED = 20
# A time and an id, as `new_file_path` names a session and all of pi's family do.
_GIVEN_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z_(.+)\.jsonl")


class SessionFolders:
    """The session files below one folder; methods that need no such folder are static."""

    def __init__(self, root: str) -> None:
        self.root = root

    @classmethod
    def from_agent_dir(cls, agent_dir: str) -> SessionFolders:
        """The session folders of one agent folder."""
        return cls(os.path.join(agent_dir, "sessions"))

    # Where sessions are

    def folder_of(self, cwd: str) -> str:
        """The folder of one working directory's sessions."""
        flat = cwd[1:] if cwd[:1] in ("/", "\\") else cwd
        for separator in "/\\:":
            flat = flat.replace(separator, "-")
        return os.path.join(self.root, f"--{flat}--")

    def folders(self) -> list[str]:
        """The session folders of all working directories."""
        try:
            with os.scandir(self.root) as found:
                return sorted(item.path for item in found if item.is_dir())
        except OSError:
            return []

    def is_folder_of_one_cwd(self, folder: str) -> bool:
        """True if all sessions of a folder are of one working directory."""
        return os.path.dirname(folder) == self.root

    def contains(self, path: str) -> bool:
        """True if a real path is below the store."""
        above, name = os.path.split(self.root)
        return path.startswith(os.path.join(os.path.realpath(above), name, ""))

    @property
    def trash(self) -> str:
        """The folder of deleted sessions."""
        return os.path.join(os.path.dirname(self.root), "trash")

    def new_trash_path(self, session_id: str, deleted_at: str) -> str:
        """The path for a session that is deleted now."""
        # An id in a file may contain anything, even a path out of the trash.
        name = re.sub(r"[^A-Za-z0-9._-]", "_", session_id)[:80]
        return os.path.join(self.trash, f"{_format_time_for_name(deleted_at)}_{name}")

    # What files are called

    @staticmethod
    def new_file_path(folder: str, session_id: str, now_ms: int) -> str:
        return os.path.join(folder, f"{_format_time_for_name(clock.to_iso(now_ms))}_{session_id}{_SUFFIX}")

    @staticmethod
    def to_file_name(name: str) -> str:
        """What a session's file is called that has this name."""
        return f"{name}{_SUFFIX}"

    @staticmethod
    def has_file(file: str | None) -> bool:
        """True if the session of this file is on disk; it is from its first message on."""
        return file is not None and os.path.exists(file)

    @staticmethod
    def is_in_folder(file: str | None, folder: str) -> bool:
        """True if a session's file is directly in this folder."""
        return file is not None and os.path.dirname(file) == folder

    @staticmethod
    def outputs_folder_of(file: str) -> str:
        """The folder of the full outputs of a session's tools."""
        return file.removesuffix(_SUFFIX)

    @staticmethod
    def agents_folder_of(file: str) -> str:
        """The folder of the sessions of agents that a session has started; theirs are below their own."""
        return file.removesuffix(_SUFFIX) + _AGENTS_SUFFIX

    @staticmethod
    def name_of(file: str) -> str:
        """The base name of a session's file, for files derived from it."""
        return os.path.basename(file).removesuffix(_SUFFIX)

    @staticmethod
    def id_in_name(file: str) -> str:
        """The session id in a file name; the header may have another."""
        return file.removesuffix(_SUFFIX).rpartition("_")[2]

    @staticmethod
    def is_file_reference(reference: str) -> bool:
        """True if the reference means a file, not an id or the beginning of one."""
        return "/" in reference or "\\" in reference or reference.endswith(_SUFFIX)

    # Finding and listing

    @staticmethod
    def list_files(folder: str, is_wanted: Callable[[str], bool] = lambda name: True) -> list[str]:
        """The session files of one folder whose names are wanted, most recently changed first."""
        return [path for _, path in sorted(_list_dated_files(folder, is_wanted), reverse=True)]

    @staticmethod
    def find_newest(folder: str, cwd: str | None = None) -> str | None:
        """The most recently changed session, in one working directory if that is given."""
        for path in SessionFolders.list_files(folder):
            header = header_of(path)
            if header is not None and (cwd is None or header.get("cwd") == cwd):
                return path
        return None

    @staticmethod
    def find_newest_with_message(folder: str) -> str | None:
        """The most recently changed session with a message."""
        return next((path for path in SessionFolders.list_files(folder) if has_message(path)), None)

    @staticmethod
    def find_by_id(folder: str, session_id: str) -> str | None:
        """The file of the session with exactly this id in this folder, even one that is just being created."""
        for path in SessionFolders.list_files(folder, lambda name: _id_by_name(name) in (session_id, None)):
            header = header_of(path)
            if header["id"] == session_id if header is not None else _is_named_for(path, session_id):
                return path
        return None

    @staticmethod
    def find_by_name(folder: str, session_id: str) -> str | None:
        """The file in this folder that is named for the session; no other file is read."""
        named = (path for path in SessionFolders.list_files(folder) if _is_named_for(path, session_id))
        return next((path for path in named if (header_of(path) or {}).get("id") == session_id), None)

    def find_by_id_in_name(self, session_id: str) -> str | None:
        """The session in any folder whose file name has this id; quick, because only that file is read."""
        files = (path for folder in self.folders() for path in self.list_files(folder))
        return next((path for path in files if _is_named_for(path, session_id) and row_of(path) is not None), None)

    def resolve(self, reference: str, folder: str) -> tuple[str, bool] | None:
        """The file of a session id or its beginning, and whether it belongs to this folder.

        Raises a `Refusal` that lists the sessions if several match.
        """
        begun: list[tuple[str, str, bool]] = []
        for path, here in self._candidates(folder, lambda name: (_id_by_name(name) or reference).startswith(reference)):
            header = header_of(path)
            if header is not None and header["id"] == reference:
                return path, here
            if header is not None and header["id"].startswith(reference):
                begun.append((header["id"], path, here))
        near = [found for found in begun if found[2]] or begun
        if len({session_id for session_id, _, _ in near}) > 1:
            rows = [f"  {session_id}  {_description_of(path)}" for session_id, path, _ in near[:MOST_NAMED]]
            more = [f"  and {len(near) - MOST_NAMED} more"] if len(near) > MOST_NAMED else []
            listed = "\n".join([*rows, *more])
            raise Refusal(f"'{reference}' is the beginning of several sessions; give more of the id of one:\n{listed}")
        return (near[0][1], near[0][2]) if near else None

    def _candidates(self, folder: str, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, bool]]:
        for path in self.list_files(folder, is_wanted):
            yield path, True
        for other in self.folders():
            if other != folder:
                for path in self.list_files(other, is_wanted):
                    yield path, False

    @staticmethod
    def list_sessions(
        folders: Sequence[str],
        cursor: str | None,
        limit: int,
        is_wanted: Callable[[SessionRow], bool] = lambda row: True,
    ) -> tuple[list[SessionRow], str | None]:
        """A page of the sessions that are wanted, newest first, and where the next page begins."""
        files = sorted((dated for folder in folders for dated in _list_dated_files(folder)), reverse=True)
        keys = [f"{changed:020d}:{path}" for changed, path in files]
        start = next((index for index, key in enumerate(keys) if cursor is None or key < cursor), len(keys))
        rows: list[SessionRow] = []
        at = start
        while at < len(files) and len(rows) < limit:
            row = make_row(files[at][1], files[at][0] // 1_000_000)
            if row is not None and is_wanted(row):
                rows.append(row)
            at += 1
        return rows, keys[at - 1] if at < len(files) and at > start else None

    @staticmethod
    def find_rows_by_id(folders: Sequence[str], session_id: str) -> list[SessionRow]:
        """The session with exactly this id, and whether another process writes it; empty if there is none."""
        for folder in folders:
            path = SessionFolders.find_by_id(folder, session_id)
            row = None if path is None else row_of(path)
            if row is not None:
                return [replace(row, in_use=is_locked_by_writer(row.reference))]
        return []


def is_agents_folder(name: str) -> bool:
    """Whether this is the name of a folder with the sessions of started agents."""
    return name.endswith(_AGENTS_SUFFIX)


def _format_time_for_name(time: str) -> str:
    """A time without characters that file systems reject."""
    return time.replace(":", "-").replace(".", "-")


def _is_named_for(path: str, session_id: str) -> bool:
    return path.endswith(f"_{session_id}{_SUFFIX}")


def _id_by_name(name: str) -> str | None:
    """The id of the session in a file with a name that sessions get; None if only the file itself says it.

    Of thousands of sessions none has to be opened to find one.
    """
    match = _GIVEN_NAME.fullmatch(name)
    return None if match is None else match[1]


def _list_dated_files(folder: str, is_wanted: Callable[[str], bool] = lambda name: True) -> list[tuple[int, str]]:
    """The session files of one folder with their modification times; unreadable ones are left out."""
    found: list[tuple[int, str]] = []
    with suppress(OSError), os.scandir(folder) as items:
        for item in items:
            if item.name.endswith(_SUFFIX) and is_wanted(item.name):
                with suppress(OSError):
                    about = item.stat()
                    if stat.S_ISREG(about.st_mode):
                        found.append((about.st_mtime_ns, item.path))
    return found


def _description_of(path: str) -> str:
    """Identifies a session for a person: when it was changed, and its title."""
    row = row_of(path)
    return path if row is None else f"{row.modified[:16].replace('T', ' ')}  {title_of(row)}"
