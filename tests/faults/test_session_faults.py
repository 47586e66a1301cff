"""A disk that fails at the n-th operation, for every n: the host is told, the talk goes on, nothing is lost."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pigeon.session.history import session_file as store_module
from pigeon.session.history.journal import Journal
from pigeon.session.history.reading import load_session
from pigeon.session.history.session_file import SessionInUse
from pigeon.system.append_file import AppendFile
from pigeon.wire.entries import ModelChange, SessionInfo
from support.sessions import OLD, RECORDED, DiskRepository, raw_entries, user

WRITE = os.write
STEPS = 9
FOREVER = 1_000
KINDS = ("refuses", "takes half", "keeps half")


class Disk:
    """Counts what is asked of it, and fails from one operation on for a while."""

    def __init__(self, first: int, count: int, error: int = errno.ENOSPC, kind: str = "refuses") -> None:
        self.operations = 0
        self._bad = range(first, first + count)
        self._error = error
        self._kind = kind

    def open(self, path: str, fresh: bool) -> AppendFile:
        """The opener of a store."""
        if self._fails():
            raise self.trouble()
        return _File(path, fresh, self)

    def trouble(self) -> OSError:
        return OSError(self._error, os.strerror(self._error))

    def append(self, file: AppendFile, data: bytes) -> None:
        if not self._fails():
            AppendFile.append(file, data)
        elif self._kind == "refuses":
            raise self.trouble()
        else:
            self._half(file, data)

    def _half(self, file: AppendFile, data: bytes) -> None:
        """Some bytes arrive before it fails; and perhaps they cannot even be taken back."""
        room = len(data) // 2

        def write(descriptor: int, rest: bytes) -> int:
            nonlocal room
            if room == 0:
                raise self.trouble()
            taken = WRITE(descriptor, rest[:room])
            room -= taken
            return taken

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.write", write)
            if self._kind == "keeps half":
                patch.setattr("os.ftruncate", self._refuse)
            AppendFile.append(file, data)

    def _refuse(self, descriptor: int, size: int) -> None:
        raise self.trouble()

    @property
    def is_well(self) -> bool:
        """True if the next operation works."""
        return self.operations + 1 not in self._bad

    def _fails(self) -> bool:
        self.operations += 1
        return self.operations in self._bad


class _File(AppendFile):
    def __init__(self, path: str, fresh: bool, disk: Disk) -> None:
        super().__init__(path, fresh)
        self._disk = disk

    def append(self, data: bytes) -> None:
        self._disk.append(self, data)


def step(journal: Journal, number: int) -> None:
    """One more entry."""
    if number == 0:
        journal.append(ModelChange, provider="fake", model_id="fake-1")
    elif number == 4:
        journal.append(SessionInfo, name="a name")
    else:
        journal.append_message(user(f"message {number}"))


def kept_in(journal: Journal) -> list[bytes]:
    """What the file has; it must be readable at any time."""
    assert journal.file is not None
    loaded = load_session(journal.file)
    return [] if loaded is None else [line.raw for line in loaded.lines]


def is_in_order(part: list[bytes], whole: list[bytes]) -> bool:
    rest = iter(whole)
    return all(line in rest for line in part)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("count", [1, 3, FOREVER])
def test_the_nth_operation_fails_for_every_n(tmp_path: Path, count: int, error: int, kind: str) -> None:
    counting = Disk(0, 0)
    _play(tmp_path / "counted", counting)[1].close()
    assert counting.operations == STEPS
    for first in range(1, counting.operations + 1):
        repository, journal = _play(tmp_path / str(first), Disk(first, count, error, kind))
        whole = raw_entries(journal)
        failed = f"The session cannot be saved to {journal.file}: {os.strerror(error)}."
        assert repository.reports[0].startswith(failed)
        if count == FOREVER:
            assert len(repository.reports) == 1
            journal.close()
            assert repository.reports[1:] == [f"The session could not be saved completely: {journal.file}"]
            assert is_in_order(kept_in(journal), whole)
            continue
        journal.close()
        assert repository.reports[1:] == [f"The session is saved again: {journal.file}"]
        assert kept_in(journal) == whole
        with closing(DiskRepository(tmp_path).open(str(journal.file), "/")) as opened:
            assert opened.leaf_id == journal.leaf_id


def _play(folder: Path, disk: Disk) -> tuple[DiskRepository, Journal]:
    repository = DiskRepository(folder, opener=disk.open)
    journal = repository.create_journal("/")
    for number in range(STEPS):
        step(journal, number)
        assert len(journal.lines) == number + 1
        assert is_in_order(kept_in(journal), raw_entries(journal))
    while not disk.is_well and disk.operations < 3 * STEPS:
        step(journal, STEPS)
    return repository, journal


def test_what_is_still_missing_at_the_end_is_saved_if_that_works_by_then(tmp_path: Path) -> None:
    disk = Disk(3, 2)
    repository = DiskRepository(tmp_path, opener=disk.open)
    journal = repository.create_journal("/")
    for number in range(4):
        step(journal, number)
    assert len(kept_in(journal)) < 4
    journal.close()
    assert kept_in(journal) == raw_entries(journal)
    assert repository.reports[-1] == f"The session is saved again: {journal.file}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_that_was_opened_survives_a_failure_at_every_write(tmp_path: Path, kind: str) -> None:
    original = (RECORDED / "pi-0.87.1.jsonl").read_bytes()
    for first in range(1, 6):
        path = tmp_path / f"{first}.jsonl"
        path.write_bytes(original[:-1])
        repository = DiskRepository(tmp_path, opener=Disk(first, 2, kind=kind).open)
        journal = repository.open(str(path), "/")
        for number in range(1, 6):
            journal.append_message(user(f"message {number}"))
            assert kept_in(journal) == raw_entries(journal)[: len(kept_in(journal))]
        journal.close()
        assert kept_in(journal) == raw_entries(journal)
        assert path.read_bytes().startswith(original)


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES])
def test_a_session_that_cannot_be_written_opens_and_says_so(tmp_path: Path, error: int) -> None:
    path = tmp_path / "session.jsonl"
    shutil.copy(RECORDED / "pi-0.73.1.jsonl", path)
    before = path.read_bytes()
    disk = Disk(1, 3, error)
    repository = DiskRepository(tmp_path, opener=disk.open)
    journal = repository.open(str(path), "/")
    assert len(repository.reports) == 1
    assert os.strerror(error) in repository.reports[0]
    for text in ("one", "two"):
        journal.append_message(user(text))
    assert path.read_bytes() == before
    journal.append_message(user("three"))
    assert kept_in(journal) == raw_entries(journal)
    assert path.read_bytes().startswith(before)
    assert repository.reports[1:] == [f"The session is saved again: {path}"]
    journal.close()


def test_an_old_version_that_cannot_be_written_anew_stays_as_it_is_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "session.jsonl"
    shutil.copy(OLD / "version-1.jsonl", path)
    before = path.read_bytes()
    repository = DiskRepository(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(store_module, "replace_file_atomically", _full)
        journal = repository.open(str(path), "/")
        journal.append_message(user("meanwhile"))
    assert path.read_bytes() == before
    journal.append_message(user("afterwards"))
    assert kept_in(journal) == raw_entries(journal)
    assert len(repository.reports) == 2
    journal.close()


def _full(path: str, data: bytes, mode: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def remove_file(path: Path) -> None:
    path.unlink()


def remove_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def put_an_older_copy(path: Path) -> None:
    lines = path.read_bytes().split(b"\n")
    copy = path.with_suffix(".copy")
    copy.write_bytes(b"\n".join(lines[: max(1, len(lines) // 2)]))
    os.replace(copy, path)


@pytest.mark.parametrize("happens", [remove_file, remove_folder, put_an_older_copy])
def test_a_file_that_goes_away_is_made_whole_again(tmp_path: Path, happens: Callable[[Path], None]) -> None:
    for when in range(2, STEPS):
        repository = DiskRepository(tmp_path / str(when))
        journal = repository.create_journal("/")
        path = Path(str(journal.file))
        for number in range(STEPS):
            if number == when:
                happens(path)
            step(journal, number)
        journal.close()
        assert kept_in(journal) == raw_entries(journal)
        assert path.read_bytes().count(b'"type":"session"') == 1
        assert repository.reports == []


def test_a_folder_that_a_file_has_replaced_is_told_and_overcome(tmp_path: Path) -> None:
    repository = DiskRepository(tmp_path / "repository")
    journal = repository.create_journal("/")
    step(journal, 1)
    folder = tmp_path / "repository"
    shutil.rmtree(folder)
    folder.write_text("in the way")
    step(journal, 2)
    step(journal, 3)
    assert len(repository.reports) == 1
    assert "Not a directory" in repository.reports[0] or "File exists" in repository.reports[0]
    folder.unlink()
    step(journal, 5)
    assert kept_in(journal) == raw_entries(journal)
    assert len(repository.reports) == 2
    journal.close()


def test_what_is_no_longer_this_session_is_left_alone(tmp_path: Path) -> None:
    repository = DiskRepository(tmp_path)
    journal = repository.create_journal("/")
    step(journal, 1)
    path = Path(str(journal.file))
    path.unlink()
    other = (RECORDED / "pi-0.73.1.jsonl").read_bytes()
    path.write_bytes(other)
    step(journal, 2)
    assert path.read_bytes() == other
    assert "another file has taken its place" in repository.reports[0]
    path.unlink()
    step(journal, 3)
    assert kept_in(journal) == raw_entries(journal)
    journal.close()


def test_two_new_sessions_bound_to_one_path_become_one(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    shelves = DiskRepository(tmp_path), DiskRepository(tmp_path)
    first, second = (repository.open(str(path), "/") for repository in shelves)
    step(second, 0)
    step(first, 1)
    with pytest.raises(SessionInUse):
        step(second, 1)
    step(first, 2)
    assert second.read_appended()
    assert (second.session_id, raw_entries(second)) == (first.session_id, raw_entries(first))
    first.close()
    step(second, 2)
    assert raw_entries(second)[:2] == raw_entries(first)
    assert [line.type for line in second.lines] == ["message", "message", "model_change", "message"]
    assert [line.parent_id for line in second.lines] == [None, *(line.id for line in second.lines[:-1])]
    second.close()
    assert kept_in(second) == raw_entries(second)
    assert (shelves[0].reports, shelves[1].reports) == ([], [])


def test_a_disk_that_does_not_confirm_is_told_of_by_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = DiskRepository(tmp_path)
    journal = repository.create_journal("/")
    step(journal, 1)

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as bad:
        bad.setattr("os.fsync", fail)
        journal.sync()
    assert repository.reports == []
    step(journal, 2)
    assert repository.reports == [f"The disk has not confirmed the session file {journal.file}: Input/output error"]
    step(journal, 3)
    journal.sync()
    journal.close()
    assert len(repository.reports) == 1
    assert kept_in(journal) == raw_entries(journal)


def test_a_session_in_use_is_read_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes((OLD / "version-1.jsonl").read_bytes()[:-1])
    before = path.read_bytes()
    holder = AppendFile(str(path), False)
    repository = DiskRepository(tmp_path)
    journal = repository.open(str(path), "/")
    with pytest.raises(SessionInUse, match=f"Session is in use by another process: {path}"):
        step(journal, 1)
    assert (journal.is_read_only, path.read_bytes()) == (True, before)
    assert repository.reports == [str(SessionInUse(str(path)))]
    holder.close()
    step(journal, 1)
    assert not journal.is_read_only
    assert kept_in(journal) == raw_entries(journal)
    journal.close()


def test_a_file_system_without_locks_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(descriptor: int, operation: int) -> None:
        if operation != fcntl.LOCK_UN:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    repository = DiskRepository(tmp_path)
    journal = repository.create_journal("/")
    step(journal, 1)
    step(journal, 2)
    assert repository.reports == [
        f"The session cannot be saved to {journal.file}: the file system gives no lock that keeps other processes out "
        "(No locks available). The conversation goes on in memory and will be saved when writing works again."
    ]
    monkeypatch.undo()
    step(journal, 3)
    assert kept_in(journal) == raw_entries(journal)
    journal.close()
