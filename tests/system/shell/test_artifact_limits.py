"""Outputs on disk end at a limit, or where the disk is full; the command and what is shown of it go on."""

from __future__ import annotations

import os
from pathlib import Path

from pigeon.system.shell.artifacts import Artifacts, DiskLimits
from pigeon.system.shell.output import Capture
from pigeon.system.shell.truncation import OutputLimits


def artifacts(place: Path, **limits: int) -> Artifacts:
    return Artifacts(lambda: str(place), str(place), DiskLimits(**limits))


def capture_chunks(kept: Artifacts, *chunks: bytes) -> Capture:
    capture = Capture(lambda: kept.create("bash"), OutputLimits(lines=5, bytes=50))
    for chunk in chunks:
        capture.feed(chunk)
    capture.finish()
    return capture


def test_a_file_ends_at_its_limit_and_the_counts_go_on(tmp_path: Path) -> None:
    capture = capture_chunks(artifacts(tmp_path, file=1000), *[b"y\n" * 100] * 10)
    assert (tmp_path / "0.bash.log").read_bytes() == b"y\n" * 500
    assert capture.full_output_path is None
    assert capture.storage_note == (
        f"Only the first 1000B were kept (the limit for outputs on disk is reached): {tmp_path / '0.bash.log'}"
    )
    assert (capture.line_breaks, capture.visible_tail().total_bytes) == (1000, 2000)


def test_a_file_that_just_fits_is_whole(tmp_path: Path) -> None:
    capture = capture_chunks(artifacts(tmp_path, file=1000), *[b"y\n" * 100] * 5)
    assert capture.storage_note == f"Full output: {tmp_path / '0.bash.log'}"


def test_all_files_of_a_folder_share_a_limit(tmp_path: Path) -> None:
    kept = artifacts(tmp_path, folder=1500)
    first, second = (kept.create("bash") for _ in range(2))
    assert first is not None
    assert second is not None
    for _ in range(10):
        first.write(b"x" * 100)
        second.write(b"x" * 100)
    first.close()
    second.close()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) == 1500
    assert "limit" in capture_chunks(kept, b"z" * 100).storage_note


def test_what_is_in_the_folder_already_counts(tmp_path: Path) -> None:
    (tmp_path / "0.bash.log").write_bytes(b"x" * 900)
    (tmp_path / "notes.txt").write_bytes(b"x" * 900)
    capture_chunks(artifacts(tmp_path, folder=1000), b"y" * 400)
    assert (tmp_path / "1.bash.log").stat().st_size == 100


def test_a_full_disk_is_named_with_what_was_kept(tmp_path: Path) -> None:
    kept = artifacts(tmp_path)
    artifact = kept.create("bash")
    assert artifact is not None
    real = os.open("/dev/full", os.O_WRONLY)
    os.dup2(real, artifact.descriptor)
    os.close(real)
    artifact.write(b"x" * 10)
    artifact.write(b"x" * 10)
    artifact.close()
    assert (artifact.is_complete, artifact.lost) == (False, "No space left on device")


def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    elsewhere, link, temporary = tmp_path / "elsewhere", tmp_path / "session", tmp_path / "temporary"
    elsewhere.mkdir()
    temporary.mkdir()
    link.symlink_to(elsewhere)
    artifact = Artifacts(lambda: str(link), str(temporary)).create("bash")
    assert artifact is not None
    artifact.close()
    assert artifact.path.startswith(str(temporary))
    assert list(elsewhere.iterdir()) == []
