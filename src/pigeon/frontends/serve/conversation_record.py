"""What is kept on disk of a conversation besides its session, its event log and the state of its worker."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct, field

from pigeon.frontends.serve.worker_state import WorkerState
from pigeon.system.files import replace_file
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.commands import NAMES
from pigeon.wire.errors import BadRecord

RECORD_FILE = "conversation.json"
# What is told to the next worker: the last command of each of these types that was carried out. The name of a session,
# its model and its thinking level are in its file, or in the worker's state; the rest of `set_*` keeps nothing.
REMEMBERED = frozenset(name for command, name in NAMES.items() if command.outlives_worker)


class ConversationRecord(Struct, kw_only=True):
    """What is kept of a conversation besides its session: its folder, how it began, the settings it was given.

    `trusted` is the folder that a remembered `set_trust` is about.
    """

    id: str
    cwd: str
    model: str | None = None
    session_file: str | None = None
    trusted: str = ""
    remembered: dict[str, dict[str, Json]] = field(default_factory=dict)

    def remember(self, command: Mapping[str, Json], place: WorkerState | None) -> None:
        """Note a command that was carried out while the conversation was in this folder and session."""
        name = str(command["type"])
        if name == "set_trust":
            self.trusted = "" if place is None else place.cwd
        self.remembered[name] = {key: value for key, value in command.items() if key != "id"}

    def commands(self, place: WorkerState | None) -> tuple[dict[str, Json], ...]:
        """The commands to send to the next worker, without a `set_trust` that was about another folder."""
        there = "" if place is None else place.cwd
        return tuple(
            command for name, command in self.remembered.items() if name != "set_trust" or there == self.trusted
        )

    def keep(self, folder: str) -> None:
        """Write the record unless there is one; raises `OSError`."""
        if not is_kept(folder):
            self.save(folder)

    def save(self, folder: str) -> None:
        """Write the record; raises `OSError`."""
        replace_file(os.path.join(folder, RECORD_FILE), codec.encode(self), 0o600)


def is_kept(folder: str) -> bool:
    """Whether the folder has a record."""
    return os.path.exists(os.path.join(folder, RECORD_FILE))


def read_record(folder: str) -> ConversationRecord | None:
    """The record in a folder; none if it is missing or cannot be read."""
    try:
        with open(os.path.join(folder, RECORD_FILE), "rb") as file:
            return codec.convert(codec.decode(file.read()), ConversationRecord)
    except (OSError, BadRecord):
        return None
