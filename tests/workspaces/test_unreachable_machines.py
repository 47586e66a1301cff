"""Machines that cannot be used: the error names them and the reason, and comes soon."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.machines import PodmanMachine, SshMachine, make_key, ssh_machine
from fakes.tcp_proxy import tcp_proxy
from pigeon.workspaces.errors import WorkspaceLost, WorkspaceUnusable
from support.agent_process import command_line
from support.remote_workspaces import Workspaces, workspaces

pytestmark = pytest.mark.timeout(90)
SOON = 20.0


async def why_unusable(made: Workspaces, url: str) -> str:
    began = time.monotonic()
    with pytest.raises(WorkspaceUnusable) as raised:
        await made.open(url)
    assert time.monotonic() - began < SOON
    assert "\n" not in str(raised.value)
    return str(raised.value)


async def test_an_unknown_host_key_is_not_accepted(ssh: SshMachine, tmp_path: Path) -> None:
    known = ssh.folder / "known_hosts"
    before = known.read_text()
    ssh.write_client("StrictHostKeyChecking no", known="")
    try:
        async with workspaces(ssh.variables()) as made:
            reason = await why_unusable(made, ssh.url(tmp_path))
        assert "127.0.0.1" in reason
        assert "host key is unknown" in reason
        assert known.read_text() == ""
    finally:
        ssh.write_client(known=before)


async def test_a_changed_host_key_is_named(ssh: SshMachine, tmp_path: Path) -> None:
    known = ssh.folder / "known_hosts"
    before = known.read_text()
    ssh.write_client(known=f"[127.0.0.1]:{ssh.port} {make_key(tmp_path / 'other')}\n")
    try:
        async with workspaces(ssh.variables()) as made:
            reason = await why_unusable(made, ssh.url(tmp_path))
        assert "127.0.0.1: its host key has changed" in reason
    finally:
        ssh.write_client(known=before)


async def test_a_refused_login_is_named_and_no_password_is_asked_for(tmp_path: Path) -> None:
    with ssh_machine(tmp_path / "machine", {"PasswordAuthentication": "yes"}) as machine:
        (machine.folder / "authorized_keys").write_text("")
        async with workspaces(machine.variables()) as made:
            reason = await why_unusable(made, machine.url(tmp_path))
    assert "127.0.0.1: it refused to log in: " in reason
    assert "Permission denied" in reason


async def test_a_machine_that_does_not_answer_is_given_up(ssh: SshMachine, tmp_path: Path) -> None:
    async with tcp_proxy(ssh.port) as network, workspaces(ssh.variables()) as made:
        network.freeze()
        reason = await why_unusable(made, f"ssh://127.0.0.1:{network.port}{tmp_path}")
    assert "127.0.0.1" in reason


async def test_a_machine_without_a_server_is_named(ssh: SshMachine, tmp_path: Path) -> None:
    async with workspaces(ssh.variables()) as made:
        reason = await why_unusable(made, f"ssh://127.0.0.1:1{tmp_path}")
    assert "127.0.0.1" in reason
    assert "refused" in reason


async def test_a_folder_that_there_is_not_is_named(ssh: SshMachine, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with workspaces(ssh.variables()) as made:
        reason = await why_unusable(made, ssh.url(tmp_path / "nothing"))
        assert reason == f"Cannot open the workspace on 127.0.0.1: no such directory: {tmp_path}/nothing"
        assert "not a directory" in await why_unusable(made, ssh.url(tmp_path / "file"))


async def test_a_container_that_there_is_not_is_named(podman: PodmanMachine) -> None:
    async with workspaces(podman.variables()) as made:
        reason = await why_unusable(made, "podman://no-such-container/work")
    assert "no-such-container: there is no such container" in reason


async def test_a_container_that_ends_is_reported_by_each_call(podman: PodmanMachine) -> None:
    name = podman.start(f"pigeon-tests-{os.getpid()}-ends", with_python=True)
    async with workspaces(podman.variables()) as made:
        workspace = await made.open(f"podman://{name}/work")
        podman.run("rm", "--force", "--time", "0", name)
        with pytest.raises(WorkspaceLost, match=f"{name}.*there is no such container"):
            await workspace.read("file")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("no-such-program -x", "cannot run no-such-program"),
        ("false", "the command ended with code 1"),
        ("sh -c 'echo cannot connect >&2; exit 3'", "the command ended with code 3: cannot connect"),
        ("sh -c 'exec 0<&- 1>&-; sleep 60'", "the command does not answer"),
    ],
)
async def test_a_command_that_starts_no_shell_is_explained(command: str, reason: str, tmp_path: Path) -> None:
    async with workspaces() as made:
        assert reason in await why_unusable(made, f"exec:{command}#{tmp_path}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB, which only root can make."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], check=False)
    if mounted.returncode != 0:
        pytest.skip("no disk can be mounted here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


async def test_a_full_disk_leaves_the_old_content(ssh: SshMachine, small_disk: Path) -> None:
    async with workspaces(ssh.variables()) as made:
        workspace = await made.open(ssh.url(small_disk))
        await workspace.write("file", b"old")
        with pytest.raises(OSError, match="No space left on device"):
            await workspace.write("file", os.urandom(2_000_000))
        assert await workspace.read("file") == b"old"
        assert [entry.name for entry in await workspace.list()] == ["file"]


@pytest.mark.by_exec
async def test_the_command_line_says_it_in_one_line(ssh: SshMachine, tmp_path: Path) -> None:
    command = [*command_line(), "-p", "hi", "--model", "demo", "--no-session"]
    for url, code, words in [
        (ssh.url(tmp_path / "nothing"), 1, f"127.0.0.1: no such directory: {tmp_path}/nothing"),
        ("ssh://-oProxyCommand=touch%20x/work", 2, "workspace"),
        ("ssh://user:secret@host/work", 2, "workspace"),
    ]:
        ran = await asyncio.create_subprocess_exec(
            *command, "--workspace", url, env=ssh.variables(PI_CODING_AGENT_DIR=str(tmp_path / "agent")),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, said = await ran.communicate()
        assert ran.returncode == code, said
        assert words in said.decode()
        assert said.count(b"\n") == 1
        assert b"secret" not in said
