from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.fifo import Fifo
from fakes.processes import eventually, processes_with, zombies_of
from pigeon.system.process import pool, start
from pigeon.system.process.helper_main import scanned_children
from pigeon.system.process.unsupervised import start_direct

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="keepers are for Linux")
SHELL = "/bin/bash"


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    yield
    assert await start.kill_everything()


async def run(command: str, cwd: str = "/", env: dict[str, str] | None = None) -> tuple[int, bytes]:
    process = await start.start([SHELL, "-c", command], cwd=cwd, env=env if env is not None else dict(os.environ))
    output = await drained(process)
    code = await process.wait()
    process.close()
    return code, output


async def drained(process: start.Process) -> bytes:
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


async def started_tree(marker: str) -> start.Process:
    process = await start.start([SHELL, "-c", tree(marker)], cwd="/", env=dict(os.environ))
    assert await process.read() == b"ready\n"
    assert await asyncio.to_thread(eventually, lambda: len(processes_with(marker)) >= 6)
    return process


def helpers() -> list[int]:
    """Our own children: commands are never among them."""
    return scanned_children()(os.getpid())


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


async def test_an_environment_that_changed_is_seen_by_the_next_command() -> None:
    for value in ("one", "one", "two", "one"):
        assert (await run('echo "$ODD"', env={"ODD": value}))[1] == f"{value}\n".encode()
    env = {"ODD": "three"}
    assert (await run('echo "$ODD"', env=env))[1] == b"three\n"
    env["ODD"] = "four"
    assert (await run('echo "$ODD"', env=env))[1] == b"four\n"


async def test_a_large_environment_arrives_whole() -> None:
    env = {f"V{number}": f"{number}" * 100_000 for number in range(8)}
    code, output = await run('echo "${#V0} ${#V7}"; [[ $V3 == *333 ]]', env=env)
    assert (code, output) == (0, b"100000 100000\n")


async def test_more_output_than_a_pipe_holds_arrives_whole() -> None:
    code, output = await run("head -c 3000000 /dev/zero; echo end")
    assert (code, len(output), output[-4:]) == (0, 3_000_004, b"end\n")


async def test_a_command_that_closed_its_output_is_waited_for(tmp_path: Path) -> None:
    closed, go = Fifo(tmp_path, "closed"), Fifo(tmp_path)
    running = asyncio.ensure_future(run(f"exec >&- 2>&-; {closed.tells}; {go.waits}; exit 4", cwd=str(tmp_path)))
    await asyncio.to_thread(closed.wait)
    go.release()
    assert await running == (4, b"")


@linux
async def test_commands_have_three_descriptors_and_no_more() -> None:
    assert (await run("ls /proc/self/fd | wc -l"))[1].strip() == b"4"  # three, and the listing's own


@linux
async def test_commands_lead_their_own_session() -> None:
    assert (await run("ps -o sid= -p $$ | tr -d ' '; echo $$"))[1].split()[0] != str(os.getsid(0)).encode()


async def test_a_program_that_is_not_there_is_an_error() -> None:
    process = await start.start(["/nowhere/program"], cwd="/", env={})
    assert await process.read() == b""
    with pytest.raises(FileNotFoundError):
        await process.wait()
    process.close()


async def test_a_command_cannot_hold_a_nul() -> None:
    with pytest.raises(ValueError, match="NUL"):
        await start.start([SHELL, "-c", "a\0b"], cwd="/", env={})


@linux
async def test_a_command_that_is_too_long_is_refused_at_once() -> None:
    with pytest.raises(OSError, match=os.strerror(errno.E2BIG)):
        await run("#" * (20 << 20))


async def test_names_that_no_variable_can_have_are_left_out() -> None:
    assert await run("echo $OK", env={"": "x", "A=B": "c", "OK": "1"}) == (0, b"1\n")


@linux
async def test_commands_get_the_limits_that_we_were_given() -> None:
    await run("true")
    assert pool._files > 0
    assert await run("ulimit -n") == (0, b"%d\n" % pool._files)


FEW_DESCRIPTORS = """
import asyncio, os, resource
from pigeon.system.process import start as processes
COMMAND = "echo >begun; read _ <go; echo x"
resource.setrlimit(resource.RLIMIT_NOFILE, (120, 120))
async def one():
    process = await processes.start(["/bin/sh", "-c", COMMAND], cwd=os.getcwd(), env=dict(os.environ))
    output = await process.read()
    code = await process.wait()
    process.close()
    return code, output
async def main():
    for name in ("begun", "go"):
        os.mkfifo(name)
    begun, go = os.open("begun", os.O_RDWR), os.open("go", os.O_RDWR)
    running = asyncio.gather(*(one() for _ in range(36)))
    for _ in range(10):  # all were asked for before; none ends until so many run at once
        await asyncio.to_thread(os.read, begun, 1)
    os.write(go, b"\\n" * 36)
    assert await running == [(0, b"x\\n")] * 36
    assert await processes.kill_everything()
asyncio.run(main())
"""


