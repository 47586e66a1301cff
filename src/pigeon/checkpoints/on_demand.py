"""The checkpoints of a conversation for its session: nothing is loaded or written before an agent changes files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from pigeon.session.checkpoints import MessagePlace, RecordedChanges
from pigeon.session.context.transcript import Transcript
from pigeon.system.process.start import ProcessOwner
from pigeon.wire.commands.undo import Checkpoints, RestoredFiles, UndoPreview

if TYPE_CHECKING:
    from pigeon.checkpoints.service import WorkspaceCheckpoints


class CheckpointOptions(Struct, frozen=True, kw_only=True):
    """The settings of undo and what it needs of the agent; `own_places` hold what Pigeon itself writes. `machine` is
    that of the files, if it is another one."""

    store: str
    enabled: bool
    max_files: int
    max_bytes: int
    max_file_bytes: int
    keep_bytes: int
    keep_days: float
    home: str
    variables: Mapping[str, str]
    processes: ProcessOwner
    own_places: Sequence[str]
    now: Callable[[], int]
    new_id: Callable[[], str]
    machine: str


class CheckpointsOnDemand:
    """Implements `FileCheckpoints` of `session/checkpoints` by an object that is made when there is a need."""

    def __init__(
        self,
        options: CheckpointOptions,
        transcript: Transcript,
        mask: Callable[[str], str],
        report: Callable[[str], None],
    ) -> None:
        self._options = options
        self._transcript = transcript
        self._mask = mask
        self._report = report
        self._made: WorkspaceCheckpoints | None = None

    def _make(self) -> WorkspaceCheckpoints:
        from pigeon.checkpoints.places import UndoChoices
        from pigeon.checkpoints.service import WorkspaceCheckpoints
        from pigeon.checkpoints.tree import TreeLimits
        from pigeon.checkpoints.workspace import CheckpointParts
        from pigeon.system.git import Git

        options, transcript = self._options, self._transcript
        choices = UndoChoices(
            store=options.store,
            enabled=options.enabled,
            limits=TreeLimits(options.max_files, options.max_bytes, options.max_file_bytes),
            keep_bytes=options.keep_bytes,
            keep_days=options.keep_days,
        )
        given = CheckpointParts(
            home=options.home,
            variables=options.variables,
            make_git=lambda: Git(options.processes, options.variables),
            own_places=options.own_places,
            report=self._report,
            now=options.now,
            new_id=options.new_id,
            mask=self._mask,
            machine=options.machine,
            find_session_file=lambda: transcript.journal.file,
        )
        return WorkspaceCheckpoints(choices, given, transcript.folder, lambda: transcript.journal.session_id)

    @property
    def _service(self) -> WorkspaceCheckpoints:
        if self._made is None:
            self._made = self._make()
        return self._made

    def begin_prompt(self) -> None:
        if self._made is not None or self._has_stored():
            self._service.begin_prompt()

    def _has_stored(self) -> bool:
        return os.path.exists(f"{self._options.store}/{self._transcript.journal.session_id}")

    def prepare(self) -> None:
        self._service.prepare()

    async def before_call(
        self, message: MessagePlace, answer: str, call_id: str, place: str | None, goes_on: bool
    ) -> None:
        await self._service.before_call(message, answer, call_id, place, goes_on)

    async def after_call(self, call_id: str, failed: bool) -> None:
        if self._made is not None:
            await self._made.after_call(call_id, failed)

    async def end_calls(self, agent_id: str) -> None:
        if self._made is not None:
            await self._made.end_calls(agent_id)

    async def settle(self) -> None:
        if self._made is not None:
            await self._made.settle()

    async def close(self, keep: bool) -> None:
        made, self._made = self._made, None
        if made is not None:
            await made.close(keep)

    async def list_checkpoints(self) -> Checkpoints:
        return await self._service.list_checkpoints()

    async def preview(self, checkpoint_id: str | None, files: Sequence[str] | None) -> UndoPreview:
        return await self._service.preview(checkpoint_id, files)

    async def undo(
        self, checkpoint_id: str | None, files: Sequence[str] | None, force: bool
    ) -> tuple[str, RestoredFiles]:
        return await self._service.undo(checkpoint_id, files, force)

    async def redo(self, force: bool) -> tuple[str, RestoredFiles]:
        return await self._service.redo(force)

    async def restore_place(self, places: set[str], since: int) -> tuple[str, RestoredFiles]:
        return await self._service.restore_place(places, since)

    async def list_changes(self, places: set[str]) -> RecordedChanges | None:
        return await self._service.list_changes(places)
