"""What a write or an edit would change, shown before the call is allowed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from fakes.tool_run import paths_in
from pigeon.agent.interfaces import PreparedCall
from pigeon.agent.scope import Scope
from pigeon.tools.base import BaseTool
from pigeon.tools.edit import EditTool
from pigeon.tools.editing.diff import LONGEST_LISTING
from pigeon.tools.editing.preview import LARGEST
from pigeon.tools.ls import LsTool
from pigeon.tools.write import WriteTool
from pigeon.wire.content import ToolCall


async def preview(kind: type[BaseTool], folder: Path, **arguments: Any) -> str | None:
    return await preview_of(kind(paths_in(folder)), **arguments)  # type: ignore[call-arg]


async def preview_of(tool: BaseTool, **arguments: Any) -> str | None:
    prepared = PreparedCall(ToolCall(id="c1", name=tool.name, arguments=arguments), tool, Scope())
    await prepared.replace_arguments(arguments)
    try:
        return await prepared.preview()
    finally:
        prepared.close()


async def test_a_write_shows_the_lines_that_change(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\nthree\n")
    assert await preview(WriteTool, tmp_path, path="a", content="one\n2\nthree\n") == " 1 one\n-2 two\n+2 2\n 3 three"
    assert (tmp_path / "a").read_text() == "one\ntwo\nthree\n"
    assert await preview(WriteTool, tmp_path, path="a", content="one\ntwo\nthree\n") == "[no line changes]"


async def test_a_new_file_is_all_new_and_is_not_made(tmp_path: Path) -> None:
    shown = await preview(WriteTool, tmp_path, path="deep/er/a", content="x\ny\n")
    assert shown == "[a new file]\n+1 x\n+2 y"
    assert os.listdir(tmp_path) == []


async def test_an_edit_shows_the_lines_that_change_or_why_it_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    fitting = {"path": "a", "edits": [{"oldText": "two", "newText": "2"}]}
    assert await preview(EditTool, tmp_path, **fitting) == " 1 one\n-2 two\n+2 2"
    missing = {"path": "a", "edits": [{"oldText": "three", "newText": "3"}]}
    assert str(await preview(EditTool, tmp_path, **missing)).startswith("[the call would fail: ")
    assert (tmp_path / "a").read_text() == "one\ntwo\n"


async def test_a_tool_that_changes_nothing_shows_nothing(tmp_path: Path) -> None:
    assert await preview_of(LsTool(paths_in(tmp_path))) is None


@pytest.mark.parametrize("kind", ["pipe", "folder", "large", "binary", "many"])
async def test_no_file_makes_a_preview_wait_or_grow(tmp_path: Path, kind: str) -> None:
    file, content = tmp_path / "a", "new\n"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "large":
        with file.open("wb") as made:
            made.truncate(5 << 30)
    elif kind == "binary":
        file.write_bytes(os.urandom(LARGEST))
    else:
        lines = LARGEST // 16
        file.write_text("".join(f"line {n:09}\n" for n in range(lines)))
        content = "".join(f"line {n * 7 % lines:09}\n" for n in range(lines))
    begun = time.monotonic()
    shown = await preview(WriteTool, tmp_path, path="a", content=content)
    assert time.monotonic() - begun < 10
    assert shown is not None
    assert len(shown) < LONGEST_LISTING + 100
    if kind in ("pipe", "folder", "large"):
        assert shown.startswith("[")


async def test_a_large_content_is_not_compared(tmp_path: Path) -> None:
    shown = await preview(WriteTool, tmp_path, path="a", content="x" * (LARGEST + 1))
    assert str(shown).startswith("[too large to show: more than 1 MB")
