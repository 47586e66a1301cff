"""Random sequences of what agents, commands, people and undo do to a folder, and what must hold afterwards.

The oracle knows nothing of how undo works: it takes pictures of the folder. After an undo, each path is as it was
before the prompt, or as it is now if somebody else has changed it; nothing outside is touched, a redo brings back
what was there, and a restoration that is killed midway is completed by the next start.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st

from pigeon.checkpoints import restoring
from pigeon.checkpoints.restoration import complete_restorations
from pigeon.wire.errors import Refusal
from support.recorded_workspace import RecordedWorkspace

Picture = dict[str, tuple[str, int, bytes]]
PATHS = ("a", "b", "d/x", "d/y", "d/e/z", "d/e", "f/g/h", "new\nline", os.fsdecode(b"odd-\xff"), "b/in")
IGNORED = "k.log"
MODES = (0o644, 0o600, 0o755, 0o777, 0o444)
# One number decides what a step does in detail.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                "command",
                "command",
                "write",
                "prompt",
                "person",
                "undo",
                "undo-older",
                "undo-files",
                "force",
                "redo",
                "kill",
            )
        ),
        st.integers(0, 2**32 - 1),
    ),
    min_size=2,
    max_size=14,
)


# How often something has happened in this process, so that a storm can say what it was about.
COUNTS: Counter[str] = Counter()


class Killed(BaseException):
    """The process ends here."""


def take_picture(folder: Path) -> Picture:
    """All paths below a folder but the ignored one, with kind, mode and content."""
    found: Picture = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            full = os.path.join(place, name)
            path = os.path.relpath(full, folder)
            if path == IGNORED:
                continue
            info = os.lstat(full)
            mode = stat.S_IMODE(info.st_mode)
            if stat.S_ISLNK(info.st_mode):
                found[path] = ("link", 0, os.fsencode(os.readlink(full)))
            elif stat.S_ISDIR(info.st_mode):
                found[path] = ("folder", mode, b"")
            else:
                found[path] = ("file", mode, Path(full).read_bytes())
    return found


def change_something(folder: Path, random: Random, among: tuple[str, ...] = PATHS) -> None:
    """One change, as a shell command or a person makes it; what is not possible is left out."""
    path = folder / random.choice(among)
    deed = random.choice(("write", "write", "append", "delete", "chmod", "mkdir", "link", "rename", "ignored", "same"))
    with suppress(OSError):
        if deed == "write":
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink():
                path.unlink()
            path.write_bytes(random.randbytes(random.randrange(4)) + b"\n\0" * random.randrange(2))
        elif deed == "append" and not path.is_symlink():
            with path.open("ab") as file:
                file.write(b"more\n")
        elif deed == "delete":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        elif deed == "chmod" and not path.is_symlink():
            path.chmod(random.choice(MODES) | (0o700 if path.is_dir() else 0))
        elif deed == "mkdir":
            path.mkdir(parents=True)
        elif deed == "link":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(random.choice(("a", "d", "../outside/secret", "nowhere")))
        elif deed == "rename":
            path.rename(folder / random.choice(among))
        elif deed == "ignored":
            (folder / IGNORED).write_bytes(random.randbytes(3))
        elif deed == "same" and not path.is_symlink():
            path.write_bytes(path.read_bytes())


def _is_plain(place: Path) -> bool:
    return Path(os.path.realpath(place)) == place and not place.is_dir()


class UndoSequence:
    """Carries out the steps of one sequence, and checks each undo."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._folder = base / "project"
        self._folder.mkdir()
        (self._folder / ".gitignore").write_text("*.log\n")
        for path in ("a", "d/x", "d/e/z"):
            (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / path).write_text(f"{path}\n")
        outside = base / "outside"
        outside.mkdir()
        (outside / "secret").write_text("secret\n")
        self._outside = take_picture(outside)
        self._recorded = RecordedWorkspace(self._folder, base)
        # By entry: the picture before its first change, and the paths that somebody else has changed since.
        self._before: dict[str, Picture] = {}
        self._others: dict[str, set[str]] = {}
        self._redone: list[Picture] = []
        self._has_gone_back = False
        # Who has changed a path last, and what the agent made of it.
        self._last: dict[str, str] = {}
        self._agents: dict[str, Any] = {}

    async def run(self, steps: list[tuple[str, int]]) -> None:
        self._recorded.begin_prompt()
        try:
            for name, seed in steps:
                await getattr(self, f"_{name.replace('-', '_')}")(Random(seed))
                assert take_picture(self._base / "outside") == self._outside
        finally:
            await self._recorded.close()

    # What happens

    async def _prompt(self, random: Random) -> None:
        await self._recorded.end_prompt()
        self._recorded.begin_prompt()
        self._redone.clear()
        self._has_gone_back = False

    async def _command(self, random: Random) -> None:
        self._note_beginning()
        before = take_picture(self._folder)
        await self._recorded.command(lambda: [change_something(self._folder, random) for _ in range(3)])
        await self._recorded.checkpoints.settle()
        self._attribute(before, "agent")

    async def _write(self, random: Random) -> None:
        self._note_beginning()
        path = random.choice(PATHS)
        place = self._folder / path
        # Tools write through the real path, and refuse what has become a folder.
        before = take_picture(self._folder)
        if _is_plain(place):
            await self._recorded.write(path, random.randbytes(3))
            await self._recorded.checkpoints.settle()
            self._attribute(before, "agent")

    async def _person(self, random: Random) -> None:
        await self._recorded.checkpoints.settle()
        before = take_picture(self._folder)
        change_something(self._folder, random)
        changed = self._attribute(before, "person")
        for others in self._others.values():
            others.update(changed)

    def _attribute(self, before: Picture, actor: str) -> set[str]:
        after = take_picture(self._folder)
        changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
        for path in changed:
            self._last[path] = actor
            if actor == "agent":
                self._agents[path] = after.get(path)
        return changed

    def _note_beginning(self) -> None:
        """The first change of a message: what was undone before it cannot be done again."""
        entry = self._recorded.message.entry_id
        if self._has_gone_back:
            entry = self._recorded.begin_prompt()
            self._redone.clear()
            self._has_gone_back = False
        if entry not in self._before:
            self._before[entry] = take_picture(self._folder)
            self._others[entry] = set()

    # Undo

    async def _undo(self, random: Random) -> None:
        await self._undo_and_check(None, None, force=False)

    async def _undo_older(self, random: Random) -> None:
        await self._undo_and_check(random, None, force=False)

    async def _undo_files(self, random: Random) -> None:
        await self._undo_and_check(random, random.choice((["d"], ["a", "b"], ["d/e/z"], ["."])), force=False)

    async def _force(self, random: Random) -> None:
        await self._undo_and_check(random, None, force=True)

    async def _kill(self, random: Random) -> None:
        await self._undo_and_check(random, None, force=False, dies_after=random.randrange(6))

    async def _undo_and_check(
        self, random: Random | None, files: list[str] | None, force: bool, dies_after: int | None = None
    ) -> None:
        await self._recorded.end_prompt()
        self._has_gone_back = True
        listed = (await self._recorded.checkpoints.list_checkpoints()).checkpoints
        left = [one for one in listed if not one.undone]
        if not left:
            with pytest.raises(Refusal):
                await self._recorded.checkpoints.undo(None, None, force)
            return
        chosen = left[-1] if random is None else random.choice(left)
        begun, others = self._before[chosen.entry_id], self._others[chosen.entry_id]
        before = take_picture(self._folder)
        preview = await self._recorded.checkpoints.preview(None if random is None else chosen.id, files)
        assert take_picture(self._folder) == before
        if dies_after is not None:
            await self._die(chosen.id, dies_after)
            # A new process.
            self._recorded = RecordedWorkspace(self._folder, self._base)
            self._recorded.begin_prompt(f"after-{len(self._before)}-{dies_after}")
            self._redone.clear()
            result = None
        else:
            result = (await self._recorded.checkpoints.undo(None if random is None else chosen.id, files, force))[1]
            self._redone.append(before)
            COUNTS["files restored"] += len(result.files)
            COUNTS["conflicts"] += len(result.conflicts)
            COUNTS["undos by force" if force else "undos"] += 1
        after = take_picture(self._folder)
        self._attribute(before, "undo")
        self._check(begun, others, before, after, files, force)
        if result is not None and not force:
            assert [one.path for one in result.files] == [one.path for one in preview.files]
            assert result.conflicts == preview.conflicts

    def _check(
        self, begun: Picture, others: set[str], before: Picture, after: Picture, files: list[str] | None, force: bool
    ) -> None:
        for path in {*begun, *before, *after}:
            is_chosen = files is None or "." in files or any(path == one or path.startswith(f"{one}/") for one in files)
            if not is_chosen:
                # Folders on the way to a restored file may have to be made.
                assert after.get(path) == before.get(path) or (after.get(path) or ("",))[0] == "folder", path
            elif not others:
                assert after.get(path) == begun.get(path), path
            elif not force and self._is_persons(path, before) and not self._is_folder(path, begun, before, after):
                assert after.get(path) == before.get(path), path
            elif path not in others and not self._is_folder(path, begun, before, after) and not force:
                # Unless somebody's files are in the way.
                in_way = any(path.startswith(f"{one}/") or one.startswith(f"{path}/") for one in others)
                assert after.get(path) == begun.get(path) or in_way, path

    def _is_persons(self, path: str, before: Picture) -> bool:
        """Whether somebody else has left a path as it is, and the agent would have left it in another way."""
        return self._last.get(path) == "person" and before.get(path) != self._agents.get(path, before.get(path))

    def _is_folder(self, path: str, *pictures: Picture) -> bool:
        return all(picture.get(path, ("folder",))[0] == "folder" for picture in pictures)

    async def _die(self, checkpoint: str, after: int) -> None:
        """Undo in a process that ends after so many changes of files."""
        left = after
        real = {name: getattr(os, name) for name in ("unlink", "rmdir", "mkdir", "link", "replace", "fchmod")}

        def make(name: str) -> Any:
            def call(*given: Any, **named: Any) -> Any:
                nonlocal left
                if left == 0:
                    COUNTS["killed midway"] += 1
                    raise Killed
                left -= 1
                return real[name](*given, **named)

            return call

        class DyingSystem:
            def __getattr__(self, name: str) -> Any:
                return make(name) if name in real else getattr(os, name)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(restoring, "os", DyingSystem())
            with suppress(Killed):
                await self._recorded.checkpoints.undo(checkpoint, None, force=False)
        await self._recorded.close()
        await asyncio.to_thread(complete_restorations, str(self._recorded.store))

    async def _redo(self, random: Random) -> None:
        await self._recorded.end_prompt()
        self._has_gone_back = True
        before = take_picture(self._folder)
        if not self._redone:
            with suppress(Refusal):
                await self._recorded.checkpoints.redo(force=False)
                assert take_picture(self._folder) == before
            return
        expected = self._redone.pop()
        changed_since = any(self._others.values())
        try:
            await self._recorded.checkpoints.redo(force=False)
        except Refusal:
            assert before == expected
            return
        COUNTS["redos"] += 1
        if not changed_since:
            assert take_picture(self._folder) == expected


def run_sequence(steps: list[tuple[str, int]]) -> None:
    """Carry out the steps in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="pigeon-undo-") as made:
        base = Path(os.path.realpath(made))
        try:
            asyncio.run(UndoSequence(base).run(steps))
        finally:
            for place, folders, _ in os.walk(base):
                for name in folders:
                    with suppress(OSError):
                        os.chmod(os.path.join(place, name), 0o700)
