"""Every tool leaves the descriptors of the process as they were: after success, after failure, and after an abort."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fakes.tool_run import FakeRun, call_tool, tool_parts, workplace
from pigeon.agent.interfaces import HostRefused, NoHost, ToolRun
from pigeon.system.process.start import ProcessOwner
from pigeon.tools.base import AgentRequest, BaseTool
from pigeon.tools.catalog import TOOLS, built_in_tools
from pigeon.tools.file_access import FileAccess
from pigeon.wire.agents import AgentType
from pigeon.wire.content import TextContent
from pigeon.wire.errors import Aborted, ToolFailed
from pigeon.wire.events import ToolOutcome
from pigeon.wire.steering import TodoPhase

GOOD: list[tuple[str, dict[str, Any]]] = [
    ("read", {"path": "a.txt"}),
    ("read", {"path": "a.txt", "offset": 2, "limit": 1}),
    ("read", {"path": "picture.png"}),
    ("write", {"path": "new/deep.txt", "content": "x"}),
    ("write", {"path": "twice.txt", "content": "x"}),
    ("edit", {"path": "a.txt", "edits": [{"oldText": "one", "newText": "one"}, {"oldText": "two", "newText": "2"}]}),
    ("edit", {"path": "twice.txt", "edits": [{"oldText": "same", "newText": "other"}]}),
    ("bash", {"command": "echo hi"}),
    ("bash", {"command": "seq 100000"}),
    ("grep", {"pattern": "one"}),
    ("grep", {"pattern": "one", "path": "a.txt"}),
    ("grep", {"pattern": ".", "limit": 1}),
    ("find", {"pattern": "*"}),
    ("find", {"pattern": "*", "limit": 1}),
    ("ls", {}),
    ("todo", {"ops": [{"op": "add_phase", "name": "p"}]}),
    ("task", {"prompt": "p"}),
    ("jobs", {"action": "list"}),
]
BAD: list[tuple[str, dict[str, Any]]] = [
    ("read", {"path": "gone"}),
    ("read", {"path": "."}),
    ("read", {"path": "pipe"}),
    ("read", {"path": "a.txt", "offset": 99}),
    ("write", {"path": ".", "content": "x"}),
    ("write", {"path": "pipe", "content": "x"}),
    ("write", {"path": "a.txt/x", "content": "x"}),
    ("edit", {"path": "gone", "edits": [{"oldText": "a", "newText": "b"}]}),
    ("edit", {"path": "pipe", "edits": [{"oldText": "a", "newText": "b"}]}),
    ("edit", {"path": "a.txt", "edits": [{"oldText": "not there", "newText": "b"}]}),
    ("bash", {"command": "exit 3"}),
    ("bash", {"command": "sleep 1000", "timeout": 0.05}),
    ("grep", {"pattern": "("}),
    ("grep", {"pattern": "x", "path": "gone"}),
    ("grep", {"pattern": "x", "path": "pipe"}),
    ("find", {"pattern": "*", "path": "gone"}),
    ("find", {"pattern": "[" * 2000}),
    ("ls", {"path": "a.txt"}),
    ("ls", {"path": "gone"}),
    ("task", {"prompt": " "}),
    ("jobs", {"action": "read", "id": "gone"}),
    ("todo", {"ops": [{"op": "update", "id": "task-9"}]}),
]


class Plan:
    def current_phases(self) -> list[TodoPhase]:
        return []

    def replace_phases(self, phases: list[TodoPhase]) -> None:
        return None


def fill(folder: Path) -> None:
    (folder / "a.txt").write_text("one\ntwo\nthree\n")
    (folder / "twice.txt").write_text("same")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    fill(folder)
    os.link(folder / "twice.txt", tmp_path / "other name")
    os.mkfifo(folder / "pipe")
    Image.new("RGB", (2500, 10)).save(folder / "picture.png")
    return folder


class Answering:
    """Answers instead of starting an agent."""

    def list_types(self) -> list[AgentType]:
        return []

    async def run_task(self, request: AgentRequest, run: ToolRun) -> ToolOutcome:
        return ToolOutcome(content=[TextContent(text=request.prompt)])


@pytest.fixture
async def tools(project: Path, processes: ProcessOwner) -> dict[str, BaseTool]:
    return built_in_tools(tool_parts(workplace(project, processes), plan=Plan(), agents=Answering()))


def descriptors() -> list[str]:
    """What the open descriptors lead to."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found.append(re.sub(r"\d+", "N", os.readlink(f"/proc/self/fd/{name}")))
    return sorted(found)


