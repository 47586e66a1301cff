"""Summaries by a model: what it is shown, in how many parts, how failures are repeated, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest

from pigeon.agent.inference import Failure
from pigeon.agent.scope import Scope
from pigeon.providers.request import choose_output_cap
from pigeon.session.compaction.summarizer import (
    MOST_OF_A_RESULT,
    ROLE,
    UPDATE,
    Summarizer,
    SummaryFailed,
    SummaryRequest,
    TouchedFiles,
    paragraphs_of,
)
from pigeon.session.settings import RetryPolicy
from pigeon.tools.catalog import facts_of
from pigeon.wire.content import ToolCall
from pigeon.wire.events import (
    Outbound,
    SummarizationRetryAttemptStart,
    SummarizationRetryFinished,
    SummarizationRetryScheduled,
)
from pigeon.wire.messages import (
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Message,
    NestedCall,
    NestedCalls,
)
from pigeon.wire.model import Usage
from support.model_requests import (
    a_model,
    assistant_message,
    text_block,
    thinking_block,
    tool_call,
    tool_result,
    user_message,
)
from support.session_setup import QUICK, Answers, Reply

LIMIT = MOST_OF_A_RESULT


def ran(output: str) -> BashExecutionMessage:
    return BashExecutionMessage(command="ls", output=output, cancelled=False, truncated=False, timestamp=1)


@pytest.mark.parametrize(
    ("message", "paragraphs"),
    [
        (user_message("hello"), ["[User]: hello"]),
        (CustomMessage(custom_type="x", content="a note", display=False, timestamp=1), ["[User]: a note"]),
        (
            assistant_message(
                thinking_block("hm"),
                text_block("one"),
                text_block("two"),
                tool_call("c", path="a", n=1),
                tool_call("d"),
            ),
            [
                "[Assistant]: one\ntwo",
                '[Assistant tool calls]: bash(path="a", n=1); bash(command="ls")',
            ],
        ),
        (assistant_message(text_block("")), []),
        (tool_result("c", "x" * LIMIT), [f"[Tool result]: {'x' * LIMIT}"]),
        (tool_result("c", "x" * (LIMIT + 5)), [f"[Tool result]: {'x' * LIMIT}\n[... 5 more characters]"]),
        (ran("y" * (LIMIT + 1)), [f"[User ran]: ls\n{'y' * LIMIT}\n[... 1 more characters]"]),
        (BranchSummaryMessage(summary="a branch", from_id="x", timestamp=1), ["[Earlier summary]: a branch"]),
        (CompactionSummaryMessage(summary="before", tokens_before=1, timestamp=1), ["[Earlier summary]: before"]),
    ],
)
def test_each_message_is_plain_text(message: Message, paragraphs: list[str]) -> None:
    assert paragraphs_of(message) == paragraphs


class Summaries:
    """A summarizer, what its model was asked (`answers.requests`), and what was announced."""

    def __init__(self, *replies: Reply, retries: RetryPolicy | None = QUICK) -> None:
        self.answers = Answers(*replies)
        self.told: list[Outbound] = []
        self._summarizer = Summarizer(self.answers, self._publish, retries, facts_of)

    async def _publish(self, event: Outbound) -> None:
        self.told.append(event)

    async def summary(self, *messages: Message, previous: str | None = None, **facts: Any) -> tuple[str, Usage]:
        model = a_model(**{"context_window": 10_000, "max_tokens": 1_000, **facts})
        ask = SummaryRequest(model=model, thinking="low", scope=Scope(), source="branchSummary", about="overflow")
        return await self._summarizer.summarize(messages, "DO IT", ask, previous)


async def test_the_conversation_is_one_message_without_tools() -> None:
    summaries = Summaries("SUMMARY")
    summary, usage = await summaries.summary(user_message("hello"), assistant_message(text_block("hi")))
    assert (summary, usage.input, usage.output, usage.total_tokens) == ("SUMMARY", 7, 3, 10)
    (request,) = summaries.answers.requests
    expected = "<conversation>\n[User]: hello\n\n[Assistant]: hi\n</conversation>\n\nDO IT"
    assert summaries.answers.summarized_text() == expected
    assert (request.system_prompt, request.tools, request.thinking, request.cache) == (ROLE, [], "low", "none")
    assert summaries.told == []


async def test_an_earlier_summary_is_to_be_brought_up_to_date() -> None:
    summaries = Summaries("SUMMARY")
    await summaries.summary(user_message("hello"), previous="BEFORE")
    assert summaries.answers.summarized_text().endswith(
        f"</conversation>\n\n<previous-summary>\nBEFORE\n</previous-summary>\n\n{UPDATE}\n\nDO IT"
    )


async def test_a_summary_may_be_as_long_as_the_model_can_write() -> None:
    summaries = Summaries("SUMMARY")
    await summaries.summary(user_message("hello"), context_window=200_000, max_tokens=32_000, reasoning=True)
    request = summaries.answers.requests[0]
    assert (request.max_tokens, choose_output_cap(request), request.thinking) == (None, 32_000, "low")


async def test_a_long_conversation_leaves_room_for_its_summary() -> None:
    summaries = Summaries(*["SUMMARY"] * 9)
    await summaries.summary(*(user_message("x" * 10_000) for _ in range(99)), context_window=100_000, max_tokens=32_000)
    caps = [choose_output_cap(request) for request in summaries.answers.requests]
    assert len(caps) > 1
    assert min(caps) > 10_000


async def test_what_does_not_fit_is_summarized_in_parts_that_build_on_each_other() -> None:
    summaries = Summaries("FIRST", "SECOND", "THIRD")
    # 2,000 tokens of window less twice a fifth for summaries, three and a half characters each.
    words = [user_message(letter * 3_000) for letter in "abc"]
    summary, usage = await summaries.summary(*words, context_window=2_000)
    assert (summary, usage.input) == ("THIRD", 21)
    asked = [summaries.answers.summarized_text(number) for number in range(3)]
    assert [[letter * 3_000 in part for letter in "abc"] for part in asked] == [
        [True, False, False], [False, True, False], [False, False, True]
    ]  # fmt: skip
    assert ["FIRST" in part for part in asked] == [False, True, False]
    assert ["SECOND" in part for part in asked] == [False, False, True]


async def test_what_fits_together_stays_together_and_a_giant_is_cut() -> None:
    summaries = Summaries("ONLY")
    await summaries.summary(*(user_message("x" * 1_000) for _ in range(4)), context_window=2_000)
    assert len(summaries.answers.requests) == 1
    giant = Summaries("ONLY")
    await giant.summary(user_message("x" * 99_999), context_window=2_000)
    assert giant.answers.summarized_text().count("x") < 4_300


async def test_a_tiny_window_still_gets_something_to_read() -> None:
    summaries = Summaries("ONLY")
    await summaries.summary(user_message("x" * 3_000), context_window=10)
    assert summaries.answers.summarized_text().count("x") == 3_000


async def test_nothing_to_say_is_the_earlier_summary() -> None:
    summaries = Summaries("SUMMARY")
    assert (await summaries.summary(previous="BEFORE"))[0] == "SUMMARY"


BUSY = Failure(message="busy", retryable=True)


async def test_each_repetition_is_announced_with_its_source_and_reason() -> None:
    summaries = Summaries(BUSY, BUSY, "SUMMARY")
    summary, usage = await summaries.summary(user_message("hello"))
    assert (summary, usage.input) == ("SUMMARY", 7)
    scheduled, attempt, again, _, finished = summaries.told
    assert isinstance(scheduled, SummarizationRetryScheduled)
    assert (scheduled.attempt, scheduled.max_attempts, scheduled.delay_ms, scheduled.error_message) == (1, 2, 0, "busy")
    assert attempt == SummarizationRetryAttemptStart(source="branchSummary", reason="overflow")
    assert isinstance(again, SummarizationRetryScheduled)
    assert again.attempt == 2
    assert isinstance(finished, SummarizationRetryFinished)


@pytest.mark.parametrize(
    ("replies", "requests", "announced"),
    [([BUSY] * 3, 3, 5), ([Failure(message="bad")], 1, 0), ([BUSY, Failure(message="bad")], 2, 3)],
)
async def test_a_failure_that_stays_or_is_final_ends_it(replies: list[Any], requests: int, announced: int) -> None:
    summaries = Summaries(*replies)
    with pytest.raises(SummaryFailed):
        await summaries.summary(user_message("hello"))
    assert (len(summaries.answers.requests), len(summaries.told)) == (requests, announced)


async def test_a_server_that_asks_for_a_long_pause_gets_no_more_than_the_longest() -> None:
    slow = Failure(message="busy", retryable=True, retry_after_ms=60_000)
    summaries = Summaries(slow, "SUMMARY", retries=RetryPolicy(max_retries=1, max_delay_ms=0))
    await summaries.summary(user_message("hello"))
    assert isinstance(summaries.told[0], SummarizationRetryScheduled)
    assert summaries.told[0].delay_ms == 0


async def test_an_answer_that_was_stopped_elsewhere_is_no_summary() -> None:
    with pytest.raises(SummaryFailed, match="the request was aborted"):
        await Summaries(("half", "aborted")).summary(user_message("hello"))


def test_files_of_calls_that_a_tool_made_itself_are_touched_too() -> None:
    calls = [NestedCall(name="read", arguments={"path": "a"}), NestedCall(name="edit", arguments={"path": "b"})]
    odd = [NestedCall(name="write", arguments="c"), NestedCall()]
    result = tool_result("c", "done")
    result.nested_calls = NestedCalls(calls=[*calls, *odd])
    files = TouchedFiles(facts_of)
    files.add_messages([result])
    assert files.details() == {"readFiles": ["a"], "modifiedFiles": ["b"]}


def test_touched_files_are_those_of_tools_with_a_path() -> None:
    files = TouchedFiles(facts_of, {"readFiles": ["old.py", 5], "modifiedFiles": ["new.py", None]})
    odd = ToolCall(id="c", name="read", arguments={"path": 5})
    calls = [ToolCall(id="c", name=name, arguments={"path": f"{name}.py"}) for name in ("read", "write", "edit", "ls")]
    files.add_messages([user_message("hello"), assistant_message(text_block("hm"), odd, *calls)])
    assert files.details() == {
        "readFiles": ["old.py", "read.py"],
        "modifiedFiles": ["edit.py", "new.py", "write.py"],
    }
    assert TouchedFiles(facts_of, "nonsense").render_appendix() == ""
    assert (
        TouchedFiles(facts_of, {"modifiedFiles": ["a", "b"]}).render_appendix()
        == "\n\n<modified-files>\na\nb\n</modified-files>"
    )
