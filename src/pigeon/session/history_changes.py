"""History changes of commands: `compact` and `navigate_tree`. Both claim their turn at once, which stops the current
work, and begin when that has ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from pigeon.agent.scope import Scope
from pigeon.session.activity import Activity, CompactionClaim
from pigeon.session.compaction.compaction import CANCELLED, Compaction
from pigeon.session.context.transcript import Transcript
from pigeon.session.file_undo import FileUndo
from pigeon.session.navigation import Navigation, NavigationOptions
from pigeon.wire.answers import Compacted, Navigated
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.commands import RestoreChoice
from pigeon.wire.errors import ENTRY_MISSING, Aborted, Refusal


class HistoryChanges:
    """Compacts and navigates; `enter_branch` is called when the branch has changed."""

    def __init__(
        self,
        transcript: Transcript,
        activity: Activity,
        compaction: Compaction,
        navigation: Navigation,
        enter_branch: Callable[[], None],
        file_undo: FileUndo,
    ) -> None:
        self._transcript = transcript
        self._activity = activity
        self._compaction = compaction
        self._navigation = navigation
        self._enter_branch = enter_branch
        self.file_undo = file_undo

    def compact(self, instructions: str | Absent = ABSENT) -> Awaitable[Compacted]:
        """Summarize the history; the current work, even another compaction, is stopped before this returns."""
        self._transcript.journal.claim_and_reload_file()
        return self._compact(self._activity.claim_compaction(replaces=True), instructions)

    def navigate(
        self, entry_id: str, options: NavigationOptions, restore: RestoreChoice = "conversation"
    ) -> Awaitable[Navigated]:
        """Go to another place in the tree, with the files or only with them; the current work is stopped before this
        returns."""
        if self._transcript.journal.find_line(entry_id) is None:
            raise Refusal(f"{ENTRY_MISSING}{entry_id}")
        self._transcript.journal.claim_and_reload_file()
        return self._navigate(self._activity.claim_compaction(), entry_id, options, restore)

    async def _compact(self, claim: CompactionClaim, instructions: str | Absent) -> Compacted:
        scope = await self._wait_and_begin_claimed(claim)
        try:
            return await self._compaction.compact_on_request(instructions, scope)
        finally:
            self._activity.end()

    async def _navigate(
        self, claim: CompactionClaim, entry_id: str, options: NavigationOptions, restore: RestoreChoice
    ) -> Navigated:
        scope = await self._wait_and_begin_claimed(claim)
        try:
            arrived = Navigated(cancelled=False, leaf_id=self._transcript.journal.leaf_id)
            if restore != "files":
                arrived = await self._navigation.navigate_to(entry_id, options, scope)
                self._enter_branch()
            if restore != "conversation":
                self.file_undo.announce(*await self.file_undo.restore_files(entry_id))
                arrived = replace(arrived, leaf_id=self._transcript.journal.leaf_id)
            return arrived
        except Aborted:
            return Navigated(cancelled=True, leaf_id=self._transcript.journal.leaf_id)
        finally:
            self._activity.end()

    async def _wait_and_begin_claimed(self, claim: CompactionClaim) -> Scope:
        ended = self._activity.wait_for_end()
        while ended is not None:
            await ended
            ended = None if claim.is_cancelled else self._activity.wait_for_end()
        try:
            return self._activity.begin_compaction(claim)
        except Aborted:
            raise Refusal(CANCELLED) from None
