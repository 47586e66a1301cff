"""`navigate_tree`: another entry becomes the leaf, with a summary of the abandoned branch if requested."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pigeon.agent.scope import Scope
from pigeon.session.compaction.summarizer import Summarizer, SummaryRequest
from pigeon.session.context.transcript import Transcript, context_of
from pigeon.session.history.entry_line import EntryLine
from pigeon.session.model_choice import ModelChoice
from pigeon.wire.answers import Navigated
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.content import text_of
from pigeon.wire.entries import BranchSummaryEntry, LabelEntry
from pigeon.wire.errors import Refusal
from pigeon.wire.messages import Message, ToolResultMessage, UserMessage
from pigeon.wire.model import Usage
from pigeon.wire.tokens import message_tokens

BRANCH = """The conversation above is a branch that the user has left. Summarize it for an agent that goes on
elsewhere, with these sections:
## Goal
## Constraints & Preferences
## Progress
## Key Decisions
## Next Steps"""
RESERVE_TOKENS = 16384


class NavigationOptions(Struct):
    """Whether to summarize the abandoned branch, with which focus, and a label for the new leaf."""

    summarize: bool = False
    instructions: str | Absent = ABSENT
    label: str | Absent = ABSENT


class Navigation:
    """Moves the leaf of the journal to another entry, with a summary of what is left behind."""

    def __init__(self, transcript: Transcript, models: ModelChoice, summarizer: Summarizer) -> None:
        self._transcript = transcript
        self._models = models
        self._summarizer = summarizer

    async def navigate_to(self, entry_id: str, options: NavigationOptions, scope: Scope) -> Navigated:
        """Make an entry the leaf; a user message is returned for editing, so its parent becomes the leaf."""
        journal = self._transcript.journal
        target = journal.find_line(entry_id)
        if target is None:
            raise Refusal(f"Entry not found: {entry_id}")
        text, leaf = _find_edit_text_and_leaf(target)
        left = find_abandoned(journal.branch, journal.path_to(leaf))
        old_leaf = journal.leaf_id
        summary = await self._summarize_branch(left, options, scope) if options.summarize else None
        scope.raise_if_cancelled()
        journal.set_leaf(leaf)
        summarized = None
        if summary is not None:
            said, details, usage = summary
            summarized = journal.append(
                BranchSummaryEntry,
                from_id=old_leaf or "root",
                summary=said,
                details=details,
                usage=usage,
                from_hook=False,
            )
        if not isinstance(options.label, Absent):
            journal.append(LabelEntry, target_id=summarized.id if summarized else entry_id, label=options.label)
        return Navigated(
            cancelled=False,
            leaf_id=journal.leaf_id,
            text=ABSENT if text is None else text,
            summary_entry_id=summarized.id if summarized else ABSENT,
        )

    async def _summarize_branch(
        self, left: list[EntryLine], options: NavigationOptions, scope: Scope
    ) -> tuple[str, Json, Usage] | None:
        model = self._models.model
        messages = [message for message in context_of(left) if not isinstance(message, ToolResultMessage)]
        if model is None or not messages:
            return None
        files = self._summarizer.make_touched_files()
        files.add_messages(messages)
        focus = options.instructions
        told = BRANCH if isinstance(focus, Absent) else f"{BRANCH}\n\nAdditional focus: {focus}"
        ask = SummaryRequest(model=model, thinking=self._models.level, scope=scope, source="branchSummary")
        budget = max(model.context_window - RESERVE_TOKENS, model.context_window // 2)
        said, usage = await self._summarizer.summarize(_newest_within_budget(messages, budget), told, ask)
        return said + files.render_appendix(), files.details(), usage


def _find_edit_text_and_leaf(target: EntryLine) -> tuple[str | None, str | None]:
    """The text to edit, if any, and the new leaf."""
    message = target.message
    if isinstance(message, UserMessage):
        return text_of(message.content), target.parent_id
    if target.type == "custom_message":
        entry = target.entry
        return text_of(getattr(entry, "content", "")), target.parent_id
    return None, target.id


def find_abandoned(old: list[EntryLine], new: list[EntryLine]) -> list[EntryLine]:
    """The end of the old path that the new one does not share."""
    shared = {line.id for line in new}
    return [line for line in old if line.id not in shared]


def _newest_within_budget(messages: Sequence[Message], budget: int) -> list[Message]:
    kept: list[Message] = []
    size = 0
    for message in reversed(messages):
        size += message_tokens(message)
        if size > budget and kept:
            break
        kept.append(message)
    kept.reverse()
    return kept
