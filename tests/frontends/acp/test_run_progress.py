"""The run of a session as its client sees it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pigeon.frontends.acp.editions.edition import TokenSum, Update
from pigeon.frontends.acp.editions.version_2 import EditionTwo
from pigeon.frontends.acp.incoming import ClientCapabilities
from pigeon.frontends.acp.run_progress import RunProgress
from pigeon.wire.events import AgentSettled
from pigeon.wire.messages import AssistantMessage
from pigeon.wire.model import zero_usage
from pigeon.wire.steering import LimitReached


def progress_and_updates() -> tuple[RunProgress, list[Update]]:
    sent: list[Update] = []
    return RunProgress(EditionTwo(ClientCapabilities()), sent.extend), sent


def answer(**fields: Any) -> AssistantMessage:
    usage = replace(zero_usage(), input=2, output=3, total_tokens=5)
    message = AssistantMessage(
        content=[], api="a", provider="p", model="m", usage=usage, stop_reason="stop", timestamp=0
    )
    return replace(message, **fields)


def test_a_client_is_told_once_that_a_session_works_and_once_that_it_is_idle() -> None:
    progress, sent = progress_and_updates()
    progress.send_state_if_busy()
    assert sent == []
    progress.send_busy()
    progress.on_run_start()
    assert (progress.is_busy, progress.in_run) == (True, True)
    assert [update.get("state") for update in sent] == ["running"]
    end = progress.finish_run(AgentSettled())
    assert (progress.is_busy, progress.in_run) == (True, False)
    progress.send_idle(end)
    assert [update.get("state") for update in sent] == ["running", "idle"]


def test_a_run_counts_its_own_answers_only() -> None:
    progress, _ = progress_and_updates()
    progress.record_answer(answer())
    progress.record_answer(answer(stop_reason="length"))
    first = progress.finish_run(AgentSettled())
    second = progress.finish_run(AgentSettled())
    assert (first.stop, first.usage) == ("max_tokens", TokenSum(input=4, output=6, total=10))
    assert (second.stop, second.usage) == ("end_turn", TokenSum())


@pytest.mark.parametrize(
    ("event", "last", "stop", "error"),
    [
        (AgentSettled(reason="aborted"), answer(), "cancelled", None),
        (AgentSettled(aborted=True), answer(stop_reason="length"), "cancelled", None),
        (AgentSettled(), answer(raw_stop_reason="refusal"), "refusal", None),
        (
            AgentSettled(reason="limit", limit=LimitReached(name="tokens", allowed=1, reached=2)),
            answer(),
            "max_tokens",
            None,
        ),
        (AgentSettled(reason="limit"), answer(), "max_turn_requests", None),
        (AgentSettled(reason="error", error_message="own"), answer(error_message="last"), "end_turn", "own"),
        (AgentSettled(reason="error"), answer(error_message="last"), "end_turn", "last"),
        (AgentSettled(reason="error"), answer(), "end_turn", "The run failed"),
    ],
)
def test_the_end_of_a_run_is_its_stop_reason_or_its_error(
    event: AgentSettled, last: AssistantMessage, stop: str, error: str | None
) -> None:
    progress, _ = progress_and_updates()
    progress.record_answer(last)
    end = progress.finish_run(event)
    assert (end.stop, None if end.error is None else str(end.error)) == (stop, error)
