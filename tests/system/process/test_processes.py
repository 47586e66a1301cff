"""Commands as processes: what they get, what comes back, and how many run at once."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pigeon.system.process import pool, supervised
from pigeon.system.process.start import Process, ProcessOwner
from pigeon.system.process.unsupervised import UnsupervisedProcess, start_unsupervised
from support.processes import (
    BASH,
    children,
    eventually,
    helpers,
    kill_all,
    processes_with,
    read_all_output,
    run_command,
    start_command,
)

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has subreapers")


@pytest.fixture
def marker() -> Iterator[str]:
    marker = f"nap-{uuid.uuid4().hex}"
    yield marker
    assert eventually(lambda: processes_with(marker) == [])


async def test_both_outputs_come_in_one_stream_and_input_is_empty(processes: ProcessOwner) -> None:
    assert await run_command(processes, "echo out; echo err >&2; cat; echo end") == (0, b"out\nerr\nend\n")


async def test_the_exit_code_is_the_commands_and_a_signal_is_128_and_its_number(processes: ProcessOwner) -> None:
    assert (await run_command(processes, "exit 7"))[0] == 7
    assert (await run_command(processes, "kill -TERM $$"))[0] == 128 + signal.SIGTERM
    assert (await run_command(processes, "kill -9 $$"))[0] == 137


@linux
async def test_commands_neither_ignore_nor_block_a_signal(processes: ProcessOwner) -> None:
    process = await processes.start(["/bin/cat", "/proc/self/status"], cwd="/", environment={})
    status = dict(line.split(b":\t") for line in (await read_all_output(process)).splitlines())
    ordinary = 0x7FFFFFFF  # beyond are those of the C library
    assert [int(status[name], 16) & ordinary for name in (b"SigIgn", b"SigBlk")] == [0, 0]
    process.close()


async def test_directory_and_environment_are_what_was_asked_for(processes: ProcessOwner, tmp_path: Path) -> None:
    place = tmp_path / "é \udcff"
    place.mkdir()
    code, output = await run_command(
        processes, 'pwd; echo "$ODD"', str(place), {"PATH": os.environ["PATH"], "ODD": "ü\udcfe"}
    )
    assert (code, output) == (0, os.fsencode(place) + b"\n\xc3\xbc\xfe\n")


async def test_an_environment_that_changed_is_seen_by_the_next_command(processes: ProcessOwner) -> None:
    for value in ("one", "one", "two", "one"):
        assert (await run_command(processes, 'echo "$ODD"', environment={"ODD": value}))[1] == f"{value}\n".encode()
    variables = {"ODD": "three"}
    assert (await run_command(processes, 'echo "$ODD"', environment=variables))[1] == b"three\n"
    variables["ODD"] = "four"
    assert (await run_command(processes, 'echo "$ODD"', environment=variables))[1] == b"four\n"


async def test_a_large_environment_arrives_whole(processes: ProcessOwner) -> None:
    variables = {f"V{number}": f"{number}" * 100_000 for number in range(8)}
    code, output = await run_command(processes, 'echo "${#V0} ${#V7}"; [[ $V3 == *333 ]]', environment=variables)
    assert (code, output) == (0, b"100000 100000\n")


async def test_more_output_than_a_pipe_holds_arrives_whole(processes: ProcessOwner) -> None:
    code, output = await run_command(processes, "head -c 3000000 /dev/zero; echo end")
    assert (code, len(output), output[-4:]) == (0, 3_000_004, b"end\n")


async def test_output_waits_in_the_pipe_while_it_is_not_read(processes: ProcessOwner) -> None:
    process = await start_command(processes, "echo one; read -t 300 < <(sleep 300) || :; echo two")
    assert await process.read() == b"one\n"
    process.kill()
    assert await read_all_output(process) == b""
    process.close()


async def test_a_command_that_closed_its_output_is_waited_for(processes: ProcessOwner, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    process = await start_command(processes, "exec >&- 2>&-; read < gate; exit 4", str(tmp_path))
    assert await process.read(timeout=0.01) is None
    await asyncio.to_thread((tmp_path / "gate").write_text, "go\n")
    assert await read_all_output(process) == b""
    assert await process.wait() == 4
    process.close()


@linux
async def test_commands_have_three_descriptors_and_no_more(processes: ProcessOwner) -> None:
    assert (await run_command(processes, "ls /proc/self/fd | wc -l"))[1].strip() == b"4"  # three, and the listing's own


@linux
async def test_commands_lead_their_own_session(processes: ProcessOwner) -> None:
    _, output = await run_command(processes, "ps -o sid= -p $$; echo $$")
    session, pid = output.split()
    assert session == pid


async def test_a_program_that_is_not_there_is_an_error(processes: ProcessOwner) -> None:
    process = await processes.start(["/nowhere/program"], cwd="/", environment={})
    assert await process.read() == b""
    with pytest.raises(FileNotFoundError):
        await process.wait()
    process.close()


async def test_a_directory_that_is_not_there_is_an_error_and_the_next_command_runs(processes: ProcessOwner) -> None:
    with pytest.raises(FileNotFoundError):
        await run_command(processes, "true", cwd="/nowhere")
    assert await run_command(processes, "pwd") == (0, b"/\n")


@pytest.mark.parametrize(("command", "cwd"), [("a\0b", "/"), ("true", "/\0")])
async def test_a_command_cannot_hold_a_nul(processes: ProcessOwner, command: str, cwd: str) -> None:
    with pytest.raises(ValueError, match="NUL"):
        await start_command(processes, command, cwd)


@linux
async def test_a_command_that_is_too_long_is_refused_at_once(processes: ProcessOwner) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.E2BIG)):
        await start_command(processes, "#" * (20 << 20))
    longest = f"# {'x' * (128 * 1024 - 3)}"
    assert await run_command(processes, longest) == (0, b"")
    with pytest.raises(OSError, match=os.strerror(errno.E2BIG)):
        await start_command(processes, longest + "x")


async def test_names_that_no_variable_can_have_are_left_out(processes: ProcessOwner) -> None:
    assert await run_command(processes, "echo $OK", environment={"": "x", "A=B": "c", "OK": "1"}) == (0, b"1\n")


@linux
async def test_without_room_for_its_descriptors_a_command_is_an_error(processes: ProcessOwner) -> None:
    processes.warm_up()
    (helper,) = helpers()
    assert await asyncio.to_thread(eventually, lambda: len(children(helper)) == 1)
    (reaper,) = children(helper)
    # The kernel drops descriptors for which the receiver has no room.
    before = resource.prlimit(reaper, resource.RLIMIT_NOFILE)
    resource.prlimit(reaper, resource.RLIMIT_NOFILE, (6, before[1]))
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        await run_command(processes, "true")
    resource.prlimit(reaper, resource.RLIMIT_NOFILE, before)
    assert await run_command(processes, "echo x") == (0, b"x\n")


@linux
async def test_the_helper_keeps_no_end_of_an_output_and_no_folder(
    processes: ProcessOwner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "PIPE_GRACE", 3600.0)  # then only a closed pipe ends the output
    assert await run_command(processes, "echo x", str(tmp_path)) == (0, b"x\n")
    (helper,) = helpers()
    assert await asyncio.to_thread(eventually, lambda: len(children(helper)) == 2)
    if os.geteuid() == 0:  # for others, these are closed
        assert {os.readlink(f"/proc/{pid}/cwd") for pid in children(helper)} == {"/"}


@linux
@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
async def test_commands_cannot_read_what_the_helper_and_we_hold(processes: ProcessOwner) -> None:
    for pid in ("$PPID", str(os.getpid())):
        code, _ = await run_command(processes, f"head -c 1 /proc/{pid}/environ")
        assert code != 0


FEW_DESCRIPTORS = """
import asyncio, os, resource
from pigeon.system.process.start import ProcessOwner
COMMAND = "echo >begun; read _ <go; echo x"
resource.setrlimit(resource.RLIMIT_NOFILE, (120, 120))
async def one(processes):
    process = await processes.start(["/bin/sh", "-c", COMMAND], cwd=os.getcwd(), environment=dict(os.environ))
    output = await process.read()
    code = await process.wait()
    process.close()
    return code, output
