"""The folder of a batch: who may use it, and what is left of one in which nothing was begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from pigeon.frontends.batch.batch_folder import LOCK_FILE, BatchFolder
from pigeon.wire.errors import StartupError


def test_a_folder_in_which_nothing_was_begun_is_removed(tmp_path: Path) -> None:
    folder = BatchFolder(str(tmp_path / "out"))
    folder.lock()
    folder.remove_if_empty()
    assert not (tmp_path / "out").exists()
    folder.close()


def test_what_somebody_else_has_put_there_meanwhile_stays(tmp_path: Path) -> None:
    folder = BatchFolder(str(tmp_path / "out"))
    folder.lock()
    (tmp_path / "out" / "notes").write_text("mine\n")
    folder.remove_if_empty()
    assert {one.name for one in (tmp_path / "out").iterdir()} == {"notes", LOCK_FILE}
    folder.close()


def test_a_folder_that_somebody_else_has_removed_meanwhile_is_no_error(tmp_path: Path) -> None:
    folder = BatchFolder(str(tmp_path / "out"))
    folder.lock()
    (tmp_path / "out" / LOCK_FILE).unlink()
    (tmp_path / "out").rmdir()
    folder.remove_if_empty()
    folder.close()


def test_a_folder_is_used_by_one_driver_until_that_releases_it(tmp_path: Path) -> None:
    first, second = BatchFolder(str(tmp_path / "out")), BatchFolder(str(tmp_path / "out"))
    first.lock()
    with pytest.raises(StartupError, match=str(tmp_path / "out")):
        second.lock()
    first.close()
    first.close()
    second.lock()
    second.close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError, match=f"--out {tmp_path}/file/out: Not a directory"):
        BatchFolder(str(tmp_path / "file" / "out")).lock()
