from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.tool_run import FakeRun, PlainFitter, call_for_failure, call_for_text, call_tool, paths_in
from pigeon.system.shell.truncation import MAX_BYTES, utf8_size_of
from pigeon.tools.read import ReadTool
from pigeon.tools.write import WriteTool
from pigeon.wire.base import ABSENT
from pigeon.wire.errors import Aborted
from pigeon.workspaces.line_reading import Slice, read_lines


def lines_in(path: Path, first: int, count: int | None, stopped: Callable[[], bool]) -> Slice:
    with open(path, "rb", buffering=0) as file:
        return read_lines(file.fileno(), first, count, stopped)


@pytest.fixture
def read(tmp_path: Path) -> ReadTool:
    return ReadTool(paths_in(tmp_path), PlainFitter())


async def test_a_small_file_comes_as_it_is(read: ReadTool, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("alpha\nbeta\n")
    outcome = await call_tool(read, path="notes.txt")
    assert outcome.content[0].text == "alpha\nbeta\n"
    assert outcome.details is ABSENT


async def test_offset_and_limit_choose_lines_and_say_how_to_go_on(read: ReadTool, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("alpha\nbeta\ngamma\ndelta\n")
    assert (
        await call_for_text(read, path="notes.txt", offset=2, limit=2)
        == "beta\ngamma\n\n[1 more lines in file. Use offset=4 to continue.]"
    )
    assert await call_for_text(read, path="notes.txt", offset=3) == "gamma\ndelta\n"
    assert await call_for_text(read, path="notes.txt", offset=3, limit=2) == "gamma\ndelta\n"
    assert await call_for_text(read, path="notes.txt", offset=0, limit=1) == await call_for_text(
        read, path="notes.txt", limit=1
    )


async def test_an_offset_behind_the_end_names_the_real_number_of_lines(read: ReadTool, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a\nb\nc\n")
    assert (
        await call_for_failure(read, path="notes.txt", offset=4)
    ).text == "Offset 4 is beyond end of file (3 lines total)"


async def test_a_limit_below_one_is_refused(read: ReadTool, tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    assert "limit" in (await call_for_failure(read, path="x", limit=0)).text


async def test_an_empty_file_is_empty_text(read: ReadTool, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert await call_for_text(read, path="empty") == ""


async def test_many_lines_are_cut_with_the_next_offset(read: ReadTool, tmp_path: Path) -> None:
    (tmp_path / "long").write_text("".join(f"{n}\n" for n in range(1, 2501)))
    outcome = await call_tool(read, path="long")
    assert outcome.content[0].text.endswith(
        "1999\n2000\n\n[Showing lines 1-2000 of 2500. Use offset=2001 to continue.]"
    )
    assert outcome.details["truncation"]["truncatedBy"] == "lines"
    assert outcome.details["truncation"]["totalLines"] == 2500
    assert (await call_for_text(read, path="long", offset=2001)).startswith("2001\n")


async def test_many_bytes_are_cut_at_a_line(read: ReadTool, tmp_path: Path) -> None:
    (tmp_path / "wide").write_text("".join(f"{n:0999}\n" for n in range(100)))
    outcome = await call_tool(read, path="wide")
    assert outcome.content[0].text.endswith("[Showing lines 1-51 of 100 (50.0KB limit). Use offset=52 to continue.]")
    assert outcome.details["truncation"]["outputBytes"] <= MAX_BYTES


async def test_a_line_over_the_limit_is_named_with_a_way_to_see_it(read: ReadTool, tmp_path: Path) -> None:
    (tmp_path / "one").write_text("short\n" + "x" * 3_000_000 + "\nend\n")
    outcome = await call_tool(read, path="one", offset=2)
    assert outcome.content[0].text == (
        "[Line 2 is 2.9MB, exceeds 50.0KB limit. Use bash: sed -n '2p' one | head -c 51200]"
    )
    assert outcome.details["truncation"]["firstLineExceedsLimit"] is True
    assert (await call_for_text(read, path="one")).startswith("short\n\n[Showing lines 1-1 of 3 (50.0KB limit).")


async def test_what_cannot_be_read_is_an_error_in_the_known_form(read: ReadTool, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    missing = await call_for_failure(read, path="missing.txt")
    assert missing.text == f"ENOENT: no such file or directory, access '{tmp_path}/missing.txt'"
    assert (
        await call_for_failure(read, path=".")
    ).text == f"EISDIR: illegal operation on a directory, read '{tmp_path}'"
    assert (await call_for_failure(read, path="pipe")).text == f"Not a regular file: {tmp_path}/pipe is a named pipe"
    assert (await call_for_failure(read, path="/dev/zero")).text == "Not a regular file: /dev/zero is a device"
    assert "ELOOP" in (await call_for_failure(read, path="loop")).text
    assert "ENOTDIR" in (await call_for_failure(read, path="/dev/null/x")).text
    assert "NUL" in (await call_for_failure(read, path="a\0b")).text
    assert "empty" in (await call_for_failure(read, path="")).text
    assert "ENAMETOOLONG" in (await call_for_failure(read, path="x" * 5000)).text


async def test_bytes_that_are_no_text_are_replaced(read: ReadTool, tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9\n\0\x01")
    assert await call_for_text(read, path="latin") == "caf\ufffd\n\0\x01"


async def test_an_aborted_read_says_so(read: ReadTool, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    run = FakeRun()
    run.scope.cancel()
    with pytest.raises(Aborted, match="Operation aborted"):
        await call_tool(read, run, path="x")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=300))
async def test_any_content_round_trips_through_write_and_read(tmp_path: Path, content: str) -> None:
    await call_tool(WriteTool(paths_in(tmp_path)), path="any.txt", content=content)
    expected = content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert (tmp_path / "any.txt").read_bytes() == expected.encode()
    if not expected.encode().startswith((b"BM", b"GIF8", b"\xff\xd8")):
        assert await call_for_text(ReadTool(paths_in(tmp_path), PlainFitter()), path="any.txt") == expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200_000), st.integers(1, 30), st.none() | st.integers(1, 3000))
async def test_no_file_breaks_the_limits(tmp_path: Path, data: bytes, offset: int, limit: int | None) -> None:
    (tmp_path / "any").write_bytes(b"\n" * 40 + data)
    shown = await call_for_text(
        ReadTool(paths_in(tmp_path), PlainFitter()), path="any", offset=offset, **({"limit": limit} if limit else {})
    )
    body = shown.rpartition("\n\n[")[0] or shown
    assert utf8_size_of(body) <= MAX_BYTES
    assert body.count("\n") <= 2000


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(["", "a", "é" * 3, "long" * 20]), max_size=30),
    st.booleans(),
    st.integers(1, 12),
    st.none() | st.integers(1, 12),
)
def test_lines_are_those_between_newlines(
    tmp_path: Path, lines: list[str], ended: bool, first: int, count: int | None
) -> None:
    content = "\n".join(lines) + ("\n" if ended and lines else "")
    (tmp_path / "file").write_text(content)
    real = content.removesuffix("\n").split("\n") if content else []
    chosen = real[first - 1 :] if count is None else real[first - 1 : first - 1 + count]
    found = lines_in(tmp_path / "file", first, count, lambda: False)
    assert found.total_lines == len(real)
    assert found.lines == len(chosen)
    assert found.data.decode().removesuffix("\n") == "\n".join(chosen)
    assert found.size == len(found.data)


def test_a_big_file_is_read_block_by_block(tmp_path: Path) -> None:
    with open(tmp_path / "big", "wb") as big:
        for _ in range(8):
            big.write(b"0123456\n" * (1 << 17))
    found = lines_in(tmp_path / "big", 1_000_000, 3, lambda: False)
    assert (found.data, found.total_lines, found.lines) == (b"0123456\n" * 3, 1 << 20, 3)


def test_counting_stops_when_the_call_must_stop(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x\n" * (1 << 21))
    found = lines_in(tmp_path / "big", 1, None, lambda: True)
    assert not found.total_exact
    assert found.total_lines < 1 << 21
