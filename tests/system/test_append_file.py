from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pigeon.system import append_file
from pigeon.system.append_file import AppendFile, FileInUse, agree_on_path, make_private_folder, remove_agreement_link


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "file.jsonl")


@pytest.fixture
def file(path: str) -> Iterator[AppendFile]:
    opened = AppendFile(path, True)
    yield opened
    opened.close()


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def contents(path: str) -> bytes:
    return Path(path).read_bytes()


WRITE = os.write


class Writes:
    """Stands in for `os.write`: takes so many bytes in all, at most so many at once, then fails."""

    def __init__(self, room: int, at_once: int = 1 << 30, error: int = errno.ENOSPC) -> None:
        self.room, self.at_once, self.error = room, at_once, error
        self.calls = 0

    def __call__(self, descriptor: int, data: bytes) -> int:
        self.calls += 1
        if self.room == 0:
            raise OSError(self.error, os.strerror(self.error))
        taken = WRITE(descriptor, data[: min(self.room, self.at_once)])
        self.room -= taken
        return taken


def limit(monkeypatch: pytest.MonkeyPatch, writes: Writes) -> Writes:
    monkeypatch.setattr(append_file.os, "write", writes)
    return writes


def test_a_record_is_one_write(file: AppendFile, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = limit(monkeypatch, Writes(1 << 30))
    file.append(b"one\n")
    file.append(b"two\n")
    assert writes.calls == 2
    assert contents(path) == b"one\ntwo\n"


def test_a_short_write_is_finished(file: AppendFile, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, Writes(1 << 30, at_once=3))
    file.append(b"a longer record\n")
    assert contents(path) == b"a longer record\n"


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_write_that_fails_halfway_leaves_the_file_as_it_was(
    file: AppendFile, path: str, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    file.append(b"one\n")
    for room in range(len(b"second\n")):
        limit(monkeypatch, Writes(room, at_once=2, error=error))
        with pytest.raises(OSError, match=os.strerror(error)):
            file.append(b"second\n")
        monkeypatch.undo()
        assert contents(path) == b"one\n"
    file.append(b"second\n")
    assert contents(path) == b"one\nsecond\n"


def test_half_a_record_that_cannot_be_taken_back_is_known(
    file: AppendFile, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.append(b"one\n")
    assert not file.has_torn_line
    limit(monkeypatch, Writes(3))
    monkeypatch.setattr(append_file.os, "ftruncate", _refuse)
    with pytest.raises(OSError, match="No space"):
        file.append(b"second\n")
    assert contents(path) == b"one\nsec"
    assert file.has_torn_line


def test_a_beginning_that_was_never_finished_can_be_dropped(file: AppendFile, path: str) -> None:
    file.append(b"half")
    file.clear()
    file.append(b"one\n")
    assert contents(path) == b"one\n"


def _refuse(descriptor: int, size: int) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def test_the_second_writer_is_refused_at_once_and_the_lock_ends_with_the_first(path: str) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS.format(path=path)], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(FileInUse, match="in use by another process"):
            AppendFile(path, False)
        assert holder.poll() is None, "refused while the first still has it, not after a wait"
        holder.kill()
        holder.wait()
        AppendFile(path, False).close()


HOLDS = """
from pigeon.system.append_file import AppendFile
file = AppendFile({path!r}, True)
print("held", flush=True)
input()
"""


def test_of_many_who_want_a_file_at_once_exactly_one_gets_it(path: str) -> None:
    AppendFile(path, True).close()
    line = threading.Barrier(4)
    with ThreadPoolExecutor(4) as racers:
        for _ in range(100):
            got = [file for file in racers.map(lambda _: _race_for_file(path, line), range(4)) if file is not None]
            assert len(got) == 1
            got[0].close()


def _race_for_file(path: str, line: threading.Barrier) -> AppendFile | None:
    line.wait()
    try:
        return AppendFile(path, False)
    except FileInUse:
        return None
    finally:
        line.wait()


def test_the_lock_is_not_handed_to_children(path: str) -> None:
    file = AppendFile(path, True)
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        file.close()
        AppendFile(path, False).close()
        child.kill()


@pytest.mark.usefixtures("open_umask")
def test_files_and_folders_are_private_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.jsonl"
    AppendFile(str(path), True).close()
    assert mode(path) == 0o600
    assert mode(path.parent) == mode(path.parent.parent) == 0o700


@pytest.mark.usefixtures("open_umask")
def test_a_file_that_was_readable_by_others_is_made_private(path: str) -> None:
    Path(path).write_bytes(b"one\n")
    os.chmod(path, 0o644)
    AppendFile(path, False).close()
    assert mode(path) == 0o600


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_private_folder(str(tmp_path / "new"))
    assert mode(tmp_path) == 0o755
    assert mode(tmp_path / "new") == 0o700


def test_a_new_file_insists_on_being_new(path: str) -> None:
    Path(path).write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        AppendFile(path, True)
    assert contents(path) == b"precious"


def test_a_deleted_or_replaced_file_is_noticed(file: AppendFile, path: str) -> None:
    assert not file.is_gone()
    os.rename(path, path + ".old")
    assert file.is_gone()
    Path(path).write_bytes(b"")
    assert file.is_gone()


def test_sync_makes_sure_of_the_folder_once(file: AppendFile, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    real = os.fsync

    def note_call(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note_call)
    file.sync()
    file.sync()
    assert synced == [False, True, False]


def test_appending_costs_the_same_however_long_the_file_is(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    file = AppendFile(path, True)
    file.append(b"x" * 10_000_000)
    for name in ("write", "fstat", "stat", "read", "lseek"):
        real = getattr(os, name)
        monkeypatch.setattr(append_file.os, name, lambda *a, _n=name, _r=real: (calls.append(_n), _r(*a))[1])
    file.append(b"one\n")
    monkeypatch.undo()
    file.close()
    assert calls == ["write", "fstat"]


def test_processes_that_agree_on_a_path_use_the_one_of_the_first(tmp_path: Path) -> None:
    link = str(tmp_path / "below" / ".id.lock")
    assert agree_on_path(link, "/first") == "/first"
    assert agree_on_path(link, "/second") == "/first"
    remove_agreement_link(link)
    remove_agreement_link(link)
    assert agree_on_path(link, "/second") == "/second"


def test_an_agreement_that_a_killed_process_left_does_not_count(tmp_path: Path) -> None:
    link = str(tmp_path / ".id.lock")
    agree_on_path(link, "/first")
    os.utime(link, (1, 1), follow_symlinks=False)
    assert agree_on_path(link, "/second") == "/second"
