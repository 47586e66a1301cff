from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.tool_runs import processes_with, until, zombies_of
from pigeon.system import keepers, processes
from pigeon.system.direct import start_direct
from pigeon.system.nursery import children_of

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="keepers are for Linux")
SHELL = "/bin/bash"


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    yield
    assert await processes.kill_everything()


async def run(command: str, cwd: str = "/", env: dict[str, str] | None = None) -> tuple[int, bytes]:
    process = await processes.start([SHELL, "-c", command], cwd=cwd, env=env if env is not None else dict(os.environ))
    output = await drained(process)
    code = await process.wait()
    process.close()
    return code, output


async def drained(process: processes.Process) -> bytes:
    parts = []
    while part := await process.read():
        parts.append(part)
    return b"".join(parts)


def tree(marker: str) -> str:
    """A shell with a child, a grandchild, one in a session of its own and one that forked twice."""
    nap = f"exec -a {marker} sleep 300"
    return (
        f"({nap}) & (({nap}) & ({nap}) & wait) & setsid {SHELL} -c '{nap}' & "
        f"(setsid {SHELL} -c '({nap}) & exit' &) ; echo ready; {nap}"
    )


async def started_tree(marker: str) -> processes.Process:
    process = await processes.start([SHELL, "-c", tree(marker)], cwd="/", env=dict(os.environ))
    assert await process.read() == b"ready\n"
    assert await asyncio.to_thread(until, lambda: len(processes_with(marker)) >= 6)
    return process


def agent_process(program: str, argument: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program, argument], stdout=subprocess.PIPE)


@pytest.fixture
def marker() -> str:
    return f"nap-{uuid.uuid4().hex}"


async def test_both_outputs_come_in_one_stream_and_input_is_empty() -> None:
    assert await run("echo out; echo err >&2; cat; echo end") == (0, b"out\nerr\nend\n")


async def test_the_exit_code_is_the_commands_and_a_signal_is_128_and_its_number() -> None:
    assert (await run("exit 7"))[0] == 7
    assert (await run("kill -TERM $$"))[0] == 128 + signal.SIGTERM
    assert (await run("kill -9 $$"))[0] == 137


async def test_signals_that_we_ignore_are_not_ignored_by_commands() -> None:
    code, _ = await run("kill -PIPE $$; echo survived")
    assert code == 128 + signal.SIGPIPE


async def test_directory_and_environment_are_what_was_asked_for(tmp_path: Path) -> None:
    place = tmp_path / "é \udcff"
    place.mkdir()
    code, output = await run('pwd; echo "$ODD"', str(place), {"PATH": os.environ["PATH"], "ODD": "ü\udcfe"})
    assert (code, output) == (0, os.fsencode(place) + b"\n\xc3\xbc\xfe\n")


@linux
async def test_commands_have_three_descriptors_and_no_more() -> None:
    assert (await run("ls /proc/self/fd | wc -l"))[1].strip() == b"4"  # three, and the listing's own


@linux
async def test_commands_lead_their_own_session() -> None:
    assert (await run("ps -o sid= -p $$ | tr -d ' '; echo $$"))[1].split()[0] != str(os.getsid(0)).encode()


async def test_a_program_that_is_not_there_is_an_error() -> None:
    process = await processes.start(["/nowhere/program"], cwd="/", env={})
    assert await process.read() == b""
    with pytest.raises(FileNotFoundError):
        await process.wait()
    process.close()


async def test_a_command_cannot_hold_a_nul() -> None:
    with pytest.raises(ValueError, match="NUL"):
        await processes.start([SHELL, "-c", "a\0b"], cwd="/", env={})


async def test_a_background_child_does_not_hold_the_call_open() -> None:
    before = time.monotonic()
    code, output = await run("(sleep 300; echo late) & echo started")
    assert (code, output) == (0, b"started\n")
    assert time.monotonic() - before < 5


@linux
async def test_a_background_child_goes_on_after_its_command(marker: str) -> None:
    await run(f"(exec -a {marker} sleep 300) >/dev/null 2>&1 & echo started")
    assert await asyncio.to_thread(until, lambda: len(processes_with(marker)) == 1)
    await run("true")
    assert len(processes_with(marker)) == 1


