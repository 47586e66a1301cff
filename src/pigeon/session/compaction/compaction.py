"""Compaction: a summary replaces the older part of the conversation, on request, when the context is nearly full, and
when the provider reports an overflow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from pigeon.agent.interfaces import Publish
from pigeon.agent.scope import Scope
from pigeon.session.compaction.cutting import ConversationCut, find_cut, find_prunable_results, prune_results
from pigeon.session.compaction.summarizer import (
    HISTORY,
    PREFIX,
    Summarizer,
    SummaryFailed,
    SummaryRequest,
)
from pigeon.session.context.transcript import Transcript, context_of, estimate_branch_tokens
from pigeon.session.history.journal import Journal
from pigeon.session.hooks import CompactionPreparation, ExtensionSummary, Hooks, wait_for_result
from pigeon.session.model_choice import ModelChoice
from pigeon.session.settings import CompactionPolicy
from pigeon.wire.answers import Compacted
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.entries import CompactionEntry
from pigeon.wire.errors import Aborted, Refusal
from pigeon.wire.events import CompactionEnd, CompactionReason, CompactionStart, EntryAppended
from pigeon.wire.model import Model, Usage, sum_usage
from pigeon.wire.tokens import estimated_tokens, message_tokens

ALREADY = "Already compacted"
NOTHING = "Nothing to compact (session too small)"
CANCELLED = "Compaction cancelled"
NOT_SMALLER = "the conversation would not get smaller"
TWICE = (
    "Context overflow recovery failed after one compact-and-retry attempt. Try reducing context or switching to a "
    "larger-context model."
)
_FAILED = {"manual": "Compaction failed", "overflow": "Context overflow recovery failed"}


class Compaction:
    """Compacts the conversation of one session; `Engine` decides when."""

    def __init__(
        self,
        transcript: Transcript,
        models: ModelChoice,
        summarizer: Summarizer,
        publish: Publish,
        hooks: Hooks,
        policy: CompactionPolicy,
        enabled: bool,
    ) -> None:
        self._transcript = transcript
        self._models = models
        self._summarizer = summarizer
        self._publish = publish
        self._hooks = hooks
        self._policy = policy
        self._enabled = enabled
        self._failed_for: str | None = ""

    @property
    def is_enabled(self) -> bool:
        """True if automatic compaction is on."""
        return self._enabled

    def set_enabled(self, enabled: bool) -> None:
        self._enabled = enabled

    def is_due(self) -> bool:
        """True if the context is nearly full, and no attempt to make room has failed since the user's last message."""
        model = self._models.model
        if not self._enabled or model is None or model.context_window <= 0:
            return False
        branch = self._transcript.journal.branch
        if not branch or branch[-1].type == "compaction":
            return False
        is_full = estimate_branch_tokens(branch) > self._policy.threshold(model)
        return is_full and self._failed_for != self._transcript.find_last_user_entry()

    async def compact_on_request(self, instructions: str | Absent, scope: Scope) -> Compacted:
        """Compact for a command; raises with the reason if that is impossible."""
        return await self._compact_and_announce("manual", scope, instructions)

    async def compact_when_full(self, scope: Scope) -> None:
        """Compact because the context is nearly full; a failure is announced, and the session continues."""
        model = self._require_model()
        if await self._prune_tool_output(model) or not self._has_history(model):
            return
        try:
            await self._compact_and_announce("threshold", scope)
        except (Refusal, Aborted):
            self._failed_for = "" if scope.cancelled else self._transcript.find_last_user_entry()

    async def recover_from_overflow(self, scope: Scope, hide: Callable[[], Awaitable[None]]) -> bool:
        """Compact after the provider reported an overflow; returns True if the request should be tried again. Without
        older history nothing is announced, because the error of the request is enough."""
        if not self._has_history(self._require_model()):
            return False
        try:
            await self._compact_and_announce("overflow", scope, before=hide)
        except (Refusal, Aborted):
            return False
        return True

    async def announce_second_overflow(self) -> None:
        """Announce that the retry after a compaction overflowed too."""
        await self._publish(CompactionEnd(reason="overflow", aborted=False, will_retry=False, error_message=TWICE))

    async def _compact_and_announce(
        self,
        reason: CompactionReason,
        scope: Scope,
        instructions: str | Absent = ABSENT,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> Compacted:
        await self._publish(CompactionStart(reason=reason))
        try:
            result = await self._compact(reason, scope, instructions, before)
        except Aborted:
            await self._publish(CompactionEnd(reason=reason, aborted=True, will_retry=False))
            raise Refusal(CANCELLED) from None
        except Refusal as error:
            text = f"{_FAILED.get(reason, 'Auto-compaction failed')}: {error}"
            await self._publish(
                CompactionEnd(
                    reason=reason,
                    aborted=False,
                    will_retry=False,
                    error_message=text,
                    explanation=error.explanation or ABSENT,
                )
            )
            raise
        await self._publish(CompactionEnd(reason=reason, result=result, aborted=False, will_retry=reason == "overflow"))
        return result

    async def _compact(
        self,
        reason: CompactionReason,
        scope: Scope,
        instructions: str | Absent,
        before: Callable[[], Awaitable[None]] | None,
    ) -> Compacted:
        model = self._require_model()
        journal = self._transcript.journal
        if journal.branch and journal.branch[-1].type == "compaction":
            raise Refusal(ALREADY)
        tokens_before = estimate_branch_tokens(journal.branch)
        size_before = _estimate_tokens(journal)
        if not self._has_history(model):
            raise Refusal(NOTHING)
        if before is not None:
            await before()
        cut = self._find_cut(model)
        # The kept part would overflow again: shorten every large tool result, even recent ones, and cut again.
        if cut is not None and reason == "overflow" and cut.kept_tokens > self._max_kept_tokens(model):
            await self._prune_and_announce(find_prunable_results(journal.branch, 0))
            cut = self._find_cut(model)
        if cut is None or cut.is_empty:
            raise Refusal(NOTHING)
        own = await scope.wait(self._request_extension_summary(cut, reason, tokens_before, instructions))
        summary, usage, files = own or await self._summarize(cut, model, reason, scope, instructions)
        scope.raise_if_cancelled()
        # Otherwise the same compaction would be due again at once, without end.
        if reason != "manual" and estimated_tokens(len(summary)) + cut.kept_tokens >= size_before:
            raise Refusal(NOT_SMALLER)
        entry = journal.append(
            CompactionEntry,
            summary=summary,
            first_kept_entry_id=cut.first_kept,
            tokens_before=tokens_before,
            details=files,
            usage=ABSENT if usage is None else usage,
            from_hook=own is not None,
        )
        return Compacted(
            summary=entry.summary,
            first_kept_entry_id=entry.first_kept_entry_id,
            tokens_before=tokens_before,
            estimated_tokens_after=_estimate_tokens(journal),
            usage=entry.usage,
            details=files,
        )

    async def _request_extension_summary(
        self, cut: ConversationCut, reason: CompactionReason, tokens_before: int, instructions: str | Absent
    ) -> tuple[str, Usage | None, Json] | None:
        """The summary that an extension provides instead; raises `Aborted` if one cancels the compaction."""
        asked = self._hooks.decide_compaction(
            CompactionPreparation(
                reason=reason,
                first_kept_entry_id=cut.first_kept,
                tokens_before=tokens_before,
                messages=[*cut.history, *cut.prefix],
                kept_messages=cut.kept,
                instructions=None if isinstance(instructions, Absent) else instructions,
                previous_summary=cut.previous.summary if cut.previous else None,
                will_retry=reason == "overflow",
            )
        )
        given = await wait_for_result(asked)
        if given is False:
            raise Aborted(CANCELLED)
        return (given.summary, None, given.details) if isinstance(given, ExtensionSummary) else None

    async def _summarize(
        self, cut: ConversationCut, model: Model, reason: CompactionReason, scope: Scope, instructions: str | Absent
    ) -> tuple[str, Usage | None, Json]:
        files = self._summarizer.make_touched_files(
            cut.previous.details if cut.previous and cut.previous.from_hook is not True else None
        )
        files.add_messages([*cut.history, *cut.prefix])
        ask = SummaryRequest(model=model, thinking=self._models.level, scope=scope, about=reason)
        focus = "" if isinstance(instructions, Absent) else f"\n\nAdditional focus: {instructions}"
        previous = cut.previous.summary if cut.previous else None
        summary, usage = previous or "No prior history.", None
        if cut.history:
            with _labelling_failures("Summarization failed"):
                summary, usage = await self._summarizer.summarize(cut.history, HISTORY + focus, ask, previous)
        if cut.prefix:
            with _labelling_failures("Turn prefix summarization failed"):
                prefix, more = await self._summarizer.summarize(cut.prefix, PREFIX + focus, ask)
            summary = f"{summary}\n\n---\n\n**Turn Context (split turn):**\n\n{prefix}"
            usage = more if usage is None else sum_usage(usage, more)
        return summary + files.render_appendix(), usage, files.details()

    def _require_model(self) -> Model:
        if self._models.model is None:
            raise Refusal("No model selected")
        return self._models.model

    def _find_cut(self, model: Model) -> ConversationCut | None:
        return find_cut(self._transcript.journal.branch, self._policy.kept_tokens(model), self._max_kept_tokens(model))

    def _max_kept_tokens(self, model: Model) -> int:
        return max(self._policy.threshold(model) // 2, 0)

    def _has_history(self, model: Model) -> bool:
        cut = self._find_cut(model)
        return cut is not None and not cut.is_empty

    async def _prune_tool_output(self, model: Model) -> bool:
        """Shorten old tool output if that alone makes enough room; returns True if it did."""
        branch = self._transcript.journal.branch
        found = find_prunable_results(branch, self._policy.kept_tokens(model))
        saved = sum(tokens for _, _, tokens in found)
        if not found or estimate_branch_tokens(branch) - saved > self._policy.threshold(model):
            return False
        await self._prune_and_announce(found)
        return True

    async def _prune_and_announce(self, found: list[tuple[str, str, int]]) -> None:
        for entry in prune_results(self._transcript.journal, found):
            await self._publish(EntryAppended(entry=entry))


def _estimate_tokens(journal: Journal) -> int:
    return sum(message_tokens(message) for message in context_of(journal.branch))


@contextmanager
def _labelling_failures(label: str) -> Iterator[None]:
    """Name the summary that failed."""
    try:
        yield
    except SummaryFailed as error:
        explanation = f"{label}: {error.explanation}" if error.explanation else ""
        raise Refusal(f"{label}: {error}", explanation=explanation) from None
