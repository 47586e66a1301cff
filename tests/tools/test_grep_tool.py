from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.clock import within
from fakes.tool_run import FakeRun, call_for_failure, call_for_text, call_tool, files_of, paths_in
from pigeon.system.process.start import ProcessOwner
from pigeon.system.process.variables import plain_environment
from pigeon.tools.file_access import FileAccess
from pigeon.tools.grep import GrepTool
from pigeon.tools.hits import Hits
from pigeon.wire.base import ABSENT
from pigeon.wire.errors import Aborted
from pigeon.workspaces.local import LocalParts, LocalWorkspace
from pigeon.workspaces.local_search import TextRecords
from pigeon.workspaces.records import SearchEnd
from support.agent_folders import make_project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


@pytest.fixture
def grep(project: Path, processes: ProcessOwner) -> GrepTool:
    return GrepTool(paths_in(project), files_of(processes))


async def test_matches_are_listed_with_path_and_line(grep: GrepTool) -> None:
    outcome = await call_tool(grep, pattern="foo")
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
    assert await call_for_text(grep, pattern="bar", path="src/a.py") == "a.py:3: def bar():"


async def test_a_directory_is_searched_below_itself(grep: GrepTool) -> None:
    assert await call_for_text(grep, pattern="foo", path="src/deep") == "b.py:1: foo = 1\nc.ts:1: const foo = 2;"


async def test_a_glob_chooses_files_and_the_ignored_stay_out(grep: GrepTool) -> None:
    assert await call_for_text(grep, pattern="foo", glob="*.ts") == "src/deep/c.ts:1: const foo = 2;"
    assert await call_for_text(grep, pattern="foo", glob="*.log") == "No matches found"
    assert await call_for_text(grep, pattern="foo", glob="src/**/b.*") == "src/deep/b.py:1: foo = 1"
    assert (
        await call_for_text(grep, pattern="foo", glob="*.{ts,md}")
        == "README.md:2: use foo\nsrc/deep/c.ts:1: const foo = 2;"
    )


async def test_a_glob_with_a_slash_does_not_bring_back_what_is_ignored(grep: GrepTool, project: Path) -> None:
    (project / "src/x.log").write_text("foo\n")
    assert await call_for_text(grep, pattern="foo", glob="**/*.log") == "No matches found"
    assert await call_for_text(grep, pattern="foo", glob="build/*") == "No matches found"
    assert (
        await call_for_text(grep, pattern="foo", glob="src/*")
        == "src/a.py:1: import foo\nsrc/a.py:4:     return foo.Foo()"
    )


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("src/deep/*", {"src/deep/b.py", "src/deep/c.ts"}),
        ("/src/deep/*.ts", {"src/deep/c.ts"}),
        ("./src/deep/*.ts", {"src/deep/c.ts"}),
        ("deep/*.ts", set()),
        ("**/deep/*.ts", {"src/deep/c.ts"}),
        ("src/", {"src/a.py", "src/deep/b.py", "src/deep/c.ts"}),
        ("src/**", {"src/a.py", "src/deep/b.py", "src/deep/c.ts"}),
        ("{src/deep,.hidden}/*.py", {"src/deep/b.py", ".hidden/x.py"}),
        ("{src/a,.hidden/x}.py", {"src/a.py", ".hidden/x.py"}),
        ("SRC/**/*.ts", set()),
        ("!src/**", {"README.md", ".hidden/x.py"}),
        ("!*.py", {"README.md", "src/deep/c.ts"}),
    ],
)
async def test_a_glob_is_the_whole_path_if_it_has_a_slash(grep: GrepTool, glob: str, names: set[str]) -> None:
    shown = await call_for_text(grep, pattern="foo", glob=glob)
    assert {line.partition(":")[0] for line in shown.split("\n")} == (names or {"No matches found"})


