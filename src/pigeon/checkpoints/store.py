"""The checkpoints of one conversation on disk: a file of records, to which lines are only added, and the bytes of the
files that they are about, as objects of a git repository."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress

from msgspec import MsgspecError
from msgspec.structs import replace

from pigeon.checkpoints.objects import ObjectFolder, create_repository
from pigeon.checkpoints.records import (
    Began,
    Changed,
    Checkpoint,
    FileState,
    Forgot,
    LeftOut,
    Restored,
    Step,
    StoreRecord,
    decode_record,
    encode_record,
)
from pigeon.system.append_file import make_private_folder
from pigeon.system.files import write_new_private_file

RECORDS, PLACE, SESSION = "records", "place", "session"


class ConversationStore:
    """What is recorded of one conversation; nothing is created before there is something to record."""

    def __init__(self, store: str, session_id: str, place: str = "", file: str = "") -> None:
        """`place` is the folder whose files are recorded, and `file` that of the conversation; both are only needed of
        one that may have no checkpoints yet."""
        self._store = store
        self._origin = {PLACE: place, SESSION: file}
        self.session_id = session_id
        self.folder = f"{store}/{session_id}"
        self.objects = ObjectFolder(self.folder)
        self.checkpoints: list[Checkpoint] = []
        self.restored: list[Restored] = []
        self._closed: set[str] = set()
        self._last: dict[bytes, Step] = {}
        self._next = 1
        self._exists = False
        self._load()

    @property
    def exists(self) -> bool:
        return self._exists

    def add(self, records: Iterable[StoreRecord]) -> None:
        """Record something, and make it count."""
        added = list(records)
        if not added:
            return
        self.create()
        data = b"".join(encode_record(record) + b"\n" for record in added)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with open(os.open(f"{self.folder}/{RECORDS}", flags, 0o600), "wb", buffering=0) as file:
            file.write(data)
        for record in added:
            self._apply(record)

    def create(self) -> None:
        if not self._exists:
            make_private_folder(self._store)
            os.chmod(self._store, 0o700)
            make_private_folder(self.folder)
            create_repository(self.folder)
            for name, path in self._origin.items():
                with suppress(FileExistsError):
                    write_new_private_file(f"{self.folder}/{name}", os.fsencode(path))
            self._exists = True

    def remove_all(self) -> None:
        """Remove everything; for a thread."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._exists = False

    def find(self, checkpoint_id: str) -> Checkpoint | None:
        return next((one for one in self.checkpoints if one.began.id == checkpoint_id), None)

    def find_open(self, agent_id: str, entry_id: str) -> Checkpoint | None:
        """The checkpoint to which further changes of a message belong."""
        for one in reversed(self.checkpoints):
            if one.began.agent_id == agent_id:
                return one if one.began.entry_id == entry_id and not self.is_undone(one) else None
        return None

    def is_undone(self, checkpoint: Checkpoint) -> bool:
        """Whether none of its steps is left; of one without steps, whether it was undone nevertheless."""
        return not checkpoint.open_steps and (bool(checkpoint.steps) or checkpoint.began.id in self._closed)

    def make_steps(
        self, checkpoint: Checkpoint, paths: dict[str, tuple[FileState | None, FileState | None]]
    ) -> list[Step]:
        """The steps for changes; one that goes on where the last one of the same checkpoint ended replaces it."""
        steps = []
        for path, (before, after) in paths.items():
            raw = os.fsencode(path)
            last = self._last.get(raw)
            if last is not None and last.number in checkpoint.steps and not last.reverted and last.after == before:
                steps.append(Step(last.number, raw, last.before, after))
            else:
                steps.append(Step(self._next, raw, before, after))
                self._next += 1
        return steps

    def _load(self) -> None:
        try:
            with open(f"{self.folder}/{RECORDS}", "rb") as file:
                lines = file.read().split(b"\n")
        except OSError:
            return
        self._exists = True
        for line in lines:
            try:
                self._apply(decode_record(line))
            except MsgspecError:
                # The end of a line that a killed process has begun.
                continue

    def _apply(self, record: StoreRecord) -> None:
        if isinstance(record, Began):
            self.checkpoints.append(Checkpoint(began=record))
        elif isinstance(record, Restored):
            self._apply_restored(record)
        elif isinstance(record, Forgot):
            self.restored.clear()
        else:
            checkpoint = self.find(record.checkpoint)
            if checkpoint is None:
                return
            if isinstance(record, LeftOut):
                checkpoint.left_out.update(record.paths)
            else:
                self._apply_changed(checkpoint, record)

    def _apply_changed(self, checkpoint: Checkpoint, record: Changed) -> None:
        for step in record.steps:
            self._next = max(self._next, step.number + 1)
            if step.before == step.after:
                checkpoint.steps.pop(step.number, None)
                self._last.pop(step.path, None)
                continue
            checkpoint.steps[step.number] = step
            if record.answer:
                checkpoint.answers[step.number] = record.answer
            self._last[step.path] = step

    def _apply_restored(self, record: Restored) -> None:
        reverted = {number: record.time for path in record.paths for number in path.reverts}
        reverted |= {number: 0 for path in record.paths for number in path.repeats}
        for checkpoint in self.checkpoints:
            for number in checkpoint.steps.keys() & reverted.keys():
                changed = replace(checkpoint.steps[number], reverted=reverted[number])
                checkpoint.steps[number] = changed
                if self._last.get(changed.path, changed).number == number:
                    self._last[changed.path] = changed
        self._closed.update(record.closes)
        self._closed.difference_update(record.opens)
        if record.undoes:
            self._take_back(record)
        else:
            self.restored.append(record)

    def _take_back(self, record: Restored) -> None:
        """A redo: what is left of the restoration can be done again, too."""
        done = {path.path for path in record.paths}
        for index, earlier in enumerate(self.restored):
            if earlier.id == record.undoes:
                left = [path for path in earlier.paths if path.path not in done]
                self.restored[index : index + 1] = (
                    [] if record.completes else [replace(earlier, paths=left)][: len(left)]
                )
                return
