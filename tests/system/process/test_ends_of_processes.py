"""However a command or the agent ends, nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pigeon.system.process import pool
from pigeon.system.process.helper_main import run_reaper
from pigeon.system.process.messages import Exited, Kill, LinkMessage, StartCommand, Terminate, Waiting, receive, send
from pigeon.system.process.start import ProcessOwner
from support.processes import (
    BASH,
    children,
    eventually,
    helpers,
    is_alive,
    is_tree_running,
    processes_with,
    read_all_output,
    run_command,
    start_command,
    start_tree,
    tree,
    zombies_of,
)

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has subreapers")


@pytest.fixture
def marker() -> Iterator[str]:
    marker = f"nap-{uuid.uuid4().hex}"
    yield marker
    assert eventually(lambda: processes_with(marker) == [])


async def test_killing_takes_everything_along(processes: ProcessOwner, marker: str) -> None:
    process = await start_tree(processes, marker)
    process.kill()
    process.kill()
    assert await process.wait_until_gone(10)
    assert processes_with(marker) == []
    assert await process.wait() == 137
    process.close()


async def test_killing_reaches_those_who_ignore_signals(processes: ProcessOwner, marker: str) -> None:
    process = await start_command(processes, f"trap '' TERM INT HUP; echo begun; exec -a {marker} sleep 300")
    assert await process.read() == b"begun\n"
    process.kill()
    assert await process.wait_until_gone(10)
    assert processes_with(marker) == []
    process.close()


async def test_killing_after_the_exit_reaches_the_background(processes: ProcessOwner, marker: str) -> None:
    process = await start_command(processes, f"setsid {BASH} -c 'exec -a {marker} sleep 300' & exit 3")
    assert await read_all_output(process) == b""
    assert await process.wait() == 3
    assert not await process.wait_until_gone(0)
    process.kill()
    assert await process.wait_until_gone(10)
    assert await process.wait() == 3
    assert processes_with(marker) == []
    process.close()


async def test_terminating_asks_the_process_group(processes: ProcessOwner) -> None:
    process = await start_command(
        processes, f"trap 'echo asked; exit 5' TERM; {BASH} -c 'echo begun; exec sleep 300' & wait"
    )
    assert await process.read() == b"begun\n"
    process.terminate()
    assert await read_all_output(process) == b"asked\n"
    assert await process.wait() == 5
    assert await process.wait_until_gone(10)
    process.terminate()
    process.close()


async def test_killing_one_command_leaves_the_others_alone(processes: ProcessOwner, marker: str) -> None:
    other = f"other-{marker}"
    first, second = await start_tree(processes, marker), await start_tree(processes, other)
    first.kill()
    assert await first.wait_until_gone(10)
    assert is_tree_running(other)
    second.kill()
    assert await second.wait_until_gone(10)
    for process in (first, second):
        process.close()


async def test_a_late_kill_does_not_hit_the_next_command(processes: ProcessOwner, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    first = await start_command(processes, "echo $PPID")
    parent = await read_all_output(first)
    assert await first.wait_until_gone(10)
    second = await start_command(processes, "echo $PPID; read < gate; echo whole", str(tmp_path))
    assert await second.read() == parent
    first.kill()
    first.terminate()
    first.close()
    await asyncio.to_thread((tmp_path / "gate").write_text, "go\n")
    assert await read_all_output(second) == b"whole\n"
    assert await second.wait() == 0
    second.close()


@pytest.mark.parametrize("end", ["kill", "terminate"])
async def test_a_command_that_is_killed_before_it_began_never_runs(
    processes: ProcessOwner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    os.mkfifo(tmp_path / "gate")
    held = f"open({str(tmp_path / 'gate')!r}).read(); {pool._BOOT}"
    with monkeypatch.context() as patched:
        patched.setattr(pool, "_BOOT", held)
        # The first was given to a reaper that does not exist yet; the others wait in the agent.
        commands = [await start_command(processes, f"echo > {tmp_path}/ran{number}") for number in range(3)]
    for process in commands:
        getattr(process, end)()
    # Only now does the helper begin to work.
    await asyncio.to_thread((tmp_path / "gate").write_text, "")
    for process in commands:
        assert await process.read() == b""
        assert await process.wait() == 137
        assert await process.wait_until_gone(0)
        process.close()
    assert await run_command(processes, "ls", cwd=str(tmp_path)) == (0, b"gate\n")


@pytest.mark.parametrize("end", [Kill(), Terminate()], ids=["kill", "terminate"])
def test_a_reaper_does_not_start_a_command_that_is_to_end_already(tmp_path: Path, end: LinkMessage) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    shell = BASH.encode()
    with ours, theirs, open(os.devnull, "wb") as null:
        command = StartCommand(shell, [shell, b"-c", b"echo > %s/ran" % os.fsencode(tmp_path)], b"/", {}, False, b"")
        send(ours, command, [null.fileno(), null.fileno()])
        send(ours, end)
        ours.shutdown(socket.SHUT_WR)
        reaper = os.fork()
        if reaper == 0:
            os._exit(run_reaper(b"", [os.dup(theirs.fileno())]))
        assert os.waitstatus_to_exitcode(os.waitpid(reaper, 0)[1]) == 0
        answers = [receive(ours)[0] for _ in range(2)]
    assert isinstance(answers[0], Waiting)
    assert isinstance(answers[1], Exited)
    assert (answers[1].code, answers[1].left) == (-signal.SIGKILL, "nothing")
    assert list(tmp_path.iterdir()) == []


async def test_killing_everything_leaves_nothing_and_no_zombies(processes: ProcessOwner, marker: str) -> None:
    process = await start_tree(processes, marker)
    await run_command(processes, f"setsid {BASH} -c 'exec -a {marker} sleep 300' >/dev/null 2>&1 & echo background")
    waiting = [await start_command(processes, f"exec -a {marker} sleep 300") for _ in range(10)]
    assert await processes.kill_everything(10)
    assert processes_with(marker) == []
    assert zombies_of(os.getpid()) == []
    assert helpers() == []
    for one in (process, *waiting):
        assert await one.wait() == 137
        one.close()


async def test_commands_run_again_after_everything_was_killed(processes: ProcessOwner) -> None:
    assert await run_command(processes, "echo one") == (0, b"one\n")
    assert await processes.kill_everything(10)
    assert helpers() == []
    assert await run_command(processes, "echo two") == (0, b"two\n")


async def test_after_a_kill_no_helper_stays_behind(processes: ProcessOwner, marker: str) -> None:
    process = await start_tree(processes, marker)
    process.kill()
    assert await process.wait_until_gone(10)
    process.close()
    assert await asyncio.to_thread(eventually, lambda: helpers() == [])


async def test_after_a_kill_the_helper_stays_for_other_commands_and_where_it_is_wanted(
    processes: ProcessOwner,
) -> None:
    other = await start_command(processes, "sleep 300")
    first = await start_command(processes, "echo; sleep 300")
    assert await first.read() == b"\n"
    (helper,) = helpers()
    first.kill()
    assert await first.wait_until_gone(10)
    other.kill(keep_helper=True)
    assert await other.wait_until_gone(10)
    # The first kill let the helper go once it was idle.
    assert await asyncio.to_thread(eventually, lambda: helpers() == [])
    third = await start_command(processes, "echo; sleep 300")
    assert await third.read() == b"\n"
    third.kill(keep_helper=True)
    assert await third.wait_until_gone(10)
    assert helpers() != []
    assert helpers() != [helper]
    for process in (other, first, third):
        process.close()


async def test_an_owner_that_rests_keeps_no_helper_but_what_runs_in_the_background(processes: ProcessOwner) -> None:
    background = await start_command(processes, "echo; sleep 300")
    assert await background.read() == b"\n"
    processes.release_when_idle()
    assert len(helpers()) == 1
    background.kill(keep_helper=True)
    assert await background.wait_until_gone(10)
    background.close()
    assert await asyncio.to_thread(eventually, lambda: helpers() == [])
    assert await run_command(processes, "echo again") == (0, b"again\n")


async def test_orphans_are_reaped_while_the_command_runs(processes: ProcessOwner, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    process = await start_command(
        processes, "echo $PPID; for i in 1 2 3 4 5; do (true &); done; read < gate", str(tmp_path)
    )
    reaper = int(await process.read() or b"0")
    assert await asyncio.to_thread(eventually, lambda: zombies_of(reaper) == [])
    await asyncio.to_thread((tmp_path / "gate").write_text, "go\n")
    assert await read_all_output(process) == b""
    assert await process.wait() == 0
    process.close()


AGENT = """
import asyncio, os, sys
from pigeon.system.process.start import ProcessOwner
async def main():
    process = await ProcessOwner().start(["/bin/bash", "-c", sys.argv[1]], cwd="/", environment=dict(os.environ))
    print((await process.read()).decode().strip(), flush=True)
    if sys.argv[2] == "waits":
        await process.wait()
    if sys.argv[2] == "raises":
        raise RuntimeError
    if sys.argv[2] == "exits":
        sys.exit(3)
