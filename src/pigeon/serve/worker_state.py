"""What a worker knows that is not in a session file, on disk for the one that comes after it.

The worker writes it before it says anything that follows from it (`rpc/worker_link.py`), so whenever it dies, the next
one continues the same session with the same model, and has used as much of its limits. The supervisor reads where the
conversation is now, so that no second one opens the same file.
"""

from __future__ import annotations

import os

from msgspec import Struct, field
from msgspec.structs import replace

from pigeon.app.options import AgentOptions
from pigeon.session.session import Session
from pigeon.system.files import replace_file
from pigeon.wire import codec
from pigeon.wire.answers import SessionAllowance
from pigeon.wire.errors import BadRecord
from pigeon.wire.steering import LimitedUse


class WorkerState(Struct, frozen=True, kw_only=True):
    """Where a conversation is, and what of it no session file has.

    `run` is the last run that was started. Its prompt was accepted, so it has to end even if the log does not know it.
    """

    session_id: str
    session_file: str | None
    cwd: str
    model: str | None
    thinking: str
    used: LimitedUse = field(default_factory=LimitedUse)
    allowed: tuple[SessionAllowance, ...] = ()
    run: str = ""


class StateFile:
    """The file that a worker keeps this in."""

    def __init__(self, path: str, session: Session) -> None:
        self._path = path
        self._session = session
        self._written: WorkerState | None = None
        self._run = ""

    def take_up(self, before: WorkerState) -> None:
        """Go on where the worker before has ended."""
        session = self._session
        # Until the end of that run is in the log, it must stay here.
        self._run = before.run
        if session.transcript.journal.session_id == before.session_id:
            session.permissions.allow(before.allowed)
            session.engine.limits.go_on_from(before.used)

    def note(self) -> None:
        """Write what has changed; raises `OSError`."""
        session, journal = self._session, self._session.transcript.journal
        if not journal.saved and any(line.type == "session_info" for line in journal.lines):
            # A name is worth a file: without one it would be lost.
            journal.save_all()
        models, limits = session.models, session.engine.limits
        if not session.engine.settled:
            self._run = session.engine.activity.run_id
        now = WorkerState(
            session_id=journal.session_id,
            session_file=journal.file,
            cwd=journal.cwd,
            model=None if models.model is None else f"{models.model.provider}/{models.model.id}",
            thinking=models.level,
            used=limits.state().used if limits.active else LimitedUse(),
            allowed=tuple(session.permissions.allowed()),
            run=self._run,
        )
        before = self._written
        if before is None or now != replace(before, used=replace(before.used, seconds=now.used.seconds)):
            replace_file(self._path, codec.encode(now), 0o600)
            self._written = now


def read_state(path: str) -> WorkerState | None:
    """What the last worker has left; none if there was none."""
    try:
        with open(path, "rb") as file:
            return codec.convert(codec.decode(file.read()), WorkerState)
    except (OSError, BadRecord):
        return None


def options_for(state: WorkerState, options: AgentOptions) -> AgentOptions:
    """The options of an agent that goes on there."""
    options = replace(options, model=state.model or options.model, thinking=state.thinking)
    if state.session_file is not None and os.path.exists(state.session_file):
        return replace(options, session=state.session_file)
    return replace(options, session_id=state.session_id)
