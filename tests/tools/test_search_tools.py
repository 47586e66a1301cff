from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.tool_runs import FakeRun, call, failure, text
from pigeon.system import processes
from pigeon.tools import ripgrep
from pigeon.tools.find import FindTool
from pigeon.tools.globs import matcher
from pigeon.tools.grep import GrepTool
from pigeon.tools.ls import LsTool
from pigeon.wire.base import ABSENT
from pigeon.wire.errors import Aborted, ToolFailed


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    yield
    assert await processes.kill_everything()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, content in {
        "README.md": "# Project\nuse foo\n",
        "src/a.py": "import foo\n\ndef bar():\n    return foo.Foo()\n",
        "src/deep/b.py": "foo = 1\n",
        "src/deep/c.ts": "const foo = 2;\n",
        "build/out.py": "foo\n",
        ".hidden/x.py": "foo\n",
        ".git/config": "foo\n",
        "secret.log": "foo\n",
        ".gitignore": "build/\n*.log\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


@pytest.fixture
def grep(project: Path) -> GrepTool:
    return GrepTool(str(project))


@pytest.fixture
def find(project: Path) -> FindTool:
    return FindTool(str(project))


# --- grep


async def test_matches_are_listed_with_path_and_line(grep: GrepTool) -> None:
    outcome = await call(grep, pattern="foo")
    assert outcome.content[0].text.split("\n") == [
        ".hidden/x.py:1: foo",
        "README.md:2: use foo",
        "src/a.py:1: import foo",
        "src/a.py:4:     return foo.Foo()",
        "src/deep/b.py:1: foo = 1",
        "src/deep/c.ts:1: const foo = 2;",
    ]
    assert outcome.details is ABSENT


async def test_one_file_is_shown_by_its_name(grep: GrepTool) -> None:
    assert await text(grep, pattern="bar", path="src/a.py") == "a.py:3: def bar():"


async def test_a_directory_is_searched_below_itself(grep: GrepTool) -> None:
    assert await text(grep, pattern="foo", path="src/deep") == "b.py:1: foo = 1\nc.ts:1: const foo = 2;"


async def test_a_glob_chooses_files_and_the_ignored_stay_out(grep: GrepTool) -> None:
    assert await text(grep, pattern="foo", glob="*.ts") == "src/deep/c.ts:1: const foo = 2;"
    assert await text(grep, pattern="foo", glob="*.log") == "No matches found"
    assert await text(grep, pattern="foo", glob="src/**/b.*") == "src/deep/b.py:1: foo = 1"
    assert await text(grep, pattern="foo", glob="*.{ts,md}") == "README.md:2: use foo\nsrc/deep/c.ts:1: const foo = 2;"


async def test_case_and_literal_text(grep: GrepTool) -> None:
    assert await text(grep, pattern="PROJECT", ignoreCase=True) == "README.md:1: # Project"
    assert await text(grep, pattern="foo.Foo()", literal=True) == "src/a.py:4:     return foo.Foo()"
    assert await text(grep, pattern="-e", literal=True) == "No matches found"


async def test_context_lines_are_marked_and_not_repeated(grep: GrepTool) -> None:
    assert await text(grep, pattern="foo", path="src/a.py", context=2) == (
        "a.py:1: import foo\na.py-2- \na.py-3- def bar():\na.py:4:     return foo.Foo()"
    )


async def test_the_limit_stops_the_search_and_is_told(grep: GrepTool) -> None:
    outcome = await call(grep, pattern="foo", limit=2)
    shown, _, notice = outcome.content[0].text.partition("\n\n")
    assert shown.count("\n") == 1
    assert notice == "[2 matches limit reached. Use limit=4 for more, or refine pattern]"
    assert outcome.details == {"matchLimitReached": 2}


async def test_exactly_as_many_as_the_limit_is_no_limit(grep: GrepTool) -> None:
    assert "[" not in await text(grep, pattern="foo", limit=6)


async def test_long_lines_are_cut(grep: GrepTool, project: Path) -> None:
    (project / "wide.txt").write_text("needle" + "é" * 3_000_000 + "\n")
    outcome = await call(grep, pattern="needle")
    assert len(outcome.content[0].text) < 700
    assert "... [truncated]" in outcome.content[0].text
    assert outcome.details == {"linesTruncated": True}


async def test_much_output_is_cut_by_size(grep: GrepTool, project: Path) -> None:
    (project / "many.txt").write_text("match this line please\n" * 10_000)
    outcome = await call(grep, pattern="match this", limit=9_000)
    assert outcome.details["truncation"]["truncatedBy"] == "bytes"
    assert len(outcome.content[0].text.encode()) < 51_200 + 200


async def test_bad_patterns_and_paths_are_errors_with_a_reason(grep: GrepTool, project: Path) -> None:
    os.mkfifo(project / "pipe")
    assert "unclosed group" in (await failure(grep, pattern="fo(")).text
    assert "glob" in (await failure(grep, pattern="foo", glob="src/[")).text
    assert (await failure(grep, pattern="x", path="gone")).text == f"Path not found: {project}/gone"
    assert (await failure(grep, pattern="x", path="pipe")).text == f"Not a regular file: {project}/pipe"


async def test_binary_and_odd_files_do_no_harm(grep: GrepTool, project: Path) -> None:
    (project / "blob").write_bytes(b"needle\0\xff" * 10_000)
    (project / "latin").write_bytes(b"caf\xe9 needle\n")
    (project / "new\nline").write_text("needle\n")
    shown = await text(grep, pattern="needle")
    assert "latin:1: caf\ufffd needle" in shown
    assert "new\nline:1: needle" in shown


async def test_a_search_whose_time_is_over_says_so(project: Path) -> None:
    shown = await text(GrepTool(str(project), time_box=0.0), pattern="foo")
    assert shown == "No matches found\n\n[Search stopped after 0 seconds. Search a smaller directory for all matches]"


async def test_an_aborted_search_ends(grep: GrepTool) -> None:
    run = FakeRun()
    run.scope.cancel()
    with pytest.raises(Aborted):
        await call(grep, run, pattern="foo")


async def test_a_pattern_made_to_hang_does_not(grep: GrepTool, project: Path) -> None:
    (project / "a.txt").write_text("a" * 50_000 + "\n")
    before = time.monotonic()
    await call(grep, pattern="(a*)*(a*)*b|(a+)+$")
    assert time.monotonic() - before < 10


async def test_the_engine_is_never_looked_for_on_the_network(
    grep: GrepTool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ripgrep, "_found", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(ripgrep, "_of_wheel", lambda _: [])
    assert "ripgrep" in (await failure(grep, pattern="x")).text


# --- find


async def test_files_are_found_by_name(find: FindTool) -> None:
    outcome = await call(find, pattern="*.py")
    assert outcome.content[0].text.split("\n") == [".hidden/x.py", "src/a.py", "src/deep/b.py"]
    assert outcome.details is ABSENT


async def test_directories_are_found_too(find: FindTool) -> None:
    assert await text(find, pattern="deep") == "src/deep/"
    assert await text(find, pattern="src/**") == "src/a.py\nsrc/deep/\nsrc/deep/b.py\nsrc/deep/c.ts"


async def test_patterns_with_a_slash_match_the_path(find: FindTool, project: Path) -> None:
    assert await text(find, pattern="deep/*.ts") == "src/deep/c.ts"
    assert await text(find, pattern="**/*.md") == "README.md"
    assert await text(find, pattern=f"{project}/src/*.py") == "src/a.py"


async def test_what_gitignore_names_is_not_found(find: FindTool) -> None:
    assert await text(find, pattern="out.py") == "No files found matching pattern"
    assert await text(find, pattern="*.log") == "No files found matching pattern"


async def test_another_directory_can_be_searched(find: FindTool, project: Path) -> None:
    assert await text(find, pattern="*.ts", path="src") == "deep/c.ts"
    assert (await failure(find, pattern="*", path="gone")).text == f"Path not found: {project}/gone"


async def test_the_number_of_results_is_limited(find: FindTool) -> None:
    outcome = await call(find, pattern="*.py", limit=1)
    assert outcome.content[0].text == (
        ".hidden/x.py\n\n[1 results limit reached. Use limit=2 for more, or refine pattern]"
    )
    assert outcome.details == {"resultLimitReached": 1}


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*.py", ["a.py", "x/y/a.py"], ["a.pyc", "py"]),
        ("readme*", ["README.md", "readme"], ["xreadme"]),
        ("README*", ["README.md"], ["readme.md"]),
        ("a?c", ["abc", "x/abc"], ["ac", "abbc"]),
        ("[a-c]x", ["ax", "bx"], ["dx", "a/x"]),
        ("[!a-c]x", ["dx"], ["ax", "x"]),
        ("[]a]x", ["]x", "ax"], ["bx"]),
        ("*.{ts,tsx}", ["a.ts", "a.tsx"], ["a.t", "a.{ts,tsx}"]),
        ("{a,b{c,d}}.x", ["a.x", "bc.x", "bd.x"], ["b.x", "c.x"]),
        ("src/**/test_*.py", ["src/test_a.py", "src/x/y/test_b.py", "lib/src/test_c.py"], ["src/a.py", "test_a.py"]),
        ("src/*", ["src/a", "x/src/b"], ["src/a/b"]),
        ("**/x/**/y", ["x/y", "a/x/b/c/y"], ["x", "ax/y"]),
        ("a\\*b", ["a*b"], ["axb"]),
        ("a.b", ["a.b"], ["axb"]),
        ("[", ["["], ["a"]),
        ("*a*b*c*", ["xaxbxcx", "abc"], ["acb"]),
    ],
)
def test_globs_match_what_they_say(pattern: str, matching: list[str], other: list[str]) -> None:
    matches = matcher(pattern)
    assert [path for path in matching if not matches(path)] == []
    assert [path for path in other if matches(path)] == []


