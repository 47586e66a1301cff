from __future__ import annotations

import asyncio
import os
import stat
import uuid
from pathlib import Path
from typing import Any

import pytest

from fakes.clock import LoopClock
from fakes.tool_run import workplace
from pigeon.agent.scope import Scope
from pigeon.system.process.start import ProcessOwner
from pigeon.system.shell.shell import Shell, ShellMissing, Workplace, find_shell, run_shell
from pigeon.system.shell.truncation import OutputLimits
from support.processes import eventually, processes_with

LONG = 3600.0


@pytest.fixture
def place(tmp_path: Path, processes: ProcessOwner) -> Workplace:
    return workplace(tmp_path, processes, artifacts=lambda: str(tmp_path / "session"))


def content(path: str) -> bytes:
    return Path(path).read_bytes()


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


async def test_a_short_command_has_no_file_and_says_how_it_ended(place: Workplace, tmp_path: Path) -> None:
    result = await run_shell("echo hi; exit 4", place)
    assert (result.output, result.exit_code, result.cancelled, result.is_truncated) == ("hi\n", 4, False, False)
    assert (result.total_lines, result.output_lines, result.total_bytes, result.output_bytes) == (2, 2, 3, 3)
    assert (result.full_output_path, result.artifact_id) == (None, None)
    assert not (tmp_path / "session").exists()


async def test_no_output_counts_nothing(place: Workplace) -> None:
    result = await run_shell("true", place)
    assert (result.output, result.total_lines, result.total_bytes, result.output_lines) == ("", 0, 0, 0)


async def test_a_long_output_is_whole_on_disk_and_private(place: Workplace, tmp_path: Path) -> None:
    result = await run_shell("seq 1 5000", place)
    assert result.is_truncated
    assert result.output == "\n".join(map(str, range(3001, 5001)))
    assert result.total_lines == 5001
    assert result.total_lines > result.output_lines
    assert result.total_bytes > result.output_bytes
    assert result.artifact_id == "0"
    assert result.full_output_path == str(tmp_path / "session" / "0.bash.log")
    assert content(result.full_output_path) == "".join(f"{n}\n" for n in range(1, 5001)).encode()
    assert mode(result.full_output_path) == 0o600
    assert mode(tmp_path / "session") == 0o700


async def test_the_file_holds_what_the_command_wrote_byte_for_byte(place: Workplace) -> None:
    result = await run_shell(r"for i in $(seq 3000); do printf '\033[31m%s\r\n\xff' $i; done", place)
    assert result.full_output_path is not None
    assert content(result.full_output_path).startswith(b"\x1b[31m1\r\n\xff\x1b[31m2")


async def test_files_are_numbered_after_the_highest_there_is(place: Workplace, tmp_path: Path) -> None:
    (tmp_path / "session").mkdir()
    (tmp_path / "session" / "7.bash.log").touch()
    (tmp_path / "session" / "notes.txt").touch()
    results = await asyncio.gather(*(run_shell("seq 1 5000", place) for _ in range(3)))
    assert sorted(result.artifact_id or "" for result in results) == ["10", "8", "9"]


async def test_without_a_session_the_file_is_in_a_private_folder(tmp_path: Path, processes: ProcessOwner) -> None:
    place = workplace(tmp_path, processes, artifacts=lambda: None)
    result = await run_shell("seq 1 5000", place)
    assert result.full_output_path is not None
    assert mode(os.path.dirname(result.full_output_path)) == 0o700


async def test_a_disk_that_refuses_costs_the_file_not_the_result(tmp_path: Path, processes: ProcessOwner) -> None:
    (tmp_path / "session").write_text("a file where the folder should be")
    place = workplace(tmp_path, processes, artifacts=lambda: str(tmp_path / "session"))
    result = await run_shell("seq 1 5000", place)
    assert result.is_truncated
    assert result.full_output_path is None
    assert result.output.endswith("5000")


async def test_all_of_the_output_is_streamed_clean_and_in_order(place: Workplace) -> None:
    pieces: list[str] = []

    async def add_piece(piece: str) -> None:
        pieces.append(piece)

    await run_shell(
        r"seq 1 5000; printf '\033[32mgreen\033[0m 1%%\r2%%\r\n\xc3'; printf '\xa9'", place, on_output=add_piece
    )
    assert "".join(pieces) == "".join(f"{n}\n" for n in range(1, 5001)) + "green 1%2%\né"


