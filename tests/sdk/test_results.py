"""What is kept of a run while its events go by."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import pigeon
from pigeon.sdk.records import convert_leniently
from pigeon.sdk.results import RunRecord
from pigeon.wire.answers import Compacted, State
from pigeon.wire.content import TextContent
from pigeon.wire.errors import SessionBusy, UnknownCommand
from pigeon.wire.events import AgentSettled, CompactionEnd, MessageEnd
from pigeon.wire.messages import AssistantMessage
from pigeon.wire.model import Cost, Usage


def answer(text: str, stop: Any = "stop", **more: Any) -> MessageEnd:
    message = AssistantMessage(
        content=[TextContent(text=text)],
        api="a",
        provider="p",
        model="m",
        usage=Usage(input=10, output=2, total_tokens=12, cost=Cost(input=0.1, total=0.3), reasoning=1),
        stop_reason=stop,
        timestamp=1,
        **more,
    )
    return MessageEnd(message=message)


def result_of(*events: Any) -> Any:
    record = RunRecord()
    for event in events:
        record.add_event(event)
    return record.make_result(convert_leniently({"sessionId": "s"}, State))


def test_usage_counts_every_answer_and_every_compaction() -> None:
    compacted = Compacted(
        summary="", first_kept_entry_id="", tokens_before=1, usage=Usage(output=5, cost=Cost(total=1))
    )
    compaction = CompactionEnd(reason="threshold", result=compacted, aborted=False, will_retry=False)
    usage = result_of(answer("one"), compaction, answer("two"), AgentSettled()).usage
    assert (usage.input, usage.output, usage.total_tokens, usage.reasoning) == (20, 9, 24, 2)
    assert usage.cost.total == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("events", "ended", "error"),
    [
        ([answer("x"), AgentSettled()], "done", None),
        ([answer("x", "aborted"), AgentSettled(aborted=True, reason="aborted")], "aborted", None),
        # Agents of the family that do not say why in the end say it in the answer.
        ([answer("x", "aborted"), AgentSettled()], "aborted", None),
        ([answer("x", "error", error_message="it broke"), AgentSettled()], "error", "it broke"),
        ([answer("x"), AgentSettled(reason="error")], "error", "The run ended in an error"),
        ([AgentSettled(reason="error")], "error", "The run ended in an error"),
    ],
)
def test_how_a_run_ended(events: list[Any], ended: str, error: str | None) -> None:
    result = result_of(*events)
    assert (result.ended, result.error) == (ended, error)


def test_a_run_without_an_answer_has_no_text() -> None:
    assert (result_of(AgentSettled()).text, result_of(answer("one"), answer("two")).text) == ("", "two")


@pytest.mark.parametrize(
    "error",
    [
        pigeon.AnswerTimeout("prompt", 3),
        pigeon.ProcessDied("It has ended", -9, "last words"),
        pigeon.RunOver("m", "r"),
        pigeon.ReaderTooSlow(5),
        pigeon.Refusal("no", "limit"),
        pigeon.ConversationClosed(),
        SessionBusy(),
        UnknownCommand("dance"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_go_through_pickle_as_they_are(error: pigeon.PigeonError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
