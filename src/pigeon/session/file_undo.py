"""Undoing what the agent has done to files: when that is possible, and who is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from pigeon.session.activity import Activity
from pigeon.session.checkpoints import FileCheckpoints
from pigeon.session.context.transcript import Transcript
from pigeon.session.dependencies import StartedAgents
from pigeon.session.history.entry_line import EntryLine
from pigeon.wire.commands.undo import RestoredFiles
from pigeon.wire.entries import CustomMessageEntry
from pigeon.wire.errors import Refusal
from pigeon.wire.events import FilesRestored, Outbound
from pigeon.wire.messages import UserMessage

UNDO_NOTICE = "undo-notice"
RUNNING = "The agent is running: undo is possible when it has settled, or after abort"
UNDONE = "The user has reverted these files to what they were before: {}. Read them again before you change them."
REDONE = (
    "The user has taken back that these files were reverted: {}. They are again as they were before that. Read them "
    "again before you change them."
)
MOST_NAMED = 200


class FileUndo:
    """Undo and redo for commands, and for moves in the conversation that take the files along."""

    def __init__(
        self,
        checkpoints: FileCheckpoints,
        transcript: Transcript,
        activity: Activity,
        agents: StartedAgents,
        post: Callable[[Outbound], None],
    ) -> None:
        self.checkpoints = checkpoints
        self._transcript = transcript
        self._activity = activity
        self._agents = agents
        self._post = post

    async def undo(self, checkpoint_id: str | None, files: Sequence[str] | None, force: bool) -> RestoredFiles:
        """Undo, unless something runs; raises `Refusal`."""
        self._raise_if_running()
        return await self._tell(self.checkpoints.undo(checkpoint_id, files, force), UNDONE)

    async def redo(self, force: bool) -> RestoredFiles:
        """Take the last undo back, unless something runs; raises `Refusal`."""
        self._raise_if_running()
        return await self._tell(self.checkpoints.redo(force), REDONE)

    async def restore_files(self, entry_id: str) -> tuple[str, RestoredFiles]:
        """Bring the files to what they were at an entry, before the prompt if it is one; `announce` must follow."""
        journal = self._transcript.journal
        line = journal.find_line(entry_id)
        assert line is not None
        is_prompt = isinstance(line.message, UserMessage) or line.type == "custom_message"
        path = journal.path_to(line.parent_id if is_prompt else line.id)
        places = {entry.id for entry in path if entry.role == "user"}
        return await self.checkpoints.restore_place(places, _time_of(line))

    def announce(self, checkpoint_id: str, restored: RestoredFiles, text: str = UNDONE) -> None:
        """Tell clients, and with its next request the model."""
        if not restored.files:
            return
        names = [one.path for one in restored.files]
        more = len(names) - MOST_NAMED
        told = ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        notice = f"<notice>\n{text.format(told)}\n</notice>"
        self._transcript.journal.append(CustomMessageEntry, custom_type=UNDO_NOTICE, content=notice, display=False)
        self._post(FilesRestored(checkpoint=checkpoint_id, files=restored.files))

    async def _tell(self, work: Awaitable[tuple[str, RestoredFiles]], text: str) -> RestoredFiles:
        checkpoint_id, restored = await work
        self.announce(checkpoint_id, restored, text)
        return restored

    def _raise_if_running(self) -> None:
        if self._activity.is_busy or self._agents.describe_running():
            raise Refusal(RUNNING)


def _time_of(line: EntryLine) -> int:
    from datetime import datetime

    message = line.message
    if isinstance(message, UserMessage):
        return message.timestamp
    try:
        return int(datetime.fromisoformat(line.timestamp).timestamp() * 1000)
    except ValueError:
        return 0