@linux
def test_more_commands_than_there_are_descriptors_for_wait_for_each_other(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FEW_DESCRIPTORS], check=True, timeout=30, cwd=tmp_path)


async def test_a_background_child_does_not_hold_the_call_open() -> None:
    assert await run("(sleep 300; echo late) & echo started") == (0, b"started\n")


@linux
async def test_a_background_child_goes_on_after_its_command(marker: str) -> None:
    await run(f"(exec -a {marker} sleep 300) >/dev/null 2>&1 & echo started")
    assert await asyncio.to_thread(eventually, lambda: len(processes_with(marker)) == 1)
    await run("true")
    assert len(processes_with(marker)) == 1


async def test_reading_gives_up_when_its_time_is_over() -> None:
    process = await start.start([SHELL, "-c", "sleep 300"], cwd="/", env=dict(os.environ))
    assert await process.read(timeout=0.01) is None
    process.kill()
    assert await process.gone(5)
    process.close()


@linux
async def test_a_command_that_is_killed_before_it_began_never_runs(tmp_path: Path) -> None:
    processes_at_once = [
        await start.start([SHELL, "-c", f"echo > {tmp_path}/{number}"], cwd="/", env=dict(os.environ))
        for number in range(3)
    ]
    for process in processes_at_once:
        process.kill()
        assert await process.read() == b""
        assert await process.wait() == 137
        assert await process.gone(0)
        process.close()
    assert await run("ls", cwd=str(tmp_path)) == (0, b"")


@linux
async def test_commands_that_wait_for_a_helper_that_dies_get_another() -> None:
    first = asyncio.gather(*(run(f"echo {number}") for number in range(5)))
    await asyncio.sleep(0)
    (helper,) = helpers()
    os.kill(helper, signal.SIGKILL)
    assert await first == [(0, f"{number}\n".encode()) for number in range(5)]


@linux
async def test_a_helper_that_cannot_run_here_is_told_and_then_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_BOOT", "raise SystemExit(1)")
    monkeypatch.setattr(pool, "_unable", False)
    process = await start.start([SHELL, "-c", "true"], cwd="/", env={})
    assert await process.read() == b""
    with pytest.raises(BlockingIOError):
        await process.wait()
    process.close()
    assert await run("echo direct") == (0, b"direct\n")
    assert helpers() == []


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
    assert await start.kill_everything(2)
    assert processes_with(marker) == []
    assert zombies_of(os.getpid()) == []
    assert helpers() == []
    process.close()


@linux
def test_a_program_that_just_ends_has_killed_everything_by_then(marker: str) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from pigeon.system.process import start as processes\n"
        "async def main():\n"
        "    p = await processes.start(['/bin/bash', '-c', sys.argv[1]], cwd='/', env=dict(os.environ))\n"
        "    await p.read()\n"
        "asyncio.run(main())\n"
    )
    with agent_process(program, tree(marker)) as agent:
        assert agent.wait(10) == 0
        assert processes_with(marker) == []


@linux
async def test_after_a_kill_no_helper_stays_behind(marker: str) -> None:
    process = await started_tree(marker)
    process.kill()
    assert await process.gone(2)
    process.close()
    assert await asyncio.to_thread(eventually, lambda: helpers() == [])


@linux
async def test_orphans_are_reaped_while_the_command_runs() -> None:
    orphans = "orphans=$(for i in 1 2 3 4 5; do (sh -c 'echo $$' &); done)"
    zombies_stay = "for pid in $orphans; do while kill -0 $pid 2>&-; do :; done; done"
    assert await run(f"{orphans}; {zombies_stay}; echo $orphans | wc -w") == (0, b"5\n")


@linux
async def test_commands_work_again_after_the_helper_was_killed(marker: str) -> None:
    process = await started_tree(marker)
    for pid in helpers():
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
        "from pigeon.system.process import start as processes\n"
        "async def main():\n"
        "    p = await processes.start(['/bin/bash', '-c', sys.argv[1]], cwd='/', env=dict(os.environ))\n"
        "    print((await p.read()).decode().strip(), flush=True)\n"
        "    await p.wait()\n"
        "asyncio.run(main())\n"
    )
    with agent_process(program, tree(marker)) as agent:
        assert agent.stdout is not None
        assert await asyncio.to_thread(agent.stdout.readline) == b"ready\n"
        assert await asyncio.to_thread(eventually, lambda: len(processes_with(marker)) >= 6)
        agent.send_signal(death)
        agent.wait()
        assert await asyncio.to_thread(eventually, lambda: processes_with(marker) == [])


async def test_many_commands_at_once() -> None:
    results = await asyncio.gather(*(run(f"echo {n}") for n in range(20)))
    assert results == [(0, f"{n}\n".encode()) for n in range(20)]


@linux
async def test_few_helpers_wait_after_many_commands() -> None:
    await asyncio.gather(*(run("true") for _ in range(20)))
    (nursery,) = helpers()
    assert await asyncio.to_thread(eventually, lambda: 1 <= len(scanned_children()(nursery)) <= 5)


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