async def test_the_limit_counts_the_files_that_a_glob_chooses(grep: GrepTool, project: Path) -> None:
    for folder in ("aa", "zz"):
        (project / folder).mkdir()
        (project / folder / "x").write_text("foo\n" * 50)
    assert (await call_for_text(grep, pattern="foo", glob="zz/*", limit=2)).startswith(
        "zz/x:1: foo\nzz/x:2: foo\n\n[2 matches"
    )


async def test_a_glob_may_contain_a_colon(grep: GrepTool, project: Path) -> None:
    (project / "a:b.txt").write_text("foo\n")
    assert await call_for_text(grep, pattern="foo", glob="*:*") == "a:b.txt:1: foo"
    assert await call_for_text(grep, pattern="foo", glob="a[:]b.{txt,md}") == "a:b.txt:1: foo"


async def test_the_rules_around_a_repository_do_not_count_in_it(project: Path, processes: ProcessOwner) -> None:
    (project / ".gitignore").write_text("*\n")
    (project / "src/.git").mkdir()
    shown = await call_for_text(GrepTool(paths_in(project / "src" / "deep"), files_of(processes)), pattern="foo")
    assert shown == "b.py:1: foo = 1\nc.ts:1: const foo = 2;"


async def test_what_gitignore_names_is_left_out_without_a_repository_too(grep: GrepTool, project: Path) -> None:
    shutil.rmtree(project / ".git")
    assert await call_for_text(grep, pattern="foo", glob="{out.py,*.log,*.ts}") == "src/deep/c.ts:1: const foo = 2;"


async def test_case_and_literal_text(grep: GrepTool) -> None:
    assert await call_for_text(grep, pattern="PROJECT", ignoreCase=True) == "README.md:1: # Project"
    assert await call_for_text(grep, pattern="foo.Foo()", literal=True) == "src/a.py:4:     return foo.Foo()"
    assert await call_for_text(grep, pattern="-e", literal=True) == "No matches found"


async def test_context_lines_are_marked_and_not_repeated(grep: GrepTool) -> None:
    assert await call_for_text(grep, pattern="foo", path="src/a.py", context=2) == (
        "a.py:1: import foo\na.py-2- \na.py-3- def bar():\na.py:4:     return foo.Foo()"
    )


async def test_context_has_at_most_two_hundred_lines_on_either_side(grep: GrepTool, project: Path) -> None:
    (project / "long.txt").write_text("".join(f"{number}\n" for number in range(1, 600)))
    shown = (await call_for_text(grep, pattern="^300$", path="long.txt", context=250)).split("\n")
    assert (shown[0], shown[-1], len(shown)) == ("long.txt-100- 100", "long.txt-500- 500", 401)


async def test_the_limit_stops_the_search_and_is_told(grep: GrepTool) -> None:
    outcome = await call_tool(grep, pattern="foo", limit=2)
    shown, _, notice = outcome.content[0].text.partition("\n\n")
    assert shown.count("\n") == 1
    assert notice == "[2 matches limit reached. Use limit=4 for more, or refine pattern]"
    assert outcome.details == {"matchLimitReached": 2}


async def test_exactly_as_many_as_the_limit_is_no_limit(grep: GrepTool) -> None:
    assert "[" not in await call_for_text(grep, pattern="foo", limit=6)


async def test_long_lines_are_cut(grep: GrepTool, project: Path) -> None:
    (project / "wide.txt").write_text("needle" + "é" * 3_000_000 + "\n")
    outcome = await call_tool(grep, pattern="needle")
    assert len(outcome.content[0].text) < 700
    assert "... [truncated]" in outcome.content[0].text
    assert outcome.details == {"linesTruncated": True}


async def test_much_output_is_cut_by_size(grep: GrepTool, project: Path) -> None:
    (project / "many.txt").write_text("match this line please\n" * 10_000)
    outcome = await call_tool(grep, pattern="match this", limit=9_000)
    assert outcome.details["truncation"]["truncatedBy"] == "bytes"
    assert len(outcome.content[0].text.encode()) < 51_200 + 200


