"""The rules of `check_workspace`, on every kind of workspace, with real machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.machines import PodmanMachine, SshMachine
from pigeon.workspaces import LocalWorkspace
from pigeon.workspaces.checking import check_workspace
from support.remote_workspaces import Folders, workspaces

pytestmark = pytest.mark.timeout(240)
RULES = 26


async def test_the_workspace_of_this_machine_keeps_every_rule(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    assert len(await check_workspace(lambda: LocalWorkspace(folders.make()))) == RULES


async def test_a_workspace_behind_a_command_keeps_every_rule(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    async with workspaces() as made:
        assert len(await check_workspace(lambda: made.make(f"exec:sh#{folders.make()}"))) == RULES


async def test_a_workspace_over_ssh_keeps_every_rule(ssh: SshMachine, tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    async with workspaces(ssh.variables()) as made:
        assert len(await check_workspace(lambda: made.make(ssh.url(folders.make())))) == RULES


async def test_a_workspace_in_a_container_keeps_every_rule(podman: PodmanMachine, container: str) -> None:
    folders = Folders(podman.folder / container / "work")
    async with workspaces(podman.variables()) as made:
        held = await check_workspace(lambda: made.make(f"podman://{container}/work/{folders.make().name}"))
    assert len(held) == RULES


async def test_a_workspace_in_a_container_without_python_keeps_every_rule(
    podman: PodmanMachine, small_container: str
) -> None:
    folders = Folders(podman.folder / small_container / "work")
    async with workspaces(podman.variables()) as made:
        held = await check_workspace(lambda: made.make(f"podman://{small_container}/work/{folders.make().name}"))
    assert len(held) == RULES


async def test_what_does_not_hold_is_listed(tmp_path: Path) -> None:
    class Forgetful(LocalWorkspace):
        async def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
            return b""

    folders = Folders(tmp_path)
    with pytest.raises(AssertionError) as raised:
        await check_workspace(lambda: Forgetful(folders.make()))
    assert "a file has the bytes that were written: " in str(raised.value)
    assert "it has a name" not in str(raised.value)
