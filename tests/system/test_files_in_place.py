"""What happens when a file cannot be swapped for a new one: it is written where it is, and nothing is lost."""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pigeon.system.files import replace_file, replace_file_atomically

OLD = b"the old content\n" * 700
NEW = b"something new\n" * 900
ROOT = os.geteuid() == 0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "x.txt"
    path.parent.mkdir()
    path.write_bytes(OLD)
    path.chmod(0o640)
    return path


def several_names(file: Path, _: pytest.MonkeyPatch) -> None:
    os.link(file, file.parent.parent / "other name")


def a_folder_that_takes_no_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system answers where the folder may not be written."""
    real = os.open

    def refuse(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        if flags & os.O_EXCL and "dir_fd" in more and os.path.samestat(os.stat(more["dir_fd"]), os.stat(file.parent)):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", refuse)


def another_owner(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of another user that we may write, but whose owner we may not give to a new one."""
    if ROOT:
        os.chown(file, 12345, 12345)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("pigeon.system.files._keep_owner", refuse)


def a_mount_point(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(os, "replace", refuse)


REASONS = [several_names, a_folder_that_takes_no_file, another_owner, a_mount_point]


@contextmanager
def a_full_disk(at: int) -> Iterator[None]:
    """No file grows beyond this size: a write that begins below it succeeds in part, the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (at, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("because", REASONS)
@pytest.mark.parametrize("new", [NEW, b"short", b"", OLD + NEW])
def test_it_is_written_in_place_with_everything_as_it_was(
    file: Path, monkeypatch: pytest.MonkeyPatch, because: Any, new: bytes
) -> None:
    because(file, monkeypatch)
    before = file.stat()
    replace_file(str(file), new)
    monkeypatch.undo()
    after = file.stat()
    assert file.read_bytes() == new
    assert (after.st_ino, after.st_mode, after.st_uid, after.st_nlink) == (
        before.st_ino, before.st_mode, before.st_uid, before.st_nlink,
    )  # fmt: skip
    assert os.listdir(file.parent) == ["x.txt"]


@pytest.mark.parametrize("because", REASONS)
@pytest.mark.parametrize("reserves", [True, False])
def test_a_disk_that_is_full_half_way_leaves_the_old_content(
    file: Path, monkeypatch: pytest.MonkeyPatch, because: Any, reserves: bool
) -> None:
    because(file, monkeypatch)
    if not reserves:
        monkeypatch.delattr(os, "posix_fallocate")
    before = file.stat()
    for limit in (0, 5_000, len(OLD) + 500):
        with a_full_disk(limit), pytest.raises(OSError, match=r".") as caught:
            replace_file(str(file), OLD[::-1] + NEW)
        assert file.read_bytes() == OLD
        assert caught.value.errno == errno.EFBIG
        assert os.listdir(file.parent) == ["x.txt"]
    after = file.stat()
    assert (after.st_ino, after.st_mode, after.st_size) == (before.st_ino, before.st_mode, before.st_size)


@pytest.mark.parametrize("write", [replace_file, lambda path, data: replace_file_atomically(path, data, 0o600)])
def test_a_disk_that_is_full_during_a_swap_leaves_the_old_file_and_no_other(file: Path, write: Any) -> None:
    with a_full_disk(5_000), pytest.raises(OSError, match=r".") as caught:
        write(str(file), NEW)
    assert caught.value.errno == errno.EFBIG
    assert file.read_bytes() == OLD
    assert os.listdir(file.parent) == ["x.txt"]


def test_a_file_that_we_may_only_write_is_written(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    several_names(file, monkeypatch)
    real = os.open

    def write_only(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        if path == file.name and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", write_only)
    replace_file(str(file), NEW)
    assert file.read_bytes() == NEW
    with a_full_disk(5_000), pytest.raises(OSError, match=r".") as caught:
        replace_file(str(file), NEW * 2)
    assert caught.value.__notes__ == ["The file could not be read before, so its old content may be lost."]


def test_a_failure_that_has_nothing_to_do_with_swapping_is_not_worked_around(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="Input/output"):
        replace_file(str(file), NEW)
    assert file.read_bytes() == OLD
    assert os.listdir(file.parent) == ["x.txt"]


def test_a_file_that_may_not_be_written_is_not_swapped_for_one_that_may(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the system answers for a read-only file in a folder that takes new files."""
    real = os.open

    def read_only(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        if path == file.name and flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, flags, mode, **more)

    monkeypatch.setattr(os, "access", lambda path, mode, **_: not (path == file.name and mode & os.W_OK))
    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(PermissionError):
        replace_file(str(file), NEW)
    assert file.read_bytes() == OLD


@pytest.mark.skipif(not ROOT, reason="only root can make a file of another user")
def test_the_owner_of_a_file_stays_where_we_may_give_it(file: Path) -> None:
    os.chown(file, 12345, 12346)
    file.chmod(0o6751)
    replace_file(str(file), NEW)
    after = file.stat()
    assert (after.st_uid, after.st_gid, stat.S_IMODE(after.st_mode)) == (12345, 12346, 0o6751)


@pytest.mark.skipif(ROOT, reason="root writes everywhere")
def test_a_folder_that_may_really_not_be_written(file: Path) -> None:
    file.parent.chmod(0o500)
    try:
        replace_file(str(file), NEW)
    finally:
        file.parent.chmod(0o700)
    assert file.read_bytes() == NEW