async def test_reading_gives_up_when_its_time_is_over() -> None:
    process = await processes.start([SHELL, "-c", "sleep 300"], cwd="/", env=dict(os.environ))
    assert await process.read(timeout=0.01) is None
    process.kill()
    assert await process.gone(5)
    process.close()


@linux
async def test_killing_takes_everything_along(marker: str) -> None:
    process = await started_tree(marker)
    process.kill()
    assert await process.gone(2)
    assert processes_with(marker) == []
    assert await process.wait() == 137
    process.close()


@linux
async def test_killing_one_command_leaves_the_others_alone(marker: str) -> None:
    other = f"other-{marker}"
    first, second = await started_tree(marker), await started_tree(other)
    first.kill()
    assert await first.gone(2)
    assert len(processes_with(other)) >= 6
    second.kill()
    assert await second.gone(2)
    for process in (first, second):
        process.close()


@linux
async def test_killing_everything_leaves_nothing_and_no_zombies(marker: str) -> None:
    process = await started_tree(marker)
    await run(f"setsid {SHELL} -c 'exec -a {marker} sleep 300' >/dev/null 2>&1 & echo background")
    assert await processes.kill_everything(2)
    assert processes_with(marker) == []
    assert zombies_of(os.getpid()) == []
    assert keepers.children_left() == []
    process.close()


@linux
async def test_it_can_be_done_without_an_event_loop(marker: str) -> None:
    process = await started_tree(marker)
    assert processes.kill_everything_now(2)
    assert processes_with(marker) == []
    assert await process.wait() == 137
    process.close()


@linux
async def test_after_a_kill_no_helper_stays_behind(marker: str) -> None:
    process = await started_tree(marker)
    process.kill()
    assert await process.gone(2)
    process.close()
    assert await asyncio.to_thread(until, lambda: keepers.children_left() == [], 2)


@linux
async def test_orphans_are_reaped_while_the_command_runs() -> None:
    code, output = await run(
        'for i in 1 2 3 4 5; do (true & ) ; done; sleep 0.1; ps -eo stat,ppid | grep -c "^Z.* $PPID$"'
    )
    assert (code, output.strip()) == (1, b"0")


@linux
async def test_commands_work_again_after_the_helper_was_killed(marker: str) -> None:
    process = await started_tree(marker)
    for pid in keepers.children_left():
        os.kill(pid, signal.SIGKILL)
    assert (await run("echo again"))[1] == b"again\n"
    process.kill()
    assert await process.gone(2)
    assert processes_with(marker) == []
    process.close()


@linux
@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM])
async def test_our_own_death_takes_everything_along(marker: str, death: signal.Signals) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from pigeon.system import processes\n"
        "async def main():\n"
        "    p = await processes.start(['/bin/bash', '-c', sys.argv[1]], cwd='/', env=dict(os.environ))\n"
        "    print((await p.read()).decode().strip(), flush=True)\n"
        "    await p.wait()\n"
        "asyncio.run(main())\n"
    )
    with agent_process(program, tree(marker)) as agent:
        assert agent.stdout is not None
        assert await asyncio.to_thread(agent.stdout.readline) == b"ready\n"
        assert await asyncio.to_thread(until, lambda: len(processes_with(marker)) >= 6)
        agent.send_signal(death)
        agent.wait()
        assert await asyncio.to_thread(until, lambda: processes_with(marker) == [], 2)


async def test_many_commands_at_once() -> None:
    results = await asyncio.gather(*(run(f"echo {n}") for n in range(20)))
    assert results == [(0, f"{n}\n".encode()) for n in range(20)]


@linux
async def test_few_helpers_wait_after_many_commands() -> None:
    await asyncio.gather(*(run("true") for _ in range(20)))
    (nursery,) = keepers.children_left()
    assert await asyncio.to_thread(until, lambda: len(children_of(nursery)) <= 5)


async def test_systems_without_keepers_run_commands_too(marker: str) -> None:
    process = await start_direct([SHELL, "-c", "echo hi; echo err >&2; exit 3"], "/", dict(os.environ))
    assert await drained(process) == b"hi\nerr\n"
    assert await process.wait() == 3
    process.close()
    process = await start_direct([SHELL, "-c", f"exec -a {marker} sleep 300"], "/", dict(os.environ))
    assert await process.read(timeout=0.01) is None
    process.kill()
    assert await process.gone(5)
    assert await process.wait() == 137
    process.close()