async def main():
    processes = ProcessOwner()
    for name in ("begun", "go"):
        os.mkfifo(name)
    begun, go = os.open("begun", os.O_RDWR), os.open("go", os.O_RDWR)
    running = asyncio.gather(*(one(processes) for _ in range(36)))
    for _ in range(10):  # all were asked for before; none ends until so many run at once
        await asyncio.to_thread(os.read, begun, 1)
    os.write(go, b"\\n" * 36)
    assert await running == [(0, b"x\\n")] * 36
    assert await processes.kill_everything(10)
asyncio.run(main())
"""


@linux
def test_more_commands_than_there_are_descriptors_for_wait_for_each_other(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FEW_DESCRIPTORS], check=True, timeout=50, cwd=tmp_path)


@linux
def test_the_agent_takes_as_many_descriptors_as_it_may_and_commands_get_what_it_was_given() -> None:
    program = (
        "import resource\n"
        "from pigeon.system.process import pool\n"
        "_, most = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, most))\n"
        "print(pool.raise_descriptor_limit(), pool.raise_descriptor_limit(), "
        "resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
        "import asyncio\n"
        "from pigeon.system.process.start import ProcessOwner\n"
        "async def main():\n"
        "    process = await ProcessOwner().start(['/bin/sh', '-c', 'ulimit -n'], cwd='/', environment={})\n"
        "    print((await process.read()).decode())\n"
        "asyncio.run(main())\n"
    )
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = pool.MOST_FILES if most == resource.RLIM_INFINITY else min(most, pool.MOST_FILES)
    done = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.split() == ["100", "100", str(taken), "100"]


async def test_a_background_child_does_not_hold_the_call_open(processes: ProcessOwner, marker: str) -> None:
    assert await run_command(processes, f"(exec -a {marker} sleep 300; echo late) & echo started") == (0, b"started\n")
    assert await asyncio.to_thread(eventually, lambda: len(processes_with(f"{marker}\x00")) == 1)
    assert await processes.kill_everything()


async def test_what_a_background_child_writes_soon_after_the_exit_belongs_to_the_output(
    processes: ProcessOwner, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    process = await start_command(processes, "(read < gate; echo late; exec sleep 300) & echo started", str(tmp_path))
    assert await process.read() == b"started\n"
    assert await process.wait() == 0
    more = asyncio.ensure_future(process.read())
    await asyncio.to_thread((tmp_path / "gate").write_text, "go\n")
    assert await more in (b"late\n", b"")
    process.close()


@linux
async def test_a_background_child_goes_on_after_its_command(processes: ProcessOwner, marker: str) -> None:
    await run_command(processes, f"(exec -a {marker} sleep 300) >/dev/null 2>&1 & echo started")
    assert await asyncio.to_thread(eventually, lambda: len(processes_with(f"{marker}\x00")) == 1)
    await run_command(processes, "true")
    assert len(processes_with(marker)) == 1
    assert await processes.kill_everything()
    assert processes_with(marker) == []


async def test_reading_gives_up_when_its_time_is_over(processes: ProcessOwner) -> None:
    process = await start_command(processes, "sleep 300")
    assert await process.read(timeout=0.01) is None
    process.kill()
    assert await process.wait_until_gone(10)
    process.close()


async def test_after_close_there_is_no_more_output(processes: ProcessOwner) -> None:
    process = await start_command(processes, "while echo x; do :; done")
    assert await process.read()
    process.close()
    process.close()
    assert await process.read() == b""
    assert await process.wait() == 128 + signal.SIGPIPE


async def test_many_commands_at_once(processes: ProcessOwner) -> None:
    results = await asyncio.gather(*(run_command(processes, f"echo {number}") for number in range(20)))
    assert results == [(0, f"{number}\n".encode()) for number in range(20)]


@linux
async def test_a_few_reapers_are_kept_after_many_commands(processes: ProcessOwner) -> None:
    commands = [await start_command(processes, "read") for _ in range(20)]
    for command in commands:
        await read_all_output(command)
        command.close()
    (helper,) = helpers()
    assert await asyncio.to_thread(eventually, lambda: len(children(helper)) == pool.MOST_FREE)


@linux
async def test_a_command_after_another_needs_no_new_process_of_ours(processes: ProcessOwner) -> None:
    _, first = await run_command(processes, "echo $PPID")
    (helper,) = helpers()
    assert await asyncio.to_thread(eventually, lambda: len(children(helper)) == 2)
    ours = set(children(helper))
    for _ in range(5):
        _, parent = await run_command(processes, "echo $PPID")
        assert int(parent) in ours
    assert int(first) in ours
    assert set(children(helper)) == ours


@linux
async def test_warming_up_makes_a_reaper_wait_for_the_first_command(processes: ProcessOwner) -> None:
    processes.warm_up()
    (helper,) = helpers()
    assert await asyncio.to_thread(eventually, lambda: len(children(helper)) == 1)
    (reaper,) = children(helper)
    assert await run_command(processes, "echo $PPID") == (0, b"%d\n" % reaper)


@linux
async def test_descriptors_are_given_back(processes: ProcessOwner) -> None:
    async def some_of_each() -> None:
        await run_command(processes, "echo x")
        await run_command(processes, "(sleep 300) & echo x")
        with pytest.raises(FileNotFoundError):
            await run_command(processes, "true", cwd="/nowhere")
        killed = await processes.start(["/bin/cat"], cwd="/", environment={}, separate_errors=True, stdin=b"x")
        killed.kill(keep_helper=True)
        assert await killed.wait_until_gone(10)
        killed.close()
        assert await processes.kill_everything(10)

    await some_of_each()
    before = sorted(os.listdir("/proc/self/fd"))
    await some_of_each()
    assert sorted(os.listdir("/proc/self/fd")) == before


async def test_two_owners_on_one_loop_end_only_their_own(processes: ProcessOwner, marker: str) -> None:
    other = ProcessOwner()
    await run_command(other, f"(exec -a {marker} sleep 300) >/dev/null 2>&1 & echo started")
    own = await start_command(processes, "sleep 300")
    theirs = await start_command(other, f"echo begun; exec -a {marker} sleep 300")
    assert await theirs.read() == b"begun\n"
    assert await asyncio.to_thread(eventually, lambda: len(processes_with(f"{marker}\x00")) == 2)
    assert await processes.kill_everything(10)
    assert await own.wait() == 137
    assert len(processes_with(marker)) == 2
    assert await run_command(other, "echo still here") == (0, b"still here\n")
    assert await other.kill_everything(10)
    assert processes_with(marker) == []
    assert helpers() == []
    own.close()
    theirs.close()


def test_loops_in_several_threads_have_helpers_of_their_own() -> None:
    async def some() -> list[tuple[int, bytes]]:
        processes = ProcessOwner()
        results = await asyncio.gather(*(run_command(processes, f"echo {number}") for number in range(5)))
        assert await processes.kill_everything(10)
        return results

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(3) as threads:
        done = [threads.submit(asyncio.run, some()) for _ in range(3)]
        assert [one.result() for one in done] == [[(0, b"%d\n" % number) for number in range(5)]] * 3
    assert helpers() == []


async def start_command_unsupervised(command: str, gone: list[UnsupervisedProcess]) -> Process:
    return await start_unsupervised(
        BASH,
        ["bash", "-c", command],
        "/",
        dict(os.environ),
        gone.append,
        separate_errors=True,
        stdin=b"given\n",
        streams=None,
    )


async def test_systems_without_subreapers_run_commands_too(marker: str) -> None:
    gone: list[UnsupervisedProcess] = []
    process = await start_command_unsupervised("cat; echo err >&2; exit 3", gone)
    assert await read_all_output(process) == b"given\n"
    assert await process.read_errors() == b"err\n"
    assert await process.wait() == 3
    assert gone == [process]
    process.close()
    process = await start_command_unsupervised(
        f"trap 'echo asked; exit 5' TERM; echo begun; sleep 300 & wait # {marker}", gone
    )
    assert await process.read() == b"begun\n"
    process.terminate()
    assert await process.read() == b"asked\n"
    assert await process.wait() == 5
    process.kill()
    process.close()
    process = await start_command_unsupervised(f"exec -a {marker} sleep 300", gone)
    assert await process.read(timeout=0.01) is None
    process.kill()
    assert await process.wait_until_gone(10)
    assert await process.wait() == 137
    process.close()


async def test_unsupervised_commands_are_killed_with_the_rest(
    processes: ProcessOwner, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    process = await start_command(processes, "sleep 300")
    assert isinstance(process, UnsupervisedProcess)
    processes.warm_up()
    assert await processes.kill_everything(10)
    assert await process.wait() == 137
    process.close()
    assert await run_command(processes, f"(exec -a {marker} sleep 300) & echo early") == (0, b"early\n")
    kill_all(processes_with(marker))
