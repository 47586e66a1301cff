"""The files in which a worker keeps what no session file contains, for the next worker: its state and its queue."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from pigeon.frontends.serve.worker_state import RUN_FILE, RUN_WIDTH, WorkerState
from pigeon.session.dependencies import KeptAllowance
from pigeon.session.queue import KeptMessage
from pigeon.session.session import Session
from pigeon.system.files import replace_file
from pigeon.wire import codec
from pigeon.wire.content import text_of
from pigeon.wire.messages import CustomMessage, UserMessage
from pigeon.wire.steering import LimitedUse


class KeptQueue(Struct, frozen=True):
    """The messages that wait in the queue of a session."""

    session_id: str = ""
    messages: list[KeptMessage] = []


class QueueFile:
    """Keeps the queue on disk, separate from the state: images make it large, and only the next worker reads it.

    While the queue is empty there is no file.
    """

    def __init__(self, path: str, session: Session) -> None:
        self._path = path
        self._session = session
        self._written = KeptQueue()

    def restore_queue(self) -> None:
        """Queue the messages that the previous worker left, except for those already in the session.

        Raises `OSError` or `BadRecord` for a file that cannot be read; the next queued message replaces it.
        """
        try:
            with open(self._path, "rb") as file:
                kept = codec.convert(codec.decode(file.read()), KeptQueue)
        except FileNotFoundError:
            return
        self._written = kept
        journal = self._session.transcript.journal
        if not kept.messages or kept.session_id != journal.session_id:
            return
        messages = (line.message for line in journal.lines if line.role in ("user", "custom"))
        said = Counter(_identity_of(one) for one in messages if isinstance(one, (UserMessage, CustomMessage)))
        waiting = []
        for one in kept.messages:
            mark = _identity_of(one.message)
            # Two messages that came at once may have the same text.
            if said[mark]:
                said[mark] -= 1
            else:
                waiting.append(one)
        if waiting:
            self._session.queue.restore(waiting)

    def save_if_changed(self) -> None:
        """Raises `OSError` if it cannot be written."""
        kept = KeptQueue(self._session.transcript.journal.session_id, self._session.queue.kept_messages())
        if kept.messages and kept != self._written:
            replace_file(self._path, codec.encode(kept), 0o600)
        elif self._written.messages and not kept.messages:
            # Deleting works even on a full disk, where nothing can be written.
            with suppress(FileNotFoundError):
                os.unlink(self._path)
        self._written = kept


def _identity_of(message: UserMessage | CustomMessage) -> tuple[int, str]:
    """The identity of a message: when it came, and its text."""
    return message.timestamp, text_of(message.content)


class RunFile:
    """The file with the last run. Each run changes it, so it is overwritten in place: replacing a file takes a tenth of
    a short prompt. It is not read before the worker has ended."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1
        self._written = ""

    def restore(self, run: str) -> None:
        """Continue with the run of the previous worker, until its end is in the log."""
        self._written = run

    def save_if_changed(self, run: str) -> None:
        """Raises `OSError` if it cannot be written."""
        if run == self._written:
            return
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.pwrite(self._descriptor, run.ljust(RUN_WIDTH).encode(), 0)
        self._written = run

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class StateFile:
    """The file that holds the state of a worker."""

    def __init__(self, path: str, session: Session) -> None:
        self._path = path
        self._session = session
        self._written: WorkerState | None = None
        self._run = RunFile(os.path.join(os.path.dirname(path), RUN_FILE))

    def restore_session(self, before: WorkerState) -> None:
        """Continue with the state of the previous worker."""
        session = self._session
        # Keep the run until its end is in the log.
        self._run.restore(before.run)
        if session.transcript.journal.session_id == before.session_id:
            session.dependencies.permissions.restore_allowances(
                [codec.convert(one, KeptAllowance) for one in before.allowed]
            )
            session.engine.limits.restore_use(before.used)

    def save_if_changed(self) -> None:
        """Raises `OSError` if it cannot be written."""
        session, journal = self._session, self._session.transcript.journal
        if not journal.is_saved and any(line.type == "session_info" for line in journal.lines):
            # A named session needs a file: without one its name would be lost.
            journal.save_all()
        models, limits = session.models, session.engine.limits
        if not session.engine.is_settled:
            self._run.save_if_changed(session.engine.activity.run_id)
        now = WorkerState(
            session_id=journal.session_id,
            session_file=journal.file,
            cwd=journal.cwd,
            model=None if models.model is None else f"{models.model.provider}/{models.model.id}",
            thinking=models.level,
            used=limits.state().used if limits.active else LimitedUse(),
            allowed=tuple(map(codec.to_plain, session.dependencies.permissions.list_session_allowances())),
        )
        before = self._written
        if before is None or now != replace(before, used=replace(before.used, seconds=now.used.seconds)):
            replace_file(self._path, codec.encode(now), 0o600)
            self._written = now

    def close(self) -> None:
        """Nothing is saved afterwards."""
        self._run.close()
