"""A tool call without an agent: its own scope, its updates kept, its outcome or failure handed back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from pigeon.agent.arguments import checked_arguments
from pigeon.agent.scope import Scope
from pigeon.tools.base import BaseTool
from pigeon.wire.content import ImageContent, TextContent
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome


class FakeRun:
    def __init__(self, on_update: Callable[[ToolOutcome], None] | None = None) -> None:
        self.call_id = "call-1"
        self.scope = Scope()
        self.updates: list[ToolOutcome] = []
        self._on_update = on_update

    async def update(self, progress: ToolOutcome) -> None:
        self.updates.append(progress)
        if self._on_update is not None:
            self._on_update(progress)


async def call(tool: BaseTool, run: FakeRun | None = None, **arguments: Any) -> ToolOutcome:
    """What the loop does: older forms rewritten, arguments checked, then executed."""
    checked = checked_arguments(tool.name, tool.parameters, tool.prepare(arguments))
    return await tool.execute(checked, run or FakeRun())


async def text(tool: BaseTool, run: FakeRun | None = None, **arguments: Any) -> str:
    return text_of(await call(tool, run, **arguments))


async def failure(tool: BaseTool, run: FakeRun | None = None, **arguments: Any) -> ToolFailed:
    try:
        outcome = await call(tool, run, **arguments)
    except ToolFailed as error:
        return error
    raise AssertionError(f"did not fail: {text_of(outcome)!r}")


def text_of(outcome: ToolOutcome) -> str:
    return "".join(block.text for block in outcome.content if isinstance(block, TextContent))


def images_of(outcome: ToolOutcome) -> list[ImageContent]:
    return [block for block in outcome.content if isinstance(block, ImageContent)]


def until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Ask again and again until it holds or the time is over."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def processes_with(marker: str) -> list[int]:
    """Living processes whose command line contains the marker, ours excepted."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as line:
                    if marker.encode() in line.read():
                        found.append(int(name))
            except OSError:
                continue
    return found


def zombies_of(pid: int) -> list[int]:
    """Children of a process that ended and were not reaped."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    state, parent = stat.read().rpartition(b")")[2].split()[:2]
            except OSError:
                continue
            if state == b"Z" and int(parent) == pid:
                found.append(int(name))
    return found
