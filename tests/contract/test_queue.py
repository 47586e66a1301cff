"""Messages that wait: steering, follow-ups, their modes, and taking them back."""

from __future__ import annotations

from typing import Any

from fakes.model_server import Answer, Gate, ModelServer, said_in
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.records import answers, finished_messages, outline, text_of

SKIPPED = "Skipped due to queued user message."


def busy(agent: RpcProcess, server: ModelServer, *rest: str) -> Gate:
    """Begin a run that stands still in its first answer."""
    gate = Gate()
    server.answers("first", gate, *rest)
    agent.ask("prompt", message="start")
    gate.wait_reached()
    return gate


def users(records: list[dict[str, Any]]) -> list[str]:
    return [text_of(message) for message in finished_messages(records, "user")]


def new_in(answer: Answer) -> list[str]:
    """The user messages at the end of a request."""
    found = []
    for role, text in reversed(said_in(answer.request)):
        if role != "user":
            break
        found.append(text)
    return found[::-1]


@proves("queue.update_before_message")
def test_the_queue_is_told_just_before_its_message_begins(agent: RpcProcess, server: ModelServer) -> None:
    gate = busy(agent, server)
    server.answers("second")
    agent.ask("steer", message="now")
    gate.open()
    agent.wait_end()
    words = outline(agent.records)
    at = words.index("message_start:user", words.index("turn_end"))
    assert words[at - 2 : at + 2] == ["turn_start", "queue_update", "message_start:user", "message_end:user"]
    assert agent.since(0, "queue_update")[-1] == {"type": "queue_update", "steering": [], "followUp": []}


@proves("queue.idle")
def test_what_is_queued_while_idle_goes_with_the_next_prompt(agent: RpcProcess, server: ModelServer) -> None:
    agent.ask("follow_up", message="last")
    agent.ask("steer", message="extra")
    assert agent.ask("get_state")["pendingMessageCount"] == 2
    assert not agent.since(0, "agent_start")
    server.answers("one")
    server.answers("two")
    agent.run("prompt")
    assert users(agent.records) == ["prompt", "extra", "last"]


@proves("queue.clear")
def test_clear_queue_takes_everything_back(agent: RpcProcess, server: ModelServer) -> None:
    gate = busy(agent, server)
    agent.ask("steer", message="s")
    agent.ask("follow_up", message="f")
    assert agent.ask("clear_queue") == {"steering": ["s"], "followUp": ["f"]}
    assert agent.since(0, "queue_update")[-1] == {"type": "queue_update", "steering": [], "followUp": []}
    assert agent.ask("clear_queue") == {"steering": [], "followUp": []}
    gate.open()
    agent.wait_end()
    assert users(agent.records) == ["start"]


@proves("queue.same_text")
def test_two_waiting_messages_with_the_same_text_are_both_delivered(agent: RpcProcess, server: ModelServer) -> None:
    gate = busy(agent, server)
    for _ in range(2):
        agent.ask("steer", message="again")
        server.answers("ok")
    agent.ask("follow_up", message="again")
    server.answers("ok")
    gate.open()
    agent.wait_end()
    assert users(agent.records) == ["start", "again", "again", "again"]
    assert [update["followUp"] for update in agent.since(0, "queue_update")][-2:] == [["again"], []]


@proves("queue.after_error")
def test_an_error_leaves_the_queue_for_the_next_prompt(start: Start, server: ModelServer) -> None:
    agent = start(settings={"retry": {"enabled": False}})
    gate = Gate()
    failing = server.fails(400, "no", kind="invalid_request_error")
    agent.ask("follow_up", message="later")
    agent.run("one")
    assert failing.arrived.is_set()
    assert agent.ask("get_state")["pendingMessageCount"] == 1
    server.answers("two")
    server.answers("three")
    records = agent.run("again")
    assert users(records) == ["again", "later"]
    assert text_of(answers(records)[-1]) == "three"
    gate.open()
