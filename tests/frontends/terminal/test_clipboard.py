"""The clipboard of the desktop: which programs are asked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest

from pigeon.frontends.terminal.clipboard import Clipboard
from pigeon.frontends.terminal.view import View
from pigeon.sandbox.written_folders import filter_programs_path, record_written_folders


@pytest.mark.parametrize("earlier", [False, True], ids=["now", "in an earlier session"])
async def test_a_program_in_a_folder_that_commands_could_write_is_not_asked(tmp_path: Path, earlier: bool) -> None:
    """A command in a sandbox may have put it there, into a virtual environment for example."""
    work = tmp_path / "work"
    written = tmp_path / "other" if earlier else work
    for folder, answer in ((written / "bin", "planted"), (tmp_path / "bin", "real")):
        folder.mkdir(parents=True)
        (folder / "wl-paste").write_text(f"#!/bin/sh\nprintf {answer}\n")
        (folder / "wl-paste").chmod(0o755)
    work.mkdir(exist_ok=True)
    os.symlink(written / "bin", tmp_path / "link")
    path = os.pathsep.join([str(written / "bin"), str(tmp_path / "link"), str(tmp_path / "bin"), os.defpath])
    record_written_folders(str(tmp_path), [str(written)] if earlier else [])
    searched = filter_programs_path(str(tmp_path), path, *([] if earlier else [str(written)]))
    clipboard = Clipboard(cast("View", None), str(work), {"PATH": path}, searched)
    assert await clipboard.read_image() == b"real"
