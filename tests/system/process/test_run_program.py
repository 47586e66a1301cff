"""Programs without a shell: what extensions' `ctx.exec` and key commands run on."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from fakes.clock import LoopClock
from pigeon.system.process.run_program import ProgramResult, find_program, run_program
from pigeon.system.process.start import ProcessOwner
from support.processes import eventually, processes_with

LONG = 3600.0
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere detached processes are not reached")


@pytest.fixture
def marker() -> str:
    return f"nap-{uuid.uuid4().hex}"


async def test_both_outputs_come_apart_with_the_exit_code(processes: ProcessOwner) -> None:
    ran = await run_program(processes, ["sh", "-c", "echo out; echo err >&2; exit 3"], cwd="/", environment=ENVIRONMENT)
    assert ran == ProgramResult(b"out\n", b"err\n", 3, False)


async def test_the_program_sees_the_name_it_was_called_by(processes: ProcessOwner) -> None:
    ran = await run_program(processes, ["sh", "-c", "echo $0"], cwd="/", environment=ENVIRONMENT)
    assert ran.stdout == b"sh\n"


async def test_directory_and_environment_are_what_was_asked_for(processes: ProcessOwner, tmp_path: Path) -> None:
    ran = await run_program(
        processes, ["sh", "-c", "pwd; env"], cwd=str(tmp_path), environment={**ENVIRONMENT, "ODD": "1"}
    )
    folder, *variables = ran.stdout.decode().splitlines()
    assert folder == str(tmp_path)
    assert "ODD=1" in variables


async def test_input_is_what_was_given_and_empty_by_itself(processes: ProcessOwner) -> None:
    much = b"line\n" * 100_000
    assert (await run_program(processes, ["cat"], cwd="/", environment=ENVIRONMENT, stdin=much)).stdout == much
    assert (await run_program(processes, ["cat"], cwd="/", environment=ENVIRONMENT, stdin=b"")).stdout == b""
    assert (await run_program(processes, ["cat"], cwd="/", environment=ENVIRONMENT)).stdout == b""


async def test_much_on_both_outputs_at_once_arrives_whole(processes: ProcessOwner) -> None:
    script = "head -c 1000000 /dev/zero & head -c 1000000 /dev/zero >&2; wait"
    ran = await run_program(processes, ["sh", "-c", script], cwd="/", environment=ENVIRONMENT)
    assert (len(ran.stdout), len(ran.stderr), ran.code) == (1_000_000, 1_000_000, 0)


async def test_a_death_by_signal_is_128_and_its_number(processes: ProcessOwner) -> None:
    ran = await run_program(processes, ["sh", "-c", "kill -9 $$"], cwd="/", environment=ENVIRONMENT)
    assert (ran.code, ran.killed) == (137, False)


@pytest.mark.parametrize("where", ["out", "err"])
async def test_a_program_that_prints_for_ever_is_killed_at_the_limit(processes: ProcessOwner, where: str) -> None:
    script = "yes" if where == "out" else "yes >&2"
    ran = await run_program(processes, ["sh", "-c", script], cwd="/", environment=ENVIRONMENT, limit=1000)
    assert (len(ran.stdout), len(ran.stderr)) == ((1000, 0) if where == "out" else (0, 1000))
    assert (ran.code, ran.killed) == (137, True)


async def test_exactly_the_limit_is_not_too_much(processes: ProcessOwner) -> None:
    ran = await run_program(
        processes, ["head", "-c", "1000", "/dev/zero"], cwd="/", environment=ENVIRONMENT, limit=1000
    )
    assert (len(ran.stdout), ran.code, ran.killed) == (1000, 0, False)


async def after_the_time(call: Coroutine[None, None, ProgramResult], begun: Callable[[], bool]) -> ProgramResult:
    """What comes of a program whose time is over as soon as it has begun."""
    task = asyncio.ensure_future(call)
    assert await asyncio.to_thread(eventually, begun)
    await LoopClock().advance(LONG)
    return await task


async def test_when_the_time_is_over_a_program_may_clean_up_first(processes: ProcessOwner, tmp_path: Path) -> None:
    script = (
        "trap 'echo clean > done; exit 7' TERM; echo out; echo err >&2; echo > begun; "
        "while :; do sleep 300 & wait; done"
    )
    call = run_program(processes, ["sh", "-c", script], cwd=str(tmp_path), environment=ENVIRONMENT, timeout=LONG)
    assert await after_the_time(call, (tmp_path / "begun").exists) == ProgramResult(b"out\n", b"err\n", 7, True)
    assert (tmp_path / "done").read_text() == "clean\n"


async def test_a_program_that_ignores_it_is_killed_with_all_it_started(processes: ProcessOwner, marker: str) -> None:
    script = f"trap '' TERM; setsid bash -c 'exec -a {marker} sleep 300' & exec -a {marker} sleep 300"
    call = run_program(
        processes, ["bash", "-c", script], cwd="/", environment=ENVIRONMENT, timeout=LONG, term_grace=0.05
    )
    ran = await after_the_time(call, lambda: len(processes_with(f"{marker}\x00")) == 2)
    assert (ran.code, ran.killed) == (137, True)
    assert processes_with(marker) == []


async def test_without_grace_it_is_killed_at_once(processes: ProcessOwner, tmp_path: Path) -> None:
    script = "trap 'echo > asked' TERM; echo > begun; while :; do sleep 300 & wait; done"
    call = run_program(
        processes, ["sh", "-c", script], cwd=str(tmp_path), environment=ENVIRONMENT, timeout=LONG, term_grace=0
    )
    ran = await after_the_time(call, (tmp_path / "begun").exists)
    assert (ran.code, ran.killed) == (137, True)
    assert not (tmp_path / "asked").exists()


async def test_cancelling_the_call_ends_the_program(processes: ProcessOwner, marker: str, tmp_path: Path) -> None:
    call = asyncio.ensure_future(
        run_program(processes, ["bash", "-c", f"exec -a {marker} sleep 300"], cwd="/", environment=ENVIRONMENT)
    )
    assert await asyncio.to_thread(eventually, lambda: len(processes_with(marker)) == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert processes_with(marker) == []


@linux
async def test_what_it_leaves_running_does_not_hold_the_call_open(processes: ProcessOwner, marker: str) -> None:
    script = f"(exec -a {marker} sleep 300) & echo started"
    ran = await run_program(processes, ["bash", "-c", script], cwd="/", environment=ENVIRONMENT)
    assert ran == ProgramResult(b"started\n", b"", 0, False)
    assert await asyncio.to_thread(eventually, lambda: len(processes_with(marker)) == 1)
    assert await processes.kill_everything()
    assert processes_with(marker) == []


async def test_what_cannot_be_started_is_an_error_that_names_it(processes: ProcessOwner, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("not executable")
    for argv, cwd, error, name in [
        (["no-such-program"], "/", FileNotFoundError, "no-such-program"),
        (["/nowhere/program"], "/", FileNotFoundError, "/nowhere/program"),
        (["./plain"], str(tmp_path), PermissionError, "./plain"),
        (["true"], str(tmp_path / "gone"), FileNotFoundError, str(tmp_path / "gone")),
    ]:
        with pytest.raises(error) as raised:
            await run_program(processes, argv, cwd=cwd, environment=ENVIRONMENT)
        assert raised.value.filename == name


def test_a_name_is_searched_on_the_given_path_and_a_path_from_the_folder(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "tool").write_text("#!/bin/sh\n")
    (second / "tool").chmod(0o755)
    environment = {"PATH": f"{first}:{second}"}
    assert find_program("tool", "/", environment) == str(second / "tool")
    for relative in ("second", "./second", "", ".", "second:.:", "~/second"):
        with pytest.raises(FileNotFoundError):
            find_program("tool", str(tmp_path), {"PATH": relative})
    assert find_program("second/tool", str(tmp_path), {}) == str(second / "tool")
    with pytest.raises(PermissionError):
        find_program("tool", "/", {"PATH": str(first)})
