"""The trash, where deleted sessions stay until they are restored or removed by hand.

A deleted session is a folder of the trash with its file, the folder of its tools' outputs if there is one, and a note
of where they were. A session that a process is writing cannot be deleted.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec import Struct

from pigeon.session.history.listing import row_of
from pigeon.session.history.session_folders import SessionFolders
from pigeon.system import clock
from pigeon.system.append_file import AppendFile, FileInUse, make_private_folder
from pigeon.system.files import replace_file_atomically
from pigeon.wire import codec
from pigeon.wire.answers import SessionRow
from pigeon.wire.errors import BadRecord, StartupError

NOTE = "deleted.json"


class TrashedSession(Struct, frozen=True):
    """A session in the trash: its folder there, its former path, when it was deleted, and its list row."""

    folder: str
    path: str
    deleted: str
    row: SessionRow


class SessionTrash:
    """The deleted sessions of one store, which can be restored."""

    def __init__(self, store: SessionFolders, now: Callable[[], int]) -> None:
        self._store = store
        self._now = now

    @property
    def folder(self) -> str:
        return self._store.trash

    def move_to_trash(self, path: str) -> TrashedSession:
        """Raises `StartupError` if the session cannot be deleted."""
        import shutil

        row = _require_row(path)
        deleted = clock.to_iso(self._now())
        place = self._store.new_trash_path(row.id, deleted)
        try:
            # Held until the file has moved: a process that wants to write it meanwhile finds the lock.
            file = AppendFile(path, False)
        except FileInUse:
            raise StartupError(f"A process is writing this session: {path}. End it first") from None
        except OSError as error:
            raise StartupError(f"{path} cannot be deleted: {error.strerror}") from None
        try:
            make_private_folder(place)
            note = {"path": path, "deleted": deleted}
            replace_file_atomically(os.path.join(place, NOTE), codec.encode(note) + b"\n", 0o600)
            for one in (path, *_folders_of(path)):
                if os.path.lexists(one):
                    shutil.move(one, os.path.join(place, os.path.basename(one)))
        except OSError as error:
            raise StartupError(f"{path} cannot be moved to {place}: {error.strerror}") from None
        finally:
            file.close()
        return TrashedSession(place, path, deleted, row)

    def list_sessions(self) -> list[TrashedSession]:
        """The sessions in the trash, most recently deleted first."""
        try:
            names = sorted(os.listdir(self.folder), reverse=True)
        except OSError:
            return []
        found = (self._read_session(os.path.join(self.folder, name)) for name in names)
        return [one for one in found if one is not None]

    def list_unreadable(self) -> list[str]:
        """Folders of the trash whose note or session cannot be read."""
        try:
            folders = [os.path.join(self.folder, name) for name in sorted(os.listdir(self.folder))]
        except OSError:
            return []
        return [folder for folder in folders if self._read_session(folder) is None]

    def restore_session(self, reference: str) -> TrashedSession:
        """Restore a session to its former place, the most recently deleted one for an empty reference; raises
        `StartupError`."""
        import shutil

        found = [one for one in self.list_sessions() if one.row.id.startswith(reference)]
        if not found:
            raise StartupError(f"There is no {reference} in the trash" if reference else "The trash is empty")
        if reference and len({one.row.id for one in found}) > 1:
            raise StartupError(f"{reference} is the beginning of several ids; `pigeon sessions trash` lists them")
        one = found[0]
        if os.path.lexists(one.path):
            raise StartupError(f"There is a session at {one.path} again; move it away first")
        try:
            make_private_folder(os.path.dirname(one.path))
            for target in (*_folders_of(one.path), one.path):
                source = os.path.join(one.folder, os.path.basename(target))
                if os.path.lexists(source):
                    shutil.move(source, target)
            shutil.rmtree(one.folder)
        except OSError as error:
            raise StartupError(f"{one.path} cannot be brought back: {error.strerror}") from None
        return one

    def _read_session(self, folder: str) -> TrashedSession | None:
        try:
            with open(os.path.join(folder, NOTE), "rb") as file:
                note = codec.decode(file.read(64 * 1024))
            path, deleted = str(note["path"]), str(note["deleted"])
            return TrashedSession(folder, path, deleted, _require_row(os.path.join(folder, os.path.basename(path))))
        except (OSError, BadRecord, KeyError, TypeError, StartupError):
            return None


def _folders_of(path: str) -> tuple[str, str]:
    return SessionFolders.outputs_folder_of(path), SessionFolders.agents_folder_of(path)


def _require_row(path: str) -> SessionRow:
    row = row_of(path)
    if row is None:
        raise StartupError(f"There is no session in {path}")
    return row
