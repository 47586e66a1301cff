"""A test that leaves a file open in its folder fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support import open_files
from support.open_files import list_open_files


def test_files_that_are_open_in_a_folder_are_found_until_they_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list_open_files(tmp_path) == []
    (tmp_path / "deep").mkdir()
    descriptor = os.open(tmp_path / "deep" / "file", os.O_RDWR | os.O_CREAT)
    other = os.open(tmp_path.parent, os.O_RDONLY)
    monkeypatch.setattr(open_files, "WITHIN", 0.0)
    assert list_open_files(tmp_path) == ["deep/file"]
    os.close(descriptor)
    os.close(other)
    assert list_open_files(tmp_path) == []