def test_a_glob_made_to_hang_does_not() -> None:
    before = time.monotonic()
    for pattern in ("*a" * 400 + "b", "**/*a*/" * 100 + "b", "{a,b}" * 8, "[a-" * 300):
        matcher(pattern)("a/" * 2000 + "a" * 200)
    assert time.monotonic() - before < 5
    with pytest.raises(ToolFailed, match="alternatives"):
        matcher("{a,b}" * 20)
    with pytest.raises(ToolFailed, match="1000"):
        matcher("*" * 1001)


@given(st.text(alphabet="ab*?[]{},!\\/-", min_size=1, max_size=20), st.text(alphabet="ab/", max_size=12))
def test_no_glob_breaks_the_matcher(pattern: str, path: str) -> None:
    with contextlib.suppress(ToolFailed):
        matcher(pattern)(path)


# --- ls


async def test_entries_are_sorted_without_regard_to_case(tmp_path: Path) -> None:
    for name in ("b.txt", "A.txt", ".dot"):
        (tmp_path / name).touch()
    (tmp_path / "Dir").mkdir()
    (tmp_path / "link").symlink_to("Dir")
    (tmp_path / "broken").symlink_to("nowhere")
    outcome = await call(LsTool(str(tmp_path)))
    assert outcome.content[0].text == ".dot\nA.txt\nb.txt\nDir/\nlink/"
    assert outcome.details is ABSENT


async def test_an_empty_directory_says_so(tmp_path: Path) -> None:
    assert await text(LsTool(str(tmp_path))) == "(empty directory)"


async def test_the_number_of_entries_is_limited(tmp_path: Path) -> None:
    for n in range(5):
        (tmp_path / f"{n}").touch()
    outcome = await call(LsTool(str(tmp_path)), limit=2)
    assert outcome.content[0].text == "0\n1\n\n[2 entries limit reached. Use limit=4 for more]"
    assert outcome.details == {"entryLimitReached": 2}


async def test_what_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ls = LsTool(str(tmp_path))
    assert (await failure(ls, path="gone")).text == f"Path not found: {tmp_path}/gone"
    assert (await failure(ls, path="file")).text == f"Not a directory: {tmp_path}/file"


async def test_names_that_are_no_text_are_shown_all_the_same(tmp_path: Path) -> None:
    os.close(os.open(os.fsencode(tmp_path) + b"/caf\xe9", os.O_CREAT | os.O_WRONLY))
    assert await text(LsTool(str(tmp_path))) == "caf\ufffd"
