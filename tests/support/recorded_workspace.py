"""A folder with checkpoints, without a session: a test makes the calls of an agent itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

from pigeon.checkpoints.places import UndoChoices
from pigeon.checkpoints.service import WorkspaceCheckpoints
from pigeon.checkpoints.tree import TreeLimits
from pigeon.checkpoints.workspace import CheckpointParts
from pigeon.session.checkpoints import MessagePlace
from pigeon.system.git import Git
from pigeon.system.process.start import ProcessOwner

LIMITS = TreeLimits(200_000, 2_000_000_000, 1_000_000)


class RecordedWorkspace:
    """`command` and `write` do what calls of an agent do; whatever else happens to the files is someone else's."""

    def __init__(self, folder: Path, base: Path, limits: TreeLimits = LIMITS, session_id: str = "conversation") -> None:
        self.folder = folder
        self.store = base / "agent" / "checkpoints"
        self.reports: list[str] = []
        self._processes = ProcessOwner()
        self._numbers = count(1)
        self._session_id = session_id
        home = base / "home"
        for place in (folder, home, self.store.parent):
            place.mkdir(parents=True, exist_ok=True)
        variables = {"PATH": os.environ["PATH"], "HOME": str(home)}
        choices = UndoChoices(store=str(self.store), enabled=True, limits=limits, keep_bytes=1 << 40, keep_days=30)
        given = CheckpointParts(
            home=str(home),
            variables=variables,
            make_git=lambda: Git(self._processes, variables),
            own_places=(str(self.store.parent),),
            report=self.reports.append,
            now=lambda: next(self._numbers),
            new_id=lambda: os.urandom(6).hex(),
            mask=lambda text: text,
            find_session_file=lambda: None,
            machine="",
        )
        self.checkpoints = WorkspaceCheckpoints(choices, given, lambda: str(folder), lambda: self._session_id)
        self.message = MessagePlace("none", "none", "", 0)

    def begin_prompt(self, entry_id: str | None = None) -> str:
        """A new message; returns its entry."""
        entry_id = entry_id or f"entry-{next(self._numbers)}"
        self.message = MessagePlace(entry_id, entry_id, f"text of {entry_id}", next(self._numbers))
        self.checkpoints.begin_prompt()
        return entry_id

    async def command(self, work: Callable[[], object]) -> None:
        """A command that does something to the files."""
        call_id = f"call-{next(self._numbers)}"
        await self.checkpoints.before_call(self.message, "answer", call_id, None, goes_on=False)
        work()
        await self.checkpoints.after_call(call_id, failed=False)

    async def write(self, path: str, content: bytes) -> None:
        """A tool that writes one file, and the folders above it."""
        place = self.folder / path
        call_id = f"call-{next(self._numbers)}"
        await self.checkpoints.before_call(self.message, "answer", call_id, str(place), goes_on=False)
        failed = False
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        except OSError:
            failed = True
        await self.checkpoints.after_call(call_id, failed=failed)

    async def end_prompt(self) -> None:
        await self.checkpoints.end_calls("")
        await self.checkpoints.settle()

    async def close(self) -> None:
        await self.checkpoints.close(keep=True)
        await self._processes.kill_everything()
