"""One restoration of a conversation, from the plan to the record of what was done, and its completion after a crash."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Sequence
from functools import partial

from msgspec import MsgspecError, Struct, field, json
from msgspec.structs import replace

from pigeon.checkpoints.descriptors import Content
from pigeon.checkpoints.diffs import LONGEST, Side, format_diff
from pigeon.checkpoints.planning import collect_left_out, is_selected, plan_steps, select_paths
from pigeon.checkpoints.records import Checkpoint, FileState, Restored, RestoredPath, change_between, shown_path
from pigeon.checkpoints.restoring import LOST, NOT_KEPT, Deed, Planned, find_conflict, read_now
from pigeon.checkpoints.store import ConversationStore
from pigeon.checkpoints.workspace import CheckpointParts, RecordedFolder
from pigeon.system.append_file import make_private_folder
from pigeon.system.files import replace_file_atomically, run_in_thread
from pigeon.wire.commands.undo import FileAndChange, FileAndReason, RestoredFiles, UndoPreview

PENDING = "pending"


class RestorationPlan(Struct):
    """What is to be restored, and what is left out. `undoes` is the restoration that this one takes back."""

    paths: list[Planned]
    left_out: dict[str, str]
    checkpoint: str
    closes: list[str] = field(default_factory=list)
    undoes: Restored | None = None


class _Pending(Struct):
    """The file that exists while paths are being restored."""

    root: bytes
    session_id: str
    file_bytes: int
    restored: Restored


_decode_pending = json.Decoder(_Pending).decode


class Restoration:
    """Plans what is restored in a folder, and carries it out."""

    def __init__(
        self, store: str, workspace: RecordedFolder, records: ConversationStore, given: CheckpointParts
    ) -> None:
        self._store = store
        self._workspace = workspace
        self._records = records
        self._given = given

    async def plan(
        self, back: Sequence[Checkpoint], forth: Sequence[Checkpoint], files: Sequence[str] | None, since: int = 0
    ) -> RestorationPlan:
        """Revert checkpoints, and repeat what was reverted of others after a moment."""
        chosen = select_paths(files, self._workspace.root)
        planned = [
            one
            for one in plan_steps(back, forth, since)
            if is_selected(one.path.name, chosen) or is_selected(shown_path(one.path.name), chosen)
        ]
        covered = {shown_path(one.path.name) for one in planned}
        left_out = {path: why for path, why in collect_left_out(back, covered).items() if is_selected(path, chosen)}
        closes = [one.began.id for one in back if not one.steps] if chosen is None else []
        return await self._look(RestorationPlan(planned, left_out, back[0].began.id if back else "", closes))

    async def plan_redo(self, restored: Restored) -> RestorationPlan:
        """What takes an earlier restoration back."""
        planned = [Planned(path.invert()) for path in restored.paths]
        return await self._look(RestorationPlan(planned, {}, restored.checkpoint, undoes=restored))

    async def preview(self, plan: RestorationPlan) -> UndoPreview:
        """What carrying it out without force would do."""
        conflicts = self._find_conflicts(plan)
        doing = [one for one in plan.paths if one.path.name not in conflicts and _is_listed(one)]
        diff = await run_in_thread(partial(self._make_diff, doing))
        return UndoPreview(
            files=_list_files(doing),
            diff=self._given.mask(diff),
            conflicts=_list_reasons(conflicts),
            not_covered=_list_shown_reasons(plan.left_out),
        )

    async def carry_out(self, plan: RestorationPlan, force: bool) -> RestoredFiles:
        """Restore what only the agent has changed, with `force` everything."""
        conflicts = {} if force else self._find_conflicts(plan)
        doing = [one for one in plan.paths if one.path.name not in conflicts]
        if force:
            for one in doing:
                if find_conflict(one) and one.now.state is not None and one.now.state.unsaved:
                    conflicts[one.path.name] = NOT_KEPT
            doing = [one for one in doing if one.path.name not in conflicts]
        # A folder goes with the last of its files.
        doing = [one for one in doing if not (one.is_folder and _has_below(one.path.name, conflicts))]
        failed = await run_in_thread(partial(self._restore, plan, doing, bool(conflicts)))
        conflicts |= failed
        done = [one for one in doing if one.path.name not in failed]
        for one in done:
            self._workspace.take_over(one.path.name, one.path.now, self._records.objects)
        return RestoredFiles(
            files=_list_files([one for one in done if _is_listed(one)]),
            conflicts=_list_reasons(conflicts),
            not_covered=_list_shown_reasons(plan.left_out),
        )

    async def _look(self, plan: RestorationPlan) -> RestorationPlan:
        """Look at what stands there now, and leave out what cannot be restored."""

        def look() -> list[Planned]:
            root = _open_root(self._workspace.root)
            try:
                most = self._workspace.file_bytes
                return [replace(one, now=read_now(root, one.path.name, most)) for one in plan.paths]
            finally:
                os.close(root)

        kept = []
        left_out = dict(plan.left_out)
        for one in await run_in_thread(look):
            why = self._find_gap(one.path.now)
            if why and one.now.state != one.path.now:
                left_out[shown_path(one.path.name)] = why
            else:
                kept.append(one)
        return replace(plan, paths=kept, left_out=left_out)

    def _find_gap(self, target: FileState | None) -> str:
        if target is None or target.kind == "folder":
            return ""
        if target.unsaved:
            return target.unsaved
        return "" if self._records.objects.has(target.content) else LOST

    def _find_conflicts(self, plan: RestorationPlan) -> dict[str, str]:
        found = {}
        for one in plan.paths:
            why = None if one.is_folder else find_conflict(one)
            if why:
                found[one.path.name] = why
        return found

    def _make_diff(self, doing: Iterable[Planned]) -> str:
        parts: list[str] = []
        left = LONGEST
        for one in doing:
            target = one.path.now
            data = None if target is None or not target.content else self._records.objects.read(target.content)
            text = format_diff(one.path.name, Side(one.now.state, one.now.data), Side(target, data), left)
            left -= len(text)
            parts.append(text)
        return "".join(parts)

    def _restore(self, plan: RestorationPlan, doing: list[Planned], partly: bool) -> dict[str, str]:
        """Write down what will happen, let it happen, and record it; returns what failed, and why."""
        records = self._records
        records.create()
        paths = []
        for one in doing:
            # What git ignores by now is not stored: it cannot come back.
            is_kept = one.path.was is None or not one.path.was.unsaved
            if is_kept and one.now.data is not None:
                records.objects.write(one.now.data)
            was = one.now.state if is_kept else one.path.was
            paths.append(RestoredPath(one.path.path, was, one.path.now, one.path.reverts, one.path.repeats))
        restored = Restored(
            id=self._given.new_id(),
            checkpoint=plan.checkpoint,
            time=self._given.now(),
            paths=paths,
            undoes=plan.undoes.id if plan.undoes else "",
            completes=not partly,
            closes=plan.closes,
            opens=plan.undoes.closes if plan.undoes else [],
        )
        if not paths and not plan.closes and not (plan.undoes and not partly):
            return {}
        pending = _Pending(os.fsencode(self._workspace.root), records.session_id, self._workspace.file_bytes, restored)
        todo = [(one.path.name, one.path.now, one.now) for one in doing if one.now.state != one.path.now]
        if not todo:
            records.add([restored])
            return {}
        file = _write_pending(self._store, pending)
        try:
            failed = _do(self._workspace.root, records, restored, todo)
            os.unlink(f"{self._store}/{PENDING}/{records.session_id}")
        finally:
            os.close(file)
        return failed


def complete_restorations(store: str) -> list[str]:
    """Complete what a killed process has begun to restore; returns the folders. For a thread."""
    try:
        names = os.listdir(f"{store}/{PENDING}")
    except OSError:
        return []
    completed = []
    for name in names:
        place = f"{store}/{PENDING}/{name}"
        try:
            file = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            # The process that writes it holds it.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with open(place, "rb") as opened:
                pending = _decode_pending(opened.read())
            _complete(store, pending)
            os.unlink(place)
            completed.append(os.fsdecode(pending.root))
        except MsgspecError:
            # It was not yet written as a whole: nothing has begun.
            os.unlink(place)
        except OSError:
            continue
        finally:
            os.close(file)
    return completed


def _complete(store: str, pending: _Pending) -> None:
    records = ConversationStore(store, pending.session_id)
    root = _open_root(os.fsdecode(pending.root))
    try:
        deed = Deed(root, records.objects, _temporary_name(pending.restored))
        deed.remove_leftovers(path.name for path in pending.restored.paths)
        now = {path.name: read_now(root, path.name, pending.file_bytes) for path in pending.restored.paths}
    finally:
        os.close(root)
    todo = [
        (path.name, path.now, now[path.name])
        for path in pending.restored.paths
        if now[path.name].state == path.was and path.was != path.now
    ]
    kept = [path for path in pending.restored.paths if now[path.name].state in (path.was, path.now) or _is_folder(path)]
    _do(os.fsdecode(pending.root), records, replace(pending.restored, paths=kept), todo)


def _do(
    folder: str, records: ConversationStore, restored: Restored, todo: list[tuple[str, FileState | None, Content]]
) -> dict[str, str]:
    root = _open_root(folder)
    try:
        deed = Deed(root, records.objects, _temporary_name(restored))
        deed.apply(todo)
    finally:
        os.close(root)
    if deed.failed:
        done = [path for path in restored.paths if path.name not in deed.failed]
        restored = replace(restored, paths=done, completes=False)
    if all(known.id != restored.id for known in records.restored):
        records.add([restored])
    return deed.failed


def _write_pending(store: str, pending: _Pending) -> int:
    """Write down what is about to be restored; returns the descriptor that holds the file."""
    folder = f"{store}/{PENDING}"
    make_private_folder(folder)
    place = f"{folder}/{pending.session_id}"
    temporary = f"{store}/{pending.session_id}/{PENDING}"
    replace_file_atomically(temporary, json.encode(pending), 0o600)
    file = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(file, fcntl.LOCK_EX)
    os.replace(temporary, place)
    return file


def _temporary_name(restored: Restored) -> str:
    return f".pigeon-{restored.id}.tmp"


def _open_root(folder: str) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _is_folder(path: RestoredPath) -> bool:
    return all(state is None or state.kind == "folder" for state in (path.was, path.now))


def _is_listed(one: Planned) -> bool:
    return not one.is_folder and one.now.state != one.path.now


def _has_below(folder: str, paths: Iterable[str]) -> bool:
    return any(path.startswith(f"{folder}/") for path in paths)


def _list_files(planned: Iterable[Planned]) -> list[FileAndChange]:
    return [
        FileAndChange(path=shown_path(one.path.name), change=change_between(one.now.state, one.path.now))
        for one in planned
    ]


def _list_reasons(found: dict[str, str]) -> list[FileAndReason]:
    return _list_shown_reasons({shown_path(path): why for path, why in found.items()})


def _list_shown_reasons(found: dict[str, str]) -> list[FileAndReason]:
    return [FileAndReason(path=path, reason=why) for path, why in sorted(found.items())]
