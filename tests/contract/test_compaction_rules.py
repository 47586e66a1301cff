"""Making room, rule by rule: when it happens, what is told, what the model sees afterwards, and what it never does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fakes.agent_folders import model
from fakes.contract_manifest import proves
from fakes.model_server import Answer, Call, Hang, ModelServer, Thinking, said_in
from fakes.record_outline import answers, outline, text_of
from fakes.rpc_process import RpcProcess, Start

LONG = "lorem ipsum dolor sit amet " * 40
SETTINGS = {"compaction": {"keepRecentTokens": 50, "reserveTokens": 1000}}
SMALL = [model("fake-1", contextWindow=10_000, maxTokens=1000), model("fake-2", contextWindow=200_000)]
FULL = {"input_tokens": 9_500}
TOO_LONG = "prompt is too long: 213462 tokens > 200000 maximum"


def begin(start: Start, server: ModelServer, *args: str, **more: Any) -> RpcProcess:
    """A conversation with something to summarize."""
    agent = start(*args, **{"settings": SETTINGS, "models": SMALL, "dialect": "pi-latest", **more})
    for message in ("one", "two"):
        server.answers(f"answer {message}")
        agent.run(f"{message} {LONG}")
    return agent


def context(answer: Answer) -> str:
    return "\n".join(text for _, text in said_in(answer.wait_arrived()))


def told(agent: RpcProcess, mark: int) -> list[str]:
    """The outline of the records without those of messages."""
    return [word for word in outline(agent.since(mark)) if not word.startswith("message_")]


def usage(agent: RpcProcess) -> Any:
    return agent.ask("get_session_stats")["contextUsage"]


@proves(
    "compact.order",
    "compact.already",
    "compact.nothing",
    "compact.usage_unknown",
    "compact.on_record",
    "compact.reopened",
    dialects=("pi-latest",),
)
def test_a_summary_on_request_is_told_recorded_and_found_again(start: Start, server: ModelServer) -> None:
    agent = begin(start, server, keeps=True)
    assert usage(agent)["tokens"] > 0
    before = agent.ask("get_state")["messageCount"]
    server.answers("THE SUMMARY", usage={"input_tokens": 70, "output_tokens": 30})
    mark = agent.mark()
    result = agent.ask("compact")
    assert told(agent, mark) == ["compaction_start", "compaction_end", "response:compact"]
    ended = agent.wait_event("compaction_end", mark)
    assert (ended["reason"], ended["result"], ended["aborted"], ended["willRetry"]) == ("manual", result, False, False)
    assert set(result) == {"summary", "firstKeptEntryId", "tokensBefore", "estimatedTokensAfter", "usage", "details"}
    assert usage(agent) == {"tokens": None, "contextWindow": 10_000, "percent": None}
    state = agent.ask("get_state")
    assert state["messageCount"] < before
    with Path(state["sessionFile"]).open() as lines:
        entry = json.loads(list(lines)[-1])
    assert (entry["type"], entry["summary"], entry["fromHook"]) == ("compaction", result["summary"], False)
    assert agent.refused("compact") == "Already compacted"
    assert agent.wait_event("compaction_end", mark, errorMessage="Compaction failed: Already compacted")
    asked = server.answers("well", usage={"input_tokens": 1_000})
    agent.run("three")
    assert usage(agent)["tokens"] >= 1_000
    seen = context(asked)
    messages = agent.ask("get_messages")["messages"]
    agent.ask("switch_session", sessionPath=state["sessionFile"])
    assert agent.ask("get_messages")["messages"] == messages
    assert "THE SUMMARY" in seen
    agent.ask("new_session")
    assert agent.refused("compact") == "Nothing to compact (session too small)"


@proves("compact.fails", "compact.abort", "compact.prompt_refused", dialects=("pi-latest",))
def test_a_summary_that_fails_or_is_stopped_changes_nothing(start: Start, server: ModelServer) -> None:
    agent = begin(start, server)
    before = agent.ask("get_entries")
    server.fails(400, "no summaries today", kind="invalid_request_error")
    mark = agent.mark()
    error = agent.refused("compact")
    assert error.startswith("Summarization failed: ")
    assert "no summaries today" in error
    assert agent.wait_event("compaction_end", mark)["errorMessage"] == f"Compaction failed: {error}"
    asked = server.answers("half a summ", Hang())
    mark = agent.mark()
    agent.send({"id": "c", "type": "compact"})
    asked.wait_arrived()
    assert agent.refused("prompt", message="now") == (
        "Cannot submit a prompt while compaction is in progress. Wait for compaction to finish and retry."
    )
    agent.ask("abort")
    assert agent.response("c")["error"] == "Compaction cancelled"
    assert agent.wait_event("compaction_end", mark) == {
        "type": "compaction_end", "reason": "manual", "aborted": True, "willRetry": False
    }  # fmt: skip
    asked.wait_dropped()
    assert agent.ask("get_entries") == before
    server.answers("fine")
    agent.run("three")


@proves("compact.ends_run", dialects=("pi-latest",))
def test_a_run_ends_first_with_everything_it_has_to_tell(start: Start, server: ModelServer) -> None:
    agent = begin(start, server)
    running = server.answers("on and on", Hang())
    mark = agent.mark()
    agent.ask("prompt", message="three")
    agent.wait_delta("on", mark)
    server.answers("THE SUMMARY")
    agent.ask("compact")
    words = told(agent, mark)
    assert words[-5:] == ["agent_end", "agent_settled", "compaction_start", "compaction_end", "response:compact"]
    assert answers(agent.since(mark))[0]["stopReason"] == "aborted"
    running.wait_dropped()


@proves("auto_compaction.between_turns", dialects=("pi-latest",))
def test_room_is_made_between_two_turns_of_a_run(start: Start, server: ModelServer) -> None:
    agent = begin(start, server)
    server.answers("look", Call("bash", {"command": "echo hello"}), usage=FULL)
    server.answers("THE SUMMARY")
    after = server.answers("done")
    mark = agent.mark()
    agent.run("three")
    words = [word for word in told(agent, mark) if "tool" not in word]
    assert words == [
        "response:prompt", "agent_start", "turn_start", "turn_end", "compaction_start", "compaction_end", "turn_start",
        "turn_end", "agent_end", "agent_settled",
    ]  # fmt: skip
    seen = context(after)
    assert "THE SUMMARY" in seen
    assert "hello" in seen
    assert "answer one" not in seen


@proves("auto_compaction.before_prompt", "auto_compaction.fails", dialects=("pi-latest",))
def test_room_is_made_before_a_prompt_and_a_failure_does_not_stop_it(start: Start, server: ModelServer) -> None:
    agent = begin(start, server, model="fake-2")
    server.answers("full", usage=FULL)
    agent.run("three")
    agent.ask("set_model", provider="fake", modelId="fake-1")
    server.fails(400, "not today", kind="invalid_request_error")
    server.answers("answered all the same", usage=FULL)
    server.answers("THE SUMMARY")
    mark = agent.mark()
    agent.run("four")
    words = [word for word in told(agent, mark) if word.startswith(("compaction", "agent"))]
    assert words == [
        "compaction_start", "compaction_end", "agent_start", "agent_end", "compaction_start", "compaction_end",
        "agent_settled",
    ]  # fmt: skip
    failed, worked = agent.since(mark, "compaction_end")
    assert failed["errorMessage"].startswith("Auto-compaction failed: Summarization failed: ")
    assert "result" in worked
    later = server.answers("ok")
    agent.run("five")
    assert "THE SUMMARY" in context(later)


@proves("auto_compaction.overflow_twice", dialects=("pi-latest",))
def test_an_overflow_is_recovered_from_once(start: Start, server: ModelServer) -> None:
    agent = begin(start, server)
    server.fails(400, TOO_LONG, kind="invalid_request_error")
    server.answers("THE SUMMARY")
    server.fails(400, TOO_LONG, kind="invalid_request_error")
    mark = agent.mark()
    agent.run("three")
    words = [word for word in told(agent, mark) if word not in ("turn_start", "turn_end", "response:prompt")]
    assert words == [
        "agent_start", "agent_end", "compaction_start", "entry_appended", "compaction_end", "agent_start", "agent_end",
        "compaction_end", "agent_settled",
    ]  # fmt: skip
    first, second = agent.since(mark, "compaction_end")
    assert (first["reason"], first["willRetry"], "errorMessage" in first) == ("overflow", True, False)
    assert second == {
        "type": "compaction_end", "reason": "overflow", "aborted": False, "willRetry": False,
        "errorMessage": "Context overflow recovery failed after one compact-and-retry attempt. "
        "Try reducing context or switching to a larger-context model.",
    }  # fmt: skip
    assert [message["stopReason"] for message in answers(agent.since(mark))] == ["error", "error"]
    server.answers("works again")
    assert text_of(answers(agent.run("four"))[0]) == "works again"


@proves("compaction.prunes_first", dialects=("pi-latest",))
def test_old_output_is_shortened_before_anything_is_summarized(start: Start, server: ModelServer) -> None:
    agent = start(settings=SETTINGS, models=SMALL, dialect="pi-latest")
    for letter in "ab":
        server.answers("look", Call("bash", {"command": f"head -c 16000 /dev/zero | tr '\\0' {letter}"}))
        server.answers("done", usage=FULL if letter == "b" else None)
        mark = agent.mark()
        agent.run(f"print {letter}")
    assert "compaction_start" not in told(agent, mark)
    edits = [record["entry"] for record in agent.since(mark, "entry_appended")]
    assert {edit["type"] for edit in edits} == {"context_edit"}
    asked = server.answers("well", usage={"input_tokens": 10})
    agent.run("and?")
    seen = context(asked)
    assert "a" * 300 in seen
    assert "a" * 5_000 not in seen
    assert "characters of old output removed" in seen
    kept = [entry for entry in agent.ask("get_entries")["entries"] if entry["type"] == "message"]
    assert any("a" * 5_000 in text_of(entry["message"]) for entry in kept if "content" in entry["message"])


@proves("compaction.small_window", dialects=("pi-latest",))
def test_a_small_window_has_thresholds_that_fit_it(start: Start, server: ModelServer) -> None:
    agent = start(models=[model("fake-1", contextWindow=4_000, maxTokens=500)], dialect="pi-latest")
    for number in (1_000, 2_000, 3_000):
        server.answers("a", usage={"input_tokens": number})
        agent.run(LONG * 3)
    assert agent.since(0, "compaction_start") == []
    server.answers("b", usage={"input_tokens": 3_300})
    server.answers("THE SUMMARY")
    agent.run(LONG)
    ended = agent.wait_event("compaction_end")
    assert ended["result"]["estimatedTokensAfter"] < 3_200
    server.answers("c")
    agent.run("on")
    assert len(agent.since(0, "compaction_start")) == 1


@proves("compaction.per_model", dialects=("pi-latest",))
def test_a_model_can_have_thresholds_of_its_own(start: Start, server: ModelServer) -> None:
    own = {"modelOverrides": {"fake/fake-2": {"reserveTokens": 90_000, "keepRecentTokens": 50}}}
    agent = begin(start, server, settings={"compaction": {**SETTINGS["compaction"], **own}}, model="fake-2")
    server.answers("not yet", usage={"input_tokens": 109_000})
    agent.run("three")
    assert agent.since(0, "compaction_start") == []
    server.answers("now", usage={"input_tokens": 111_000})
    server.answers("THE SUMMARY")
    agent.run("four")
    assert "result" in agent.wait_event("compaction_end")


@proves("compact.model_limit", dialects=("pi-latest",))
def test_a_summary_may_be_as_long_as_the_model_can_write(start: Start, server: ModelServer) -> None:
    large = [model("fake-1", contextWindow=200_000, maxTokens=32_000, reasoning=True)]
    agent = start("--thinking", "medium", settings=SETTINGS, models=large, dialect="pi-latest")
    for message in ("one", "two"):
        server.answers(Thinking("private doubts"), f"answer {message}")
        agent.run(f"{message} {LONG}")
    server.answers(Thinking("more doubts"), Call("bash", {"command": "echo one"}))
    server.answers(f"the end {LONG}")
    agent.run(f"three {LONG}")
    history, prefix = server.answers("THE SUMMARY"), server.answers("THE BEGINNING")
    agent.ask("compact", customInstructions="mind the colours")
    for asked in (history.request, prefix.request):
        assert (asked["max_tokens"], asked["thinking"]["budget_tokens"]) == (32_000, 8192)
        assert "doubts" not in str(asked)
        assert "Additional focus: mind the colours" in str(asked)


@proves("overflow.any_413", dialects=("pi-latest",))
@pytest.mark.parametrize(
    ("status", "text"), [(413, ""), (413, "Payload Too Large"), (503, "litellm.ContextWindowExceededError: too long")]
)
def test_a_request_that_is_too_large_makes_room_whatever_the_words(
    start: Start, server: ModelServer, status: int, text: str
) -> None:
    agent = begin(start, server)
    server.fails(status, text)
    server.answers("THE SUMMARY")
    again = server.answers("fine now")
    mark = agent.mark()
    agent.run("three")
    assert "compaction_start" in told(agent, mark)
    assert "THE SUMMARY" in context(again)


@proves("overflow.nothing_older", dialects=("pi-latest",))
def test_an_overflow_without_older_history_just_fails(start: Start, server: ModelServer) -> None:
    agent = start(dialect="pi-latest")
    server.fails(400, "prompt is too long: 9 tokens > 8 maximum")
    mark = agent.mark()
    records = agent.run("everything at once")
    assert not [kind for kind in told(agent, mark) if kind.startswith("compaction")]
    assert records[-1]["reason"] == "error"