async def test_bad_patterns_and_paths_are_errors_with_a_reason(grep: GrepTool, project: Path) -> None:
    os.mkfifo(project / "pipe")
    assert "unclosed group" in (await call_for_failure(grep, pattern="fo(")).text
    for glob in ("src/[", "[/a", "{a", "src/{a", "{a/b", "[:"):
        assert "glob" in (await call_for_failure(grep, pattern="foo", glob=glob)).text
    (project / "one.txt").write_text("foo\n")
    assert "has no }" in (await call_for_failure(grep, pattern="foo", glob="!{a", path="one.txt")).text
    assert (await call_for_failure(grep, pattern="x", path="gone")).text == f"Path not found: {project}/gone"
    assert (await call_for_failure(grep, pattern="x", path="pipe")).text == f"Not a regular file: {project}/pipe"


async def test_binary_and_odd_files_do_no_harm(grep: GrepTool, project: Path) -> None:
    (project / "blob").write_bytes(b"needle\0\xff" * 10_000)
    (project / "latin").write_bytes(b"caf\xe9 needle\n")
    (project / "new\nline").write_text("needle\n")
    shown = await call_for_text(grep, pattern="needle")
    assert "latin:1: caf\ufffd needle" in shown
    assert "new\nline:1: needle" in shown


LATE = b"filler line\n" * 30_000 + b"\0\0\nneedle after\n"


async def test_a_binary_file_does_not_spoil_the_next_match(grep: GrepTool, project: Path) -> None:
    (project / "a.dat").write_bytes(b"needle first\n" + LATE)
    (project / "b.txt").write_text("x\nneedle in b\n")
    told = "Binary files searched only up to their first NUL byte: a.dat. Search one by its path to see all of it"
    assert await call_for_text(grep, pattern="needle") == f"a.dat:1: needle first\nb.txt:2: needle in b\n\n[{told}]"
    (project / "b.txt").unlink()
    assert await call_for_text(grep, pattern="needle", context=1) == (
        f"a.dat:1: needle first\na.dat-2- filler line\n\n[{told}]"
    )
    assert await call_for_text(grep, pattern="foo", glob="src/deep/*.ts") == "src/deep/c.ts:1: const foo = 2;"


async def test_a_binary_file_that_is_named_is_searched_as_text(grep: GrepTool, project: Path) -> None:
    (project / "e.dat").write_bytes(b"needle first\n\0needle\xff\n")
    (project / "late.dat").write_bytes(b"needle first\n" + LATE)
    note = "[e.dat is a binary file and was searched as text]"
    assert await call_for_text(grep, pattern="needle", path="e.dat") == (
        f"e.dat:1: needle first\ne.dat:2: \ufffdneedle\ufffd\n\n{note}"
    )
    assert await call_for_text(grep, pattern="absent", path="e.dat") == f"No matches found\n\n{note}"
    assert await call_for_text(grep, pattern="needle", path="late.dat") == (
        "late.dat:1: needle first\nlate.dat:30003: needle after"
    )


async def test_a_file_in_utf_16_is_no_binary_file(grep: GrepTool, project: Path) -> None:
    (project / "wide.txt").write_text("x\nneedle\n", encoding="utf-16")
    assert await call_for_text(grep, pattern="needle", path="wide.txt") == "wide.txt:2: needle"


