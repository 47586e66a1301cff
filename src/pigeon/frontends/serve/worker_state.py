"""The state of a worker that no session file contains, kept on disk for the next worker.

The worker writes it (`worker_files.py`) before it announces anything that depends on it (`rpc/worker_link.py`). So
whenever it dies, the next one continues the same session with the same model and the same use of its limits. The
supervisor reads from it which session file is open, so that no second conversation opens the same file.
"""

from __future__ import annotations

import os

from msgspec import Struct, field
from msgspec.structs import replace

from pigeon.app.options import AgentOptions
from pigeon.session.history.session_folders import SessionFolders
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.errors import BadRecord
from pigeon.wire.steering import LimitedUse

STATE_FILE = "state.json"
# The last run, padded to a width that every run has room in.
RUN_FILE = "run"
RUN_WIDTH = 128


class WorkerState(Struct, frozen=True, kw_only=True):
    """The folder and session of a conversation, and other state that is in no session file.

    `run` is the last run that was started, which is in a file of its own. Its prompt was accepted, so it has to end
    even if the log does not contain it. `allowed` are the records of allowed calls, which only a worker knows.
    """

    session_id: str
    session_file: str | None
    cwd: str
    model: str | None
    thinking: str
    used: LimitedUse = field(default_factory=LimitedUse)
    allowed: tuple[dict[str, Json], ...] = ()
    run: str = ""


def read_state(folder: str) -> WorkerState | None:
    """The state that the last worker left in the folder of its conversation, or None."""
    try:
        with open(os.path.join(folder, STATE_FILE), "rb") as file:
            return codec.convert(codec.decode(file.read()), WorkerState)
    except (OSError, BadRecord):
        return None


def read_last_run(folder: str) -> str:
    """The last run of the worker that has ended; empty if there was none."""
    try:
        with open(os.path.join(folder, RUN_FILE), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def options_for(state: WorkerState, options: AgentOptions) -> AgentOptions:
    """The options with which an agent continues from this state."""
    options = replace(options, model=state.model or options.model, thinking=state.thinking)
    if SessionFolders.has_file(state.session_file):
        return replace(options, session=state.session_file)
    return replace(options, session_id=state.session_id)
