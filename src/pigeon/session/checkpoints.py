"""Checkpoints from the session's point of view: what it tells of calls, and what it asks for. `checkpoints` implements
the interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from pigeon.wire.commands.undo import Checkpoints, RestoredFiles, UndoPreview
from pigeon.wire.errors import Refusal

NONE_HERE = "This conversation has no checkpoints"


class MessagePlace(Struct, frozen=True):
    """The message to which changes of files belong: its entry, its text and time, the entry of the message in the
    conversation itself, and the agent, if it is one that another has started."""

    entry_id: str
    place: str
    text: str
    time: int
    agent_id: str = ""


class RecordedChange(Struct, frozen=True):
    """What is left of changes of one file: its bytes before and after, None where there is no file; and the last answer
    that has changed it."""

    path: str
    before: bytes | None
    after: bytes | None
    answer: str


class RecordedChanges(Struct, frozen=True):
    """The changes of some messages, in the order of their paths; whatever else is known about changes of these
    `places` counts only for paths in `left_out`."""

    changes: Sequence[RecordedChange]
    places: frozenset[str]
    left_out: frozenset[str]


class FileCheckpoints(Protocol):
    """The files of the conversation's folder before and after each message."""

    def begin_prompt(self) -> None:
        """Called when a run begins: what was undone cannot be done again."""
        ...

    def prepare(self) -> None:
        """Called when a command is about to be called."""
        ...

    async def before_call(
        self, message: MessagePlace, answer: str, call_id: str, place: str | None, goes_on: bool
    ) -> None:
        """Called before a call that may change the file at a real path, or with None any file.

        It `goes_on` if commands in the background may have changed files since the last call.
        """
        ...

    async def after_call(self, call_id: str, failed: bool) -> None: ...

    async def end_calls(self, agent_id: str) -> None:
        """Called when all calls of an agent have ended."""
        ...

    async def settle(self) -> None:
        """Wait until everything that has ended is recorded."""
        ...

    async def close(self, keep: bool) -> None:
        """The conversation ends; without `keep` its checkpoints are removed."""
        ...

    async def list_checkpoints(self) -> Checkpoints: ...

    async def preview(self, checkpoint_id: str | None, files: Sequence[str] | None) -> UndoPreview:
        """What `undo` would do; raises `Refusal`."""
        ...

    async def undo(
        self, checkpoint_id: str | None, files: Sequence[str] | None, force: bool
    ) -> tuple[str, RestoredFiles]:
        """Returns the oldest checkpoint that it was about; raises `Refusal`."""
        ...

    async def redo(self, force: bool) -> tuple[str, RestoredFiles]:
        """Returns the checkpoint that it was about; raises `Refusal`."""
        ...

    async def restore_place(self, places: set[str], since: int) -> tuple[str, RestoredFiles]:
        """Bring the files to what they were at a moment when the messages of the conversation were these; raises
        `Refusal`."""
        ...

    async def list_changes(self, places: set[str]) -> RecordedChanges | None:
        """What is left of the changes of messages; None if nothing is recorded here."""
        ...


class NoCheckpoints:
    """Those of a session whose files are not recorded."""

    def begin_prompt(self) -> None: ...

    def prepare(self) -> None: ...

    async def before_call(
        self, message: MessagePlace, answer: str, call_id: str, place: str | None, goes_on: bool
    ) -> None: ...

    async def after_call(self, call_id: str, failed: bool) -> None: ...

    async def end_calls(self, agent_id: str) -> None: ...

    async def settle(self) -> None: ...

    async def close(self, keep: bool) -> None: ...

    async def list_checkpoints(self) -> Checkpoints:
        return Checkpoints(checkpoints=[], off=NONE_HERE)

    async def preview(self, checkpoint_id: str | None, files: Sequence[str] | None) -> UndoPreview:
        raise Refusal(NONE_HERE)

    async def undo(
        self, checkpoint_id: str | None, files: Sequence[str] | None, force: bool
    ) -> tuple[str, RestoredFiles]:
        raise Refusal(NONE_HERE)

    async def redo(self, force: bool) -> tuple[str, RestoredFiles]:
        raise Refusal(NONE_HERE)

    async def restore_place(self, places: set[str], since: int) -> tuple[str, RestoredFiles]:
        raise Refusal(NONE_HERE)

    async def list_changes(self, places: set[str]) -> RecordedChanges | None:
        return None


class CheckpointsOfAgent(NoCheckpoints):
    """Those of a started agent: its calls are recorded with those of the conversation, where they are undone.

    `find_place` finds the message of the conversation for which it works.
    """

    def __init__(self, above: FileCheckpoints, agent_id: str, find_place: Callable[[], str]) -> None:
        self._above = above
        self._agent_id = agent_id
        self.find_place = find_place

    def prepare(self) -> None:
        self._above.prepare()

    async def before_call(
        self, message: MessagePlace, answer: str, call_id: str, place: str | None, goes_on: bool
    ) -> None:
        own = message
        if not message.agent_id:
            own = replace(message, agent_id=self._agent_id, place=self.find_place())
        await self._above.before_call(own, "", self._name(call_id), place, goes_on)

    async def after_call(self, call_id: str, failed: bool) -> None:
        await self._above.after_call(self._name(call_id), failed)

    async def end_calls(self, agent_id: str) -> None:
        await self._above.end_calls(agent_id or self._agent_id)

    async def settle(self) -> None:
        await self._above.settle()

    def _name(self, call_id: str) -> str:
        return f"{self._agent_id}/{call_id}"
