"""The clipboard of the desktop: which programs are asked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

from pigeon.terminal.clipboard import Clipboard
from pigeon.terminal.view import View


async def test_a_program_in_the_working_folder_is_not_asked(tmp_path: Path) -> None:
    """A command in a sandbox may have put it there, into a virtual environment for example."""
    work = tmp_path / "work"
    for folder, answer in ((work / "bin", "planted"), (tmp_path / "bin", "real")):
        folder.mkdir(parents=True)
        (folder / "wl-paste").write_text(f"#!/bin/sh\nprintf {answer}\n")
        (folder / "wl-paste").chmod(0o755)
    os.symlink(work / "bin", tmp_path / "link")
    path = os.pathsep.join([str(work / "bin"), str(tmp_path / "link"), str(tmp_path / "bin"), os.defpath])
    clipboard = Clipboard(cast("View", None), str(work), {"PATH": path})
    assert await clipboard.image() == b"real"