async def test_a_named_file_that_cannot_be_read_is_an_error(
    grep: GrepTool, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("pigeon.workspaces.local.open_regular", refuse)
    assert (await call_for_failure(grep, pattern="foo", path="README.md")).text == (
        f"EACCES: permission denied, open '{project}/README.md'"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
async def test_what_could_not_be_read_on_the_way_is_told(grep: GrepTool, project: Path) -> None:
    (project / "README.md").chmod(0)
    shown = await call_for_text(grep, pattern="Project")
    assert shown == "No matches found\n\n[Some files or directories could not be read]"


class InTrouble(LocalWorkspace):
    async def search(self, *_: object, **__: object) -> SearchEnd:
        return SearchEnd(unread=True)


async def test_a_search_that_ripgrep_ends_with_trouble_says_so(project: Path) -> None:
    grep = GrepTool(paths_in(project), FileAccess(workspace=InTrouble("/")))
    assert await call_for_text(grep, pattern="x") == "No matches found\n\n[Some files or directories could not be read]"


@given(st.lists(st.integers(1, 200), max_size=8))
def test_records_are_taken_wherever_the_output_is_cut(cuts: list[int]) -> None:
    output = (
        b"./a.dat\x001:needle first\n"
        b'./a.dat: WARNING: stopped searching binary file after match (found "\\0" byte around offset 360013)\n'
        b"./new\nline\x002-before\n./new\nline\x003:needle: WARNING\n"
        b'e.dat: binary file matches (found "\\0" byte around offset 13)\n'
        b"rg: something else\n"
    )
    hits = Hits(100, 500, 100_000)
    records = TextRecords(hits.add_until_full)
    buffer = bytearray()
    for size in [*cuts, len(output)]:
        buffer += output[:size]
        output = output[size:]
        assert not records.consume_until_full(buffer)
    assert hits.lines == ["a.dat:1: needle first", "new\nline-2- before", "new\nline:3: needle: WARNING"]
    assert hits.stopped_in == ["a.dat", "e.dat"]
    assert buffer == b"rg: something else\n"


async def test_errors_do_not_recommend_options_that_cannot_be_given(grep: GrepTool) -> None:
    # Older releases of ripgrep put it in further quotes.
    assert (await call_for_failure(grep, pattern="a\\nb")).text.replace("'", "") == (
        'the literal "\\n" is not allowed in a regex. Lines are searched one by one.'
    )
    for pattern in ("(?=a)", "(a)\\1"):
        reason = (await call_for_failure(grep, pattern=pattern)).text
        assert reason.endswith("not supported")
        assert "--" not in reason


@pytest.mark.parametrize("odd", ["a\0b", "a\ud800b"])
async def test_text_that_no_program_can_be_given_is_an_error_that_names_the_argument(grep: GrepTool, odd: str) -> None:
    assert (await call_for_failure(grep, pattern=odd)).text.startswith("Invalid pattern: it contains")
    assert (await call_for_failure(grep, pattern="a", glob=odd)).text.startswith("Invalid glob: it contains")


async def test_a_search_whose_time_is_over_says_so(project: Path, processes: ProcessOwner) -> None:
    shown = await call_for_text(GrepTool(paths_in(project), files_of(processes), time_box=0.0), pattern="foo")
    assert shown == "No matches found\n\n[Search stopped after 0 seconds. Search a smaller directory for all matches]"


async def test_an_aborted_search_ends(grep: GrepTool) -> None:
    run = FakeRun()
    run.scope.cancel()
    with pytest.raises(Aborted):
        await call_tool(grep, run, pattern="foo")


async def test_a_pattern_made_to_hang_does_not(grep: GrepTool, project: Path) -> None:
    (project / "a.txt").write_text("a" * 50_000 + "\n")
    with within(10):
        await call_tool(grep, pattern="(a*)*(a*)*b|(a+)+$")


async def test_the_engine_is_never_looked_for_on_the_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, processes: ProcessOwner
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setattr("importlib.metadata.files", lambda _: [])
    parts = LocalParts(processes, lambda: plain_environment({"PATH": str(tmp_path)}), "/nowhere")
    grep = GrepTool(paths_in(tmp_path), FileAccess(workspace=LocalWorkspace(tmp_path, parts)))
    assert "ripgrep" in (await call_for_failure(grep, pattern="x")).text
