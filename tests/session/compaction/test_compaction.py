"""Making room: what is asked of the model, what goes on record, and what happens when it does not work out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fakes.summaries import LONG, end, filled, last
from pigeon.agent.inference import Failure
from pigeon.session.compaction.compaction import ALREADY, CANCELLED, NOTHING
from pigeon.session.compaction.summarizer import HISTORY, PREFIX, UPDATE
from pigeon.session.context.model_context import branch_tokens
from pigeon.session.hooks import CompactionPreparation, ExtensionSummary, NoHooks
from pigeon.session.settings import RetryPolicy
from pigeon.wire.base import ABSENT
from pigeon.wire.errors import Refusal

OVERLOADED = Failure(message="overloaded", retryable=True)


async def test_the_history_is_replaced_by_a_summary_that_is_on_record() -> None:
    bench = filled("THE SUMMARY", "THE PREFIX")
    before = branch_tokens(bench.journal.branch)
    result = await bench.compaction.manual("mind the colours", bench.scope)
    entry = last(bench)
    assert entry.summary == result.summary == "THE SUMMARY\n\n---\n\n**Turn Context (split turn):**\n\nTHE PREFIX"
    assert (entry.tokens_before, entry.from_hook, entry.details) == (
        before, False, {"readFiles": [], "modifiedFiles": []}
    )  # fmt: skip
    assert result.usage == entry.usage
    assert getattr(entry.usage, "input", 0) == 14
    assert result.estimated_tokens_after == branch_tokens(bench.journal.branch) < before
    assert bench.kinds() == ["compaction_start", "compaction_end"]
    assert (end(bench).result, end(bench).will_retry, end(bench).aborted) == (result, False, False)
    history, prefix = bench.answers.requests
    assert "mind the colours" in bench.answers.asked(0)
    assert "mind the colours" not in bench.answers.asked(1)
    assert bench.answers.asked(0).count("[User]: question") == 2
    assert bench.answers.asked(1).endswith(PREFIX)
    assert (history.max_tokens, prefix.max_tokens) == (800, 500)
    assert history.tools == []
    assert history.cache == "none"


async def test_a_cut_between_turns_needs_one_summary() -> None:
    bench = filled("THE SUMMARY")
    bench.say("last")
    await bench.compaction.manual(ABSENT, bench.scope)
    assert last(bench).summary == "THE SUMMARY"
    assert bench.answers.asked().endswith(HISTORY)


async def test_a_turn_without_history_says_so() -> None:
    bench = filled("THE PREFIX", turns=1)
    await bench.compaction.manual(ABSENT, bench.scope)
    assert last(bench).summary.startswith("No prior history.\n\n---")


async def test_a_second_summary_builds_on_the_first() -> None:
    bench = filled("FIRST", "SECOND")
    bench.say("a")
    await bench.compaction.manual(ABSENT, bench.scope)
    bench.say(LONG)
    bench.answer("b")
    bench.say("c")
    await bench.compaction.manual(ABSENT, bench.scope)
    assert last(bench).summary == "SECOND"
    asked = bench.answers.asked()
    assert "<previous-summary>\nFIRST\n</previous-summary>" in asked
    assert UPDATE in asked
    assert "question 0" not in asked


async def test_a_split_turn_after_a_summary_keeps_that_summary() -> None:
    bench = filled("FIRST", "THE PREFIX")
    bench.say("a")
    await bench.compaction.manual(ABSENT, bench.scope)
    bench.journal.append_message(bench.journal.branch[-2].message)
    bench.call("bash", LONG, command="x")
    bench.answer("b" * 500)
    bench.answers.replies.insert(0, "SECOND")
    await bench.with_policy(keep_tokens=10, reserve_tokens=1_000).manual(ABSENT, bench.scope)
    assert last(bench).summary.endswith("THE PREFIX")


async def test_files_are_listed_and_add_up() -> None:
    bench = filled("FIRST", "P", "SECOND", "P", turns=0)
    bench.say(LONG)
    for name, path in (("read", "a.py"), ("read", "b.py"), ("write", "b.py"), ("edit", "c.py"), ("grep", "d.py")):
        bench.call(name, "ok", path=path)
    bench.answer("x" * 500)
    await bench.compaction.manual(ABSENT, bench.scope)
    assert last(bench).details == {"readFiles": ["a.py"], "modifiedFiles": ["b.py", "c.py"]}
    assert last(bench).summary.endswith(
        "\n\n<read-files>\na.py\n</read-files>\n\n<modified-files>\nb.py\nc.py\n</modified-files>"
    )
    bench.say("again")
    bench.call("edit", "ok", path="a.py")
    bench.call("read", "ok", path="e.py")
    bench.answer("y" * 500)
    await bench.compaction.manual(ABSENT, bench.scope)
    assert last(bench).details == {"readFiles": ["e.py"], "modifiedFiles": ["a.py", "b.py", "c.py"]}


async def test_what_cannot_be_summarized_is_refused_and_nothing_is_asked() -> None:
    bench = filled(turns=0)
    with pytest.raises(Refusal, match="Nothing to compact") as refused:
        await bench.compaction.manual(ABSENT, bench.scope)
    assert str(refused.value) == NOTHING
    bench = filled("THE SUMMARY", "THE PREFIX")
    await bench.compaction.manual(ABSENT, bench.scope)
    with pytest.raises(Refusal, match=ALREADY):
        await bench.compaction.manual(ABSENT, bench.scope)
    assert len(bench.answers.requests) == 2
    assert end(bench).error_message == f"Compaction failed: {ALREADY}"


FAILURES: dict[str, tuple[Any, str]] = {
    "an error": (Failure(message="bad request"), "Summarization failed: bad request"),
    "an answer that was cut off": (
        ("half", "length"), "Summarization failed: generation hit the token cap and the summary is incomplete"
    ),
    "a tool call": (("", "toolUse"), "Summarization failed: the model tried to call a tool instead of summarizing"),
    "nothing": ("  ", "Summarization failed: the model returned an empty summary"),
    "an unexpected error": (KeyError("x"), "Summarization failed: KeyError: 'x'"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
async def test_a_summary_that_fails_is_told_and_changes_nothing(name: str) -> None:
    reply, text = FAILURES[name]
    bench = filled(reply)
    entries = len(bench.journal.lines)
    with pytest.raises(Refusal) as refused:
        await bench.compaction.manual(ABSENT, bench.scope)
    assert str(refused.value) == text
    assert end(bench).error_message == f"Compaction failed: {text}"
    assert (end(bench).result, end(bench).aborted) == (ABSENT, False)
    assert len(bench.journal.lines) == entries
    assert bench.answers.closed == 1


async def test_the_second_summary_says_which_one_failed() -> None:
    bench = filled("THE SUMMARY", Failure(message="no"))
    with pytest.raises(Refusal, match="Turn prefix summarization failed: no"):
        await bench.compaction.manual(ABSENT, bench.scope)


async def test_a_summary_is_tried_again_and_that_is_told() -> None:
    bench = filled(OVERLOADED, OVERLOADED, "THE SUMMARY", "THE PREFIX")
    await bench.compaction.manual(ABSENT, bench.scope)
    retry = ["summarization_retry_scheduled", "summarization_retry_attempt_start"]
    assert bench.kinds() == [
        "compaction_start", *retry, *retry, "summarization_retry_finished", "compaction_end"
    ]  # fmt: skip
    bench = filled(OVERLOADED, OVERLOADED, OVERLOADED)
    with pytest.raises(Refusal, match="Summarization failed: overloaded"):
        await bench.compaction.manual(ABSENT, bench.scope)
    bench = filled(OVERLOADED, retries=None)
    with pytest.raises(Refusal, match="overloaded"):
        await bench.compaction.manual(ABSENT, bench.scope)


class Slow(NoHooks):
    """Hooks that never come to an end."""

    async def before_compact(self, prepared: CompactionPreparation) -> bool:
        await asyncio.get_running_loop().create_future()
        return True


@pytest.mark.parametrize("place", ["start", "hook", "history", "prefix", "retry", "end"])
async def test_an_abort_anywhere_leaves_everything_as_it_was(place: str) -> None:
    replies: dict[str, list[Any]] = {"history": [None], "retry": [OVERLOADED], "hook": []}
    bench = filled(
        *replies.get(place, ["THE SUMMARY", None if place == "prefix" else "THE PREFIX"]),
        hooks=Slow() if place == "hook" else None,
        retries=RetryPolicy(max_retries=1, base_delay_ms=60_000),
    )
    if place == "start":
        bench.on_event = lambda event: bench.scope.cancel()
    entries = len(bench.journal.lines)
    work = asyncio.ensure_future(bench.compaction.manual(ABSENT, bench.scope))
    if place == "end":
        bench.answers.on_last = bench.scope.cancel
    elif place != "start":
        for _ in range(50):
            await asyncio.sleep(0)
        bench.scope.cancel()
    with pytest.raises(Refusal, match=CANCELLED):
        await work
    assert (end(bench).aborted, end(bench).error_message, end(bench).result) == (True, ABSENT, ABSENT)
    assert len(bench.journal.lines) == entries
    assert bench.answers.closed == len(bench.answers.requests)


async def test_somebody_else_may_bring_the_summary_or_say_no() -> None:
    class Own(NoHooks):
        async def before_compact(self, prepared: CompactionPreparation) -> ExtensionSummary | bool:
            assert prepared.tokens_before > 0
            return ExtensionSummary(summary="MINE", details={"own": 1}) if prepared.instructions is None else False

    bench = filled(hooks=Own(), keep_tokens=1, reserve_tokens=1_000)
    with pytest.raises(Refusal, match=CANCELLED):
        await bench.compaction.manual("no", bench.scope)
    assert end(bench).aborted
    await bench.compaction.manual(ABSENT, bench.scope)
    assert (last(bench).summary, last(bench).details, last(bench).from_hook) == ("MINE", {"own": 1}, True)
    assert bench.answers.requests == []
