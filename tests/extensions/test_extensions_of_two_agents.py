"""Two agents in one process, each with its own extensions: nothing of one is seen by the other."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import pytest_asyncio

from fakes.extension_port import Stage
from pigeon.extensions import Extension
from pigeon.extensions.runtime.discovery import Source

COUNTS = """
ext = Extension("counts")
word = ext.flag("word", default="none")
said = []

@ext.command("count")
async def count(args, ctx):
    said.append(args)
    ext.context.session.append_entry("said", [word.value, ctx.project_trusted, *said])

@ext.topic("news")
async def hear(data):
    ext.context.session.append_entry("news", data)

@ext.command("tell")
async def tell(args, ctx):
    ext.emit("news", args)
"""


@pytest_asyncio.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[Stage, Stage]]:
    """Two agents that have loaded the same file."""
    first, second = Stage(tmp_path, {"word": "one"}), Stage(tmp_path, {"word": "two"})
    for stage in (first, second):
        await stage.load("counts", COUNTS)
        stage.bind()
    yield first, second
    await first.runner.close()
    await second.runner.close()


def kept_data(stage: Stage) -> list[object]:
    return [entry["data"] for entry in stage.conversation.kept]


async def test_each_has_its_own_module_flags_and_trust(two: tuple[Stage, Stage]) -> None:
    first, second = two
    first.runner.use_folder("/", trusted=True, harmless=False)
    await first.runner.hooks.try_run_command("/count a")
    await second.runner.hooks.try_run_command("/count b")
    await first.runner.hooks.try_run_command("/count c")
    assert kept_data(first) == [["one", True, "a"], ["one", True, "a", "c"]]
    assert kept_data(second) == [["two", False, "b"]]


async def test_what_is_emitted_stays_with_its_agent(two: tuple[Stage, Stage]) -> None:
    first, second = two
    await first.runner.hooks.try_run_command("/tell hello")
    await first.until(lambda: bool(first.conversation.kept))
    assert kept_data(first) == ["hello"]
    await second.runner.hooks.try_run_command("/count")
    assert kept_data(second) == [["two", False, ""]]


async def test_one_ends_and_the_other_goes_on(two: tuple[Stage, Stage]) -> None:
    first, second = two
    interval = sys.getswitchinterval()
    loaded = [name for name in sys.modules if name.endswith("_counts")]
    assert len(loaded) == 2
    await first.runner.close()
    assert len([name for name in loaded if name in sys.modules]) == 1
    assert sys.getswitchinterval() == interval
    await second.runner.hooks.try_run_command("/count b")
    assert kept_data(second) == [["two", False, "b"]]
    await second.runner.close()
    assert [name for name in loaded if name in sys.modules] == []
    assert sys.getswitchinterval() > interval, "the process is as it was"


async def test_the_extension_of_an_entry_point_is_used_by_one_agent_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Extension("shared")
    shared.flag("word", default="none")
    shared.command("show")(lambda args, ctx: ctx.session.append_entry("x", shared.registered.flags["word"].value))
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [EntryPoint("bird", "bird:ext", group)])
    monkeypatch.setattr(EntryPoint, "load", lambda self: shared)
    source = Source("pigeon.extensions:bird", "user", "package")
    first, second, third = (Stage(tmp_path, flags) for flags in ({"word": "one"}, {}, {}))
    for stage in (first, second):
        stage.bind()
        await stage.runner.load([source])
    assert "another agent in this process uses it" in second.errors()[0][2]
    await first.runner.hooks.try_run_command("/show")
    assert kept_data(first) == ["one"]
    await first.runner.close()
    await second.runner.close()
    third.bind()
    await third.runner.load([source])
    await third.runner.hooks.try_run_command("/show")
    assert kept_data(third) == ["none"]
    await third.runner.close()
