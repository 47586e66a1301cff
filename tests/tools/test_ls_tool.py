from __future__ import annotations

import os
from pathlib import Path

from fakes.tool_run import call_for_failure, call_for_text, call_tool, paths_in
from pigeon.tools.ls import LsTool
from pigeon.wire.base import ABSENT


async def test_entries_are_sorted_without_regard_to_case(tmp_path: Path) -> None:
    for name in ("b.txt", "A.txt", ".dot"):
        (tmp_path / name).touch()
    (tmp_path / "Dir").mkdir()
    (tmp_path / "link").symlink_to("Dir")
    (tmp_path / "broken").symlink_to("nowhere")
    outcome = await call_tool(LsTool(paths_in(tmp_path)))
    assert outcome.content[0].text == ".dot\nA.txt\nb.txt\nDir/\nlink/"
    assert outcome.details is ABSENT


async def test_an_empty_directory_says_so(tmp_path: Path) -> None:
    assert await call_for_text(LsTool(paths_in(tmp_path))) == "(empty directory)"


async def test_the_number_of_entries_is_limited(tmp_path: Path) -> None:
    for n in range(5):
        (tmp_path / f"{n}").touch()
    outcome = await call_tool(LsTool(paths_in(tmp_path)), limit=2)
    assert outcome.content[0].text == "0\n1\n\n[2 entries limit reached. Use limit=4 for more]"
    assert outcome.details == {"entryLimitReached": 2}


async def test_what_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ls = LsTool(paths_in(tmp_path))
    assert (await call_for_failure(ls, path="gone")).text == f"Path not found: {tmp_path}/gone"
    assert (await call_for_failure(ls, path="file")).text == f"Not a directory: {tmp_path}/file"


async def test_names_that_are_no_text_are_shown_all_the_same(tmp_path: Path) -> None:
    os.close(os.open(os.fsencode(tmp_path) + b"/caf\xe9", os.O_CREAT | os.O_WRONLY))
    assert await call_for_text(LsTool(paths_in(tmp_path))) == "caf\ufffd"
