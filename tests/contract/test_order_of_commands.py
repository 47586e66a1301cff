"""Commands that come while something else goes on: which wait, which replace it, and where queued messages go."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.model_server import Call, Cut, Gate, Hang, ModelServer, said_in
from support.agent_folders import model
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.records import answers, finished_messages, outline, text_of

SMALL = [model("fake-1", contextWindow=10_000, maxTokens=1000)]
SETTINGS = {"compaction": {"keepRecentTokens": 50, "reserveTokens": 1000}, "retry": {"enabled": False}}
FULL = {"input_tokens": 9_500}
LONG = "lorem ipsum dolor sit amet " * 40


@pytest.fixture
def talking(start: Start, server: ModelServer, dialect: str) -> RpcProcess:
    """A conversation with something to summarize."""
    agent = start(dialect=dialect, settings=SETTINGS, models=SMALL)
    for message in ("one", "two"):
        server.answers(f"answer {message}")
        agent.run(f"{message} {LONG}")
    return agent


def begin_summary(agent: RpcProcess, server: ModelServer, id: str = "c") -> Gate:
    gate = Gate()
    server.answers("THE SUMMARY", gate)
    agent.send({"id": id, "type": "compact"})
    gate.wait_reached()
    return gate


def said(records: list[dict[str, Any]]) -> list[str]:
    return [text_of(message) for message in finished_messages(records, "user")]


# --- one after another ------------------------------------------------------------------------------------------------


@proves("order.abort_prompt")
def test_abort_and_prompt_in_one_write_run_the_prompt(spoken: RpcProcess, server: ModelServer) -> None:
    server.answers("half", Hang())
    spoken.ask("prompt", message="first")
    spoken.wait_delta("f")
    server.answers("whole")
    start = spoken.mark()
    spoken.send({"id": "a", "type": "abort"}, {"id": "p", "type": "prompt", "message": "second"})
    assert spoken.response("p")["success"] is True
    spoken.wait_count("agent_end", 2, start)
    words = [word for word in outline(spoken.since(start)) if word.startswith(("response", "agent"))]
    assert words == ["agent_end", "response:abort", "response:prompt", "agent_start", "agent_end"]
    assert text_of(answers(spoken.since(start))[-1]) == "whole"


@proves("order.compact_prompt")
def test_a_prompt_during_a_compaction_waits_and_runs(talking: RpcProcess, server: ModelServer) -> None:
    gate = begin_summary(talking, server)
    server.answers("after it")
    start = talking.mark()
    name = {"id": "n", "type": "set_session_name", "name": "x"}
    talking.send({"id": "p", "type": "prompt", "message": "three"}, name)
    assert talking.ask("get_state")["isCompacting"] is True, "what only reads does not wait"
    gate.open()
    talking.wait_end(start)
    words = [word for word in outline(talking.since(start)) if word.startswith("response")]
    assert words == ["response:get_state", "response:compact", "response:prompt", "response:set_session_name"]
    assert all(record["success"] for record in talking.since(start, "response"))
    assert "THE SUMMARY" in said_in(server.requests[-1])[0][1]


@proves("order.abort_reaches")
def test_an_abort_overtakes_what_waits(talking: RpcProcess, server: ModelServer) -> None:
    begin_summary(talking, server)
    start = talking.mark()
    talking.send({"id": "p", "type": "prompt", "message": "never"}, {"id": "a", "type": "abort"})
    talking.response("a")
    talking.response("c")
    refused = [record for record in talking.since(start) if record.get("id") == "p" and record.get("success") is False]
    assert len(refused) == 1
    assert talking.response("c")["error"] == "Compaction cancelled"
    server.answers("well")
    assert said(talking.run("four")) == ["four"]


@proves("compact.replaced")
def test_a_second_compact_replaces_the_first(talking: RpcProcess, server: ModelServer) -> None:
    begin_summary(talking, server)
    server.answers("ANOTHER SUMMARY")
    talking.send({"id": "d", "type": "compact"})
    assert "ANOTHER SUMMARY" in talking.response("d")["data"]["summary"]
    first = talking.response("c")
    assert (first["success"], first["error"]) == (False, "Compaction cancelled")


# --- queued messages --------------------------------------------------------------------------------------------------


def fail_with_follow_up(agent: RpcProcess, server: ModelServer) -> int:
    """A run that fails while a message waits; gives the place where it began."""
    gate = Gate()
    server.answers("half", gate, Cut())
    start = agent.mark()
    agent.send({"id": "first", "type": "prompt", "message": "first"})
    gate.wait_reached()
    agent.send({"id": "later", "type": "prompt", "message": "later", "streamingBehavior": "followUp"})
    assert agent.response("later")["success"] is True
    server.answers("to the later one")
    gate.open()
    return start


@proves("queue.after_failure")
def test_after_a_failure_what_waits_is_answered_at_once(start: Start, server: ModelServer, dialect: str) -> None:
    agent = start(dialect=dialect, settings=SETTINGS)
    begun = fail_with_follow_up(agent, server)
    agent.wait(lambda record: "to the later one" in str(record.get("message", {}).get("content")), begun)
    agent.wait(lambda record: record["type"] == agent.last_event, begun)
    assert said(agent.since(begun)) == ["first", "later"]
    server.answers("and on")
    assert said(agent.run("next")) == ["next"]


@proves("queue.failed_prompt", dialects=("omp",))
def test_a_failed_prompt_stays_failed_when_what_waits_is_answered(start: Start, server: ModelServer) -> None:
    agent = start(dialect="omp", settings=SETTINGS)
    fail_with_follow_up(agent, server)
    agent.wait_event("session_settled")
    results = {record["id"]: record for record in agent.since(0, "prompt_result")}
    assert {id: result["status"] for id, result in results.items()} == {"first": "error", "later": "completed"}
    assert "Connection lost" in results["first"]["error"]["message"]
    assert "error" not in results["later"]


# --- a prompt that waits for the end of the previous run --------------------------------------------------------------


def prompt_during_compaction(agent: RpcProcess, server: ModelServer) -> tuple[int, Gate]:
    """A prompt that is sent at the end of a run after which the history is summarized."""
    gate = Gate()
    server.answers("full", usage=FULL)
    server.answers("THE SUMMARY", gate)
    agent.ask("prompt", message=f"three {LONG}")
    gate.wait_reached()
    start = agent.mark()
    agent.ask("prompt", message="four")
    return start, gate


@proves("prompt.after_end_aborted")
def test_an_abort_ends_a_prompt_that_waits_for_its_turn(talking: RpcProcess, server: ModelServer) -> None:
    start, _ = prompt_during_compaction(talking, server)
    talking.ask("abort")
    told = [word for word in outline(talking.since(start)) if word.startswith(("agent_start", "agent_end", "response"))]
    assert told == ["response:prompt", "agent_start", "agent_end", "response:abort"]
    assert answers(talking.since(start))[-1]["stopReason"] == "aborted"
    assert talking.ask("get_state")["isStreaming"] is False
    server.answers("THE SUMMARY")
    server.answers("five")
    talking.ask("prompt", message="five")
    talking.wait_count("agent_end", 2, start)
    assert text_of(answers(talking.since(start))[-1]) == "five"


@proves("prompt.after_end_order")
def test_what_is_queued_behind_a_waiting_prompt_comes_after_it(talking: RpcProcess, server: ModelServer) -> None:
    start, gate = prompt_during_compaction(talking, server)
    assert talking.expect_error("prompt", message="too much").startswith("Agent is already processing")
    talking.ask("follow_up", message="last")
    talking.ask("steer", message="right behind")
    server.answers(Call("bash", {"command": "true"}))
    for _ in range(3):
        server.answers("ok")
    gate.open()
    talking.wait_event("agent_settled", start)
    assert said(talking.since(start)) == ["four", "right behind", "last"]
    assert talking.ask("get_state")["pendingMessageCount"] == 0


# --- what is remembered -----------------------------------------------------------------------------------------------


@proves("thinking.remembered")
def test_the_level_that_was_requested_last_is_back_after_a_model_without_reasoning(start: Start, dialect: str) -> None:
    agent = start(dialect=dialect, models=[model("fake-1"), model("fake-2", reasoning=False)])
    agent.ask("set_thinking_level", level="high")
    levels = []
    for name in ("fake-2", "fake-1"):
        agent.ask("set_model", provider="fake", modelId=name)
        levels.append(agent.ask("get_state")["thinkingLevel"])
    agent.ask("set_model", provider="fake", modelId="fake-2")
    agent.ask("set_thinking_level", level="low")
    agent.ask("set_model", provider="fake", modelId="fake-1")
    assert [*levels, agent.ask("get_state")["thinkingLevel"]] == ["off", "high", "low"]
