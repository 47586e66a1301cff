"""Making room by itself: when it is due, what goes first, and how an overflow is recovered from."""

from __future__ import annotations

import asyncio

from pigeon.session.compaction.compaction import NOT_SMALLER, TWICE
from pigeon.session.context.transcript import context_of, estimate_branch_tokens
from pigeon.session.settings import CompactionPolicy
from pigeon.wire.answers import Compacted
from pigeon.wire.base import ABSENT
from pigeon.wire.entries import ContextEdit
from pigeon.wire.events import CompactionEnd
from support.session_setup import CompactionSetup, end, make_filled_setup


def test_the_threshold_follows_the_window_the_settings_and_the_model() -> None:
    setup = CompactionSetup()
    model = setup.models.model
    assert model is not None
    for window, reserve, keep in ((200_000, 16_384, 20_000), (32_000, 6_400, 9_600), (1_000, 200, 300)):
        model.context_window = window
        policy = CompactionPolicy()
        assert (policy.reserved_tokens(model), policy.kept_tokens(model)) == (reserve, keep)
        assert policy.threshold(model) == window - reserve
    model.context_window = 32_000
    assert CompactionPolicy(reserve_tokens=30_000).reserved_tokens(model) == 16_000
    own = CompactionPolicy(
        reserve_tokens=1, keep_tokens=2, per_model={model.reference: {"reserveTokens": 3, "keepRecentTokens": 4}}
    )
    assert (own.reserved_tokens(model), own.kept_tokens(model)) == (3, 4)
    model.id = "other"
    assert (own.reserved_tokens(model), own.kept_tokens(model)) == (1, 2)


def test_room_is_due_above_the_threshold_only() -> None:
    setup = CompactionSetup(window=10_000, reserve_tokens=1_000)
    assert not setup.compaction.is_due()
    setup.append_user_message("a")
    setup.answer("b", tokens=9_000)
    assert not setup.compaction.is_due()
    setup.answer("b", tokens=9_001)
    assert setup.compaction.is_due()
    setup.answer("failed", tokens=9_900, stop_reason="error")
    assert setup.compaction.is_due()
    setup.compaction.set_enabled(False)
    assert not setup.compaction.is_due()
    setup.compaction.set_enabled(True)
    setup.models.model = None
    assert not setup.compaction.is_due()


async def test_a_count_from_before_a_compaction_is_not_trusted() -> None:
    setup = make_filled_setup("THE SUMMARY", "THE PREFIX")
    setup.answer("full", tokens=9_900)
    assert setup.compaction.is_due()
    await setup.compaction.compact_when_full(setup.scope)
    assert setup.kinds() == ["compaction_start", "compaction_end"]
    setup.append_user_message("next")
    assert not setup.compaction.is_due()


async def test_old_output_goes_first_and_costs_no_request() -> None:
    setup = make_filled_setup(turns=0, window=10_000)
    setup.append_user_message("go")
    for _ in range(5):
        setup.call("bash", "o" * 8_000, command="x")
    setup.answer("done")
    assert setup.compaction.is_due()
    await setup.compaction.compact_when_full(setup.scope)
    assert set(setup.kinds()) == {"entry_appended"}
    assert not setup.compaction.is_due()
    edits = [line.entry for line in setup.journal.branch if line.type == "context_edit"]
    assert all(isinstance(edit, ContextEdit) for edit in edits)
    entries = len(setup.journal.lines)
    await setup.compaction.compact_when_full(setup.scope)
    assert len(setup.journal.lines) == entries


async def test_a_summary_that_saves_nothing_is_not_put_on_record() -> None:
    setup = make_filled_setup("S" * 10_000, turns=0, window=4_000, keep_tokens=0)
    setup.append_user_message("small")
    setup.answer("also small")
    setup.append_user_message("h" * 14_000)
    entries = len(setup.journal.lines)
    assert setup.compaction.is_due()
    await setup.compaction.compact_when_full(setup.scope)
    assert end(setup).error_message == f"Auto-compaction failed: {NOT_SMALLER}"
    assert len(setup.journal.lines) == entries
    assert not setup.compaction.is_due()
    setup.append_user_message("another question")
    assert setup.compaction.is_due()


async def test_an_abort_is_no_failure() -> None:
    setup = make_filled_setup(None)
    setup.answer("full", tokens=9_900)
    work = asyncio.ensure_future(setup.compaction.compact_when_full(setup.scope))
    for _ in range(20):
        await asyncio.sleep(0)
    setup.scope.cancel()
    await work
    assert end(setup).aborted
    assert setup.compaction.is_due()


async def test_recovery_hides_the_failed_answer_only_if_there_is_something_to_summarize() -> None:
    hidden = 0

    async def hide() -> None:
        nonlocal hidden
        hidden += 1

    setup = make_filled_setup("THE SUMMARY", "THE PREFIX")
    assert await setup.compaction.recover_from_overflow(setup.scope, hide)
    assert end(setup).will_retry
    assert hidden == 1
    setup = make_filled_setup(turns=0)
    setup.append_user_message("only this")
    assert not await setup.compaction.recover_from_overflow(setup.scope, hide)
    assert setup.told == []
    assert hidden == 1
    await setup.compaction.announce_second_overflow()
    assert (end(setup).error_message, end(setup).will_retry) == (TWICE, False)


async def test_recovery_shortens_a_huge_last_result() -> None:
    async def hide() -> None:
        return

    setup = make_filled_setup("THE PREFIX", turns=0, window=4_000)
    setup.append_user_message("q" * 1_000)
    setup.call("bash", "o" * 40_000, command="x")
    before = estimate_branch_tokens(setup.journal.branch)
    assert await setup.compaction.recover_from_overflow(setup.scope, hide)
    assert estimate_branch_tokens(setup.journal.branch) < 400 < before
    assert setup.kinds() == ["compaction_start", "entry_appended", "compaction_end"]
    assert len(context_of(setup.journal.branch)) == 3


async def test_a_history_that_is_longer_than_the_window_is_summarized_in_parts() -> None:
    setup = make_filled_setup(*["S" * 40] * 30, turns=30, window=4_000)
    await setup.compaction.compact_on_request(ABSENT, setup.scope)
    assert len(setup.answers.requests) > 2
    for number in range(len(setup.answers.requests)):
        assert len(setup.answers.summarized_text(number)) / 4 < 4_000
    assert "<previous-summary>\n" + "S" * 40 in setup.answers.summarized_text(1)
    assert isinstance(setup.told[-1], CompactionEnd)
    assert isinstance(setup.told[-1].result, Compacted)
