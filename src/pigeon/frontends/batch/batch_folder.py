"""The folder of a batch: what is to be done, what is done, and which driver works on it.

    batch.json        what the batch is: its id, and the settings that hold for all of it
    tasks.jsonl       the specs, one on each line, in order
    results.jsonl     the results, in the order of the tasks once the batch has ended
    unfinished.jsonl  attempts that came to nothing or were repeated, with what they cost
    HASH/             a finished task, by the hash of its spec; a name with a dot is an attempt that is not whole
    .lock             held by the driver

A task is finished if its folder exists. `results.jsonl` only repeats the contents of these folders and is rebuilt from
them, so it cannot stay wrong. Nothing here holds more than one task in memory.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct, field

from pigeon.frontends.batch.places.workspaces import OLD, remove_folder, rename_for_removal
from pigeon.frontends.batch.records import Status, TaskResult, TaskSpec, hash_of
from pigeon.frontends.batch.shared_limits import Rate
from pigeon.frontends.batch.task_process import PART
from pigeon.frontends.batch.task_run import RESULT_FILE, read_result
from pigeon.session.history.session_folders import SessionFolders
from pigeon.system.append_file import make_private_folder
from pigeon.system.files import create_or_replace_file, create_private_file, replace_file_atomically
from pigeon.wire import codec
from pigeon.wire.errors import BadRecord, StartupError, UsageError

BATCH_FILE = "batch.json"
TASKS_FILE = "tasks.jsonl"
RESULTS_FILE = "results.jsonl"
UNFINISHED_FILE = "unfinished.jsonl"
LOCK_FILE = ".lock"
# Tasks that a driver had written when it was killed, before they became those of the batch.
NOT_TAKEN = (f"{TASKS_FILE}.new", f".{TASKS_FILE}.new.tmp")
VERSION = 1
BLOCK = 64 * 1024


class BatchRecord(Struct, rename="camel", frozen=True, kw_only=True):
    """What is stored of a batch besides its tasks; a resumed batch continues with it.

    Attributes:
        version: the form of the folder
        id: names the batch
        began: when it began, in milliseconds since 1970
        title: what it is called in the report
        max_cost: the most that all tasks may cost together
        rates: what providers allow
        keep: which workspaces stay
        engine: the engine that it was begun with
    """

    version: int = VERSION
    id: str
    began: int = 0
    title: str = ""
    max_cost: float | None = None
    rates: dict[str, Rate] = field(default_factory=dict)
    keep: str = "all"
    engine: str = "local"


class Attempt(Struct, rename="camel", frozen=True, kw_only=True):
    """An attempt at a task that did not finish, and its cost."""

    id: str
    folder: str
    cost: float
    reason: str


class Tally(Struct, kw_only=True):
    """The tasks of a batch in numbers."""

    total: int = 0
    by_status: dict[Status, int] = field(default_factory=dict)
    cost: float = 0.0
    dearest: float = 0.0
    reasons: dict[str, int] = field(default_factory=dict)

    def count_task(self, result: TaskResult | None) -> None:
        """Count a task, with its result if it has one."""
        self.total += 1
        if result is not None:
            self.add(result)

    def add(self, result: TaskResult) -> None:
        """Count a finished task: its status, cost and error."""
        self.by_status[result.status] = self.by_status.get(result.status, 0) + 1
        self.cost += result.cost
        self.dearest = max(self.dearest, result.cost)
        if result.status != "done":
            reason = f"{result.status}: {(result.error or 'no reason was given').splitlines()[0][:200]}"
            if reason in self.reasons or len(self.reasons) < MOST_REASONS:
                self.reasons[reason] = self.reasons.get(reason, 0) + 1
            else:
                self.reasons[OTHER_REASONS] = self.reasons.get(OTHER_REASONS, 0) + 1

    @property
    def finished_count(self) -> int:
        return sum(self.by_status.values())


MOST_REASONS = 1000
OTHER_REASONS = "other reasons"


class BatchFolder:
    """One folder; `lock` before anything is written."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock: int | None = None

    def __enter__(self) -> BatchFolder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def exists(self) -> bool:
        return os.path.isfile(self._path_of(BATCH_FILE))

    def _path_of(self, name: str) -> str:
        return os.path.join(self.path, name)

    # Locking

    def lock(self) -> None:
        """Lock the folder for this driver; raises `StartupError` if there is another one, or the folder is not
        writable."""
        try:
            make_private_folder(self.path)
            descriptor = os.open(self._path_of(LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartupError(f"--out {self.path}: {error.strerror or error}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 200).decode("utf-8", "replace").strip() or "another process"
            os.close(descriptor)
            raise StartupError(f"{self.path} is being worked on by {owner}. Wait until it ends, or stop it") from None
        try:
            os.ftruncate(descriptor, 0)
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()} since {since}\n".encode(), 0)
        except OSError as error:
            os.close(descriptor)
            raise StartupError(f"--out {self.path}: {error.strerror or error}") from None
        self._lock = descriptor

    def close(self) -> None:
        descriptor, self._lock = self._lock, None
        if descriptor is not None:
            os.close(descriptor)

    def remove_if_empty(self) -> None:
        """Remove a folder in which nothing was begun."""
        with suppress(OSError):
            if os.listdir(self.path) == [LOCK_FILE]:
                os.unlink(self._path_of(LOCK_FILE))
                os.rmdir(self.path)

    # The record

    def check_empty(self) -> None:
        """Raise `UsageError` if the folder contains anything that is not a batch."""
        others = [name for name in os.listdir(self.path) if name not in (LOCK_FILE, *NOT_TAKEN)]
        if others:
            raise UsageError(
                f"--out {self.path} is not empty (it contains {sorted(others)[0]}) and has no batch. Choose another"
            )

    def read_record(self) -> BatchRecord:
        """Raises `StartupError` for a missing or invalid record."""
        try:
            with open(self._path_of(BATCH_FILE), "rb") as file:
                record = codec.convert(codec.decode(file.read()), BatchRecord)
        except FileNotFoundError:
            raise UsageError(f"{self.path} has no batch: there is no {BATCH_FILE}") from None
        except (OSError, BadRecord) as error:
            raise StartupError(f"{self._path_of(BATCH_FILE)} cannot be read: {error}") from None
        if record.version != VERSION:
            raise StartupError(f"{self.path} was made by another version of Pigeon (format {record.version})")
        return record

    def put_record(self, record: BatchRecord) -> None:
        replace_file_atomically(self._path_of(BATCH_FILE), msgspec.json.format(codec.encode(record)) + b"\n", 0o600)

    # Tasks

    def stage_tasks(self, specs: Iterable[TaskSpec]) -> NewTasks:
        """Write specs to a file beside the tasks; they count once `NewTasks.adopt` is called."""
        return NewTasks(self._path_of(TASKS_FILE), specs)

    def adopt_leftover_tasks(self) -> None:
        """Adopt the first tasks of a batch whose driver was killed just before `adopt`; their file is complete."""
        if not os.path.exists(self._path_of(TASKS_FILE)):
            with suppress(FileNotFoundError):
                os.replace(self._path_of(f"{TASKS_FILE}.new"), self._path_of(TASKS_FILE))

    def read_tasks(self) -> Iterator[TaskSpec]:
        """The specs, in order; raises `StartupError` if they cannot be read."""
        decoder, path = msgspec.json.Decoder(TaskSpec), self._path_of(TASKS_FILE)
        try:
            with open(path, "rb") as file:
                for line in file:
                    yield decoder.decode(line)
        except (OSError, msgspec.MsgspecError) as error:
            raise StartupError(f"{path} cannot be read: {error}") from None

    def is_finished(self, spec: TaskSpec) -> bool:
        return os.path.exists(os.path.join(self.path, hash_of(spec), RESULT_FILE))

    def read_result(self, spec: TaskSpec) -> TaskResult | None:
        """The result of a task, or None if it is not finished. Raises `StartupError` for one that cannot be read."""
        folder = os.path.join(self.path, hash_of(spec))
        try:
            return read_result(folder)
        except (OSError, BadRecord) as error:
            raise StartupError(
                f"{folder}/{RESULT_FILE} cannot be read: {error}. Delete the folder to run the task again"
            ) from None

    # Results

    def write_results(self, seen: Callable[[TaskSpec, TaskResult | None], None]) -> None:
        """Rebuild `results.jsonl` from the folders, in the order of the tasks; `seen` is called with each task."""

        def encode_result_blocks() -> Iterator[bytes]:
            block = bytearray()
            for spec in self.read_tasks():
                result = self.read_result(spec)
                seen(spec, result)
                if result is not None:
                    block += codec.encode(result) + b"\n"
                if len(block) >= BLOCK:
                    yield bytes(block)
                    block.clear()
            yield bytes(block)

        create_or_replace_file(self._path_of(RESULTS_FILE), encode_result_blocks(), 0o600)

    def add_result(self, result: TaskResult) -> None:
        """Add a line to `results.jsonl`, in the order of their ends."""
        self._append(RESULTS_FILE, codec.encode(result))

    def add_unfinished(self, attempt: Attempt) -> None:
        """Record an attempt that did not finish."""
        self._append(UNFINISHED_FILE, codec.encode(attempt))

    def _append(self, name: str, line: bytes) -> None:
        descriptor = os.open(self._path_of(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line + b"\n")
        finally:
            os.close(descriptor)

    def read_wasted_cost(self) -> float:
        """The cost of attempts that did not finish."""
        total = 0.0
        with suppress(FileNotFoundError), open(self._path_of(UNFINISHED_FILE), "rb") as file:
            for line in file:
                # The last line may be incomplete.
                with suppress(BadRecord):
                    total += codec.convert(codec.decode(line), Attempt).cost
        return total

    # Remains

    def remove_unfinished_attempts(self) -> None:
        """Remove what a killed driver left behind: unfinished attempts, after recording their cost."""
        for name in os.listdir(self.path):
            path = self._path_of(name)
            if name.startswith(PART):
                hash = name.removeprefix(PART).partition("-")[0]
                try:
                    path = rename_for_removal(path)
                except FileNotFoundError:
                    # It has just been renamed to become the result.
                    continue
                cost = _cost_of_attempt(path)
                if cost:
                    self.add_unfinished(Attempt(id="", folder=hash, cost=cost, reason="The driver was killed"))
                _remove_if_possible(path)
            elif name.startswith(OLD):
                _remove_if_possible(path)
            elif name.endswith(".tmp") and name.startswith("."):
                with suppress(OSError):
                    os.unlink(path)

    def discard_result(self, result: TaskResult) -> None:
        """Discard the result of a finished task, so that it is run again; its cost stays on record."""
        if result.cost:
            reason = f"Run again: {result.status}: {result.error or 'no reason was given'}"
            self.add_unfinished(Attempt(id=result.id, folder=result.folder, cost=result.cost, reason=reason))
        _remove_if_possible(rename_for_removal(self._path_of(result.folder)))


class NewTasks:
    """New specs in a separate file, and how they differ from those of the batch."""

    def __init__(self, path: str, specs: Iterable[TaskSpec]) -> None:
        self._path = path
        self._new = f"{path}.new"
        self.count = 0
        try:
            self._write(self._new, specs)
        except BaseException:
            self.drop()
            raise

    def _write(self, path: str, specs: Iterable[TaskSpec]) -> None:
        encoder = msgspec.json.Encoder()
        self.count = 0
        with create_private_file(path) as file:
            for spec in specs:
                file.write(encoder.encode(spec) + b"\n")
                self.count += 1
            file.flush()
            os.fsync(file.fileno())

    def replace_specs(self, changed: Callable[[TaskSpec], TaskSpec]) -> None:
        """Replace each spec with what `changed` returns for it."""
        decoder = msgspec.json.Decoder(TaskSpec)
        folder, name = os.path.split(self._new)
        temporary = os.path.join(folder, f".{name}.tmp")
        with open(self._new, "rb") as file:
            self._write(temporary, (changed(decoder.decode(line)) for line in file))
        os.replace(temporary, self._new)

    def count_changes(self) -> TaskChanges:
        """Returns what changes if they are adopted as the tasks of the batch."""
        old, new = _read_task_hashes(self._path), _read_task_hashes(self._new)
        common = len(old & new)
        return TaskChanges(same=common, new=len(new) - common, gone=len(old) - common)

    def replace_batch_tasks(self) -> None:
        """Make them the tasks of the batch."""
        os.replace(self._new, self._path)

    def drop(self) -> None:
        """Delete the new specs; the tasks of the batch stay as they are."""
        with suppress(FileNotFoundError):
            os.unlink(self._new)


class TaskChanges(Struct, frozen=True):
    """How many tasks of a batch stay, are new, or are gone."""

    same: int
    new: int
    gone: int


def _read_task_hashes(path: str) -> set[int]:
    """The hashes of the tasks in a file, shortened to save memory."""
    found = set()
    with open(path, "rb") as file:
        for line in file:
            found.add(int.from_bytes(hashlib.blake2b(line, digest_size=8).digest(), "big"))
    return found


def _cost_of_attempt(part: str) -> float:
    """The cost of an attempt, as far as its session file shows it."""
    total = 0.0
    with suppress(OSError):
        for path in SessionFolders.list_files(part):
            with open(path, "rb") as file:
                for line in file:
                    with suppress(BadRecord):
                        total += _cost_of_entry(codec.decode(line))
    return total


def _cost_of_entry(entry: Any) -> float:
    message = entry.get("message") if isinstance(entry, dict) else None
    usage = message.get("usage") if isinstance(message, dict) else None
    cost = usage.get("cost") if isinstance(usage, dict) else None
    total = cost.get("total") if isinstance(cost, dict) else None
    return float(total) if isinstance(total, int | float) and not isinstance(total, bool) else 0.0


def _remove_if_possible(path: str) -> None:
    """Remove a folder. What a dying process still writes there, and so cannot be removed now, is left."""
    try:
        remove_folder(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
            raise
