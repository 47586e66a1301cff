"""Processes that are forked by a fork server: both ends of its link."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pigeon.system.process.forking import ForkedProcess, ForkServer
from support.processes import is_alive

PARENT = """
import os, sys
from pigeon.system.process.fork_server import serve_forks

def work(data, descriptors):
    os.write(descriptors[0], b"%d %s" % (os.getpid(), data))
    return len(data) if data != b"wait" else os.read(descriptors[1], 1)[0]

serve_forks(int(sys.argv[1]), work)
"""
NO_FORK = PARENT.replace("serve_forks(int", "import errno\nos.fork = lambda: os.close(10**6)\nserve_forks(int")
# Its processes end with the number of steps that were done; `endless` steps never come to an end.
PREPARED = """
import os, sys
from pigeon.system.process.fork_server import serve_forks

done = 0

def prepare():
    global done
    while done < 3 or sys.argv[1] == "endless":
        done += 1
        yield

serve_forks(int(sys.argv[2]), lambda data, descriptors: min(done, 100), preparation=prepare())
"""
VARIABLES = {"PATH": os.environ["PATH"]}


class Family:
    """A parent, what has become of its processes, and pipes to talk to them."""

    def __init__(self, program: str = PARENT, *words: str) -> None:
        self.ended: dict[int, int] = {}
        self.lost = asyncio.Event()
        self._changed = asyncio.Event()
        self.parent = ForkServer(
            [sys.executable, "-c", program, *words], VARIABLES, lambda _: self.lost.set(), self._note
        )
        self.out, self._in = os.pipe()
        self._wait, self.go_on = os.pipe()

    async def fork(self, data: bytes) -> int:
        return await self.parent.fork(data, [self._in, self._wait])

    async def code_of(self, pid: int) -> int:
        await self._until(lambda: pid in self.ended)
        return self.ended[pid]

    async def code_besides(self, pid: int) -> int:
        """That of the first process other than this one."""
        await self._until(lambda: any(other != pid for other in self.ended))
        return next(code for other, code in self.ended.items() if other != pid)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def close(self) -> None:
        self.parent.kill_server()
        for descriptor in (self.out, self._in, self._wait, self.go_on):
            os.close(descriptor)

    def _note(self, pid: int, code: int) -> None:
        self.ended[pid] = code
        self._changed.set()


@asynccontextmanager
async def a_family(program: str = PARENT, *words: str) -> AsyncIterator[Family]:
    family = Family(program, *words)
    await family.parent.wait_until_ready()
    try:
        yield family
    finally:
        family.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def run_with_limit() -> None:
        async with asyncio.timeout(50):
            await test()

    asyncio.run(run_with_limit())


def test_a_process_gets_its_bytes_and_descriptors_and_its_end_is_told() -> None:
    async def test() -> None:
        async with a_family() as family:
            request = b"x" * 200_000
            pid = await family.fork(request[:7])
            assert await family.code_of(pid) == 7
            assert os.read(family.out, 100) == b"%d xxxxxxx" % pid

    run(test)


def test_nothing_is_prepared_before_that_is_asked_for_and_then_all_of_it() -> None:
    async def test() -> None:
        async with a_family(PREPARED, "some") as family:
            assert await family.code_of(await family.fork(b"")) == 0
            assert not family.parent.is_prepared
            family.parent.begin_preparation()
            await family.parent.wait_until_prepared(20)
            assert family.parent.is_prepared
            assert await family.code_of(await family.fork(b"")) == 3

    run(test)


def test_processes_are_forked_and_the_server_ends_in_the_middle_of_its_preparation() -> None:
    async def test() -> None:
        async with a_family(PREPARED, "endless") as family:
            family.parent.begin_preparation()
            for _ in range(3):
                await family.code_of(await family.fork(b""))
            assert not family.parent.is_prepared
            family.parent.request_end()
            await family.parent.ended
            # Nobody waits for what will not come.
            await family.parent.wait_until_prepared(20)

    run(test)


def test_a_signal_that_has_ended_a_process_is_told() -> None:
    async def test() -> None:
        async with a_family() as family:
            pid = await family.fork(b"wait")
            process = ForkedProcess(pid)
            assert not await process.wait_until_ended(0.0)
            process.send_signal(signal.SIGKILL)
            assert await process.wait_until_ended(20)
            process.send_signal(signal.SIGKILL)
            process.close_descriptor()
            assert await process.wait_until_ended(0.0)
            assert await family.code_of(pid) == -signal.SIGKILL

    run(test)


def test_the_death_of_the_parent_is_told_and_its_processes_live_on() -> None:
    async def test() -> None:
        async with a_family() as family:
            pid = await family.fork(b"wait")
            os.kill(family.parent.pid, signal.SIGKILL)
            await family.lost.wait()
            assert is_alive(pid)
            with pytest.raises(ProcessLookupError):
                await family.fork(b"more")
            process = ForkedProcess(pid)
            os.write(family.go_on, b"\3")
            assert await process.wait_until_ended(20)
            process.close_descriptor()

    run(test)


def test_a_process_that_comes_after_its_caller_has_gone_is_killed() -> None:
    async def test() -> None:
        async with a_family() as family:
            os.kill(family.parent.pid, signal.SIGSTOP)
            asked = asyncio.ensure_future(family.fork(b"wait"))
            await asyncio.sleep(0)
            asked.cancel()
            os.kill(family.parent.pid, signal.SIGCONT)
            next_one = await family.fork(b"two")
            assert await family.code_of(next_one) == 3
            # It may have been killed before it had written anything, and its end be told after that of the next.
            assert await family.code_besides(next_one) == -signal.SIGKILL

    run(test)


def test_a_parent_that_gets_no_process_says_so_and_goes_on() -> None:
    async def test() -> None:
        async with a_family(NO_FORK) as family:
            for _ in range(2):
                with pytest.raises(OSError, match="Bad file descriptor"):
                    await family.fork(b"one")
            assert not family.lost.is_set()

    run(test)


def test_a_program_that_never_gets_ready_is_an_error(tmp_path: Path) -> None:
    async def test() -> None:
        family = Family("import sys")
        with pytest.raises(OSError, match="has ended"):
            await family.parent.wait_until_ready()
        family.close()

    run(test)
