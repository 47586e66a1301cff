"""The checkpoints of one conversation: recording what its agents change, and going back.

The state of a file before a call that names it is taken right before the call; that of all files before a command,
when the command is about to run. What is found afterwards to be different is a step of the message that the call
belongs to. What changes between calls is not the agent's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from msgspec.structs import replace

from pigeon.checkpoints.changes import PathChange, look_after, look_before, relative_path
from pigeon.checkpoints.descriptors import Content
from pigeon.checkpoints.places import DISABLED, UndoChoices
from pigeon.checkpoints.records import (
    IGNORED,
    OUTSIDE,
    SPECIAL,
    Began,
    Changed,
    Checkpoint,
    FileState,
    Forgot,
    LeftOut,
    StoreRecord,
    change_between,
    shown_path,
)
from pigeon.checkpoints.restoration import Restoration
from pigeon.checkpoints.store import ConversationStore
from pigeon.checkpoints.workspace import CheckpointParts, RecordedFolder
from pigeon.session.checkpoints import MessagePlace, RecordedChange, RecordedChanges
from pigeon.system.files import run_in_thread
from pigeon.system.git import GitError
from pigeon.wire.base import ABSENT
from pigeon.wire.commands.undo import CheckpointInfo, Checkpoints, FileAndChange, RestoredFiles, UndoPreview
from pigeon.wire.errors import Refusal, text_for_host

NOTHING_LEFT = "There is nothing to undo: no prompt of this conversation has changed files, or all were undone"
NOTHING_TO_REDO = "There is nothing to redo: nothing was undone since the last prompt"
UNKNOWN = 'There is no checkpoint "{}"'
ALREADY = 'The checkpoint "{}" is undone already'
MOST_HELD = 64 * 1024 * 1024
States = dict[str, tuple[FileState | None, FileState | None]]


class WorkspaceCheckpoints:
    """Implements `FileCheckpoints` of `session/checkpoints` for a conversation and the agents that it starts.

    `folder` and `session_id` are asked for each time, because another conversation may be opened.
    """

    def __init__(
        self, choices: UndoChoices, given: CheckpointParts, folder: Callable[[], str], session_id: Callable[[], str]
    ) -> None:
        self._choices = choices
        self._given = given
        self._folder = folder
        self._session_id = session_id
        self._workspace: tuple[str, RecordedFolder] | None = None
        self._store: ConversationStore | None = None
        self._lock = asyncio.Lock()
        self._commands: dict[str, tuple[MessagePlace, str]] = {}
        self._paths: dict[str, PathChange] = {}
        self._pending: list[PathChange] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._looked_for: MessagePlace | None = None

    # Recording

    def begin_prompt(self) -> None:
        """A prompt begins: what was undone before it cannot be done again."""
        if self._choices.enabled and self._open_store().restored:
            self._open_store().add([Forgot()])

    def prepare(self) -> None:
        """A command is about to be called."""
        if self._choices.enabled:
            workspace = self._open_workspace()
            if workspace.refused is None:
                workspace.start()

    async def before_call(
        self, message: MessagePlace, answer: str, call_id: str, place: str | None, goes_on: bool
    ) -> None:
        """Called before a call that may change the file at a real path, or with None any file.

        It `goes_on` if commands in the background may have changed files since the last call: their changes count as
        those of the message.
        """
        if not self._choices.enabled:
            return
        workspace = self._open_workspace()
        workspace.start()
        if workspace.refused is not None:
            return
        if place is None:
            await self._before_command(workspace, message, answer, call_id, goes_on)
            return
        path = relative_path(workspace.root, place)
        before: dict[str, Content] = {}
        if path is not None:
            before = await self._take(partial(look_before, workspace.root, path, workspace.file_bytes))
        self._paths[call_id] = PathChange(message, answer, place, path, before)

    async def after_call(self, call_id: str, failed: bool) -> None:
        """Called when a call has ended; what it has changed is recorded in the background."""
        change = self._paths.pop(call_id, None)
        if change is not None:
            await self._after_path(change, failed)
        command = self._commands.pop(call_id, None)
        if command is not None:
            self._start(self._after_command(*command))

    async def end_calls(self, agent_id: str) -> None:
        """The calls of an agent have ended, however that was."""
        for call_id in [id for id, change in self._paths.items() if change.message.agent_id == agent_id]:
            await self.after_call(call_id, failed=True)
        for call_id in [id for id, command in self._commands.items() if command[0].agent_id == agent_id]:
            await self.after_call(call_id, failed=True)

    async def settle(self) -> None:
        """Wait until everything that has ended is recorded."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        if self._pending:
            async with self._lock:
                await self._record_pending()
        if self._workspace is not None:
            self._workspace[1].save()

    async def close(self, keep: bool) -> None:
        """The conversation ends; without `keep` its checkpoints are removed."""
        await self.settle()
        if self._workspace is not None:
            await self._workspace[1].close()
            self._workspace = None
        if not keep and self._store is not None and self._store.exists:
            await asyncio.to_thread(self._store.remove_all)

    async def _take(self, look: Callable[[], dict[str, Content]]) -> dict[str, Content]:
        try:
            return await run_in_thread(look)
        except OSError:
            return {}

    async def _before_command(
        self, workspace: RecordedFolder, message: MessagePlace, answer: str, call_id: str, goes_on: bool
    ) -> None:
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        async with self._lock:
            await self._record_pending()
            if not await workspace.wait_until_known():
                return
            # In a large folder one look for each message has to do.
            is_needed = self._looked_for != message or (workspace.looks_quickly and not goes_on)
            if not self._commands and is_needed:
                await workspace.look(keeps_ignored=False)
                self._looked_for = message
            self._commands[call_id] = (message, answer)

    async def _after_command(self, message: MessagePlace, answer: str) -> None:
        async with self._lock:
            await self._record_pending()
            workspace = self._open_workspace()
            found = await workspace.look(keeps_ignored=True)
            if workspace.refused is None:
                await self._record(workspace, message, answer, found.paths)

    async def _after_path(self, change: PathChange, failed: bool) -> None:
        workspace = self._open_workspace()
        after: dict[str, Content] = {}
        if change.path is not None and change.before:
            look = partial(look_after, workspace.root, list(change.before), workspace.file_bytes)
            after = await self._take(look)
        self._pending.append(replace(change, after=after, failed=failed))
        if not self._tasks or sum(one.size for one in self._pending) > MOST_HELD:
            self._start(self._record_soon())

    async def _record_soon(self) -> None:
        async with self._lock:
            await self._record_pending()

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _record_pending(self) -> None:
        """Record the calls that named a file, as far as git would not ignore it."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        workspace = self._open_workspace()
        if not await workspace.wait_until_opened() or workspace.refused is not None:
            return
        assert workspace.rules is not None
        names = {path for change in pending for path in change.before if path not in self._known_paths(workspace)}
        try:
            ignored = await workspace.rules.find_ignored(sorted(names))
        except GitError as error:
            workspace.refuse(f"No undo here: {error}")
            return
        for change in pending:
            if change.path is None:
                if not change.failed:
                    self._leave_out(change.message, {change.place: OUTSIDE})
            elif workspace.is_own_place(change.path):
                continue
            elif change.path in ignored:
                if _differ(change):
                    self._leave_out(change.message, {shown_path(change.path): IGNORED})
            else:
                await self._record_path(workspace, change)

    def _known_paths(self, workspace: RecordedFolder) -> dict[str, FileState]:
        return {} if workspace.tree is None else workspace.tree.known.states

    async def _record_path(self, workspace: RecordedFolder, change: PathChange) -> None:
        paths: States = {}
        store = self._open_store()

        def keep() -> None:
            store.create()
            for path, before in change.before.items():
                states = [_keep(content, store) for content in (before, change.after.get(path, Content(None)))]
                if states[0] != states[1]:
                    paths[path] = (states[0], states[1])

        if not _differ(change):
            return
        await run_in_thread(keep)
        await self._record(workspace, change.message, change.answer, paths)
        for path, (_, after) in paths.items():
            workspace.take_over(path, after, store.objects)

    async def _record(self, workspace: RecordedFolder, message: MessagePlace, answer: str, paths: States) -> None:
        """Add steps to the checkpoint of a message; what is not stored is named."""
        covered: States = {}
        left_out: dict[str, str] = {}
        for path, (before, after) in paths.items():
            why = _find_reason(before, after)
            if why:
                left_out[shown_path(path)] = why
            else:
                covered[path] = (before, after)
        if not covered and not left_out:
            return
        store = self._open_store()
        store.create()
        contents = {state.content for pair in covered.values() for state in pair if state is not None and state.content}
        assert workspace.baseline is not None
        await workspace.baseline.copy_objects({name for name in contents if not store.objects.has(name)}, store.objects)
        checkpoint, records = self._find_or_begin(message)
        if covered:
            steps = store.make_steps(checkpoint, covered)
            records.append(Changed(checkpoint=checkpoint.began.id, steps=steps, answer=answer))
        if left_out:
            records.append(LeftOut(checkpoint=checkpoint.began.id, paths=left_out))
        await self._add(workspace, records)

    def _leave_out(self, message: MessagePlace, paths: dict[str, str]) -> None:
        checkpoint, records = self._find_or_begin(message)
        if any(checkpoint.left_out.get(path) != why for path, why in paths.items()):
            self._open_store().add([*records, LeftOut(checkpoint=checkpoint.began.id, paths=paths)])

    def _find_or_begin(self, message: MessagePlace) -> tuple[Checkpoint, list[StoreRecord]]:
        store = self._open_store()
        known = store.find_open(message.agent_id, message.entry_id)
        if known is not None:
            return known, []
        began = Began(
            id=self._given.new_id(),
            entry_id=message.entry_id,
            place=message.place,
            text=message.text,
            time=message.time,
            agent_id=message.agent_id,
        )
        return Checkpoint(began=began), [began]

    async def _add(self, workspace: RecordedFolder, records: Sequence[StoreRecord]) -> None:
        try:
            self._open_store().add(records)
        except OSError as error:
            workspace.refuse(f"No undo here: {text_for_host(error)}")

    # Going back

    async def list_checkpoints(self) -> Checkpoints:
        """All checkpoints of the conversation, oldest first."""
        if (off := await self._find_why_off()) is not None:
            return Checkpoints(checkpoints=[], off=off)
        store = self._open_store()
        return Checkpoints(
            checkpoints=[_describe(one, store.is_undone(one)) for one in store.checkpoints if _is_worth_listing(one)]
        )

    async def preview(self, checkpoint_id: str | None, files: Sequence[str] | None) -> UndoPreview:
        """What `undo` would do; raises `Refusal`."""
        async with self._going_back() as restoration:
            chosen = self._choose_checkpoints(checkpoint_id)
            return await restoration.preview(await restoration.plan(chosen, [], files))

    async def undo(
        self, checkpoint_id: str | None, files: Sequence[str] | None, force: bool
    ) -> tuple[str, RestoredFiles]:
        """Undo; returns the oldest checkpoint that it was about. Raises `Refusal`."""
        async with self._going_back() as restoration:
            chosen = self._choose_checkpoints(checkpoint_id)
            plan = await restoration.plan(chosen, [], files)
            return chosen[0].began.id, await restoration.carry_out(plan, force)

    async def redo(self, force: bool) -> tuple[str, RestoredFiles]:
        """Take back the last restoration; returns the checkpoint that it was about. Raises `Refusal`."""
        async with self._going_back() as restoration:
            last = self._open_store().restored[-1:] or None
            if last is None:
                raise Refusal(NOTHING_TO_REDO)
            plan = await restoration.plan_redo(last[0])
            return last[0].checkpoint, await restoration.carry_out(plan, force)

    async def restore_place(self, places: set[str], since: int) -> tuple[str, RestoredFiles]:
        """Bring the files to what they were when the messages of the conversation were these, at a moment."""
        async with self._going_back() as restoration:
            store = self._open_store()
            back = [one for one in store.checkpoints if one.began.place not in places and not store.is_undone(one)]
            forth = [one for one in store.checkpoints if one.began.place in places]
            plan = await restoration.plan(back, forth, None, since)
            changed = [*back, *forth]
            return changed[0].began.id if changed else "", await restoration.carry_out(plan, force=False)

    def _going_back(self) -> _GoingBack:
        return _GoingBack(self)

    def _choose_checkpoints(self, checkpoint_id: str | None) -> list[Checkpoint]:
        """A checkpoint and all later ones that are not undone; raises `Refusal`."""
        store = self._open_store()
        left = [one for one in store.checkpoints if not store.is_undone(one)]
        if checkpoint_id is None:
            if not left:
                raise Refusal(NOTHING_LEFT)
            return left[-1:]
        first = store.find(checkpoint_id)
        if first is None:
            raise Refusal(UNKNOWN.format(checkpoint_id[:200]), "not_found")
        chosen = [one for one in store.checkpoints[store.checkpoints.index(first) :] if one in left]
        if not chosen:
            raise Refusal(ALREADY.format(checkpoint_id))
        return chosen

    async def _find_why_off(self) -> str | None:
        if not self._choices.enabled:
            return DISABLED
        await self.settle()
        workspace = self._open_workspace()
        await workspace.wait_until_known()
        return workspace.refused

    async def open_restoration(self) -> Restoration:
        """Everything is recorded, and the folder is open; raises `Refusal`."""
        if (off := await self._find_why_off()) is not None:
            raise Refusal(off)
        workspace = self._open_workspace()
        workspace.start()
        if not await workspace.wait_until_known():
            raise Refusal(workspace.refused or "")
        return Restoration(self._choices.store, workspace, self._open_store(), self._given)

    async def list_changes(self, places: set[str]) -> RecordedChanges | None:
        """What is left of the changes of some messages of the conversation; None if nothing is recorded here."""
        if await self._find_why_off() is not None:
            return None
        store = self._open_store()
        chosen = [one for one in store.checkpoints if one.began.place in places]
        changes = await run_in_thread(partial(_find_changes, store, chosen))
        left_out = frozenset(path for one in chosen for path in one.left_out)
        return RecordedChanges(changes, frozenset(one.began.place for one in chosen), left_out)

    # What is open

    @property
    def lock(self) -> asyncio.Lock:
        return self._lock

    def _open_workspace(self) -> RecordedFolder:
        folder = self._folder()
        if self._workspace is None or self._workspace[0] != folder:
            if self._workspace is not None:
                self._start(self._workspace[1].close())
            self._workspace = (folder, RecordedFolder(folder, self._choices, self._given, self._session_id))
        return self._workspace[1]

    def _open_store(self) -> ConversationStore:
        session_id = self._session_id()
        if self._store is None or self._store.session_id != session_id:
            place, file = self._open_workspace().root, self._given.find_session_file() or ""
            self._store = ConversationStore(self._choices.store, session_id, place, file)
        return self._store


class _GoingBack:
    """Holds the files of a conversation while something is restored, or about to be."""

    def __init__(self, checkpoints: WorkspaceCheckpoints) -> None:
        self._checkpoints = checkpoints

    async def __aenter__(self) -> Restoration:
        restoration = await self._checkpoints.open_restoration()
        await self._checkpoints.lock.acquire()
        return restoration

    async def __aexit__(self, *failure: object) -> None:
        self._checkpoints.lock.release()


def _keep(content: Content, store: ConversationStore) -> FileState | None:
    state = content.state
    if state is None or content.data is None:
        return state
    return replace(state, content=store.objects.write(content.data))


def _differ(change: PathChange) -> bool:
    nothing = Content(None)
    return any(
        before.state != after.state or before.data != after.data
        for path, before in change.before.items()
        for after in (change.after.get(path, nothing),)
    )


def _find_reason(before: FileState | None, after: FileState | None) -> str:
    """Why a change is not covered; empty if it is. What has become ignored can be brought back."""
    for state in (before, after):
        if state is not None and state.kind == "special":
            return SPECIAL
    if before is not None and before.unsaved:
        return before.unsaved
    return after.unsaved if after is not None and after.unsaved != IGNORED else ""


def _is_worth_listing(checkpoint: Checkpoint) -> bool:
    return bool(checkpoint.steps or checkpoint.left_out)


def _describe(checkpoint: Checkpoint, undone: bool) -> CheckpointInfo:
    began = checkpoint.began
    first: dict[str, FileState | None] = {}
    last: dict[str, FileState | None] = {}
    for step in sorted(checkpoint.steps.values(), key=lambda step: step.number):
        first.setdefault(step.name, step.before)
        last[step.name] = step.after
    files = [
        FileAndChange(path=shown_path(path), change=change_between(before, last[path]))
        for path, before in sorted(first.items(), key=lambda one: os.fsencode(one[0]))
        if before != last[path] and not all(one is None or one.kind == "folder" for one in (before, last[path]))
    ]
    return CheckpointInfo(
        id=began.id,
        entry_id=began.entry_id,
        text=began.text,
        time=began.time,
        files=files,
        undone=undone,
        agent_id=began.agent_id or ABSENT,
    )


def _find_changes(store: ConversationStore, checkpoints: Sequence[Checkpoint]) -> list[RecordedChange]:
    """Steps of one path in a row are one change; what others did in between begins another."""
    paths: dict[bytes, list[tuple[int, FileState | None, FileState | None, str]]] = {}
    for checkpoint in checkpoints:
        for step in checkpoint.open_steps:
            answer = checkpoint.answers.get(step.number, "") or checkpoint.began.place
            paths.setdefault(step.path, []).append((step.number, step.before, step.after, answer))
    found = []
    for path, steps in sorted(paths.items()):
        rows: list[tuple[FileState | None, FileState | None, str]] = []
        for _, before, after, answer in sorted(steps, key=lambda one: one[0]):
            if rows and rows[-1][1] == before:
                rows[-1] = (rows[-1][0], after, answer)
            else:
                rows.append((before, after, answer))
        for first, last, answer in rows:
            if not all(state is None or state.kind == "folder" for state in (first, last)):
                contents = [_read_content(store, state) for state in (first, last)]
                found.append(RecordedChange(shown_path(os.fsdecode(path)), contents[0], contents[1], answer))
    return found


def _read_content(store: ConversationStore, state: FileState | None) -> bytes | None:
    if state is None or state.kind == "folder":
        return None
    return (store.objects.read(state.content) if state.content else None) or b""
