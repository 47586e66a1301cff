"""Projects that try to run code, or to lead a restoration outside of the folder."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
from pathlib import Path

from pigeon.checkpoints.objects import object_id
from pigeon.checkpoints.tree import TreeLimits
from support.recorded_workspace import RecordedWorkspace


def _git(folder: Path, *arguments: str) -> None:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, env=environment)


def _set_traps(folder: Path, trap: Path) -> None:
    """Everything in a repository that names a program; each would make the file `trap`."""
    run = f"touch {trap}"
    _git(folder, "init", "-q")
    for key in ("core.fsmonitor", "core.sshCommand", "diff.external", "core.pager", "filter.evil.clean"):
        _git(folder, "config", key, run)
    for key in ("filter.evil.smudge", "filter.evil.process", "diff.evil.textconv", "core.editor"):
        _git(folder, "config", key, run)
    _git(folder, "config", "filter.evil.required", "true")
    _git(folder, "config", "core.autocrlf", "true")
    _git(folder, "config", "core.excludesFile", "/dev/zero")
    for hook in ("post-index-change", "pre-commit", "post-checkout", "fsmonitor-watchman", "reference-transaction"):
        place = folder / ".git" / "hooks" / hook
        place.parent.mkdir(exist_ok=True)
        place.write_text(f"#!/bin/sh\n{run}\n")
        place.chmod(0o755)
    (folder / ".gitattributes").write_text("* filter=evil diff=evil text eol=crlf ident working-tree-encoding=UTF-16\n")
    (folder / ".gitmodules").write_text('[submodule "sub"]\n\tpath = sub\n\turl = ext::sh -c "touch X"\n')
    (folder / ".git" / "index").write_bytes(b"DIRC not an index")


def test_no_program_of_a_project_is_run_and_bytes_stay_as_they_are(tmp_path: Path) -> None:
    folder, trap = tmp_path / "project", tmp_path / "trap"
    folder.mkdir()
    _set_traps(folder, trap)
    nested = folder / "nested"
    nested.mkdir()
    _set_traps(nested, trap)
    before = b"one\r\ntwo\n$Id$ \0\xff"
    for place in (folder / "file", nested / "file"):
        place.write_bytes(before)

    async def undo() -> None:
        recorded = RecordedWorkspace(folder, tmp_path)
        recorded.begin_prompt()
        await recorded.command(lambda: [(one / "file").write_bytes(b"changed\n") for one in (folder, nested)])
        await recorded.end_prompt()
        assert recorded.reports == []
        preview = await recorded.checkpoints.preview(None, None)
        assert [one.path for one in preview.files] == ["file", "nested/file"]
        await recorded.checkpoints.undo(None, None, force=False)
        await recorded.close()

    asyncio.run(undo())
    assert (folder / "file").read_bytes() == (nested / "file").read_bytes() == before
    assert not trap.exists()
    assert (folder / ".git" / "index").read_bytes() == b"DIRC not an index"


def test_pipes_sockets_and_odd_names_keep_nothing_waiting(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    odd = folder / os.fsdecode(b"new\nline \xff :(glob)*")
    odd.write_text("odd")
    os.mkfifo(folder / "pipe")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "socket"))

    def work() -> None:
        odd.unlink()
        (folder / "pipe").unlink()
        os.mkfifo(folder / "other")

    async def undo() -> None:
        recorded = RecordedWorkspace(folder, tmp_path)
        recorded.begin_prompt()
        await recorded.command(work)
        await recorded.end_prompt()
        result = (await recorded.checkpoints.undo(None, None, force=False))[1]
        assert [one.path for one in result.files] == ["new\nline \\xff :(glob)*"]
        assert [one.path for one in result.not_covered] == ["other", "pipe"]
        await recorded.close()

    asyncio.run(undo())
    listener.close()
    assert odd.read_text() == "odd"


def test_a_link_that_is_planted_leads_no_restoration_outside(tmp_path: Path) -> None:
    folder, outside = tmp_path / "project", tmp_path / "outside"
    (folder / "d").mkdir(parents=True)
    outside.mkdir()
    (folder / "d" / "inner").write_text("one")
    (folder / "gone").mkdir()
    (folder / "gone" / "file").write_text("one")
    (outside / "inner").write_text("outside")

    def work() -> None:
        (folder / "d" / "inner").write_text("two")
        shutil.rmtree(folder / "gone")

    async def undo() -> None:
        recorded = RecordedWorkspace(folder, tmp_path)
        recorded.begin_prompt()
        await recorded.command(work)
        await recorded.end_prompt()
        shutil.rmtree(folder / "d")
        (folder / "d").symlink_to(outside)
        (folder / "gone").symlink_to(outside)
        for force, left in ((False, {"d/inner", "gone", "gone/file"}), (True, {"d/inner"})):
            result = (await recorded.checkpoints.undo(None, None, force=force))[1]
            assert {one.path for one in result.conflicts} == left
            assert (folder / "gone").is_symlink() != force
        await recorded.close()

    asyncio.run(undo())
    assert sorted(path.name for path in outside.iterdir()) == ["inner"]
    assert (outside / "inner").read_text() == "outside"


def test_what_git_ignores_is_never_stored_and_large_files_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    _git(folder, "init", "-q")
    (folder / ".gitignore").write_text("*.env\n/build/\n!kept.env\n")
    (folder / ".git" / "info" / "exclude").write_text("private*\n")
    (folder / "build").mkdir()
    for name in ("a.env", "kept.env", "private.txt", "build/out", "plain"):
        (folder / name).write_text(f"content of {name}")

    def work() -> None:
        for name in ("a.env", "kept.env", "private.txt", "build/out", "plain"):
            (folder / name).write_text(f"secret of {name}")
        (folder / "large").write_bytes(b"x" * 2_000)

    async def undo() -> None:
        recorded = RecordedWorkspace(folder, tmp_path, TreeLimits(100, 100_000, 1_000))
        recorded.begin_prompt()
        await recorded.command(work)
        await recorded.end_prompt()
        result = (await recorded.checkpoints.undo(None, None, force=False))[1]
        assert [one.path for one in result.files] == ["kept.env", "plain"]
        assert [(one.path, one.reason) for one in result.not_covered] == [("large", "large")]
        await recorded.close()
        for name in ("a.env", "private.txt", "build/out"):
            for text in (f"content of {name}", f"secret of {name}"):
                assert not list(recorded.store.rglob(object_id(text.encode())[2:]))

    asyncio.run(undo())
    assert (folder / "a.env").read_text() == "secret of a.env"


def test_home_and_too_large_folders_are_refused_with_one_report(tmp_path: Path) -> None:
    async def refuse(folder: Path, limits: TreeLimits, word: str) -> None:
        recorded = RecordedWorkspace(folder, tmp_path, limits)
        recorded.begin_prompt()
        for name in ("a", "b"):
            await recorded.command(lambda name=name: (folder / name).write_text("x"))  # type: ignore[misc]
            await recorded.end_prompt()
        listed = await recorded.checkpoints.list_checkpoints()
        assert listed.checkpoints == []
        assert recorded.reports == [listed.off]
        assert word in recorded.reports[0]
        assert "undo" in recorded.reports[0]
        await recorded.close()

    asyncio.run(refuse(tmp_path / "home", TreeLimits(100, 100_000, 1_000), "home"))
    many = tmp_path / "many"
    many.mkdir()
    for number in range(12):
        (many / f"file{number}").write_text("x" * 100)
    asyncio.run(refuse(many, TreeLimits(10, 100_000, 1_000), "more than 10 files"))
    asyncio.run(refuse(many, TreeLimits(100, 500, 1_000), "more than 500 bytes"))
