"""The trash of sessions: what is deleted comes back whole, and what cannot be moved stays where it is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pigeon.session.history.session_folders import SessionFolders
from pigeon.session.history.trash import NOTE, SessionTrash
from pigeon.wire.errors import StartupError
from support.sessions import NOW, DiskRepository, user


class Store:
    """A store with sessions in one project, and its trash; each deletion is a minute after the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "sessions" / "project"
        self._now = NOW
        self.trash = SessionTrash(SessionFolders(str(folder / "sessions")), self._tick)

    def _tick(self) -> int:
        self._now += 60_000
        return self._now

    def make_session(self, text: str) -> Path:
        journal = DiskRepository(self.folder).create_journal("/")
        journal.append_message(user(text))
        journal.close()
        file = Path(str(journal.file))
        outputs = Path(SessionFolders.outputs_folder_of(str(file)))
        outputs.mkdir()
        (outputs / "output.txt").write_text(text)
        return file


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_a_deleted_session_comes_back_with_the_outputs_of_its_tools(store: Store) -> None:
    first, second = store.make_session("one"), store.make_session("two")
    before = first.read_bytes()
    for file in (first, second):
        assert store.trash.move_to_trash(str(file)).path == str(file)
        assert not file.exists()
        assert not Path(SessionFolders.outputs_folder_of(str(file))).exists()
    assert [one.path for one in store.trash.list_sessions()] == [str(second), str(first)], "the newest deletion first"
    assert store.trash.list_unreadable() == []
    restored = store.trash.restore_session(store.trash.list_sessions()[1].row.id)
    assert restored.path == str(first)
    assert first.read_bytes() == before
    assert (Path(SessionFolders.outputs_folder_of(str(first))) / "output.txt").read_text() == "one"
    assert not os.path.exists(restored.folder)
    assert store.trash.restore_session("").path == str(second)
    assert store.trash.list_sessions() == []
    with pytest.raises(StartupError, match=r"^The trash is empty$"):
        store.trash.restore_session("")


def test_a_trash_that_was_never_used_is_empty(store: Store) -> None:
    assert store.trash.list_sessions() == []
    assert store.trash.list_unreadable() == []
    with pytest.raises(StartupError, match="There is no abc in the trash"):
        store.trash.restore_session("abc")


def test_a_session_that_is_being_written_is_not_deleted(store: Store) -> None:
    file = store.make_session("one")
    writing = DiskRepository(store.folder).open(str(file), "/")
    writing.append_message(user("more"))
    with pytest.raises(StartupError, match=f"A process is writing this session: {file}. End it first"):
        store.trash.move_to_trash(str(file))
    writing.close()
    assert file.exists()
    store.trash.move_to_trash(str(file))
    assert not file.exists()


def test_what_is_no_session_is_not_deleted(store: Store, tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text("mine\n")
    with pytest.raises(StartupError, match="There is no session in "):
        store.trash.move_to_trash(str(tmp_path / "notes.jsonl"))
    assert (tmp_path / "notes.jsonl").read_text() == "mine\n"


def test_where_the_trash_cannot_be_used_a_session_stays(store: Store) -> None:
    file = store.make_session("one")
    Path(store.trash.folder).parent.mkdir(exist_ok=True)
    Path(store.trash.folder).write_text("a file")
    with pytest.raises(StartupError, match=f"{file} cannot be moved to {store.trash.folder}/.*: "):
        store.trash.move_to_trash(str(file))
    assert file.exists()
    assert store.trash.list_sessions() == store.trash.list_unreadable() == []
    Path(store.trash.folder).unlink()
    store.trash.move_to_trash(str(file))


@pytest.mark.parametrize("damage", ["no note", "half a note", "another note", "no session"])
def test_what_cannot_be_read_in_the_trash_is_listed_apart(store: Store, damage: str) -> None:
    deleted = store.trash.move_to_trash(str(store.make_session("one")))
    note = Path(deleted.folder, NOTE)
    if damage == "no note":
        note.unlink()
    elif damage == "no session":
        Path(deleted.folder, os.path.basename(deleted.path)).unlink()
    else:
        note.write_text('{"path": ' if damage == "half a note" else '{"deleted": 7}')
    assert store.trash.list_sessions() == []
    assert store.trash.list_unreadable() == [deleted.folder]


def test_a_session_does_not_come_back_over_another_one_or_where_its_folder_cannot_be_made(store: Store) -> None:
    file = store.make_session("one")
    deleted = store.trash.move_to_trash(str(file))
    file.write_text("another\n")
    with pytest.raises(StartupError, match=f"There is a session at {file} again"):
        store.trash.restore_session(deleted.row.id)
    assert file.read_text() == "another\n"
    shutil.rmtree(file.parent)
    file.parent.write_text("a file")
    with pytest.raises(StartupError, match=f"{file} cannot be brought back: "):
        store.trash.restore_session(deleted.row.id)
    file.parent.unlink()
    assert store.trash.restore_session(deleted.row.id[:8]).path == str(file)
    assert file.exists()


def test_an_id_that_several_begin_with_restores_none(store: Store) -> None:
    ids = {store.trash.move_to_trash(str(store.make_session(text))).row.id for text in ("one", "two")}
    common = min(ids)[:6]
    assert all(id.startswith(common) for id in ids), "they begin with their time"
    with pytest.raises(StartupError, match=f"{common} is the beginning of several ids"):
        store.trash.restore_session(common)
    assert len(store.trash.list_sessions()) == 2