async def test_output_appears_while_the_command_runs(place: Workplace, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")

    async def open_gate(piece: str) -> None:
        assert piece == "before\n"
        await asyncio.to_thread((tmp_path / "gate").write_text, "go")

    gate = open_gate

    async def once(piece: str) -> None:
        nonlocal gate
        if gate is open_gate:
            gate = once
            await open_gate(piece)

    result = await run_shell("echo before; cat gate; echo after", place, on_output=once)
    assert result.output == "before\ngoafter\n"


async def test_cancelling_ends_the_command_and_all_below_it(place: Workplace) -> None:
    marker = f"nap-{uuid.uuid4().hex}"
    scope = Scope()

    async def stop(_: str) -> None:
        scope.cancel()

    command = f"setsid /bin/bash -c 'exec -a {marker} sleep 300' & echo begun; exec -a {marker} sleep 300"
    result = await run_shell(command, place, scope=scope, on_output=stop)
    assert (result.cancelled, result.exit_code, result.output) == (True, None, "begun\n")
    assert processes_with(marker) == []


async def test_cancelling_waits_for_the_end_of_what_an_ended_command_left_running(tmp_path: Path) -> None:
    scope = Scope()

    class Ended:
        """A command that is over; what it left running ends while that is waited for."""

        left = "running"

        async def read(self, timeout: float | None = None) -> bytes:
            scope.cancel()
            return b""

        async def wait(self) -> int:
            return 0

        def kill(self, keep_helper: bool = False) -> None:
            self.left = "killed"

        async def wait_until_gone(self, timeout: float) -> bool:
            assert self.left == "killed"
            self.left = "gone"
            return True

        def close(self) -> None:
            pass

    ended = Ended()

    class Owner(ProcessOwner):
        async def start(self, *args: Any, **options: Any) -> Any:
            return ended

    result = await run_shell("sleep 300 &", workplace(tmp_path, Owner()), scope=scope)
    assert (result.cancelled, ended.left) == (True, "gone")


async def test_a_scope_that_is_cancelled_already_runs_nothing_to_its_end(place: Workplace, tmp_path: Path) -> None:
    scope = Scope()
    scope.cancel()
    result = await run_shell("sleep 300; touch done", place, scope=scope)
    assert result.cancelled
    assert not (tmp_path / "done").exists()


async def test_a_command_whose_time_is_over_is_killed(place: Workplace) -> None:
    async def late(_: str) -> None:
        await LoopClock().advance(LONG)

    result = await run_shell("echo before; sleep 300", place, timeout=LONG, on_output=late)
    assert (result.timed_out, result.cancelled, result.exit_code, result.output) == (True, False, None, "before\n")


async def test_dropping_the_call_kills_the_command(place: Workplace) -> None:
    marker = f"nap-{uuid.uuid4().hex}"
    begun = asyncio.Event()

    async def note(_: str) -> None:
        begun.set()

    task = asyncio.ensure_future(run_shell(f"echo x; exec -a {marker} sleep 300", place, on_output=note))
    await begun.wait()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert await asyncio.to_thread(eventually, lambda: processes_with(marker) == [])


async def test_a_missing_directory_or_shell_is_said_plainly(tmp_path: Path, processes: ProcessOwner) -> None:
    gone = workplace(tmp_path / "gone", processes)
    with pytest.raises(ShellMissing) as error:
        await run_shell("true", gone)
    assert str(error.value) == f"Working directory does not exist: {tmp_path}/gone\nCannot execute bash commands."
    other = workplace(tmp_path, processes, shell=Shell("/nowhere/bash"))
    with pytest.raises(ShellMissing, match="Cannot run /nowhere/bash: No such file or directory"):
        await run_shell("true", other)


async def test_a_command_that_no_argument_can_hold_is_refused(place: Workplace) -> None:
    with pytest.raises(ShellMissing, match="NUL"):
        await run_shell("echo a\0b", place)
    with pytest.raises(ShellMissing, match="too long"):
        await run_shell("true #" + "x" * 200_000, place)


async def test_the_prefix_stands_on_a_line_of_its_own(tmp_path: Path, processes: ProcessOwner) -> None:
    place = workplace(tmp_path, processes, shell=Shell("/bin/bash", "greeting=hello # a comment"))
    result = await run_shell("echo $greeting", place)
    assert result.output == "hello\n"


async def test_a_huge_line_shows_its_end(place: Workplace) -> None:
    result = await run_shell("head -c 300000 /dev/zero | tr '\\0' x; printf end", place)
    assert result.shown.last_line_partial
    assert len(result.output) == 51_200
    assert result.output.endswith("xend")


async def test_the_limits_are_the_callers(place: Workplace) -> None:
    assert (await run_shell("seq 1 10", place, limits=OutputLimits(3, 100))).output == "8\n9\n10"


def test_the_configured_shell_comes_first() -> None:
    assert find_shell("/opt/fish", "/home/me", "").path == "/opt/fish"
    assert find_shell("~/bin/zsh", "/home/me", "", "set -e") == Shell("/home/me/bin/zsh", "set -e")
    assert os.path.exists(find_shell(None, "/", "").path)
    assert find_shell("sh", "/", ".::bin:/nowhere:/bin").path == "/bin/sh"
    assert find_shell("fish-of-nobody", "/", ".").path == "/bin/fish-of-nobody"


def test_without_bash_in_its_usual_place_the_given_path_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "exists", lambda path: path != "/bin/bash" and os.path.lexists(path))
    assert find_shell(None, "/", str(tmp_path)).path == "/bin/sh"
    for name in ("sh", "bash"):
        (tmp_path / name).write_text("#!")
        (tmp_path / name).chmod(0o755)
        assert find_shell(None, "/", str(tmp_path)).path == str(tmp_path / name)


async def test_a_listener_that_fails_ends_the_command(place: Workplace) -> None:
    marker = f"nap-{uuid.uuid4().hex}"

    async def fail(_: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await run_shell(f"echo x; exec -a {marker} sleep 300", place, on_output=fail)
    assert await asyncio.to_thread(eventually, lambda: processes_with(marker) == [])
