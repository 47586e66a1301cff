"""`make workspace-bench`: what workspaces elsewhere cost, and how many round trips a call takes.

`python -m stress.workspace_bench [--delay MS] [--rounds N]`. With a delay, the connection to the ssh server and the
pipes to the others are slowed down by so many milliseconds in each direction, so that the time of a call shows its
round trips. Rows: a turn with a tool, a read of 1 MB, a search of 10,000 files, 50 MB of output.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest

import pigeon
from fakes.machines import PodmanMachine, podman_machine, ssh_machine
from fakes.tcp_proxy import tcp_proxy
from pigeon.testing import call, scripted
from pigeon.workspaces import LocalWorkspace
from pigeon.workspaces.records import SearchQuery
from pigeon.workspaces.workspace import Workspace
from support.remote_workspaces import workspaces

FILES = 10_000
OUTPUT = 50_000_000
ROWS = ("tool turn", "read 1 MB", "grep 10,000 files", "50 MB of output", "stat")
DELAYED = Path(__file__).with_name("delayed_shell.py")


async def measure(workspace: Workspace, rounds: int) -> dict[str, float]:
    """The median seconds of each row but the first."""

    async def print_much() -> None:
        size = 0

        async def count(part: bytes) -> None:
            nonlocal size
            size += len(part)

        await workspace.run(f"head -c {OUTPUT} /dev/zero", on_output=count)
        assert size == OUTPUT

    async def search() -> None:
        end = await workspace.search(SearchQuery("text", "many", "needle"))
        assert len(end.matches) == FILES // 100 * 3

    return {
        "read 1 MB": await median(lambda: workspace.read("large"), rounds),
        "grep 10,000 files": await median(search, rounds),
        "50 MB of output": await median(print_much, max(1, rounds // 3)),
        "stat": await median(lambda: workspace.stat("large"), rounds),
    }


async def median(work: Callable[[], Awaitable[object]], rounds: int) -> float:
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        await work()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


async def measure_turns(url: str | None, folder: Path, variables: dict[str, str], rounds: int) -> float:
    """The seconds of a prompt whose answer calls `read`, less those of one without a call."""
    replies = [reply for _ in range(rounds) for reply in (call("read", path="small"), "Done.")]
    with tempfile.TemporaryDirectory() as agent_dir, scripted(*replies, default="Done.") as model:
        agent = pigeon.Agent(
            model=model, cwd=folder, workspace=url, agent_dir=agent_dir, env=variables, no_session=True
        )  # fmt: skip
        async with agent:
            with_call = await median(lambda: agent.run("Read it"), rounds)
            without = await median(lambda: agent.run("Say so"), rounds)
    return with_call - without


def fill(folder: Path) -> None:
    for number in range(FILES):
        if number % 100 == 0:
            (folder / f"many/{number // 100}").mkdir(parents=True)
        text = "a needle\n" if number % 100 == 0 else "some hay\n"
        (folder / f"many/{number // 100}/{number}.txt").write_text(text * 3)
    (folder / "large").write_bytes(os.urandom(1_000_000))
    (folder / "small").write_text("small\n")


async def run(delay: float, rounds: int) -> dict[str, dict[str, float]]:
    """The rows of each kind of workspace that can be had here."""
    found: dict[str, dict[str, float]] = {}
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name, "work")
        fill(folder)
        async with AsyncExitStack() as opened:
            machine = stack.enter_context(ssh_machine(Path(name, "ssh")))
            network = await opened.enter_async_context(tcp_proxy(machine.port))
            network.delay = delay
            machine.write_client(f"HostKeyAlias [127.0.0.1]:{machine.port}")
            delayed = f"{sys.executable} {DELAYED} {delay} sh" if delay else "sh"
            kinds: dict[str, tuple[str | None, dict[str, str]]] = {
                "local": (None, dict(os.environ)),
                "ssh": (f"ssh://127.0.0.1:{network.port}{folder}", machine.variables()),
                "exec": (f"exec:{delayed}#{folder}", dict(os.environ)),
            }
            container = start_container(stack, Path(name, "podman"), folder)
            if container is not None:
                podman, called = container
                kinds["podman"] = (f"podman://{called}/mounted", podman.variables())
            for kind, (url, variables) in kinds.items():
                made = await opened.enter_async_context(workspaces(variables))
                workspace = LocalWorkspace(folder) if url is None else await made.open(url)
                found[kind] = await measure(workspace, rounds)
                found[kind]["tool turn"] = await measure_turns(url, folder, variables, rounds)
    return found


def start_container(stack: ExitStack, place: Path, folder: Path) -> tuple[PodmanMachine, str] | None:
    try:
        podman = stack.enter_context(podman_machine(place))
        volume = ("--volume", f"{folder}:/mounted")
        return podman, podman.start(f"pigeon-bench-{os.getpid()}", with_python=True, options=volume)
    except pytest.skip.Exception as reason:
        sys.stderr.write(f"{reason}\n")
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=0.0, help="milliseconds in each direction")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    if shutil.which("ssh") is None:
        sys.exit("ssh is not installed")
    found = asyncio.run(run(given.delay / 1000, given.rounds))
    kinds = [kind for kind in ("local", "ssh", "podman", "exec") if kind in found]
    sys.stdout.write(f"| {given.delay * 2:g} ms of delay | {' | '.join(kinds)} |\n|---|{'---|' * len(kinds)}\n")
    for row in ROWS:
        cells = [f"{found[kind][row] * 1000:,.1f} ms" for kind in kinds]
        sys.stdout.write(f"| {row} | {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main()
