"""Helpers and reapers that are killed (as by `pkill python` or for want of memory) or stopped (as by a debugger)."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.clock import LoopClock
from pigeon.system.process import fork_server, helper_main, pool, reaper
from pigeon.system.process.forking import ForkServer
from pigeon.system.process.start import Process, ProcessOwner
from pigeon.system.process.unsupervised import UnsupervisedProcess
from support.processes import (
    children,
    eventually,
    helpers,
    is_alive,
    processes_with,
    read_all_output,
    run_command,
    start_command,
    start_tree,
)

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has subreapers")


@pytest.fixture
def marker() -> Iterator[str]:
    marker = f"nap-{uuid.uuid4().hex}"
    yield marker
    assert eventually(lambda: processes_with(marker) == [])


def helper() -> int:
    (only,) = helpers()
    return only


def is_stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat", "rb") as stat:
        return stat.read().rpartition(b")")[2].split()[0] == b"T"


async def until(condition: Callable[[], bool]) -> None:
    assert await asyncio.to_thread(eventually, condition)


def stop(*pids: int) -> None:
    """Stop them, for good as far as the system is concerned: waits until they stand still."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    assert eventually(lambda: all(is_stopped(pid) for pid in pids))


async def kill_command(process: Process, marker: str) -> None:
    """A command is killed as if nothing had happened."""
    process.kill()
    assert await process.wait_until_gone(10)
    assert processes_with(marker) == []
    assert await process.wait() == 137
    process.close()


async def busy(processes: ProcessOwner, marker: str) -> tuple[Process, int]:
    """A tree of processes, and the reaper of it."""
    process = await start_tree(processes, marker)
    (parent,) = {pid for pid in children(helper()) if children(pid)}
    return process, parent


async def idle(processes: ProcessOwner) -> list[int]:
    """The free reapers after a first command."""
    await run_command(processes, "true")
    await until(lambda: len(children(helper())) == 2)
    return children(helper())


async def test_a_helper_that_was_killed_while_idle_is_replaced(processes: ProcessOwner) -> None:
    await idle(processes)
    lost = helper()
    os.kill(lost, signal.SIGKILL)
    await until(lambda: not is_alive(lost))
    assert await run_command(processes, "echo again") == (0, b"again\n")
    assert helper() != lost


async def test_a_helper_that_was_killed_is_noticed_and_reaped_without_a_command(processes: ProcessOwner) -> None:
    free = await idle(processes)
    os.kill(helper(), signal.SIGKILL)
    await until(lambda: helpers() == [])
    await until(lambda: not any(is_alive(pid) for pid in free))


async def test_a_busy_command_survives_the_helper_and_is_killed_all_the_same(
    processes: ProcessOwner, marker: str
) -> None:
    process, parent = await busy(processes, marker)
    os.kill(helper(), signal.SIGKILL)
    assert await run_command(processes, "echo again") == (0, b"again\n")
    assert is_alive(parent)
    await kill_command(process, marker)
    await until(lambda: not is_alive(parent))


async def test_commands_that_wait_for_a_helper_that_dies_get_another(processes: ProcessOwner) -> None:
    commands = [await start_command(processes, f"echo {number}") for number in range(5)]
    os.kill(helper(), signal.SIGKILL)
    assert [await read_all_output(command) for command in commands] == [b"%d\n" % number for number in range(5)]
    for command in commands:
        command.close()


@pytest.mark.parametrize(
    "place", [(ForkServer, "request_fork"), (reaper.ReaperConnection, "start_process")], ids=["fork", "run"]
)
@pytest.mark.parametrize("times", [1, 2, 9])
async def test_a_helper_that_hangs_up_while_it_gets_a_command_is_replaced(
    processes: ProcessOwner, monkeypatch: pytest.MonkeyPatch, place: tuple[type, str], times: int
) -> None:
    genuine, failures = getattr(*place), iter(range(times))

    def fail_first(*given: Any) -> Any:
        if next(failures, None) is not None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        return genuine(*given)

    with monkeypatch.context() as patched:
        patched.setattr(*place, fail_first)
        if times < pool.MOST_TRIES:
            assert await run_command(processes, "echo here") == (0, b"here\n")
        else:
            with pytest.raises(BlockingIOError):
                await run_command(processes, "echo here")
    assert await run_command(processes, "echo again") == (0, b"again\n")


