from __future__ import annotations

import asyncio
import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pigeon.system.files import (
    NotRegular,
    error_text,
    file_lock,
    read_beginning,
    read_text,
    read_whole,
    replace_file,
    replace_file_atomically,
)
from pigeon.system.held_paths import resolve_and_hold


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=500))
def test_what_was_written_is_read(tmp_path: Path, data: bytes) -> None:
    replace_file(str(tmp_path / "x"), data)
    assert read_whole(str(tmp_path / "x"), 1000) == data


def test_folders_are_made_and_nothing_else_is_left_behind(tmp_path: Path) -> None:
    replace_file(str(tmp_path / "a" / "b" / "x"), b"1")
    assert os.listdir(tmp_path / "a" / "b") == ["x"]


def test_the_mode_of_a_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("old")
    path.chmod(0o750)
    replace_file(str(path), b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o750)


def test_a_new_file_has_the_mode_that_the_user_gives_to_new_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_file(str(tmp_path / "x"), b"")
        replace_file(str(tmp_path / "secret"), b"", mode=0o600)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_links_stay_links(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "soft").symlink_to("real")
    os.link(tmp_path / "real", tmp_path / "hard")
    replace_file(str(tmp_path / "soft"), b"new")
    assert (tmp_path / "soft").is_symlink()
    assert (tmp_path / "real").read_bytes() == (tmp_path / "hard").read_bytes() == b"new"


def test_a_link_to_nothing_creates_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "soft").symlink_to("real")
    replace_file(str(tmp_path / "soft"), b"new")
    assert (tmp_path / "real").read_bytes() == b"new"


def test_what_has_no_content_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(NotRegular):
            read_whole(path, 10)
        with pytest.raises(NotRegular):
            replace_file(path, b"x")
    with pytest.raises(IsADirectoryError):
        read_whole(str(tmp_path), 10)
    with pytest.raises(IsADirectoryError):
        replace_file(str(tmp_path), b"x")


def test_a_failed_replacement_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_text("old")

    def no_space(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "replace", no_space)
    with pytest.raises(OSError, match="no space"):
        replace_file(str(path), b"new")
    assert os.listdir(tmp_path) == ["x"]
    assert path.read_text() == "old"


@pytest.mark.parametrize("name", ["\u5b57" * 85, "\U0001f600" * 63, "x" * 255, "\u00e9" * 127])
def test_a_name_may_be_as_long_as_the_file_system_lets_it_be(tmp_path: Path, name: str) -> None:
    replace_file(str(tmp_path / name), b"new")
    replace_file(str(tmp_path / name), b"newer")
    assert os.listdir(tmp_path) == [name]
    assert (tmp_path / name).read_bytes() == b"newer"


def test_a_file_that_is_swapped_is_private_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_bytes(b"old")
    path.chmod(0o644)
    before = os.umask(0)
    try:
        replace_file_atomically(str(path), b"new", 0o600)
    finally:
        os.umask(before)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)
    assert os.listdir(tmp_path) == ["file.jsonl"]


def test_a_swap_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.jsonl"
    path.write_bytes(b"old")

    def refuse(_: int) -> None:
        raise OSError(errno.EIO, "no disk")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="no disk"):
        replace_file_atomically(str(path), b"new", 0o600)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file.jsonl"]


def test_a_swapped_file_and_its_name_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    real = os.fsync

    def note_call(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note_call)
    replace_file_atomically(str(tmp_path / "x"), b"new", 0o600)
    assert synced == [False, True]


@pytest.mark.parametrize("text", ["", "plain", "h\u00e9", "\ufeffmark"])
def test_a_text_is_read_without_its_mark(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text, "utf-8")
    assert read_text(str(tmp_path / "x")) == text.removeprefix("\ufeff")
    assert read_beginning(str(tmp_path / "x"), 100) == (text.removeprefix("\ufeff"), False)


