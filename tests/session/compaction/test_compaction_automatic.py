"""Making room by itself: when it is due, what goes first, and how an overflow is recovered from."""

from __future__ import annotations

import asyncio

from fakes.summaries import Bench, end, filled
from pigeon.session.compaction.compaction import NOT_SMALLER, NOTHING, TWICE
from pigeon.session.context.model_context import branch_tokens, context_of
from pigeon.session.settings import CompactionPolicy
from pigeon.wire.answers import Compacted
from pigeon.wire.base import ABSENT
from pigeon.wire.entries import ContextEdit
from pigeon.wire.events import CompactionEnd


def test_the_threshold_follows_the_window_the_settings_and_the_model() -> None:
    bench = Bench()
    model = bench.models.model
    assert model is not None
    for window, reserve, keep in ((200_000, 16_384, 20_000), (32_000, 6_400, 9_600), (1_000, 200, 300)):
        model.context_window = window
        policy = CompactionPolicy()
        assert (policy.reserve(model), policy.keep(model)) == (reserve, keep)
        assert policy.threshold(model) == window - reserve
    model.context_window = 32_000
    assert CompactionPolicy(reserve_tokens=30_000).reserve(model) == 16_000
    own = CompactionPolicy(
        reserve_tokens=1, keep_tokens=2, per_model={model.reference: {"reserveTokens": 3, "keepRecentTokens": 4}}
    )
    assert (own.reserve(model), own.keep(model)) == (3, 4)
    model.id = "other"
    assert (own.reserve(model), own.keep(model)) == (1, 2)


def test_room_is_due_above_the_threshold_only() -> None:
    bench = Bench(window=10_000, reserve_tokens=1_000)
    assert not bench.compaction.due()
    bench.say("a")
    bench.answer("b", tokens=9_000)
    assert not bench.compaction.due()
    bench.answer("b", tokens=9_001)
    assert bench.compaction.due()
    bench.answer("failed", tokens=9_900, stop_reason="error")
    assert bench.compaction.due()
    bench.compaction.set_enabled(False)
    assert not bench.compaction.due()
    bench.compaction.set_enabled(True)
    bench.models.model = None
    assert not bench.compaction.due()


async def test_a_count_from_before_a_compaction_is_not_trusted() -> None:
    bench = filled("THE SUMMARY", "THE PREFIX")
    bench.answer("full", tokens=9_900)
    assert bench.compaction.due()
    await bench.compaction.automatic(bench.scope)
    assert bench.kinds() == ["compaction_start", "compaction_end"]
    bench.say("next")
    assert not bench.compaction.due()


async def test_old_output_goes_first_and_costs_no_request() -> None:
    bench = filled(turns=0, window=10_000)
    bench.say("go")
    for _ in range(5):
        bench.call("bash", "o" * 8_000, command="x")
    bench.answer("done")
    assert bench.compaction.due()
    await bench.compaction.automatic(bench.scope)
    assert set(bench.kinds()) == {"entry_appended"}
    assert not bench.compaction.due()
    edits = [line.entry for line in bench.journal.branch if line.type == "context_edit"]
    assert all(isinstance(edit, ContextEdit) for edit in edits)
    entries = len(bench.journal.lines)
    await bench.compaction.automatic(bench.scope)
    assert len(bench.journal.lines) == entries


async def test_a_summary_that_saves_nothing_is_not_put_on_record() -> None:
    bench = filled("S" * 10_000, turns=0, window=4_000, keep_tokens=0)
    bench.say("small")
    bench.answer("also small")
    bench.say("h" * 14_000)
    entries = len(bench.journal.lines)
    assert bench.compaction.due()
    await bench.compaction.automatic(bench.scope)
    assert end(bench).error_message == f"Auto-compaction failed: {NOT_SMALLER}"
    assert len(bench.journal.lines) == entries
    assert not bench.compaction.due()
    bench.say("another question")
    assert bench.compaction.due()


async def test_an_abort_is_no_failure() -> None:
    bench = filled(None)
    bench.answer("full", tokens=9_900)
    work = asyncio.ensure_future(bench.compaction.automatic(bench.scope))
    for _ in range(20):
        await asyncio.sleep(0)
    bench.scope.cancel()
    await work
    assert end(bench).aborted
    assert bench.compaction.due()


async def test_recovery_hides_the_failed_answer_only_if_there_is_something_to_summarize() -> None:
    hidden = 0

    async def hide() -> None:
        nonlocal hidden
        hidden += 1

    bench = filled("THE SUMMARY", "THE PREFIX")
    assert await bench.compaction.recover(bench.scope, hide)
    assert end(bench).will_retry
    assert hidden == 1
    bench = filled(turns=0)
    bench.say("only this")
    assert not await bench.compaction.recover(bench.scope, hide)
    assert end(bench).error_message == f"Context overflow recovery failed: {NOTHING}"
    assert hidden == 1
    await bench.compaction.overflowed_again()
    assert (end(bench).error_message, end(bench).will_retry) == (TWICE, False)


async def test_recovery_shortens_a_huge_last_result() -> None:
    async def hide() -> None:
        return

    bench = filled("THE PREFIX", turns=0, window=4_000)
    bench.say("q" * 1_000)
    bench.call("bash", "o" * 40_000, command="x")
    before = branch_tokens(bench.journal.branch)
    assert await bench.compaction.recover(bench.scope, hide)
    assert branch_tokens(bench.journal.branch) < 400 < before
    assert bench.kinds() == ["compaction_start", "entry_appended", "compaction_end"]
    assert len(context_of(bench.journal.branch)) == 3


async def test_a_history_that_is_longer_than_the_window_is_summarized_in_parts() -> None:
    bench = filled(*["S" * 40] * 30, turns=30, window=4_000)
    await bench.compaction.manual(ABSENT, bench.scope)
    assert len(bench.answers.requests) > 2
    for number in range(len(bench.answers.requests)):
        assert len(bench.answers.asked(number)) / 4 < 4_000
    assert "<previous-summary>\n" + "S" * 40 in bench.answers.asked(1)
    assert isinstance(bench.told[-1], CompactionEnd)
    assert isinstance(bench.told[-1].result, Compacted)
