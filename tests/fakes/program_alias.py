"""The program under test under another name, as clients call it that look for `pi` or `omp` on their path."""

from __future__ import annotations

import shlex
from pathlib import Path

from fakes.agent_folders import AgentFolders
from fakes.rpc_process import command_line


def called(folders: AgentFolders, name: str) -> list[str]:
    """A command line whose program has this name."""
    return [str(folder_with(folders, name) / name)]


def folder_with(folders: AgentFolders, name: str) -> Path:
    """A folder for the search path in which the program has this name."""
    folder = folders.temp / "bin"
    folder.mkdir(exist_ok=True)
    program = folder / name
    if program.exists():
        return folder
    words = command_line()
    if len(words) == 1:
        program.symlink_to(words[0])
    else:
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        program.chmod(0o755)
    return folder
