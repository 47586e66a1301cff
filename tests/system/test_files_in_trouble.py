"""Files where the usual way is closed: no swap, another owner, a refused open, a cancelled wait."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from pigeon.system import files
from pigeon.system.append_file import AppendFile, FileInUse
from pigeon.system.files import NotRegular, file_lock, open_regular, replace_file, run_in_thread


def refuse(number: int) -> object:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return refused


def descriptors_of(path: Path | str) -> list[int]:
    """Our descriptors of a file."""
    own = Path("/proc/self/fd")
    return [int(entry.name) for entry in own.iterdir() if entry.is_symlink() and os.readlink(entry) == str(path)]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES, errno.EBUSY, errno.EXDEV, errno.EOPNOTSUPP])
def test_a_file_that_cannot_be_swapped_is_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = tmp_path / "file"
    path.write_text("old and longer")
    inode = path.stat().st_ino
    monkeypatch.setattr(os, "replace", refuse(number))
    replace_file(str(path), b"new")
    assert (path.read_text(), path.stat().st_ino) == ("new", inode)
    assert os.listdir(tmp_path) == ["file"]


def test_a_disk_that_is_full_is_not_worked_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(os, "replace", refuse(errno.ENOSPC))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        replace_file(str(path), b"new")
    assert path.read_text() == "old"


def test_a_new_file_that_cannot_be_put_in_its_place_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "replace", refuse(errno.EACCES))
    with pytest.raises(PermissionError):
        replace_file(str(tmp_path / "file"), b"new")
    assert os.listdir(tmp_path) == []


def test_a_file_that_may_not_be_written_is_not_swapped_for_one_that_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    inode = path.stat().st_ino
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    try:
        path.chmod(0o400)
        replace_file(str(path), b"new")
    except PermissionError:
        assert path.read_text() == "old"
    assert path.stat().st_ino == inode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_of_a_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    os.chown(path, 65534, 65533)
    inode = path.stat().st_ino
    replace_file(str(path), b"new")
    now = path.stat()
    assert (now.st_uid, now.st_gid, path.read_text()) == (65534, 65533, "new")
    assert now.st_ino != inode


def test_what_is_refused_is_closed_again(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotRegular):
        open_regular(str(tmp_path / "pipe"))
    assert descriptors_of(tmp_path / "pipe") == []


async def test_a_file_whose_turns_are_over_is_forgotten(tmp_path: Path) -> None:
    async with file_lock(str(tmp_path / "file")):
        assert len(files._turns) == 1
    assert files._turns == {}


async def test_work_in_a_thread_is_waited_for_even_if_the_call_is_cancelled() -> None:
    begun, may_end = threading.Event(), threading.Event()
    done: list[str] = []

    def work() -> None:
        begun.set()
        may_end.wait(30)
        done.append("written")

    call = asyncio.ensure_future(run_in_thread(work))
    assert await asyncio.to_thread(begun.wait, 30)
    for _ in range(2):  # once more while it waits for the thread
        call.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
    assert not call.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert done == ["written"]


def test_a_second_writer_that_was_refused_holds_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    first = AppendFile(path, fresh=True)
    with pytest.raises(FileInUse):
        AppendFile(path, fresh=False)
    assert len(descriptors_of(path)) == 1
    first.close()
    assert descriptors_of(path) == []


def test_the_lock_ends_at_close_even_if_another_descriptor_of_the_file_is_still_in_use(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    first = AppendFile(path, fresh=True)
    (descriptor,) = descriptors_of(path)
    in_use = os.dup(descriptor)  # as a sync in a thread has it
    first.close()
    AppendFile(path, fresh=False).close()
    os.close(in_use)


def test_files_and_folders_are_private_and_usable_under_the_strictest_umask(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        AppendFile(str(tmp_path / "deep" / "folder" / "file"), fresh=True).close()
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("deep", "deep/folder", "deep/folder/file")]
    assert modes == [0o700, 0o700, 0o600]
