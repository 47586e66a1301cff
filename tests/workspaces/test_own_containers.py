"""Containers that are started for one task or conversation, and are gone when it is over or killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.machines import PodmanMachine
from pigeon.workspaces.errors import WorkspaceUnusable, WrongWorkspace
from pigeon.workspaces.remote.own_container import OwnContainer
from support.processes import eventually
from support.remote_workspaces import Workspaces, workspaces

pytestmark = pytest.mark.timeout(120)


def list_containers(podman: PodmanMachine) -> str:
    """Those of this worker's image: others run their own meanwhile."""
    listed = podman.run("ps", "--all", "--filter", "label=pigeon=workspace", "--format", "{{.Names}} {{.Image}}").stdout
    return "\n".join(line for line in listed.splitlines() if f"/pigeon-tests-{os.getpid()}:" in line)


def make_container(made: Workspaces, image: str, folder: Path, engine: str | None = None) -> OwnContainer:
    container = OwnContainer(image, str(folder), engine, made.parts)
    made.made.append(container)
    return container


async def test_a_container_has_the_folder_and_is_gone_when_it_is_closed(
    podman: PodmanMachine, image: str, tmp_path: Path
) -> None:
    (tmp_path / "given.txt").write_text("from here\n")
    async with workspaces(podman.variables()) as made:
        container = make_container(made, image, tmp_path)
        await container.open()
        assert (container.kind, container.folder) == ("podman", "/workspace")
        assert await container.read("given.txt") == b"from here\n"
        end = await container.run("echo from there > made.txt; ls /")
        assert "workspace" in end.output.decode().split()
        assert container.name in list_containers(podman)
        await container.close()
        assert container.name not in list_containers(podman)
    assert (tmp_path / "made.txt").read_text() == "from there\n"


async def test_a_container_that_cannot_be_started_is_explained(podman: PodmanMachine, tmp_path: Path) -> None:
    async with workspaces(podman.variables()) as made:
        with pytest.raises(
            WorkspaceUnusable, match=r"Cannot start a container of localhost/no-such-image with podman: \S"
        ):
            await make_container(made, "localhost/no-such-image", tmp_path).open()
        with pytest.raises(WrongWorkspace, match="cannot be the image"):
            await make_container(made, "--privileged", tmp_path).open()
        with pytest.raises(WrongWorkspace, match='Unknown container engine "lxc"'):
            make_container(made, "image", tmp_path, "lxc")
    async with workspaces({"PATH": "/nowhere"}) as made:
        with pytest.raises(WorkspaceUnusable, match="neither podman nor docker is in PATH"):
            make_container(made, "image", tmp_path)


STARTER = """
import asyncio, os, sys
from support.remote_workspaces import Workspaces
from pigeon.workspaces.remote.own_container import OwnContainer

async def main():
    container = OwnContainer(sys.argv[1], sys.argv[2], None, Workspaces(os.environ).parts)
    await container.open()
    print(container.name, flush=True)
    await container.run("sleep 1000")

asyncio.run(main())
"""


def test_nothing_is_left_of_a_container_whose_owner_was_killed(
    podman: PodmanMachine, image: str, tmp_path: Path
) -> None:
    variables = podman.variables(PYTHONPATH=os.pathsep.join(["tests", "src"]))
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, image, str(tmp_path)],
        stdout=subprocess.PIPE, env=variables, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert starter.stdout is not None
    with starter.stdout:
        name = starter.stdout.readline().strip()
    assert name
    assert name in list_containers(podman)
    starter.kill()
    starter.wait()
    assert eventually(lambda: name not in list_containers(podman), 15)
