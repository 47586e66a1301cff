"""Workspaces on the machines of the tests, closed at the end with everything that they started."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from pigeon.system.process.start import ProcessOwner
from pigeon.system.process.variables import ProgramEnvironment
from pigeon.workspaces.remote.machine_workspace import MachineWorkspace
from pigeon.workspaces.remote.opening import make_remote_workspace
from pigeon.workspaces.remote.remote_workspace import RemoteParts
from pigeon.workspaces.url import parse_workspace_url


class Workspaces:
    """Makes workspaces; each is on an empty folder of its own below `folder`, which may have another name there."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.processes = ProcessOwner()
        self.parts = RemoteParts(self.processes, lambda: ProgramEnvironment(variables))
        self.made: list[MachineWorkspace] = []

    def make(self, url: str) -> MachineWorkspace:
        self.made.append(make_remote_workspace(parse_workspace_url(url), self.parts))
        return self.made[-1]

    async def open(self, url: str) -> MachineWorkspace:
        workspace = self.make(url)
        await workspace.open()
        return workspace


@contextlib.asynccontextmanager
async def workspaces(variables: Mapping[str, str] | None = None) -> AsyncIterator[Workspaces]:
    made = Workspaces(os.environ if variables is None else variables)
    try:
        yield made
    finally:
        for workspace in made.made:
            await workspace.close()
        await made.processes.kill_everything()


class Folders:
    """Empty folders, one after another."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def make(self) -> Path:
        self._count += 1
        made = self._folder / f"workspace-{self._count}"
        made.mkdir(parents=True)
        return made
