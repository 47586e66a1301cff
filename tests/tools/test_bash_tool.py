from __future__ import annotations

import asyncio
import os
from itertools import pairwise
from pathlib import Path

import pytest

from fakes.clock import LoopClock
from fakes.tool_run import FakeRun, call_for_failure, call_for_text, call_tool, workplace
from pigeon.system.process.start import ProcessOwner
from pigeon.tools.bash import BashTool
from pigeon.wire.base import ABSENT
from pigeon.wire.content import TextContent
from pigeon.wire.events import ToolOutcome


@pytest.fixture
def bash(tmp_path: Path, processes: ProcessOwner) -> BashTool:
    return BashTool(workplace(tmp_path, processes))


async def test_output_is_the_result_and_details_are_absent(bash: BashTool) -> None:
    outcome = await call_tool(bash, command="echo out; echo err >&2")
    assert outcome == ToolOutcome(content=[TextContent(text="out\nerr\n")])
    assert outcome.details is ABSENT


async def test_silence_is_said(bash: BashTool) -> None:
    assert await call_for_text(bash, command="true") == "(no output)"


async def test_the_first_update_is_empty_and_the_last_is_complete(bash: BashTool) -> None:
    run = FakeRun()
    await call_tool(bash, run, command="echo one; echo two")
    assert run.updates[0] == ToolOutcome(content=[])
    assert run.updates[-1] == ToolOutcome(content=[TextContent(text="one\ntwo\n")], details={})


async def test_a_silent_command_has_one_update(bash: BashTool) -> None:
    run = FakeRun()
    await call_tool(bash, run, command="true")
    assert len(run.updates) == 1


async def test_updates_are_cumulative_and_not_one_per_chunk(bash: BashTool) -> None:
    run = FakeRun()
    await call_tool(bash, run, command="for i in $(seq 200); do echo $i; done; seq 201 1000")
    shown = [update.content[0].text for update in run.updates[1:] if isinstance(update.content[0], TextContent)]
    assert len(shown) < 20
    assert all(later.startswith(earlier) for earlier, later in pairwise(shown))


async def test_a_failing_command_is_an_error_with_its_output(bash: BashTool) -> None:
    error = await call_for_failure(bash, command="echo oops >&2; exit 3")
    assert error.text == "oops\n\n\nCommand exited with code 3"
    assert (await call_for_failure(bash, command="exit 1")).text == "(no output)\n\nCommand exited with code 1"
    assert (await call_for_failure(bash, command="kill -9 $$")).text == "(no output)\n\nCommand exited with code 137"


@pytest.mark.parametrize(("timeout", "named"), [(120.5, "120.5"), ("120", "120")])
async def test_a_timeout_is_an_error_with_what_there_was(bash: BashTool, timeout: float | str, named: str) -> None:
    shown = asyncio.Event()

    def note(update: ToolOutcome) -> None:
        if update.content:
            shown.set()

    ending = asyncio.ensure_future(
        call_for_failure(bash, FakeRun(note), command="echo before; sleep 300", timeout=timeout)
    )
    await shown.wait()
    await LoopClock().advance(121)
    assert (await ending).text == f"before\n\n\nCommand timed out after {named} seconds"


async def test_a_timeout_before_any_output_is_an_error(bash: BashTool) -> None:
    assert (
        await call_for_failure(bash, command="sleep 300", timeout=0.1)
    ).text == "Command timed out after 0.1 seconds"


@pytest.mark.parametrize("timeout", [0, -1, 1e12, float("inf"), float("nan")])
async def test_a_timeout_that_is_none_is_refused(bash: BashTool, timeout: float) -> None:
    assert "Invalid timeout" in (await call_for_failure(bash, command="true", timeout=timeout)).text


async def test_an_abort_says_so(bash: BashTool) -> None:
    def stop_at_output(progress: ToolOutcome) -> None:
        if progress.content:
            run.scope.cancel()

    run = FakeRun(stop_at_output)
    assert (await call_for_failure(bash, run, command="echo started; sleep 300")).text == "started\n\n\nCommand aborted"
    run = FakeRun(lambda _: run.scope.cancel())
    assert (await call_for_failure(bash, run, command="sleep 300")).text == "Command aborted"


async def test_long_output_ends_with_where_the_rest_is(bash: BashTool, tmp_path: Path) -> None:
    run = FakeRun()
    outcome = await call_tool(bash, run, command="seq 3000")
    path = str(tmp_path / "artifacts" / "0.bash.log")
    assert outcome.content[0].text.endswith(f"2999\n3000\n\n[Showing lines 1001-3000 of 3000. Full output: {path}]")
    assert outcome.details["fullOutputPath"] == path
    assert outcome.details["truncation"]["totalLines"] == 3000
    assert "content" not in outcome.details["truncation"]
    assert run.updates[-1].details["truncation"]["outputLines"] == 2000


async def test_a_cut_by_size_names_the_limit(bash: BashTool) -> None:
    shown = await call_for_text(bash, command="for i in $(seq 100); do head -c 1000 /dev/zero | tr '\\0' x; echo; done")
    assert "[Showing lines 50-100 of 100 (50.0KB limit). Full output: " in shown


async def test_a_huge_line_is_told_apart(bash: BashTool) -> None:
    shown = await call_for_text(bash, command="echo first; head -c 200000 /dev/zero | tr '\\0' x")
    assert "[Showing last 50.0KB of line 2. Full output: " in shown


async def test_a_failing_command_keeps_its_details(bash: BashTool, tmp_path: Path) -> None:
    error = await call_for_failure(bash, command="seq 3000; exit 2")
    assert error.details["truncation"]["truncated"] is True
    assert os.listdir(tmp_path / "artifacts") == ["0.bash.log"]
    assert error.text.endswith("]\n\nCommand exited with code 2")


async def test_colours_and_progress_do_not_reach_the_model(bash: BashTool) -> None:
    assert await call_for_text(bash, command=r"printf '\033[1mbold\033[0m\n10%%\r100%%\r\n'") == "bold\n100%\n"


async def test_the_command_runs_in_the_working_directory(bash: BashTool, tmp_path: Path) -> None:
    await call_tool(bash, command="touch here")
    assert os.listdir(tmp_path) == ["here"]


async def test_the_environment_is_the_one_that_was_given(tmp_path: Path, processes: ProcessOwner) -> None:
    tool = BashTool(workplace(tmp_path, processes, environment=lambda: {"PATH": os.environ["PATH"], "ONLY": "this"}))
    shown = await call_for_text(tool, command="env")
    assert "ONLY=this" in shown
    assert "HOME=" not in shown


async def test_a_missing_directory_is_an_error(tmp_path: Path, processes: ProcessOwner) -> None:
    error = await call_for_failure(BashTool(workplace(tmp_path / "gone", processes)), command="true")
    assert error.text.startswith(f"Working directory does not exist: {tmp_path}/gone")