@pytest.mark.parametrize("end", ["kill", "terminate"])
async def test_a_command_that_is_ended_while_its_helper_dies_never_runs(
    processes: ProcessOwner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    os.mkfifo(tmp_path / "gate")
    with monkeypatch.context() as patched:
        patched.setattr(pool, "_BOOT", f"open({str(tmp_path / 'gate')!r}).read(); {pool._BOOT}")
        process = await start_command(processes, f"echo > {tmp_path}/ran")
    getattr(process, end)()
    os.kill(helper(), signal.SIGKILL)
    assert await process.wait() == reaper.LOST
    process.close()
    assert await run_command(processes, "ls", cwd=str(tmp_path)) == (0, b"gate\n")


async def test_a_reaper_that_was_killed_while_free_is_not_given_a_command(processes: ProcessOwner) -> None:
    for pid in await idle(processes):
        os.kill(pid, signal.SIGKILL)
        await until(lambda pid=pid: not is_alive(pid))  # type: ignore[misc]
    assert await run_command(processes, "echo again") == (0, b"again\n")


async def test_a_reaper_that_was_killed_while_busy_loses_its_command_and_leaves_nothing(
    processes: ProcessOwner, marker: str
) -> None:
    process, parent = await busy(processes, marker)
    other = await start_command(processes, "echo begun; sleep 300")
    assert await other.read() == b"begun\n"
    os.kill(parent, signal.SIGKILL)
    assert await read_all_output(process) == b""
    assert await process.wait() == reaper.LOST
    assert await process.wait_until_gone(10)
    await until(lambda: processes_with(marker) == [])
    assert await other.read(timeout=0.01) is None
    other.kill()
    assert await other.wait_until_gone(10)
    for one in (process, other):
        one.close()


async def test_a_reaper_that_was_killed_while_busy_does_not_keep_the_helper(processes: ProcessOwner) -> None:
    lost = await start_command(processes, "kill -KILL $PPID; exec sleep 300")
    assert await lost.wait() == reaper.LOST
    last = await start_command(processes, "exec sleep 300")
    last.kill()
    assert await last.wait_until_gone(10)
    await until(lambda: helpers() == [])
    for one in (lost, last):
        one.close()


async def test_a_helper_that_was_stopped_while_idle_serves_the_next_command(processes: ProcessOwner) -> None:
    await idle(processes)
    stop(helper())
    assert await asyncio.gather(*(run_command(processes, f"echo {n}") for n in range(4))) == [
        (0, b"%d\n" % n) for n in range(4)
    ]


async def test_a_command_ends_as_ever_while_the_helper_is_stopped(processes: ProcessOwner, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    process = await start_command(processes, "echo begun; read < gate; exit 3", str(tmp_path))
    assert await process.read() == b"begun\n"
    stop(helper())
    await asyncio.to_thread((tmp_path / "gate").write_text, "go\n")
    assert await process.wait() == 3
    process.close()


async def test_a_stopped_reaper_is_continued(processes: ProcessOwner, tmp_path: Path) -> None:
    process = await start_command(processes, "kill -STOP $PPID; kill -TSTP $PPID; exit 3")
    assert await read_all_output(process) == b""
    assert await process.wait() == 3
    process.close()


async def test_helpers_that_are_asked_to_end_go_on(processes: ProcessOwner, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    process = await start_command(processes, "echo begun; read < gate; exit 3", str(tmp_path))
    assert await process.read() == b"begun\n"
    first = helper()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        for pid in (first, *children(first)):
            os.kill(pid, number)
    await asyncio.to_thread((tmp_path / "gate").write_text, "go\n")
    assert await process.wait() == 3
    assert await run_command(processes, "echo next") == (0, b"next\n")
    assert helper() == first
    process.close()


async def test_a_request_that_is_more_than_a_stopped_reaper_takes_waits_for_it(processes: ProcessOwner) -> None:
    free = await idle(processes)
    stop(helper(), *free)
    variables = {f"V{number}": "x" * 100_000 for number in range(12)}
    assert await run_command(processes, "echo ${#V11}", environment=variables) == (0, b"100000\n")


async def test_a_request_that_no_reaper_takes_is_an_error(
    processes: ProcessOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*request: object) -> None:
        raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))

    with monkeypatch.context() as patched:
        patched.setattr(reaper, "send", refuse)
        with pytest.raises(OSError, match=os.strerror(errno.EMSGSIZE)):
            await run_command(processes, "true")
    assert await run_command(processes, "echo next") == (0, b"next\n")


@pytest.mark.parametrize("who", ["helper", "reaper", "both"])
async def test_a_command_whose_helpers_are_stopped_is_killed_all_the_same(
    processes: ProcessOwner, marker: str, who: str
) -> None:
    process, parent = await busy(processes, marker)
    if who == "reaper":
        # The helper continues it at once: nothing to wait for.
        os.kill(parent, signal.SIGSTOP)
    else:
        stop(helper(), *([parent] if who == "both" else []))
    await kill_command(process, marker)


@pytest.mark.parametrize("who", ["helper", "both"])
async def test_everything_is_killed_while_helpers_are_stopped(processes: ProcessOwner, marker: str, who: str) -> None:
    process, parent = await busy(processes, marker)
    stop(helper(), *([parent] if who == "both" else []))
    assert await processes.kill_everything(10)
    assert processes_with(marker) == []
    assert helpers() == []
    process.close()


async def test_a_reaper_that_does_not_answer_is_given_up_without_a_helper_too(
    processes: ProcessOwner, marker: str
) -> None:
    process, parent = await busy(processes, marker)
    lost = helper()
    os.kill(lost, signal.SIGKILL)
    await until(lambda: not is_alive(lost))
    # Without a helper there is nothing that continues a reaper: the agent gives it up.
    stop(parent)
    process.kill()
    await LoopClock().advance(reaper.KILL_WITHIN)
    assert await read_all_output(process) == b""
    assert await process.wait() == reaper.LOST
    assert await process.wait_until_gone(0)
    os.kill(parent, signal.SIGCONT)
    await until(lambda: processes_with(marker) == [])
    process.close()


DEBUGGER = """
import ctypes, os, sys
PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000
pid = int(sys.argv[1])
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
    if ptrace(request, pid, None, None):
        sys.exit(77)
os.waitpid(pid, WALL)
print("holds", flush=True)
os.waitpid(pid, WALL)
"""


@contextmanager
def hold_by_debugger(pid: int) -> Iterator[None]:
    """Hold a process as a debugger does: it does nothing at all, whatever signal it gets but SIGKILL."""
    argv = [sys.executable, "-c", DEBUGGER, str(pid)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as debugger:
        assert debugger.stdout is not None
        if debugger.stdout.readline() != b"holds\n":
            pytest.skip("this user may not debug")
        try:
            yield
        finally:
            debugger.kill()


async def test_the_helper_kills_a_reaper_that_does_not_answer_and_what_it_left(
    processes: ProcessOwner, marker: str
) -> None:
    process, parent = await busy(processes, marker)
    other = await start_command(processes, "echo begun; sleep 300")
    assert await other.read() == b"begun\n"
    with hold_by_debugger(parent):
        process.kill()
        assert not await process.wait_until_gone(0)
        await LoopClock().advance(reaper.KILL_WITHIN)
        assert await process.wait_until_gone(0)
        assert await process.wait() == reaper.LOST
        await until(lambda: processes_with(marker) == [])
    await until(lambda: not is_alive(parent))
    assert await other.read(timeout=0.01) is None
    other.kill()
    assert await other.wait_until_gone(10)
    for one in (process, other):
        one.close()


async def test_a_helper_that_cannot_run_here_is_reported_and_then_done_without(
    processes: ProcessOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_BOOT", "raise SystemExit(1)")
    process = await start_command(processes, "true")
    assert await process.read() == b""
    with pytest.raises(BlockingIOError):
        await process.wait()
    process.close()
    assert await run_command(processes, "echo unsupervised") == (0, b"unsupervised\n")
    assert helpers() == []


async def test_a_helper_that_is_killed_again_and_again_is_an_error(
    processes: ProcessOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(pool, "_BOOT", "import os; os.kill(os.getpid(), 9)")
        with pytest.raises(BlockingIOError):
            await run_command(processes, "true")
    assert await run_command(processes, "echo again") == (0, b"again\n")


@pytest.mark.parametrize(("number", "next_is_supervised"), [(errno.EAGAIN, True), (errno.EACCES, False)])
async def test_a_helper_that_cannot_be_started_is_done_without_for_now_or_for_good(
    processes: ProcessOwner, monkeypatch: pytest.MonkeyPatch, number: int, next_is_supervised: bool
) -> None:
    def refuse() -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(pool, "raise_descriptor_limit", refuse)
        first = await start_command(processes, "true")
    second = await start_command(processes, "true")
    assert isinstance(first, UnsupervisedProcess)
    assert isinstance(second, UnsupervisedProcess) is not next_is_supervised
    for process in (first, second):
        assert await read_all_output(process) == b""
        process.close()


def test_descendants_are_found_without_the_kernels_lists_too(monkeypatch: pytest.MonkeyPatch) -> None:
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        assert child in fork_server.descendants(os.getpid(), set())
        assert child not in fork_server.descendants(os.getpid(), {child})
        monkeypatch.setattr(os.path, "exists", lambda _: False)
        assert child in fork_server.descendants(os.getpid(), set())
        assert child not in fork_server.descendants(os.getpid(), {child})
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_of_descendants_those_above_come_first_and_those_below_are_known_by_then(marker: str) -> None:
    line = ["/bin/bash", "-c", f"bash -c 'sleep 600 & wait' {marker} & wait", marker]
    with subprocess.Popen(line, start_new_session=True) as top:
        assert eventually(lambda: len(list(fork_server.descendants(top.pid, set()))) == 2)
        killed = []
        for pid in fork_server.descendants(os.getpid(), set(children(os.getpid())) - {top.pid}):
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)
        assert killed[0] == top.pid
        assert len(killed) == 3


def test_a_namespace_that_cannot_be_looked_into_is_not_taken_for_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = helper_main.ReaperLoop.__new__(helper_main.ReaperLoop)
    monkeypatch.setattr(helper_main, "child_finder", lambda ignored: lambda pid: [])
    assert loop._is_namespace_empty()

    def fail(pid: int) -> list[int]:
        raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))

    monkeypatch.setattr(helper_main, "child_finder", lambda ignored: fail)
    assert not loop._is_namespace_empty()
