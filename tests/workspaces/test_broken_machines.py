"""Connections to other machines that break, fall silent or end: what goes on, what is repeated, what is reported."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from fakes.machines import SshMachine
from fakes.tcp_proxy import TcpProxy, tcp_proxy
from pigeon.workspaces.errors import WorkspaceLost
from pigeon.workspaces.remote.remote_workspace import RemoteWorkspace
from support.processes import eventually, is_alive, processes_with
from support.remote_workspaces import Folders, workspaces

pytestmark = pytest.mark.timeout(120)


@contextlib.asynccontextmanager
async def over_network(ssh: SshMachine, folder: Path) -> AsyncIterator[tuple[TcpProxy, RemoteWorkspace]]:
    """A workspace over ssh, and the network to it."""
    async with tcp_proxy(ssh.port) as network, workspaces(ssh.variables()) as made:
        url = f"ssh://alias-of-machine:{network.port}{folder}"
        ssh.write_client("Host alias-of-machine", f"  HostKeyAlias [127.0.0.1]:{ssh.port}")
        workspace = (await made.open(url)).served_by
        assert isinstance(workspace, RemoteWorkspace)
        yield network, workspace


async def wait_until(condition: Callable[[], bool], within: float = 30.0) -> None:
    assert await asyncio.to_thread(eventually, condition, within), "it did not happen"


def read_number(folder: Path, name: str) -> int:
    return int((folder / name).read_text())


def has_text(folder: Path, name: str) -> bool:
    return (folder / name).exists() and bool((folder / name).read_text().strip())


def create(folder: Path, name: str) -> None:
    (folder / name).touch()


def find_helpers(workspace: RemoteWorkspace) -> list[int]:
    """The processes of the helper that serves a workspace, its reapers with it."""
    return processes_with(workspace._connection.welcome.address)


async def test_a_command_is_found_again_after_a_cut(ssh: SshMachine, tmp_path: Path) -> None:
    async with over_network(ssh, tmp_path) as (network, workspace):
        printed = bytearray()

        async def cut_once(part: bytes) -> None:
            if not printed:
                network.cut()
            printed.extend(part)

        waiting = "until [ -e go ]; do :; done"
        command = f"echo $$ >> started; for n in $(seq 1 2000); do echo line $n; done; {waiting}; echo end"
        running = asyncio.ensure_future(workspace.run(command, on_output=cut_once))
        await wait_until(lambda: printed.endswith(b"line 2000\n"))
        create(tmp_path, "go")
        assert (await running).exit_code == 0
        assert printed.decode() == "".join(f"line {n}\n" for n in range(1, 2001)) + "end\n"
        assert (await workspace.read("started")).count(b"\n") == 1
        assert network.connections == 2


async def test_everything_under_way_goes_on_after_many_cuts(ssh: SshMachine, tmp_path: Path) -> None:
    async with over_network(ssh, tmp_path) as (network, workspace):
        data = os.urandom(3_000_000)
        received = bytearray()

        async def keep(part: bytes) -> None:
            received.extend(part)

        copying = asyncio.ensure_future(workspace.run("cat; until [ -e go ]; do :; done", stdin=data, on_output=keep))
        for cuts in range(1, 4):
            writing = asyncio.ensure_future(workspace.write("file", data))
            network.cut()
            await writing
            reading = asyncio.ensure_future(workspace.read("file"))
            network.cut()
            assert await reading == data
            assert network.connections > cuts
        create(tmp_path, "go")
        assert (await copying).exit_code == 0
        assert bytes(received) == data


async def test_a_silent_connection_is_replaced(ssh: SshMachine, tmp_path: Path) -> None:
    async with over_network(ssh, tmp_path) as (network, workspace):
        running = asyncio.ensure_future(workspace.run("echo $$ > pid; until [ -e go ]; do :; done; echo end"))
        await wait_until(lambda: has_text(tmp_path, "pid"))
        network.freeze()
        # What the old connection had is lost for good; only new ones get through.
        await wait_until(lambda: network.connections == 2)
        network.thaw()
        create(tmp_path, "go")
        assert (await running).output == b"end\n"


async def test_a_command_whose_machine_is_not_reached_again_is_reported_and_ended(
    ssh: SshMachine, tmp_path: Path
) -> None:
    async with over_network(ssh, tmp_path) as (network, workspace):
        running = asyncio.ensure_future(workspace.run("echo $$ > pid; sleep 1000"))
        await wait_until(lambda: has_text(tmp_path, "pid"))
        helpers = find_helpers(workspace)
        assert helpers
        network.refuse()
        network.cut()
        began = time.monotonic()
        with pytest.raises(WorkspaceLost) as lost:
            await running
        assert time.monotonic() - began < 30
        assert str(lost.value).startswith("connection to alias-of-machine lost after ")
        assert "the command may still run: job " in str(lost.value)
        await wait_until(lambda: not any(map(is_alive, helpers)), within=10)
        pid = read_number(tmp_path, "pid")
        await wait_until(lambda: not is_alive(pid), within=10)
        with pytest.raises(WorkspaceLost, match="alias-of-machine"):
            await workspace.read("pid")
        network.refuse(False)
        assert await workspace.read("pid") == b"%d\n" % pid


async def test_a_killed_helper_leaves_nothing_and_its_command_is_known_to_have_ended(
    ssh: SshMachine, tmp_path: Path
) -> None:
    async with over_network(ssh, tmp_path) as (_, workspace):
        running = asyncio.ensure_future(workspace.run("echo $$ > pid; setsid sleep 1000 & sleep 1000"))
        await wait_until(lambda: has_text(tmp_path, "pid"))
        pid = read_number(tmp_path, "pid")
        os.kill(min(find_helpers(workspace)), signal.SIGKILL)
        with pytest.raises(WorkspaceLost, match=r"lost after \d+ s; the command was ended"):
            await running
        await wait_until(lambda: not is_alive(pid), within=10)
        assert (await workspace.run("echo again")).output == b"again\n"


async def test_abort_ends_a_call_although_the_connection_is_silent(ssh: SshMachine, tmp_path: Path) -> None:
    async with over_network(ssh, tmp_path) as (network, workspace):
        running = asyncio.ensure_future(workspace.run("echo $$ > pid; sleep 1000"))
        await wait_until(lambda: has_text(tmp_path, "pid"))
        network.freeze()
        began = time.monotonic()
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
        assert time.monotonic() - began < 5
        pid = read_number(tmp_path, "pid")
        await wait_until(lambda: not is_alive(pid), within=15)
        network.thaw()


async def test_nothing_is_left_when_a_workspace_is_closed(ssh: SshMachine, tmp_path: Path) -> None:
    async with over_network(ssh, tmp_path) as (_, workspace):
        await workspace.run("(setsid sleep 1000 & echo $! > pid)")
        helpers = find_helpers(workspace)
        pid = read_number(tmp_path, "pid")
        assert is_alive(pid)
        await workspace.close()
        await wait_until(lambda: not any(map(is_alive, (pid, *helpers))), within=5)


async def test_nothing_is_written_on_the_other_machine(ssh: SshMachine, tmp_path: Path) -> None:
    folder = Folders(tmp_path).make()
    async with over_network(ssh, folder) as (network, workspace):
        await workspace.run("true")
        network.cut()
        await workspace.stat(".")
        (helper, *_) = sorted(find_helpers(workspace))
        opened = [os.readlink(f"/proc/{helper}/fd/{name}") for name in os.listdir(f"/proc/{helper}/fd")]
        assert [name for name in opened if name.startswith("/") and name != "/dev/null"] == []
        assert list(folder.iterdir()) == []
