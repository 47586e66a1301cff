"""Other machines, started once for all tests of a worker."""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.machines import PodmanMachine, SshMachine, make_root, podman_machine, ssh_machine


@pytest.fixture(scope="session")
def ssh() -> Iterator[SshMachine]:
    with tempfile.TemporaryDirectory(prefix="ssh-") as folder, ssh_machine(Path(folder)) as machine:
        yield machine


@pytest.fixture(scope="session")
def podman() -> Iterator[PodmanMachine]:
    with tempfile.TemporaryDirectory(prefix="podman-") as folder, podman_machine(Path(folder)) as machine:
        yield machine


@pytest.fixture(scope="session")
def container(podman: PodmanMachine) -> str:
    """A container with Python, bash and the other programs of this machine."""
    return podman.start(f"pigeon-tests-{os.getpid()}-python", with_python=True)


@pytest.fixture(scope="session")
def small_container(podman: PodmanMachine) -> str:
    """A container with nothing but busybox."""
    return podman.start(f"pigeon-tests-{os.getpid()}-busybox", with_python=False)


@pytest.fixture(scope="session")
def image(podman: PodmanMachine) -> Iterator[str]:
    """An image with nothing but busybox."""
    root = podman.folder / "image"
    make_root(root, with_python=False)
    name = f"pigeon-tests-{os.getpid()}"
    packed = podman.folder / "image.tar"
    with tarfile.open(packed, "w") as archive:
        archive.add(root, ".")
    made = podman.run("import", str(packed), name)
    if made.returncode != 0:
        pytest.skip(f"podman cannot make images here: {made.stderr.strip()[-300:]}")
    yield name
    podman.run("rmi", "--force", name)
