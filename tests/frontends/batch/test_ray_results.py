"""Results that come back from a machine of a cluster that does not see the folder of the batch."""

from __future__ import annotations

import os
from pathlib import Path

from pigeon.frontends.batch.ray_engine import describe_ray_failure, pack_result, unpack_result
from pigeon.frontends.batch.records import TaskResult, TaskSpec, hash_of
from pigeon.frontends.batch.task_run import put_result, read_result
from pigeon.wire import codec
from support.batch import result_of

SPEC = TaskSpec(id="large", prompt="x")
MOST = 100_000


def make_result(out: Path, size: int, patch: str | None, session: int) -> TaskResult:
    """A result on another machine; workspace and conversation have so many bytes that cannot be packed any smaller."""
    folder = out / hash_of(SPEC)
    (folder / "workspace").mkdir(parents=True)
    (folder / "workspace" / "data").write_bytes(os.urandom(size))
    if patch is not None:
        (folder / "changes.patch").write_text(patch)
    (folder / "session.jsonl").write_bytes(os.urandom(session))
    result = result_of(SPEC, cost=0.5, session=f"{folder.name}/session.jsonl")
    put_result(str(folder), SPEC, codec.encode(result))
    return result


def bring_result(tmp_path: Path, size: int, patch: str | None = None, session: int = 10) -> tuple[TaskResult, Path]:
    result, files = pack_result(
        str(tmp_path / "there"), make_result(tmp_path / "there", size, patch, session), SPEC, MOST
    )
    assert len(files) <= MOST
    (tmp_path / "here").mkdir()
    result = unpack_result(files, str(tmp_path / "here"), result)
    folder = tmp_path / "here" / hash_of(SPEC)
    assert read_result(str(folder)) == result
    return result, folder


def test_a_result_comes_back_with_its_workspace(tmp_path: Path) -> None:
    result, folder = bring_result(tmp_path, 1000)
    assert result.status == "done"
    assert (folder / "workspace" / "data").stat().st_size == 1000


def test_a_workspace_that_is_too_large_is_left_out_and_the_patch_has_its_changes(tmp_path: Path) -> None:
    result, folder = bring_result(tmp_path, 2 * MOST, "a patch")
    assert result.status == "done"
    assert (folder / "changes.patch").read_text() == "a patch"
    assert not (folder / "workspace").exists()
    assert "--out folder that all machines share" in (folder / "workspace.txt").read_text()


def test_without_a_patch_such_a_task_has_come_to_nothing_and_says_what_to_do(tmp_path: Path) -> None:
    result, _ = bring_result(tmp_path, 2 * MOST)
    assert result.status == "error"
    assert "too large for Ray's object store" in (result.error or "")


def test_of_a_conversation_that_is_too_large_the_result_comes_back_with_what_it_cost(tmp_path: Path) -> None:
    result, folder = bring_result(tmp_path, 1, "a patch", session=2 * MOST)
    assert (result.status, result.session, result.cost) == ("error", None, 0.5)
    assert (result.error or "").startswith("The conversation is larger than")
    assert not (folder / "session.jsonl").exists()


def test_a_folder_whose_name_is_too_long_for_sockets_is_explained() -> None:
    failed = OSError("validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: /a/plasma_store")
    text = describe_ray_failure(failed)
    assert text.startswith("Ray cannot be used: validate_socket_filename failed")
    assert text.endswith("RAY_TMPDIR=/tmp")
    assert describe_ray_failure(ValueError("no")) == "Ray cannot be used: no"