async def left_open(processes: ProcessOwner, work: Callable[[], Awaitable[object]]) -> Counter[str]:
    """What is open that was not before, if this is done twice.

    What an aborted call began in a thread is finished there, so the threads end first; so do the spare processes that
    commands share, because their number changes.
    """
    before = descriptors()
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        await work()
        await work()
    assert await processes.kill_everything(10)
    return Counter(descriptors()) - Counter(before)


def test_every_tool_is_called_with_success_and_without() -> None:
    assert {name for name, _ in GOOD} == {name for name, _ in BAD} == {tool.name for tool in TOOLS}


async def test_calls_that_succeed_leave_nothing_open(
    tools: dict[str, BaseTool], project: Path, processes: ProcessOwner
) -> None:
    for name, arguments in GOOD:

        async def succeeding(name: str = name, arguments: dict[str, Any] = arguments) -> None:
            fill(project)
            await call_tool(tools[name], **arguments)

        assert (name, await left_open(processes, succeeding)) == (name, {})


async def test_calls_that_fail_leave_nothing_open(tools: dict[str, BaseTool], processes: ProcessOwner) -> None:
    for name, arguments in BAD:

        async def failing(name: str = name, arguments: dict[str, Any] = arguments) -> None:
            with pytest.raises(ToolFailed):
                await call_tool(tools[name], **arguments)

        assert (name, await left_open(processes, failing)) == (name, {})


@pytest.mark.parametrize("rounds", [0, 1, 3, 10])
async def test_calls_that_are_aborted_leave_nothing_open(
    tools: dict[str, BaseTool], project: Path, processes: ProcessOwner, rounds: int
) -> None:
    for name, arguments in [*GOOD, ("bash", {"command": "echo hi; sleep 1000"})]:

        async def run_and_abort(name: str = name, arguments: dict[str, Any] = arguments) -> None:
            fill(project)
            run = FakeRun()
            calling = asyncio.ensure_future(call_tool(tools[name], run, **arguments))
            for _ in range(rounds):
                await asyncio.sleep(0)
            run.scope.cancel()
            with contextlib.suppress(Aborted, ToolFailed):  # or it was finished by then
                await calling

        assert (name, await left_open(processes, run_and_abort)) == (name, {})


async def test_a_command_that_is_aborted_while_it_prints_leaves_nothing_open(
    tools: dict[str, BaseTool], processes: ProcessOwner
) -> None:
    async def run_and_abort() -> None:
        run = FakeRun(lambda progress: run.scope.cancel() if progress.content else None)
        with pytest.raises(ToolFailed, match="aborted"):
            await call_tool(tools["bash"], run, command="yes | head -c 300000; echo; sleep 1000")

    assert await left_open(processes, run_and_abort) == {}


class Editor(NoHost):
    """A host that has one file open, and refuses the others."""

    def find_host_path_to_read(self, place: str) -> str | None:
        return place

    async def read(self, run: ToolRun, path: str) -> str:
        if path.endswith("a.txt"):
            return "unsaved"
        raise HostRefused(path)


@pytest.mark.parametrize("path", ["a.txt", "twice.txt", "picture.png", "gone", "pipe", "."])
async def test_files_that_a_host_may_have_open_are_left_closed(
    project: Path, processes: ProcessOwner, path: str
) -> None:
    parts = tool_parts(workplace(project, processes), plan=Plan(), agents=Answering(), files=FileAccess(Editor()))
    tool = built_in_tools(parts)["read"]

    async def read() -> None:
        with contextlib.suppress(ToolFailed):
            await call_tool(tool, path=path)

    assert await left_open(processes, read) == {}
