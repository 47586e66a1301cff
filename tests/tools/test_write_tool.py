from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from fakes.tool_run import FakeRun, begin_call, call_for_failure, call_for_text, call_tool, paths_in
from pigeon.tools.edit import EditTool
from pigeon.tools.write import WriteTool
from pigeon.wire.base import ABSENT
from pigeon.wire.errors import Aborted


@pytest.fixture
def write(tmp_path: Path) -> WriteTool:
    return WriteTool(paths_in(tmp_path))


async def test_a_file_is_created_with_its_directories(write: WriteTool, tmp_path: Path) -> None:
    outcome = await call_tool(write, path="a/b/code.py", content="print()\n")
    assert outcome.content[0].text == "Successfully wrote to a/b/code.py"
    assert outcome.details is ABSENT
    assert (tmp_path / "a/b/code.py").read_text() == "print()\n"


async def test_an_existing_file_is_replaced_with_its_mode(write: WriteTool, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("old and longer")
    (tmp_path / "run").chmod(0o755)
    await call_tool(write, path="run", content="new")
    assert (tmp_path / "run").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o755
    assert os.listdir(tmp_path) == ["run"]


async def test_a_path_that_is_too_long_for_other_programs_is_refused_and_nothing_is_created(
    write: WriteTool, tmp_path: Path
) -> None:
    path = "/".join(["d" * 200] * 30) + "/file"
    assert "ENAMETOOLONG: name too long" in (await call_for_failure(write, path=path, content="x")).text
    assert os.listdir(tmp_path) == []


async def test_what_cannot_be_written_is_an_error(write: WriteTool, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    assert (await call_for_failure(write, path=".", content="")).text == (
        f"EISDIR: illegal operation on a directory, open '{tmp_path}'"
    )
    assert "named pipe" in (await call_for_failure(write, path="pipe", content="")).text
    assert "/file/x" in (await call_for_failure(write, path="file/x", content="")).text


async def test_an_aborted_write_writes_nothing(write: WriteTool, tmp_path: Path) -> None:
    run = FakeRun()
    run.scope.cancel()
    with pytest.raises(Aborted):
        await call_tool(write, run, path="x", content="x")
    assert os.listdir(tmp_path) == []


async def test_writers_of_one_file_never_interleave(write: WriteTool, tmp_path: Path) -> None:
    contents = [str(n) * 200_000 for n in range(8)]
    await asyncio.gather(*[await begin_call(write, path="same", content=content) for content in contents])
    assert (tmp_path / "same").read_text() == contents[-1]
    assert os.listdir(tmp_path) == ["same"]


async def test_edits_of_one_file_in_one_batch_all_count(write: WriteTool, tmp_path: Path) -> None:
    await call_tool(write, path="list", content="".join(f"item-{n:02}\n" for n in range(20)))
    edit = EditTool(paths_in(tmp_path))
    await asyncio.gather(
        *(
            call_for_text(edit, path="list", edits=[{"oldText": f"item-{n:02}", "newText": f"done-{n:02}"}])
            for n in range(20)
        )
    )
    assert (tmp_path / "list").read_text() == "".join(f"done-{n:02}\n" for n in range(20))
