"""Commands that stop the processes which watch over them gain nothing by it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fakes.fifo import Fifo
from fakes.processes import eventually, is_alive, processes_with
from fakes.rpc_process import command_line
from fakes.stopwatch import within
from pigeon.system.process import start
from pigeon.system.process.helper_main import descendants, scanned_children
from pigeon.system.shell.artifacts import Artifacts
from pigeon.system.shell.shell import Shell, Workplace, run_shell

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="keepers are for Linux")
SHELL = "/bin/bash"
NURSERY = "$(ps -o ppid= -p $PPID)"
ATTACKS = {
    "the keeper": "kill -STOP $PPID",
    "the keeper, softly": "kill -TSTP $PPID; kill -TTIN $PPID",
    "the nursery": f"kill -STOP {NURSERY}",
    "both": f"kill -STOP {NURSERY} $PPID",
    "all helpers": f"n={NURSERY}; kill -STOP $n $(ps -o pid= --ppid $n)",
}
LASTING_ATTACKS = {
    "the keeper, for ever": "$PPID",
    "the nursery, for ever": NURSERY,
    "both, for ever": f"{NURSERY} $PPID",
}

# All of ours stopped all the time, and the agent killed: then nobody is left to do anything.
LOST_CAUSE = ("both, for ever", "SIGKILL")


@pytest.fixture
def marker() -> str:
    return f"nap-{uuid.uuid4().hex}"


@pytest.fixture(autouse=True)
async def nothing_left(marker: str) -> AsyncIterator[None]:
    yield
    assert await start.kill_everything()
    assert processes_with(marker) == []


def stops(attack: str, marker: str) -> str:
    """A command that stops whom it wants, says `ready`, and sleeps in two sessions."""
    nap = f"exec -a {marker} sleep 300"
    if attack in LASTING_ATTACKS:
        loop = f"(set -- {LASTING_ATTACKS[attack]}; while :; do kill -STOP $@; done; : {marker}) &"
    else:
        loop = f"{ATTACKS[attack]};"
    return f"setsid {SHELL} -c '{nap}' & {loop} echo ready; {nap}"


def asleep(marker: str) -> bool:
    """True once both naps have begun, and so the attack."""
    return len(processes_with(f"{marker}\x00300")) == 2


async def started(attack: str, marker: str) -> start.Process:
    process = await start.start([SHELL, "-c", stops(attack, marker)], cwd="/", env=dict(os.environ))
    assert await process.read() == b"ready\n"
    assert await asyncio.to_thread(eventually, lambda: asleep(marker))
    return process


async def ran(command: str) -> bytes:
    process = await start.start([SHELL, "-c", command], cwd="/", env=dict(os.environ))
    output = await process.read()
    await process.wait()
    process.close()
    return output or b""


@pytest.mark.parametrize("attack", [*ATTACKS, *LASTING_ATTACKS])
async def test_it_is_killed_all_the_same(attack: str, marker: str) -> None:
    process = await started(attack, marker)
    process.kill()
    assert await process.gone(2)
    assert await asyncio.to_thread(eventually, lambda: processes_with(marker) == [])
    assert await process.wait() == 137
    process.close()
    assert await ran("echo next") == b"next\n"


@pytest.mark.parametrize("attack", [*ATTACKS, *LASTING_ATTACKS])
async def test_killing_everything_takes_it_along(attack: str, marker: str) -> None:
    count = 1 if attack in LASTING_ATTACKS else 3
    attackers = [await started(attack, f"{marker}-{number}") for number in range(count)]
    assert await start.kill_everything(2)
    assert processes_with(marker) == []
    assert scanned_children()(os.getpid()) == []
    for process in attackers:
        assert await process.wait() == 137
        process.close()


async def test_it_is_killed_on_systems_without_descriptors_for_processes_too(
    marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    process = await started("both", marker)
    process.kill()
    assert await process.gone(2)
    assert processes_with(marker) == []
    process.close()


async def test_a_command_that_stopped_its_keeper_ends_like_any_other() -> None:
    process = await start.start([SHELL, "-c", "kill -STOP $PPID; exit 3"], cwd="/", env=dict(os.environ))
    assert await process.read() == b""
    assert await process.wait() == 3
    process.close()


async def test_its_timeout_holds(marker: str, tmp_path: Path) -> None:
    place = Workplace(str(tmp_path), Shell(SHELL), lambda: dict(os.environ), Artifacts(tmp_path))
    result = await run_shell(stops("the keeper", marker), place, timeout=0.2)
    assert result.timed_out
    assert processes_with(marker) == []


async def test_a_kill_that_comes_late_does_not_hit_the_next_command(tmp_path: Path) -> None:
    go = Fifo(tmp_path)
    first = await start.start([SHELL, "-c", "true"], cwd="/", env=dict(os.environ))
    assert await first.read() == b""
    assert await first.wait() == 0
    second = await start.start([SHELL, "-c", f"{go.waits}; echo whole"], cwd=str(tmp_path), env=dict(os.environ))
    first.kill()
    first.close()
    go.release()
    assert await second.read() == b"whole\n"
    assert await second.wait() == 0
    second.close()


class Agent:
    """The real program with one command running in it."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "HOME": str(folder), "PI_CODING_AGENT_DIR": str(folder)}
        self.program = subprocess.Popen(
            [*command_line(), "--mode", "rpc", "--no-session"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            env=environment,
        )

    def send(self, **record: str) -> None:
        assert self.program.stdin is not None
        self.program.stdin.write(json.dumps(record).encode() + b"\n")
        self.program.stdin.flush()

    def end_input(self) -> None:
        assert self.program.stdin is not None
        self.program.stdin.close()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(tmp_path)
    with agent.program as program:
        yield agent
        program.kill()


def end(agent: Agent, way: str) -> None:
    if way == "abort":
        agent.send(id="a", type="abort_bash")
    elif way == "end of input":
        agent.end_input()
    else:
        agent.program.send_signal(signal.Signals[way])


WAYS = ("abort", "end of input", "SIGTERM", "SIGKILL")
ENDS = [(attack, way) for attack in (*ATTACKS, *LASTING_ATTACKS) for way in WAYS if (attack, way) != LOST_CAUSE]


@pytest.mark.parametrize(("attack", "way"), ENDS)
def test_however_the_agent_ends_nothing_survives_it(agent: Agent, marker: str, attack: str, way: str) -> None:
    agent.send(id="b", type="bash", command=stops(attack, marker))
    assert eventually(lambda: asleep(marker))
    below = descendants(agent.program.pid, set())
    assert len(below) >= 4
    with within(2):
        end(agent, way)
        assert eventually(lambda: processes_with(marker) == [])
        if way != "abort":
            agent.program.wait(10)
            assert eventually(lambda: not any(map(is_alive, below)))