def test_the_beginning_of_a_text_ends_with_a_whole_character(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("ab\u00e9\u00e9", "utf-8")
    assert [read_beginning(str(tmp_path / "x"), size) for size in (2, 3, 4, 6)] == [
        ("ab", True),
        ("ab", True),
        ("ab\u00e9", True),
        ("ab\u00e9\u00e9", False),
    ]
    with pytest.raises(OSError, match="too large"):
        read_text(str(tmp_path / "x"), 5)
    assert read_text(str(tmp_path / "x"), 6) == "ab\u00e9\u00e9"


@pytest.fixture
def two_names(tmp_path: Path) -> Path:
    (tmp_path / "x").write_bytes(b"the old content, which is long")
    os.link(tmp_path / "x", tmp_path / "y")
    return tmp_path / "x"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60), st.binary(max_size=60))
def test_a_file_with_several_names_gets_exactly_the_new_content(two_names: Path, old: bytes, new: bytes) -> None:
    two_names.write_bytes(old)
    replace_file(str(two_names), new)
    assert two_names.read_bytes() == two_names.with_name("y").read_bytes() == new


def no_space_for(monkeypatch: pytest.MonkeyPatch, failing: range) -> None:
    """Let these writes fail, counted from 0; every write takes a few bytes only."""
    write = os.pwrite
    count = iter(range(1000))

    def few_bytes(descriptor: int, data: memoryview, at: int) -> int:
        if next(count) in failing:
            raise OSError(errno.ENOSPC, "no space")
        return write(descriptor, data[:4], at)

    monkeypatch.setattr(os, "pwrite", few_bytes)


@pytest.mark.parametrize(("new", "fails_at"), [(b"new", 0), (b"new" * 5, 2), (b"much longer" * 5, 1), (b"new" * 50, 9)])
def test_a_failed_write_in_place_puts_the_old_content_back(
    two_names: Path, monkeypatch: pytest.MonkeyPatch, new: bytes, fails_at: int
) -> None:
    before = two_names.read_bytes()
    no_space_for(monkeypatch, range(fails_at, fails_at + 1))
    with pytest.raises(OSError, match="no space") as caught:
        replace_file(str(two_names), new)
    monkeypatch.undo()
    assert two_names.read_bytes() == before
    assert error_text(caught.value, "open", "/x").endswith("open '/x'. The file still has its old content.")


def test_without_room_for_the_new_content_nothing_is_written_in_place(
    two_names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = two_names.read_bytes()

    def half_of_it(descriptor: int, _: int, size: int) -> None:
        os.ftruncate(descriptor, size // 2)
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "posix_fallocate", half_of_it)
    with pytest.raises(OSError, match="no space"):
        replace_file(str(two_names), b"z" * 1_000_000)
    assert two_names.read_bytes() == before


def test_what_cannot_be_put_back_is_saved_and_the_error_says_where(
    two_names: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = two_names.read_bytes()
    (tmp_path / "saved").mkdir()
    monkeypatch.setattr("pigeon.system.files.SAVING_FOLDERS", (str(tmp_path / "gone"), str(tmp_path / "saved")))
    no_space_for(monkeypatch, range(1, 3))
    with pytest.raises(OSError, match="no space") as caught:
        replace_file(str(two_names), b"new content")
    (saved,) = (tmp_path / "saved").iterdir()
    assert saved.read_bytes() == before
    assert error_text(caught.value, "open", "/x").endswith(f". The file is damaged: its old content is in {saved}.")


def test_a_file_over_the_limit_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 11)
    with pytest.raises(OSError, match="too large") as error:
        read_whole(str(tmp_path / "big"), 10)
    assert error.value.errno == errno.EFBIG


def test_errors_are_told_in_the_form_that_hosts_know() -> None:
    error = FileNotFoundError(errno.ENOENT, "No such file or directory")
    assert error_text(error, "access", "/x") == "ENOENT: no such file or directory, access '/x'"


def place_of(path: Path) -> str:
    with resolve_and_hold(str(path)) as held:
        return held.place


async def test_turns_come_in_the_order_of_asking_under_any_name(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / "soft").symlink_to("real")
    places = [place_of(tmp_path / name) for name in ("real", "soft")]
    order: list[str] = []
    inside = 0

    async def visit(name: str, place: str) -> None:
        nonlocal inside
        async with file_lock(place):
            inside += 1
            assert inside == 1
            order.append(name)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(visit(str(n), places[n % 2]) for n in range(10)))
    assert order == [str(n) for n in range(10)]
