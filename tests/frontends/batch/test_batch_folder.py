"""The folder of a batch: who may use it, and what is left of one in which nothing was begun."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pigeon.frontends.batch import batch_folder
from pigeon.frontends.batch.batch_folder import LOCK_FILE, OLD, PART, BatchFolder
from pigeon.frontends.batch.records import TaskSpec, hash_of
from pigeon.frontends.batch.task_run import commit_folder, read_result
from pigeon.wire.errors import StartupError
from support.batch import filled_folder, put_finished, result_of


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


def test_a_lock_that_cannot_be_signed_is_an_error_and_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "ftruncate", fail)
    with pytest.raises(StartupError, match=f"--out {tmp_path}/out: No space left on device"):
        BatchFolder(str(tmp_path / "out")).lock()
    monkeypatch.undo()
    folder = BatchFolder(str(tmp_path / "out"))
    folder.lock()
    folder.close()


def test_what_a_killed_driver_has_left_behind_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = filled_folder(tmp_path, [TaskSpec(id="one", prompt="x")])
    for name in (f"{PART}aa-1", f"{PART}bb-2", f"{OLD}cc"):
        (tmp_path / name / "workspace").mkdir(parents=True)
    (tmp_path / ".results.tmp").write_text("half")
    (tmp_path / ".folder.tmp").mkdir()
    kept = {one.name for one in tmp_path.iterdir()} - {f"{PART}aa-1", f"{PART}bb-2", f"{OLD}cc", ".results.tmp"}
    rename = batch_folder.rename_for_removal

    def rename_what_is_there(path: str) -> str:
        if path.endswith(f"{PART}aa-1"):
            # Its task has finished just now.
            os.rename(path, tmp_path / "aa")
        return rename(path)

    monkeypatch.setattr(batch_folder, "rename_for_removal", rename_what_is_there)
    folder.remove_unfinished_attempts()
    assert {one.name for one in tmp_path.iterdir()} == {*kept, "aa"}


def test_of_two_attempts_at_a_task_the_first_that_is_there_counts(tmp_path: Path) -> None:
    spec = TaskSpec(id="one", prompt="x")
    folder = filled_folder(tmp_path, [spec])
    put_finished(folder, spec, result_of(spec, text="first"))
    target = tmp_path / hash_of(spec)
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "note").write_text("x")
    assert commit_folder(str(tmp_path / "second"), str(target), result_of(spec, text="second")).text == "first"
    there = read_result(str(target))
    assert there is not None
    assert there.text == "first"
    with pytest.raises(FileNotFoundError):
        commit_folder(str(tmp_path / "missing"), str(tmp_path / "target"), result_of(spec))