asyncio.run(main())
"""


def agent(command: str, ending: str) -> subprocess.Popen[bytes]:
    """A program of its own with one command running in it."""
    argv = [sys.executable, "-c", AGENT, command, ending]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("ending", ["returns", "raises", "exits"])
def test_a_program_that_just_ends_has_killed_everything_by_then(marker: str, ending: str) -> None:
    with agent(tree(marker), ending) as program:
        program.wait(30)
        assert processes_with(marker) == []


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_our_own_death_takes_everything_along(marker: str, death: signal.Signals) -> None:
    with agent(tree(marker), "waits") as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        assert eventually(lambda: is_tree_running(marker))
        program.send_signal(death)
        program.wait()
        assert eventually(lambda: processes_with(marker) == [])


def test_what_a_killed_reaper_left_is_killed_by_the_helper_even_if_that_was_stopped(marker: str) -> None:
    with agent(tree(marker), "waits") as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        assert eventually(lambda: is_tree_running(marker))
        (helper,) = children(program.pid)
        (reaper,) = [pid for pid in children(helper) if children(pid)]
        os.kill(helper, signal.SIGSTOP)
        os.kill(reaper, signal.SIGKILL)
        program.kill()
        program.wait()
        assert eventually(lambda: processes_with(marker) == [] and not is_alive(helper))


def test_a_loop_that_was_closed_with_a_command_running_is_cleaned_up_by_the_next(marker: str) -> None:
    async def forgetful() -> None:
        processes = ProcessOwner()
        commands = [await start_tree(processes, marker), *[await start_command(processes, "true") for _ in range(5)]]
        for command in commands:
            command.close()

    async def next_one() -> None:
        processes = ProcessOwner()
        assert await run_command(processes, "echo next") == (0, b"next\n")
        assert await processes.kill_everything(10)

    asyncio.run(forgetful())
    asyncio.run(next_one())
    assert eventually(lambda: processes_with(marker) == [])
    assert eventually(lambda: helpers() == [])
    assert zombies_of(os.getpid()) == []
