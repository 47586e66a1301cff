"""Slash commands about what the agent has done to files: taking it back, doing it again, and looking at it."""

from __future__ import annotations

from collections.abc import Sequence

from pigeon.frontends.terminal.blocks import Notice
from pigeon.frontends.terminal.content.restored_files import name_some
from pigeon.frontends.terminal.view import Choice, ChoiceQuestion, View
from pigeon.sdk.conversation import Conversation
from pigeon.wire.base import value_or_default
from pigeon.wire.commands import FileAndReason, RestoredFiles

FORCE = "force"
LONGEST_TEXT = 60
ANSWERS = (Choice("yes", "Yes, bring them back", key="y"), Choice("no", "No, leave them", key="n"))


class UndoCommands:
    """`/undo`, `/redo` and `/changes` for one conversation."""

    def __init__(self, conversation: Conversation, view: View) -> None:
        self._conversation = conversation
        self._view = view

    async def undo(self, rest: str) -> None:
        """Show what the undo of the last prompt would do, ask once, and do it."""
        listed = await self._conversation.get_checkpoints()
        left = [one for one in listed.checkpoints if not one.undone]
        if not left:
            reason = value_or_default(listed.off, "There is nothing to undo: the agent has changed no files")
            self._view.show(Notice(reason, "warning"))
            return
        force = rest.strip() == FORCE
        chosen = left[-1]
        preview = await self._conversation.preview_undo(checkpoint=chosen.id)
        if not preview.files and not (force and preview.conflicts):
            self._show_left_alone(preview.conflicts, preview.not_covered)
            return
        files = [f"{one.change} {one.path}" for one in preview.files]
        if force:
            files += [f"overwrite {one.path}" for one in preview.conflicts]
        title = f"Undo “{_shorten(chosen.text)}”: {name_some(files)}?"
        answer = await self._view.ask(ChoiceQuestion(title, ANSWERS, diff=preview.diff, search=True, chosen="yes"))
        if answer != "yes":
            return
        self._show_result(await self._conversation.undo(checkpoint=chosen.id, force=force))

    async def redo(self, rest: str) -> None:
        """Do again what the last undo has taken back, with what that has overwritten."""
        self._show_result(await self._conversation.redo(force=rest.strip() == FORCE))

    async def show_changes(self, rest: str) -> None:
        """List the files that the agent has changed, or show the changes of one."""
        path = rest.strip()
        changed = (await self._conversation.get_changes(path=path or None)).files
        if not changed:
            self._view.show(Notice("The agent has changed no files"))
            return
        if path:
            self._view.show(Notice("\n".join(value_or_default(changed[0].diffs, [])).rstrip()))
            return
        self._view.show(Notice("\n".join(f"{one.path}  +{one.added} -{one.removed}" for one in changed)))

    def _show_result(self, result: RestoredFiles) -> None:
        """What was restored is told by an event, to every client."""
        if not result.files:
            self._view.show(Notice("No file was changed", "warning"))
        self._show_left_alone(result.conflicts, result.not_covered)

    def _show_left_alone(self, conflicts: Sequence[FileAndReason], not_covered: Sequence[FileAndReason]) -> None:
        if conflicts:
            names = name_some([f"{one.path} ({one.reason})" for one in conflicts])
            self._view.show(Notice(f"Left alone: {names}. /undo {FORCE} overwrites that", "warning"))
        if not_covered:
            names = name_some([f"{one.path} ({one.reason})" for one in not_covered])
            self._view.show(Notice(f"Not covered: {names}"))


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_TEXT else f"{line[:LONGEST_TEXT]}…"
