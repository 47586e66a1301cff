"""Making room, rule by rule: when it happens, what is told, what the model sees afterwards, and what it never does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Answer, Call, Hang, ModelServer, Thinking, said_in
from support.agent_folders import model
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import answers, outline, text_of

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


@scenario
def summary(stage: Stage) -> Seen:
    """A summary on request, a second one at once, a prompt after it, and the session opened again."""
    agent, server = begin(stage.start, stage.server, keeps=True), stage.server
    usages = [usage(agent)]
    count = agent.ask("get_state")["messageCount"]
    server.answers("THE SUMMARY", usage={"input_tokens": 70, "output_tokens": 30})
    mark = agent.mark()
    result = agent.ask("compact")
    words = told(agent, mark)
    ended = agent.wait_event("compaction_end", mark)
    usages.append(usage(agent))
    state = agent.ask("get_state")
    with Path(state["sessionFile"]).open() as lines:
        entry = json.loads(list(lines)[-1])
    already = agent.expect_error("compact")
    failed = agent.wait_event("compaction_end", mark, errorMessage="Compaction failed: Already compacted")
    asked = server.answers("well", usage={"input_tokens": 1_000})
    agent.run("three")
    usages.append(usage(agent))
    messages = agent.ask("get_messages")["messages"]
    agent.ask("switch_session", sessionPath=state["sessionFile"])
    reopened = agent.ask("get_messages")["messages"]
    agent.ask("new_session")
    return Seen(
        usages=usages, count=count, result=result, words=words, ended=ended, state=state, entry=entry, already=already,
        failed=failed, seen=context(asked), messages=messages, reopened=reopened, nothing=agent.expect_error("compact"),
    )  # fmt: skip


@proves("compact.order")
def test_a_summary_is_told_before_it_is_answered(summary: Seen) -> None:
    assert summary.words == ["compaction_start", "compaction_end", "response:compact"]
    ended = summary.ended
    found = (ended["reason"], ended["result"], ended["aborted"], ended["willRetry"])
    assert found == ("manual", summary.result, False, False)


@proves("compact.already")
def test_a_conversation_that_was_just_summarized_is_refused(summary: Seen) -> None:
    assert summary.already == "Already compacted"
    assert summary.failed


@proves("compact.nothing")
def test_a_conversation_without_anything_to_summarize_is_refused(summary: Seen) -> None:
    assert summary.nothing == "Nothing to compact (session too small)"


@proves("compact.usage_unknown")
def test_until_the_next_answer_the_usage_of_the_context_is_null(summary: Seen) -> None:
    before, between, after = summary.usages
    assert before["tokens"] > 0
    assert between == {"tokens": None, "contextWindow": 10_000, "percent": None}
    assert after["tokens"] >= 1_000


@proves("compact.on_record")
def test_a_summary_is_an_entry_of_the_session(summary: Seen) -> None:
    fields = {"summary", "firstKeptEntryId", "tokensBefore", "estimatedTokensAfter", "usage", "details"}
    assert set(summary.result) == fields
    entry = summary.entry
    assert (entry["type"], entry["summary"], entry["fromHook"]) == ("compaction", summary.result["summary"], False)
    assert summary.state["messageCount"] < summary.count


@proves("compact.reopened")
def test_a_summarized_session_is_the_same_after_it_is_opened_again(summary: Seen) -> None:
    assert summary.reopened == summary.messages
    assert "THE SUMMARY" in summary.seen


@scenario
def no_summary(stage: Stage) -> Seen:
    """A summary that fails, and one that is stopped while a prompt is refused."""
    agent, server = begin(stage.start, stage.server), stage.server
    before = agent.ask("get_entries")
    server.fails(400, "no summaries today", kind="invalid_request_error")
    mark = agent.mark()
    error = agent.expect_error("compact")
    failed = agent.wait_event("compaction_end", mark)
    after_failure = agent.ask("get_entries")
    asked = server.answers("half a summ", Hang())
    mark = agent.mark()
    agent.send({"id": "c", "type": "compact"})
    asked.wait_arrived()
    refusal = agent.expect_error("prompt", message="now")
    agent.ask("abort")
    response = agent.response("c")
    ended = agent.wait_event("compaction_end", mark)
    asked.wait_dropped()
    after_abort = agent.ask("get_entries")
    server.answers("fine")
    agent.run("three")
    return Seen(before=before, error=error, failed=failed, after_failure=after_failure, refusal=refusal,
                response=response, ended=ended, after_abort=after_abort)  # fmt: skip


@proves("compact.fails")
def test_a_summary_that_fails_is_told_with_its_reason_and_changes_nothing(no_summary: Seen) -> None:
    assert no_summary.error.startswith("Summarization failed: ")
    assert "no summaries today" in no_summary.error
    assert no_summary.failed["errorMessage"] == f"Compaction failed: {no_summary.error}"
    assert no_summary.after_failure == no_summary.before


@proves("compact.prompt_refused")
def test_a_prompt_is_refused_while_a_summary_is_made(no_summary: Seen) -> None:
    assert no_summary.refusal == (
        "Cannot submit a prompt while compaction is in progress. Wait for compaction to finish and retry."
    )


@proves("compact.abort")
def test_a_summary_that_is_stopped_changes_nothing(no_summary: Seen) -> None:
    assert no_summary.response["error"] == "Compaction cancelled"
    assert no_summary.ended == {
        "type": "compaction_end", "reason": "manual", "aborted": True, "willRetry": False
    }  # fmt: skip
    assert no_summary.after_abort == no_summary.before


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


@scenario
def smaller(stage: Stage) -> Seen:
    """A model with a smaller window is chosen; the first summary fails, the second works."""
    agent, server = begin(stage.start, stage.server, model="fake-2"), stage.server
    server.answers("full", usage=FULL)
    agent.run("three")
    agent.ask("set_model", provider="fake", modelId="fake-1")
    server.fails(400, "not today", kind="invalid_request_error")
    server.answers("answered all the same", usage=FULL)
    server.answers("THE SUMMARY")
    mark = agent.mark()
    agent.run("four")
    words = [word for word in told(agent, mark) if word.startswith(("compaction", "agent"))]
    failed, worked = agent.since(mark, "compaction_end")
    later = server.answers("ok")
    agent.run("five")
    return Seen(words=words, failed=failed, worked=worked, later=context(later))


@proves("auto_compaction.before_prompt")
def test_room_is_made_before_a_prompt_to_a_smaller_window(smaller: Seen) -> None:
    assert smaller.words == [
        "compaction_start", "compaction_end", "agent_start", "agent_end", "compaction_start", "compaction_end",
        "agent_settled",
    ]  # fmt: skip
    assert "result" in smaller.worked
    assert "THE SUMMARY" in smaller.later


@proves("auto_compaction.fails")
def test_room_that_cannot_be_made_does_not_stop_a_prompt(smaller: Seen) -> None:
    assert smaller.failed["errorMessage"].startswith("Auto-compaction failed: Summarization failed: ")
    assert smaller.words[2:4] == ["agent_start", "agent_end"]


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
