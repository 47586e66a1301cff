"""The state of a worker that no session file contains, kept on disk for the next worker.

The worker writes it before it announces anything that depends on it (`rpc/worker_link.py`). So whenever it dies, the
next one continues the same session with the same model and the same use of its limits. The supervisor reads from it
which session file is open, so that no second conversation opens the same file.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress

from msgspec import Struct, field
from msgspec.structs import replace

from pigeon.app.options import AgentOptions
from pigeon.session.dependencies import KeptAllowance
from pigeon.session.history.file_store import FileStore
from pigeon.session.queue import KeptMessage
from pigeon.session.session import Session
from pigeon.system.files import replace_file
from pigeon.wire import codec
from pigeon.wire.content import text_of
from pigeon.wire.errors import BadRecord
from pigeon.wire.messages import CustomMessage, UserMessage
from pigeon.wire.steering import LimitedUse

STATE_FILE = "state.json"


class WorkerState(Struct, frozen=True, kw_only=True):
    """The folder and session of a conversation, and other state that is in no session file.

    `run` is the last run that was started. Its prompt was accepted, so it has to end even if the log does not contain
    it.
    """

    session_id: str
    session_file: str | None
    cwd: str
    model: str | None
    thinking: str
    used: LimitedUse = field(default_factory=LimitedUse)
    allowed: tuple[KeptAllowance, ...] = ()
    run: str = ""


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


class StateFile:
    """The file that holds the state of a worker."""

    def __init__(self, path: str, session: Session) -> None:
        self._path = path
        self._session = session
        self._written: WorkerState | None = None
        self._run = ""

    def restore_session(self, before: WorkerState) -> None:
        """Continue with the state of the previous worker."""
        session = self._session
        # Keep the run until its end is in the log.
        self._run = before.run
        if session.transcript.journal.session_id == before.session_id:
            session.dependencies.permissions.restore_allowances(before.allowed)
            session.engine.limits.restore_use(before.used)

    def save_if_changed(self) -> None:
        """Raises `OSError` if it cannot be written."""
        session, journal = self._session, self._session.transcript.journal
        if not journal.is_saved and any(line.type == "session_info" for line in journal.lines):
            # A named session needs a file: without one its name would be lost.
            journal.save_all()
        models, limits = session.models, session.engine.limits
        if not session.engine.is_settled:
            self._run = session.engine.activity.run_id
        now = WorkerState(
            session_id=journal.session_id,
            session_file=journal.file,
            cwd=journal.cwd,
            model=None if models.model is None else f"{models.model.provider}/{models.model.id}",
            thinking=models.level,
            used=limits.state().used if limits.active else LimitedUse(),
            allowed=tuple(session.dependencies.permissions.list_session_allowances()),
            run=self._run,
        )
        before = self._written
        if before is None or now != replace(before, used=replace(before.used, seconds=now.used.seconds)):
            replace_file(self._path, codec.encode(now), 0o600)
            self._written = now


def read_state(folder: str) -> WorkerState | None:
    """The state that the last worker left in the folder of its conversation, or None."""
    try:
        with open(os.path.join(folder, STATE_FILE), "rb") as file:
            return codec.convert(codec.decode(file.read()), WorkerState)
    except (OSError, BadRecord):
        return None


def options_for(state: WorkerState, options: AgentOptions) -> AgentOptions:
    """The options with which an agent continues from this state."""
    options = replace(options, model=state.model or options.model, thinking=state.thinking)
    if FileStore.has_file(state.session_file):
        return replace(options, session=state.session_file)
    return replace(options, session_id=state.session_id)
