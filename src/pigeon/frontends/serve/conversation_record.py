"""What is kept on disk of a conversation besides its session, its event log and the state of its worker."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping

from msgspec import Struct, field

from pigeon.frontends.serve.worker_state import WorkerState, read_state
from pigeon.system.append_file import make_private_folder
from pigeon.system.files import replace_file
from pigeon.transport.event_log import lock_log, log_owner
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.choices import TOOL_OFFERS, ToolOffer
from pigeon.wire.commands import NAMES
from pigeon.wire.errors import BadRecord, StartupError

RECORD_FILE = "conversation.json"
LOG_FOLDER = "events"
STDERR_FILE = "stderr.log"
# Prefix of the folder of a conversation that is being removed; no id begins like this.
REMOVED = ".removed-"
# Commands that are repeated to the next worker: the last successful one of each of these types. The name of a session,
# its model and its thinking level are in its file or in the worker's state; the other `set_*` commands keep nothing.
REMEMBERED = frozenset(name for command, name in NAMES.items() if command.outlives_worker)


class ConversationFolders:
    """The folders of all conversations below one agent's folder, named by their ids."""

    def __init__(self, agent_dir: str) -> None:
        self._agent_dir = agent_dir
        self._folder = os.path.join(agent_dir, "serve", "conversations")
        make_private_folder(self._folder)

    @property
    def count(self) -> int:
        return len(os.listdir(self._folder))

    def lock_and_clean_up(self) -> None:
        """Claim the folders for this process and delete remains; raises `StartupError` if another process has them."""
        place = os.path.dirname(self._folder)
        try:
            lock_log(place)
        except OSError:
            other = log_owner(place)
            raise StartupError(
                f"Another pigeon serve (process {other}) already serves {self._agent_dir}. "
                "`pigeon serve --link` prints a new link to it"
            ) from None
        for name in os.listdir(self._folder):
            if name.startswith(REMOVED):
                shutil.rmtree(os.path.join(self._folder, name), ignore_errors=True)

    def path_of(self, id: str) -> str:
        """The folder of a conversation, which need not exist."""
        return os.path.join(self._folder, id)

    def ensure_folder(self, id: str) -> str:
        """Create the folder of a conversation unless it exists, and return it; raises `OSError`."""
        folder = self.path_of(id)
        make_private_folder(folder)
        return folder

    async def remove(self, id: str) -> None:
        """Delete the folder of a conversation, which is gone under its name at once; raises `OSError`."""
        # A kill must not leave half of it under its name.
        folder = self.path_of(f"{REMOVED}{id}-{os.urandom(4).hex()}")
        os.rename(self.path_of(id), folder)
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def find_owner(self, session_path: str) -> str | None:
        """The id of the conversation that has a session file open."""
        path = os.path.realpath(session_path)
        for name in os.listdir(self._folder):
            folder = self.path_of(name)
            # The remains of a removed conversation have no open session and cannot be reached.
            if not has_record(folder):
                continue
            state = read_state(folder)
            record = read_record(folder) if state is None else None
            file = state.session_file if state is not None else None if record is None else record.session_file
            if file is not None and os.path.realpath(file) == path:
                return name
        return None


def list_offers(asked: object) -> tuple[ToolOffer, ...]:
    """The offers in a request for a conversation, which has a member for each."""
    return tuple(offer for offer in TOOL_OFFERS if getattr(asked, offer))


class ConversationRecord(Struct, kw_only=True):
    """What is kept of a conversation besides its session: its folder, how it began, and its remembered settings.

    `workspace` is the URL of the machine that the folder is on, if that is another one.

    `trusted` is the folder that a remembered `set_trust` is about.
    """

    id: str
    cwd: str
    model: str | None = None
    offers: tuple[ToolOffer, ...] = ()
    workspace: str | None = None
    session_file: str | None = None
    trusted: str = ""
    remembered: dict[str, dict[str, Json]] = field(default_factory=dict)

    def remember(self, command: Mapping[str, Json], place: WorkerState | None) -> None:
        """Remember a successful command, with the folder and session of that moment."""
        name = str(command["type"])
        if name == "set_trust":
            self.trusted = "" if place is None else place.cwd
        self.remembered[name] = {key: value for key, value in command.items() if key != "id"}

    def list_commands_to_resend(self, place: WorkerState | None) -> tuple[dict[str, Json], ...]:
        """The commands to send to the next worker, without a `set_trust` that was about another folder."""
        there = "" if place is None else place.cwd
        return tuple(
            command for name, command in self.remembered.items() if name != "set_trust" or there == self.trusted
        )

    def save_if_missing(self, folder: str) -> None:
        if not has_record(folder):
            self.save(folder)

    def save(self, folder: str) -> None:
        replace_file(os.path.join(folder, RECORD_FILE), codec.encode(self), 0o600)


def has_record(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, RECORD_FILE))


def read_record(folder: str) -> ConversationRecord | None:
    """The record in a folder, or None if it is missing or cannot be read."""
    try:
        with open(os.path.join(folder, RECORD_FILE), "rb") as file:
            return codec.convert(codec.decode(file.read()), ConversationRecord)
    except (OSError, BadRecord):
        return None
