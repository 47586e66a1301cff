"""Programs without a shell: what extensions' `ctx.exec` and key commands run on."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.processes import eventually, processes_with
from pigeon.system.process import start
from pigeon.system.process.run_program import ProgramResult, find_program, run_program

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere detached processes are not reached")


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    yield
    assert await start.kill_everything()


@pytest.fixture
def marker() -> str:
    return f"nap-{uuid.uuid4().hex}"


async def test_both_outputs_come_apart_with_the_exit_code() -> None:
    ran = await run_program(["sh", "-c", "echo out; echo err >&2; exit 3"], cwd="/", environment=ENVIRONMENT)
    assert ran == ProgramResult(b"out\n", b"err\n", 3, False)


async def test_the_program_sees_the_name_it_was_called_by() -> None:
    ran = await run_program(["sh", "-c", "echo $0"], cwd="/", environment=ENVIRONMENT)
    assert ran.stdout == b"sh\n"


async def test_directory_and_environment_are_what_was_asked_for(tmp_path: Path) -> None:
    ran = await run_program(["sh", "-c", "pwd; env"], cwd=str(tmp_path), environment={**ENVIRONMENT, "ODD": "1"})
    folder, *variables = ran.stdout.decode().splitlines()
    assert folder == str(tmp_path)
    assert "ODD=1" in variables


async def test_input_is_what_was_given_and_empty_by_itself() -> None:
    much = b"line\n" * 100_000
    assert (await run_program(["cat"], cwd="/", environment=ENVIRONMENT, stdin=much)).stdout == much
    assert (await run_program(["cat"], cwd="/", environment=ENVIRONMENT, stdin=b"")).stdout == b""
    assert (await run_program(["cat"], cwd="/", environment=ENVIRONMENT)).stdout == b""


async def test_much_on_both_outputs_at_once_arrives_whole() -> None:
    script = "head -c 1000000 /dev/zero & head -c 1000000 /dev/zero >&2; wait"
    ran = await run_program(["sh", "-c", script], cwd="/", environment=ENVIRONMENT)
    assert (len(ran.stdout), len(ran.stderr), ran.code) == (1_000_000, 1_000_000, 0)


async def test_a_death_by_signal_is_128_and_its_number() -> None:
    ran = await run_program(["sh", "-c", "kill -9 $$"], cwd="/", environment=ENVIRONMENT)
    assert (ran.code, ran.killed) == (137, False)


@pytest.mark.parametrize("where", ["out", "err"])
async def test_a_program_that_prints_for_ever_is_killed_at_the_limit(where: str) -> None:
    script = "yes" if where == "out" else "yes >&2"
    ran = await run_program(["sh", "-c", script], cwd="/", environment=ENVIRONMENT, limit=1000)
    assert (len(ran.stdout), len(ran.stderr)) == ((1000, 0) if where == "out" else (0, 1000))
    assert (ran.code, ran.killed) == (137, True)


async def test_exactly_the_limit_is_not_too_much() -> None:
    ran = await run_program(["head", "-c", "1000", "/dev/zero"], cwd="/", environment=ENVIRONMENT, limit=1000)
    assert (len(ran.stdout), ran.code, ran.killed) == (1000, 0, False)


async def test_when_the_time_is_over_a_program_may_clean_up_first(tmp_path: Path) -> None:
    script = f"trap 'echo clean > {tmp_path}/done; exit 7' TERM; echo began; while :; do sleep 300 & wait; done"
    ran = await run_program(["sh", "-c", script], cwd="/", environment=ENVIRONMENT, timeout=1)
    assert (tmp_path / "done").read_text() == "clean\n"
    assert ran == ProgramResult(b"began\n", b"", 7, True)


async def test_a_program_that_does_not_listen_is_killed_with_all_it_started(marker: str) -> None:
    script = f"trap '' TERM; setsid sh -c 'exec -a {marker} sleep 300' & exec -a {marker} sleep 300"
    ran = await run_program(["bash", "-c", script], cwd="/", environment=ENVIRONMENT, timeout=1, term_grace=0.05)
    assert (ran.code, ran.killed) == (137, True)
    assert processes_with(marker) == []


async def test_without_grace_it_is_killed_at_once(tmp_path: Path) -> None:
    script = f"trap 'echo x > {tmp_path}/asked' TERM; while :; do sleep 300 & wait; done"
    ran = await run_program(["sh", "-c", script], cwd="/", environment=ENVIRONMENT, timeout=1, term_grace=0)
    assert (ran.code, ran.killed) == (137, True)
    assert not (tmp_path / "asked").exists()


async def test_cancelling_the_call_ends_the_program(marker: str, tmp_path: Path) -> None:
    call = asyncio.ensure_future(
        run_program(["bash", "-c", f"exec -a {marker} sleep 300"], cwd="/", environment=ENVIRONMENT)
    )
    assert await asyncio.to_thread(eventually, lambda: len(processes_with(marker)) == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert processes_with(marker) == []


@linux
async def test_what_it_leaves_in_the_background_does_not_hold_the_call_open(marker: str) -> None:
    script = f"(exec -a {marker} sleep 300) & echo started"
    ran = await run_program(["bash", "-c", script], cwd="/", environment=ENVIRONMENT)
    assert ran == ProgramResult(b"started\n", b"", 0, False)
    assert await asyncio.to_thread(eventually, lambda: len(processes_with(marker)) == 1)
    assert await start.kill_everything()
    assert processes_with(marker) == []


async def test_what_cannot_be_started_is_an_error_that_names_it(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("not executable")
    for argv, cwd, error, name in [
        (["no-such-program"], "/", FileNotFoundError, "no-such-program"),
        (["/nowhere/program"], "/", FileNotFoundError, "/nowhere/program"),
        (["./plain"], str(tmp_path), PermissionError, "./plain"),
        (["true"], str(tmp_path / "gone"), FileNotFoundError, str(tmp_path / "gone")),
    ]:
        with pytest.raises(error) as raised:
            await run_program(argv, cwd=cwd, environment=ENVIRONMENT)
        assert raised.value.filename == name


def test_a_name_is_searched_on_the_given_path_and_a_path_from_the_folder(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "tool").write_text("#!/bin/sh\n")
    (second / "tool").chmod(0o755)
    environment = {"PATH": f"{first}:{second}"}
    assert find_program("tool", "/", environment) == str(second / "tool")
    assert find_program("tool", str(tmp_path), {"PATH": "second"}) == str(second / "tool")
    assert find_program("second/tool", str(tmp_path), {}) == str(second / "tool")
    with pytest.raises(PermissionError):
        find_program("tool", "/", {"PATH": str(first)})
