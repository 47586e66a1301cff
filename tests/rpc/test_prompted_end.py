from __future__ import annotations

from typing import Any

import pytest

from pigeon.dialects.base import Dialect
from pigeon.dialects.omp import Omp
from pigeon.dialects.pi_latest import PiLatest
from pigeon.rpc.connection import Connection
from pigeon.wire import codec
from pigeon.wire.answers import Accepted, success_response
from pigeon.wire.events import (
    AgentEnd,
    AgentEvent,
    AgentRestarted,
    AgentSettled,
    AgentStart,
    CompactionEnd,
    CompactionStart,
)
from pigeon.wire.messages import UserMessage

FIRST, SECOND = UserMessage(content="one", timestamp=1), UserMessage(content="two", timestamp=2)
BEGUN = (AgentStart(), AgentEnd(messages=[FIRST], will_retry=True))


def shown(connection: Connection, *events: Any) -> list[Any]:
    """The types of what a client is shown; a text is the answer to a prompt with that disposition."""
    found = []
    for event in events:
        if isinstance(event, str):
            answer = success_response("prompt", Accepted(disposition=event), "p")  # type: ignore[arg-type]
            lines = connection.to_answer_lines(answer)
        else:
            lines = connection.to_lines(event)
        found += [codec.decode(b"".join(line.pieces)) for line in lines]
    return found


def types(records: list[Any]) -> list[str]:
    return [record["type"] for record in records]


def test_the_end_of_an_attempt_is_not_that_of_the_prompt_that_waits() -> None:
    told = shown(
        Connection(Dialect()), *BEGUN, "started", AgentStart(), AgentEnd(messages=[FIRST]), AgentSettled(),
        AgentStart(), AgentEnd(messages=[SECOND]), AgentSettled(),
    )  # fmt: skip
    assert types(told) == [
        "agent_start", "agent_end", "response", "agent_start", "agent_end", "agent_settled",
    ]  # fmt: skip
    assert [message["content"] for message in told[-2]["messages"]] == ["one", "two"]


def test_without_a_waiting_prompt_everything_is_shown() -> None:
    events = [*BEGUN, AgentStart(), AgentEnd(messages=[FIRST]), AgentSettled()]
    assert len(shown(Connection(Dialect()), "started", *events, "queued", "handled", *events)) == 13


def test_a_compaction_that_ends_before_the_prompt_begins_is_shown() -> None:
    compaction = (CompactionStart(reason="manual"), CompactionEnd(reason="manual", aborted=True, will_retry=False))
    told = shown(Connection(Dialect()), *BEGUN, "started", *compaction, AgentSettled(), *BEGUN, AgentSettled())
    assert types(told)[2:] == [
        "response", "compaction_start", "compaction_end", "agent_start", "agent_end", "agent_settled",
    ]  # fmt: skip


@pytest.mark.parametrize("dialect", [PiLatest(), Omp()])
def test_a_run_that_nobody_asked_for_does_not_end_a_prompt(dialect: Dialect) -> None:
    told = shown(
        Connection(dialect), AgentStart(), "started", AgentEnd(messages=[FIRST]), AgentSettled(), AgentStart(),
        AgentEnd(messages=[SECOND]), AgentSettled(),
    )  # fmt: skip
    assert types(told).count("agent_start") == types(told).count("agent_end") == 1
    assert len(told[types(told).index("agent_end")]["messages"]) == 2


def test_a_client_with_ids_of_runs_is_shown_every_end() -> None:
    connection = Connection(Dialect(), ["attribution"])
    told = shown(connection, *BEGUN, "started", AgentStart(), AgentEnd(messages=[FIRST]), AgentSettled(run_id="r"))
    assert types(told) == ["agent_start", "agent_end", "response", "agent_start", "agent_end", "agent_settled"]


def test_a_prompt_that_was_lost_with_its_agent_ends_there() -> None:
    restarted = AgentRestarted(reason="it died")
    told = shown(Connection(Dialect()), *BEGUN, "started", AgentStart(), restarted, AgentEnd(messages=[]))
    assert types(told)[-1] == "agent_end"


def test_the_runs_of_agents_are_none_of_the_conversations() -> None:
    """An agent in the background is at work when the prompt is accepted, and ends before the conversation does."""
    connection = Connection(Dialect(), ["agents"])

    def of_agent(event: Any) -> AgentEvent:
        return AgentEvent(event=event, agent_id="a", parent_agent_id="p")

    told = shown(
        connection, of_agent(AgentStart()), "started", AgentStart(), of_agent(AgentEnd(messages=[FIRST])),
        of_agent(AgentSettled()), AgentEnd(messages=[SECOND]), AgentSettled(),
    )  # fmt: skip
    own = [record for record in told if "agentId" not in record]
    assert types(own) == ["response", "agent_start", "agent_end", "agent_settled"]
    assert [record["type"] for record in told if "agentId" in record] == ["agent_start", "agent_end", "agent_settled"]
