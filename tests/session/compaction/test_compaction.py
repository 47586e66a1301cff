"""Making room: what is asked of the model, what goes on record, and what happens when it does not work out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pigeon.agent.inference import Failure
from pigeon.session.compaction.compaction import ALREADY, CANCELLED, NOTHING
from pigeon.session.compaction.summarizer import HISTORY, PREFIX, UPDATE
from pigeon.session.context.transcript import estimate_branch_tokens
from pigeon.session.hooks import CompactionPreparation, ExtensionSummary, NoHooks
from pigeon.session.settings import RetryPolicy
from pigeon.wire.base import ABSENT
from pigeon.wire.errors import UNEXPECTED, Refusal
from support.session_setup import LONG, end, last, make_filled_setup

OVERLOADED = Failure(message="overloaded", retryable=True)


async def test_the_history_is_replaced_by_a_summary_that_is_on_record() -> None:
    setup = make_filled_setup("THE SUMMARY", "THE PREFIX")
    before = estimate_branch_tokens(setup.journal.branch)
    result = await setup.compaction.compact_on_request("mind the colours", setup.scope)
    entry = last(setup)
    assert entry.summary == result.summary == "THE SUMMARY\n\n---\n\n**Turn Context (split turn):**\n\nTHE PREFIX"
    assert (entry.tokens_before, entry.from_hook, entry.details) == (
        before, False, {"readFiles": [], "modifiedFiles": []}
    )  # fmt: skip
    assert result.usage == entry.usage
    assert getattr(entry.usage, "input", 0) == 14
    assert result.estimated_tokens_after == estimate_branch_tokens(setup.journal.branch) < before
    assert setup.kinds() == ["compaction_start", "compaction_end"]
    assert (end(setup).result, end(setup).will_retry, end(setup).aborted) == (result, False, False)
    history, prefix = setup.answers.requests
    assert "mind the colours" in setup.answers.summarized_text(0)
    assert "mind the colours" in setup.answers.summarized_text(1)
    assert setup.answers.summarized_text(0).count("[User]: question") == 2
    assert f"{PREFIX}\n\nAdditional focus: " in setup.answers.summarized_text(1)
    assert (history.max_tokens, prefix.max_tokens) == (None, None)
    assert history.tools == []
    assert history.cache == "none"


async def test_a_cut_between_turns_needs_one_summary() -> None:
    setup = make_filled_setup("THE SUMMARY")
    setup.append_user_message("last")
    await setup.compaction.compact_on_request(ABSENT, setup.scope)
    assert last(setup).summary == "THE SUMMARY"
    assert setup.answers.summarized_text().endswith(HISTORY)


async def test_a_turn_without_history_says_so() -> None:
    setup = make_filled_setup("THE PREFIX", turns=1)
    await setup.compaction.compact_on_request(ABSENT, setup.scope)
    assert last(setup).summary.startswith("No prior history.\n\n---")


async def test_a_second_summary_builds_on_the_first() -> None:
    setup = make_filled_setup("FIRST", "SECOND")
    setup.append_user_message("a")
    await setup.compaction.compact_on_request(ABSENT, setup.scope)
    setup.append_user_message(LONG)
    setup.answer("b")
    setup.append_user_message("c")
    await setup.compaction.compact_on_request(ABSENT, setup.scope)
    assert last(setup).summary == "SECOND"
    asked = setup.answers.summarized_text()
    assert "<previous-summary>\nFIRST\n</previous-summary>" in asked
    assert UPDATE in asked
    assert "question 0" not in asked


async def test_a_split_turn_after_a_summary_keeps_that_summary() -> None:
    setup = make_filled_setup("FIRST", "THE PREFIX")
    setup.append_user_message("a")
    await setup.compaction.compact_on_request(ABSENT, setup.scope)
    setup.journal.append_message(setup.journal.branch[-2].message)
    setup.call("bash", LONG, command="x")
    setup.answer("b" * 500)
    setup.answers.replies.insert(0, "SECOND")
    await setup.with_policy(keep_tokens=10, reserve_tokens=1_000).compact_on_request(ABSENT, setup.scope)
    assert last(setup).summary.endswith("THE PREFIX")


async def test_files_are_listed_and_add_up() -> None:
    setup = make_filled_setup("FIRST", "P", "SECOND", "P", turns=0)
    setup.append_user_message(LONG)
    for name, path in (("read", "a.py"), ("read", "b.py"), ("write", "b.py"), ("edit", "c.py"), ("grep", "d.py")):
        setup.call(name, "ok", path=path)
    setup.answer("x" * 500)
    await setup.compaction.compact_on_request(ABSENT, setup.scope)
    assert last(setup).details == {"readFiles": ["a.py"], "modifiedFiles": ["b.py", "c.py"]}
    assert last(setup).summary.endswith(
        "\n\n<read-files>\na.py\n</read-files>\n\n<modified-files>\nb.py\nc.py\n</modified-files>"
    )
    setup.append_user_message("again")
    setup.call("edit", "ok", path="a.py")
    setup.call("read", "ok", path="e.py")
    setup.answer("y" * 500)
    await setup.compaction.compact_on_request(ABSENT, setup.scope)
    assert last(setup).details == {"readFiles": ["e.py"], "modifiedFiles": ["a.py", "b.py", "c.py"]}


async def test_what_cannot_be_summarized_is_refused_and_nothing_is_asked() -> None:
    setup = make_filled_setup(turns=0)
    with pytest.raises(Refusal, match="Nothing to compact") as refused:
        await setup.compaction.compact_on_request(ABSENT, setup.scope)
    assert str(refused.value) == NOTHING
    setup = make_filled_setup("THE SUMMARY", "THE PREFIX")
    await setup.compaction.compact_on_request(ABSENT, setup.scope)
    with pytest.raises(Refusal, match=ALREADY):
        await setup.compaction.compact_on_request(ABSENT, setup.scope)
    assert len(setup.answers.requests) == 2
    assert end(setup).error_message == f"Compaction failed: {ALREADY}"


FAILURES: dict[str, tuple[Any, str]] = {
    "an error": (Failure(message="bad request"), "Summarization failed: bad request"),
    "an answer that was cut off": (
        ("half", "length"), "Summarization failed: generation hit the token cap and the summary is incomplete"
    ),
    "a tool call": (("", "toolUse"), "Summarization failed: the model tried to call a tool instead of summarizing"),
    "nothing": ("  ", "Summarization failed: the model returned an empty summary"),
    "an unexpected error": (KeyError("x"), f"Summarization failed: {UNEXPECTED}"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
async def test_a_summary_that_fails_is_told_and_changes_nothing(name: str) -> None:
    reply, text = FAILURES[name]
    setup = make_filled_setup(reply)
    entries = len(setup.journal.lines)
    with pytest.raises(Refusal) as refused:
        await setup.compaction.compact_on_request(ABSENT, setup.scope)
    assert str(refused.value) == text
    assert end(setup).error_message == f"Compaction failed: {text}"
    assert (end(setup).result, end(setup).aborted) == (ABSENT, False)
    assert len(setup.journal.lines) == entries
    assert setup.answers.closed == 1


async def test_the_second_summary_says_which_one_failed() -> None:
    setup = make_filled_setup("THE SUMMARY", Failure(message="no"))
    with pytest.raises(Refusal, match="Turn prefix summarization failed: no"):
        await setup.compaction.compact_on_request(ABSENT, setup.scope)


async def test_a_summary_is_tried_again_and_that_is_told() -> None:
    setup = make_filled_setup(OVERLOADED, OVERLOADED, "THE SUMMARY", "THE PREFIX")
    await setup.compaction.compact_on_request(ABSENT, setup.scope)
    retry = ["summarization_retry_scheduled", "summarization_retry_attempt_start"]
    assert setup.kinds() == [
        "compaction_start", *retry, *retry, "summarization_retry_finished", "compaction_end"
    ]  # fmt: skip
    setup = make_filled_setup(OVERLOADED, OVERLOADED, OVERLOADED)
    with pytest.raises(Refusal, match="Summarization failed: overloaded"):
        await setup.compaction.compact_on_request(ABSENT, setup.scope)
    setup = make_filled_setup(OVERLOADED, retries=None)
    with pytest.raises(Refusal, match="overloaded"):
        await setup.compaction.compact_on_request(ABSENT, setup.scope)


class Slow(NoHooks):
    """Hooks that never come to an end."""

    async def decide_compaction(self, prepared: CompactionPreparation) -> bool:
        await asyncio.get_running_loop().create_future()
        return True


@pytest.mark.parametrize("place", ["start", "hook", "history", "prefix", "retry", "end"])
async def test_an_abort_anywhere_leaves_everything_as_it_was(place: str) -> None:
    replies: dict[str, list[Any]] = {"history": [None], "retry": [OVERLOADED], "hook": []}
    setup = make_filled_setup(
        *replies.get(place, ["THE SUMMARY", None if place == "prefix" else "THE PREFIX"]),
        hooks=Slow() if place == "hook" else None,
        retries=RetryPolicy(max_retries=1, base_delay_ms=60_000),
    )
    if place == "start":
        setup.on_event = lambda event: setup.scope.cancel()
    entries = len(setup.journal.lines)
    work = asyncio.ensure_future(setup.compaction.compact_on_request(ABSENT, setup.scope))
    if place == "end":
        setup.answers.on_last = setup.scope.cancel
    elif place != "start":
        for _ in range(50):
            await asyncio.sleep(0)
        setup.scope.cancel()
    with pytest.raises(Refusal, match=CANCELLED):
        await work
    assert (end(setup).aborted, end(setup).error_message, end(setup).result) == (True, ABSENT, ABSENT)
    assert len(setup.journal.lines) == entries
    assert setup.answers.closed == len(setup.answers.requests)


async def test_somebody_else_may_bring_the_summary_or_say_no() -> None:
    class Own(NoHooks):
        async def decide_compaction(self, prepared: CompactionPreparation) -> ExtensionSummary | bool:
            assert prepared.tokens_before > 0
            return ExtensionSummary(summary="MINE", details={"own": 1}) if prepared.instructions is None else False

    setup = make_filled_setup(hooks=Own(), keep_tokens=1, reserve_tokens=1_000)
    with pytest.raises(Refusal, match=CANCELLED):
        await setup.compaction.compact_on_request("no", setup.scope)
    assert end(setup).aborted
    await setup.compaction.compact_on_request(ABSENT, setup.scope)
    assert (last(setup).summary, last(setup).details, last(setup).from_hook) == ("MINE", {"own": 1}, True)
    assert setup.answers.requests == []
