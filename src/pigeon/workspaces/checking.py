"""What every workspace has to do, as rules that an author can run against an implementation.

Each rule is a coroutine that is given a workspace on an empty folder, and raises `AssertionError` if it does not hold.
They use the six operations and `name`, and make what they need with `run`.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from pigeon.system.held_paths import HeldPath
from pigeon.workspaces.errors import FileHasChanged
from pigeon.workspaces.records import Match, SearchQuery
from pigeon.workspaces.workspace import Workspace

Rule = Callable[[Workspace], Awaitable[None]]
RULE_WITHIN = 60.0
AT_ONCE = 4
_ALL_BYTES = bytes(range(256))
_RULES: list[Rule] = []


async def check_workspace(factory: Callable[[], Workspace | Awaitable[Workspace]]) -> list[str]:
    """Check an implementation of `pigeon.workspaces.Workspace`.

    `factory` is called for each rule and gives a fresh workspace on an empty folder. Returns the names of the rules
    that held; if there are others, raises one `AssertionError` that lists them with the reasons.

        >>> import asyncio, tempfile
        >>> from pigeon.workspaces import LocalWorkspace
        >>> rules = asyncio.run(check_workspace(lambda: LocalWorkspace(tempfile.mkdtemp())))
        >>> "a file has the bytes that were written" in rules
        True
    """
    at_once = asyncio.Semaphore(AT_ONCE)

    async def check(rule: Rule) -> str | None:
        async with at_once:
            return await _check_rule(rule, factory)

    problems = await asyncio.gather(*map(check, _RULES))
    names = [rule.__name__.strip("_").replace("_", " ") for rule in _RULES]
    held = [name for name, problem in zip(names, problems, strict=True) if problem is None]
    broken = [f"{name}: {problem}" for name, problem in zip(names, problems, strict=True) if problem is not None]
    if broken:
        raise AssertionError("\n  ".join([f"{len(broken)} of {len(_RULES)} rules do not hold:", *broken]))
    return held


async def _check_rule(rule: Rule, factory: Callable[[], Workspace | Awaitable[Workspace]]) -> str | None:
    """What is wrong; None if the rule holds."""
    made = factory()
    workspace = await made if inspect.isawaitable(made) else made
    try:
        async with asyncio.timeout(RULE_WITHIN):
            await workspace.open()
            try:
                await rule(workspace)
            finally:
                await workspace.close()
    except AssertionError as error:
        return str(error) or "it does not hold"
    except TimeoutError:
        return f"nothing happened within {RULE_WITHIN:g} s"
    except Exception as error:  # the implementation is not ours: whatever it raises is its answer
        return f"{type(error).__name__}: {error}"
    return None


def _rule(rule: Rule) -> Rule:
    _RULES.append(rule)
    return rule


# --- files ------------------------------------------------------------------------------------------------------------


@_rule
async def _it_has_a_name(workspace: Workspace) -> None:
    _same(bool(workspace.name) and isinstance(workspace.name, str), True, "`name` is a text that is not empty")


@_rule
async def _a_file_has_the_bytes_that_were_written(workspace: Workspace) -> None:
    for data in (b"", b"text\n", _ALL_BYTES * 3, os.urandom(3_000_000)):
        await workspace.write("file", data)
        _same(len(await workspace.read("file")), len(data), "the size of what is read")
        _same(await workspace.read("file") == data, True, f"{len(data)} bytes are the same")


@_rule
async def _writing_creates_the_folders_of_a_file(workspace: Workspace) -> None:
    await workspace.write("one/two/three.txt", b"deep")
    _same(await workspace.read("one/two/three.txt"), b"deep", "the content")
    _same((await workspace.stat("one/two")).kind, "folder", "the kind of its folder")


@_rule
async def _a_part_of_a_file_can_be_read(workspace: Workspace) -> None:
    await workspace.write("file", b"0123456789")
    _same(await workspace.read("file", 3, 4), b"3456", "4 bytes from 3 on")
    _same(await workspace.read("file", 8, 100), b"89", "what is left of a file")
    _same(await workspace.read("file", 100, 4), b"", "what is behind the end")
    _same(await workspace.read("file", 7), b"789", "everything from 7 on")


@_rule
async def _writing_keeps_the_mode_and_the_other_names_of_a_file(workspace: Workspace) -> None:
    await workspace.write("program", b"#!/bin/sh\n")
    await _run(workspace, "chmod 755 program && ln program other")
    await workspace.write("program", b"#!/bin/sh\nexit 0\n")
    _same((await workspace.stat("program")).mode, 0o755, "the mode")
    _same(await workspace.read("other"), b"#!/bin/sh\nexit 0\n", "the content by the other name")
    one, other = await workspace.stat("program"), await workspace.stat("other")
    _same(bool(one.identity) and one.identity == other.identity, True, "both names have the same `identity`")


@_rule
async def _a_file_is_replaced_in_one_step(workspace: Workspace) -> None:
    contents = (b"a" * 200_000, b"b" * 150_000)
    await workspace.write("file", contents[0])

    async def replace() -> None:
        for turn in range(10):
            await workspace.write("file", contents[turn % 2])

    replacing = asyncio.ensure_future(replace())
    while not replacing.done():
        _same(await workspace.read("file") in contents, True, "a reader sees the old content or the new one")
    await replacing


@_rule
async def _a_write_can_depend_on_what_was_read(workspace: Workspace) -> None:
    first = await workspace.write("file", b"first", unchanged="missing")
    second = await workspace.write("file", b"other", unchanged=first.version)
    _same(first.version != second.version, True, "the version differs after a change of the same size")
    _same((await workspace.stat("file")).version, second.version, "the version that `write` returns")
    await _expect(FileHasChanged, workspace.write("file", b"third", unchanged=first.version))
    await _expect(FileHasChanged, workspace.write("file", b"third", unchanged="missing"))
    _same(await workspace.read("file"), b"other", "the content after refused writes")


@_rule
async def _what_is_there_has_a_kind_and_a_size(workspace: Workspace) -> None:
    await workspace.write("folder/file", b"12345")
    await _run(workspace, "ln -s folder/file link; ln -s nowhere broken; mkfifo pipe")
    _same(
        [(await workspace.stat(name)).kind for name in ("folder", "folder/file", "pipe")],
        ["folder", "file", "other"],
        "the kinds",
    )
    _same((await workspace.stat("folder/file")).size, 5, "the size")
    link = await workspace.stat("link", follow=False)
    _same((link.kind, link.target), ("link", "folder/file"), "a link itself")
    _same(((await workspace.stat("link")).kind, (await workspace.stat("link")).size), ("file", 5), "what it leads to")
    _same((await workspace.stat("broken")).kind, "missing", "what a broken link leads to")
    _same((await workspace.stat("broken", follow=False)).kind, "link", "a broken link itself")
    for path in ("nothing", "nothing/there", "folder/file/below"):
        _same((await workspace.stat(path)).kind, "missing", f"the kind of {path}")
    _same((await workspace.stat("link")).place, (await workspace.stat("folder/file")).place, "the real place of a link")


@_rule
async def _errors_of_files_are_those_of_the_system(workspace: Workspace) -> None:
    await workspace.write("folder/file", b"")
    await _expect(FileNotFoundError, workspace.read("nothing"))
    await _expect(IsADirectoryError, workspace.read("folder"))
    await _expect(IsADirectoryError, workspace.write("folder", b""))
    await _expect(NotADirectoryError, workspace.write("folder/file/below", b""))
    await _expect(FileNotFoundError, workspace.list("nothing"))
    await _expect(NotADirectoryError, workspace.list("folder/file"))
    await _run(workspace, "mkfifo pipe")
    await _expect(OSError, workspace.read("pipe"))


@_rule
async def _a_folder_is_listed_with_the_kinds_of_its_names(workspace: Workspace) -> None:
    await workspace.write(".hidden", b"1")
    await workspace.write("folder/file", b"")
    await _run(workspace, "ln -s folder link; ln -s nowhere broken")
    found = {entry.name: (entry.kind, entry.leads_to) for entry in await workspace.list()}
    wanted = {
        ".hidden": ("file", "file"),
        "folder": ("folder", "folder"),
        "link": ("link", "folder"),
        "broken": ("link", "missing"),
    }
    _same(found, wanted, "the entries")
    _same([entry.name for entry in await workspace.list("folder")], ["file"], "the entries of a folder below")


@_rule
async def _names_may_be_anything(workspace: Workspace) -> None:
    names = [
        "with space",
        "-dash",
        "new\nline",
        "quo'te\"s",
        "glob*[a]?",
        "$HOME `id`",
        "ünï",
        "\udcff\udcfe",
        "#x",
        "~t",
    ]
    for name in names:
        await workspace.write(f"names/{name}", name.encode("utf-8", "surrogateescape"))
    _same(sorted(entry.name for entry in await workspace.list("names")), sorted(names), "the names")
    for name in names:
        content = await workspace.read(f"names/{name}")
        _same(content, name.encode("utf-8", "surrogateescape"), f"the content of {name!r}")


@_rule
async def _a_held_path_follows_no_link(workspace: Workspace) -> None:
    await workspace.write("folder/file", b"inside")
    await workspace.write("secret/file", b"secret")
    place = (await workspace.stat("folder/file")).place
    held = HeldPath(place, (place,), is_folder=False)
    _same(await workspace.read(held), b"inside", "the content before")
    await _run(workspace, "mv folder away && ln -s secret folder")
    await _expect(OSError, workspace.read(held))
    await _expect(OSError, workspace.write(held, b"attack"))
    _same(await workspace.read("secret/file"), b"secret", "the file that the link leads to")
    await _run(workspace, "rm folder && mkdir folder && ln -s ../secret/file folder/file")
    await _expect(OSError, workspace.read(held))
    await _expect(OSError, workspace.write(held, b"attack"))
    _same(await workspace.read("secret/file"), b"secret", "the file that the second link leads to")


# --- searches ---------------------------------------------------------------------------------------------------------


@_rule
async def _lines_are_found_in_the_order_of_paths(workspace: Workspace) -> None:
    await workspace.write("b.txt", b"one\ntwo needle\nthree\n")
    await workspace.write("a/z.txt", b"needle at start\n")
    await workspace.write(".hidden", b"a hidden needle\n")
    await workspace.write(".git/config", b"needle\n")
    found = await _search(workspace, "needle")
    wanted = [(".hidden", 1, "a hidden needle"), ("a/z.txt", 1, "needle at start"), ("b.txt", 2, "two needle")]
    _same([(match.path, match.line, match.text) for match in found], wanted, "the matches")


@_rule
async def _searches_have_options(workspace: Workspace) -> None:
    await workspace.write("code.py", b"before\nValue.x\nvalueyx\nafter\n")
    await workspace.write("notes.md", b"value.x\n")

    async def lines(pattern: str, **options: object) -> list[tuple[str, int, str]]:
        found = await _search(workspace, pattern, **options)
        return [(match.path, match.line, match.kind) for match in found]

    _same(await lines("value.x"), [("code.py", 3, "match"), ("notes.md", 1, "match")], "a regular expression")
    _same(await lines("value.x", literal=True), [("notes.md", 1, "match")], "a literal text")
    ignoring = [("code.py", 2, "match"), ("code.py", 3, "match"), ("notes.md", 1, "match")]
    _same(await lines("VALUE.x", ignore_case=True), ignoring, "a search without case")
    _same(await lines("value.x", glob="*.md"), [("notes.md", 1, "match")], "a search in some files")
    _same(await lines("value.x", glob="!*.md"), [("code.py", 3, "match")], "a search in all but some files")
    near = [("code.py", 2, "context"), ("code.py", 3, "match"), ("code.py", 4, "context")]
    _same(await lines("valueyx", context=1), near, "a search with context")
    one = await workspace.search(SearchQuery("text", "notes.md", "value"))
    _same([(match.path, match.line) for match in one.matches], [("notes.md", 1)], "a search in one file")


@_rule
async def _ignored_and_binary_files_are_left_out(workspace: Workspace) -> None:
    await workspace.write(".gitignore", b"*.log\nbuild/\n!keep.log\n")
    for path in ("a.log", "keep.log", "build/x.txt", "src/b.log", "src/c.txt"):
        await workspace.write(path, b"needle\n")
    await workspace.write("binary", b"\0\1\2needle\n")
    _same([match.path for match in await _search(workspace, "needle")], ["keep.log", "src/c.txt"], "the paths")


@_rule
async def _an_impossible_pattern_is_explained(workspace: Workspace) -> None:
    await workspace.write("file", b"text\n")
    end = await workspace.search(SearchQuery("text", ".", "a(b"))
    _same((bool(end.complaint), end.matches), (True, []), "a complaint and no match")


@_rule
async def _paths_are_found_by_globs(workspace: Workspace) -> None:
    for path in ("a/deep/one.txt", "two.txt", "three.md", "skipped/four.txt", ".hidden.txt"):
        await workspace.write(path, b"")
    await workspace.write(".gitignore", b"skipped\n")
    await _run(workspace, "ln -s two.txt link.txt; mkdir empty.txt")
    found = await workspace.search(SearchQuery("files", ".", "*.txt"))
    wanted = {
        (".hidden.txt", "file"),
        ("a/deep/one.txt", "file"),
        ("empty.txt", "folder"),
        ("link.txt", "other"),
        ("two.txt", "file"),
    }
    _same({(match.path, match.kind) for match in found.matches}, wanted, "the paths")
    below = await workspace.search(SearchQuery("files", ".", "a/**"))
    _same({match.path for match in below.matches}, {"a/deep", "a/deep/one.txt"}, "the paths below a folder")


@_rule
async def _a_search_stops_when_there_is_enough(workspace: Workspace) -> None:
    await workspace.write("many.txt", b"needle in a line\n" * 50_000)
    batches: list[int] = []

    def is_enough(found: list[Match]) -> bool:
        batches.append(len(found))
        return True

    end = await workspace.search(SearchQuery("text", ".", "needle"), is_enough)
    _same((end.stopped, len(batches)), (True, 1), "it stopped after the first matches")
    _same(sum(batches) < 50_000, True, "not everything was found before that")


# --- commands ---------------------------------------------------------------------------------------------------------


@_rule
async def _a_command_has_output_and_a_code(workspace: Workspace) -> None:
    end = await workspace.run("echo out; echo err >&2; pwd -P; exit 7")
    folder = (await workspace.stat(".")).place
    _same((end.exit_code, end.output.decode()), (7, f"out\nerr\n{folder}\n"), "the code and the output")
    _same((await workspace.run("kill -TERM $$")).exit_code, 143, "the code after a signal")
    _same((await workspace.run("printf '\\000\\377'")).output, b"\0\xff", "output that is no text")


@_rule
async def _a_command_runs_in_a_folder(workspace: Workspace) -> None:
    await workspace.write("below/file", b"x")
    _same((await workspace.run("cat file", cwd="below")).output, b"x", "the output")
    await _expect(OSError, workspace.run("true", cwd="nothing"))


@_rule
async def _output_comes_before_the_end(workspace: Workspace) -> None:
    parts: list[bytes] = []

    async def go_on(part: bytes) -> None:
        parts.append(part)
        if b"ready" in b"".join(parts):
            await workspace.write("go", b"")

    end = await workspace.run(
        "echo ready; until [ -e go ]; do sleep 0.05; done; echo done", on_output=go_on, timeout=20
    )
    _same((end.exit_code, b"".join(parts)), (0, b"ready\ndone\n"), "the end of a command that waits for its reader")


@_rule
async def _a_command_reads_its_input(workspace: Workspace) -> None:
    data = os.urandom(300_000)
    await workspace.run("cat > copy", stdin=data)
    _same(await workspace.read("copy") == data, True, "the bytes arrived")

    async def parts() -> AsyncIterator[bytes]:
        yield b"one\n"
        yield b"two\n"

    _same((await workspace.run("cat", stdin=parts())).output, b"one\ntwo\n", "input that comes in parts")
    _same((await workspace.run("cat; echo end")).output, b"end\n", "no input")
    _same((await workspace.run("true", stdin=data)).exit_code, 0, "input that is not read")


@_rule
async def _much_output_arrives_whole(workspace: Workspace) -> None:
    size, pauses = 0, 3

    async def count(part: bytes) -> None:
        nonlocal size, pauses
        size += len(part)
        if pauses:
            pauses -= 1
            await asyncio.sleep(0.05)

    await workspace.run("head -c 8000000 /dev/zero", on_output=count)
    _same(size, 8_000_000, "the size of the output")


@_rule
async def _a_timeout_ends_everything_that_was_started(workspace: Workspace) -> None:
    command = "(sleep 2; echo late > late) & setsid sh -c 'sleep 2; echo later > later' & sleep 60"
    began = time.monotonic()
    end = await workspace.run(command, timeout=0.5)
    _same((end.exit_code, end.timed_out), (None, True), "the end")
    _same(time.monotonic() - began < 10, True, "it ended soon")
    await asyncio.sleep(2.5)
    _same([entry.name for entry in await workspace.list()], [], "what the command left")


@_rule
async def _cancelling_ends_everything_that_was_started(workspace: Workspace) -> None:
    has_started = asyncio.Event()

    async def on_output(part: bytes) -> None:
        has_started.set()

    command = "(sleep 2; echo late > late) & echo started; sleep 60"
    running = asyncio.ensure_future(workspace.run(command, on_output=on_output))
    await has_started.wait()
    running.cancel()
    began = time.monotonic()
    await asyncio.wait({running}, timeout=10)
    _same((running.cancelled(), time.monotonic() - began < 5), (True, True), "it was cancelled at once")
    await asyncio.sleep(2.5)
    _same([entry.name for entry in await workspace.list()], [], "what the command left")


@_rule
async def _many_calls_run_at_once(workspace: Workspace) -> None:
    async def work(number: int) -> bytes:
        await workspace.write(f"file{number}", b"%d" % number)
        waiting = f"until [ -e file{(number + 1) % 8} ]; do sleep 0.05; done; cat file{number}"
        return (await workspace.run(waiting, timeout=30)).output

    _same(await asyncio.gather(*map(work, range(8))), [b"%d" % number for number in range(8)], "what each printed")


# --- helpers ----------------------------------------------------------------------------------------------------------


def _same(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise AssertionError(f"{what}: expected {wanted!r}, found {found!r}")


async def _expect(kind: type[OSError], call: Awaitable[object]) -> None:
    try:
        result = await call
    except kind:
        return
    except OSError as error:
        raise AssertionError(f"expected {kind.__name__}, found {type(error).__name__}: {error}") from None
    raise AssertionError(f"expected {kind.__name__}, found {result!r}")


async def _run(workspace: Workspace, command: str) -> None:
    end = await workspace.run(command)
    _same(end.exit_code, 0, f"the code of `{command}`, which printed {end.output!r}")


async def _search(workspace: Workspace, pattern: str, **options: object) -> list[Match]:
    return (await workspace.search(SearchQuery("text", ".", pattern, **options))).matches  # type: ignore[arg-type]
