"""Connections to another machine that are cut, and programs on either side that are killed, at moments of chance.

`python -m stress.workspace_storm [ROUNDS] [SEED]`, as root or a user who may run sshd. Several calls are under way all
the time: writes of a file, whose content must always be whole; commands that leave a line each, which must not be there
twice; reads. In each round something breaks; each call must end once, with a result or with `WorkspaceLost`. Before, a
sixth as many processes that call are killed. Nothing may be left of either on the other machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from fakes.machines import SshMachine, ssh_machine
from fakes.tcp_proxy import TcpProxy, tcp_proxy
from pigeon.workspaces.errors import WorkspaceLost
from pigeon.workspaces.remote.machine_workspace import MachineWorkspace
from pigeon.workspaces.remote.remote_workspace import RemoteWorkspace
from support.processes import eventually, kill_all, processes_with
from support.remote_workspaces import workspaces

CALL_WITHIN = 60.0
GONE_WITHIN = 12.0
WRITERS = 2
RUNNERS = 2
AT_ONCE = 5
ROOT = Path(__file__).parents[2]


class Storm:
    """What the calls do, and what is known about them."""

    def __init__(self, folder: Path, workspace: MachineWorkspace, mark: str, chance: random.Random) -> None:
        self.folder = folder
        self.workspace = workspace
        self.mark = mark
        self.chance = chance
        self.ended = Counter[str]()
        self.problems: list[str] = []
        self.must_stop = False
        self._numbers = itertools.count()

    async def work(self) -> None:
        writers = [self._repeat(lambda number=number: self._write(number)) for number in range(WRITERS)]  # type: ignore[misc]
        runners = [self._repeat(self._run) for _ in range(RUNNERS)]
        await asyncio.gather(*writers, *runners)

    async def _repeat(self, call: Callable[[], object]) -> None:
        while not self.must_stop:
            try:
                async with asyncio.timeout(CALL_WITHIN):
                    await call()  # type: ignore[misc]
            except WorkspaceLost:
                self.ended["lost"] += 1
            except TimeoutError:
                self.problems.append("a call did not end")
            except OSError as error:
                self.problems.append(f"a call failed: {error}")
            else:
                self.ended["done"] += 1

    async def _write(self, number: int) -> None:
        data = make_content(self.chance.randrange(200_000))
        await self.workspace.write(f"file{number}", data)
        if await self.workspace.read(f"file{number}") != data:
            self.problems.append(f"file{number} does not have what was written last")

    async def _run(self) -> None:
        number = next(self._numbers)
        size = self.chance.randrange(1, 300_000)
        command = f": {self.mark}; echo {number} >> ran; head -c {size} /dev/zero; exit 7"
        printed = 0

        async def count(part: bytes) -> None:
            nonlocal printed
            printed += len(part)

        end = await self.workspace.run(command, on_output=count)
        if (end.exit_code, printed) != (7, size):
            self.problems.append(f"command {number} ended with {end.exit_code} after {printed} of {size} bytes")
        if str(number) not in read_lines(self.folder / "ran"):
            self.problems.append(f"command {number} was reported and did not run")

    def check_files(self) -> None:
        for path in self.folder.glob("file*"):
            if not is_whole(path.read_bytes()):
                self.problems.append(f"{path.name} is half written")
        if left := [path.name for path in self.folder.iterdir() if path.name.endswith(".tmp")]:
            self.problems.append(f"left behind: {left}")
        twice = [line for line, times in Counter(read_lines(self.folder / "ran")).items() if times > 1]
        if twice:
            self.problems.append(f"commands that ran twice: {twice}")


def make_content(size: int) -> bytes:
    body = os.urandom(size)
    return hashlib.sha256(body).digest() + body


def is_whole(data: bytes) -> bool:
    return hashlib.sha256(data[32:]).digest() == data[:32]


async def wait_by_chance(chance: random.Random, most: float) -> None:
    await asyncio.sleep(chance.random() * most)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def read_lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


async def break_something(storm: Storm, network: TcpProxy) -> str:
    """One break, and how it is called."""
    served = storm.workspace.served_by
    assert isinstance(served, RemoteWorkspace)
    kind = storm.chance.choice(("cut", "cut", "cut twice", "refuse", "freeze", "kill helper", "kill ssh"))
    if kind == "cut twice":
        network.cut()
        await wait_by_chance(storm.chance, 0.5)
    if kind.startswith("cut"):
        network.cut()
    elif kind == "refuse":
        network.refuse()
        network.cut()
        await wait_by_chance(storm.chance, 3)
        network.refuse(False)
    elif kind == "freeze":
        network.freeze()
        await wait_by_chance(storm.chance, 6)
        network.thaw()
    elif kind == "kill helper":
        address = served._connection.welcome.address
        kill_all(processes_with(address)[:1] if address else [])
    else:
        kill_all(processes_with(f"-p\0{network.port}\0"))
    return kind


async def run_rounds(machine: SshMachine, folder: Path, rounds: int, chance: random.Random) -> list[str]:
    """So many breaks while calls are under way; returns what went wrong."""
    mark = f"storm-{os.getpid()}-{chance.randrange(1 << 30)}"
    counted = Counter[str]()
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(tcp_proxy(machine.port))
        made = await stack.enter_async_context(workspaces(machine.variables()))
        machine.write_client(f"HostKeyAlias [127.0.0.1]:{machine.port}")
        storm = Storm(folder, await made.open(f"ssh://127.0.0.1:{network.port}{folder}"), mark, chance)
        working = asyncio.ensure_future(storm.work())
        for number in range(rounds):
            await wait_by_chance(chance, 0.7)
            counted[await break_something(storm, network)] += 1
            if number % 20 == 19:
                say(f"{number + 1} breaks: {dict(storm.ended)}")
        storm.must_stop = True
        await working
        storm.check_files()
    if not eventually(lambda: not processes_with(mark), GONE_WITHIN):
        storm.problems.append(f"left running: {processes_with(mark)}")
    say(f"{dict(counted)}; calls: {dict(storm.ended)}; commands run: {len(read_lines(folder / 'ran'))}")
    return storm.problems


def kill_callers(machine: SshMachine, folder: Path, rounds: int, chance: random.Random) -> list[str]:
    """So many processes that call, and are killed meanwhile; returns what went wrong."""
    machine.write_client()
    counted = itertools.count()
    problems: list[str] = []
    while rounds > 0:
        marks = [
            f"caller-{os.getpid()}-{next(counted)}-{chance.randrange(1 << 30)}" for _ in range(min(rounds, AT_ONCE))
        ]
        rounds -= len(marks)
        callers = [start_caller(machine, folder, mark) for mark in marks]
        for caller in callers:
            asyncio.run(wait_by_chance(chance, 0.3))
            caller.kill()
            caller.wait()
        for mark in marks:
            if not eventually(lambda mark=mark: not processes_with(mark), GONE_WITHIN):  # type: ignore[misc]
                problems.append(f"a killed caller left {processes_with(mark)}")
                kill_all(processes_with(mark))
        problems += [f"{path.name} is half written" for path in folder.glob("file*") if not is_whole(path.read_bytes())]
        say(f"{len(marks)} callers killed")
    return problems


def start_caller(machine: SshMachine, folder: Path, mark: str) -> subprocess.Popen[str]:
    """A process whose calls are under way."""
    caller = subprocess.Popen(
        [sys.executable, "-m", "stress.workspace_storm", "--call", machine.url(folder), mark],
        cwd=ROOT / "tests", env=machine.variables(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert caller.stdout is not None
    with caller.stdout:
        caller.stdout.readline()
    return caller


async def call_until_killed(url: str, mark: str) -> None:
    async with workspaces() as made:
        workspace = await made.open(url)
        storm = Storm(Path("/nowhere"), workspace, mark, random.Random())
        say("calls")
        forever = asyncio.ensure_future(workspace.run(f": {mark}; setsid sh -c ': {mark}; sleep 1000' & sleep 1000"))
        while True:
            await workspace.write("file9", make_content(storm.chance.randrange(200_000)))
            assert not forever.done()


def main() -> int:
    if sys.argv[1:2] == ["--call"]:
        asyncio.run(call_until_killed(*sys.argv[2:4]))
        return 0
    rounds, seed = (int(word) for word in [*sys.argv[1:], "300", "1"][:2]) if len(sys.argv) > 2 else (300, 1)
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="storm-") as name, ssh_machine(Path(name, "ssh")) as machine:
        folder = Path(name, "work")
        folder.mkdir()
        problems = kill_callers(machine, folder, rounds // 6, chance)
        problems += asyncio.run(run_rounds(machine, folder, rounds - rounds // 6, chance))
    say("\n".join(problems) or f"{rounds} breaks, nothing wrong")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
