"""Making room: on request, by itself when the window is nearly full, and after the provider said it overflowed."""

from __future__ import annotations

from typing import Any

from fakes.agent_folders import model
from fakes.contract_manifest import proves
from fakes.dialect_cases import in_each
from fakes.model_server import Answer, Gate, Hang, ModelServer, said_in
from fakes.record_outline import answers, outline, text_of
from fakes.rpc_process import RpcProcess, Start

KEEPS = {"compaction": {"keepRecentTokens": 50, "reserveTokens": 1000}}
SMALL = [model("fake-1", contextWindow=10_000, maxTokens=1000)]
FULL = {"input_tokens": 9_500}
LONG = "lorem ipsum dolor sit amet " * 40
TOO_LONG = "prompt is too long: 213462 tokens > 200000 maximum"


def begin(start: Start, server: ModelServer, dialect: str, **more: Any) -> RpcProcess:
    """A conversation with something to summarize."""
    agent = start(dialect=dialect, settings=KEEPS, **more)
    for message in ("one", "two"):
        server.answers(f"answer {message}")
        agent.run(f"{message} {LONG}")
    return agent


def context(answer: Answer) -> str:
    return "\n".join(text for _, text in said_in(answer.wait_arrived()))


@proves(
    "compact.response",
    "compact.name",
    "compact.instructions",
    "compact.context",
    "command.compact",
    "get_state.compacting",
    dialects=("pi", "omp", "xcsh"),
)
@proves("compact.details", dialects=("pi", "omp"))
@proves("note/response.data_compact")
@in_each("pi", "omp", "xcsh")
def test_a_conversation_is_summarized_on_request(start: Start, server: ModelServer, dialect: str) -> None:
    agent = begin(start, server, dialect)
    gate = Gate()
    asked = server.answers("THE SUMMARY", gate)
    before = agent.mark()
    agent.send({"id": "c", "type": "compact", "customInstructions": "look at the colours"})
    gate.wait_reached()
    assert agent.ask("get_state")["isCompacting"] is True
    gate.open()
    response = agent.response("c")
    assert (response["command"], response["success"]) == ("compact", True)
    data = response["data"]
    assert "THE SUMMARY" in data["summary"]
    assert isinstance(data["firstKeptEntryId"], str)
    assert data["tokensBefore"] > 0
    assert isinstance(data["details"], dict)
    assert "look at the colours" in context(asked)
    assert agent.ask("get_state")["isCompacting"] is False
    told = {word for word in outline(agent.since(before)) if "compaction" in word}
    assert told == ({"compaction_start", "compaction_end"} if dialect == "pi" else set())
    later = server.answers("ok")
    agent.run("three")
    assert "THE SUMMARY" in context(later)
    assert "answer one" not in context(later)


@proves(
    "set_auto_compaction.response",
    "set_auto_compaction.off",
    "set_auto_compaction.on",
    "set_auto_compaction.effect",
    "auto_compaction.start",
    "auto_compaction.end",
    "auto_compaction.context",
    "command.set_auto_compaction",
    dialects=("pi", "omp", "xcsh"),
)
@proves("omp/auto_compaction.threshold", "omp/auto_compaction.end_shape", dialects=("omp",))
@proves("dialect.one_end", dialects=("omp", "xcsh"))
@in_each("pi", "omp", "xcsh")
def test_a_window_that_is_nearly_full_is_summarized_by_itself(start: Start, server: ModelServer, dialect: str) -> None:
    agent = begin(start, server, dialect, models=SMALL)
    for enabled in (True, False):
        agent.send({"id": str(enabled), "type": "set_auto_compaction", "enabled": enabled})
        assert agent.response(str(enabled)) == {
            "id": str(enabled), "type": "response", "command": "set_auto_compaction", "success": True
        }  # fmt: skip
        assert agent.ask("get_state")["autoCompactionEnabled"] is enabled
    server.answers("full", usage=FULL)
    agent.run("three")
    server.answers("still full", usage=FULL)
    agent.run("four")
    assert not [word for word in outline(agent.records) if word.endswith(("compaction_start", "compaction_end"))]
    agent.ask("set_auto_compaction", enabled=True)
    server.answers("THE SUMMARY")
    server.answers("after it", usage=FULL)
    mark = agent.mark()
    agent.run("five")
    begun, ended = agent.wait_event("auto_compaction_start", mark), agent.wait_event("auto_compaction_end", mark)
    assert begun == {"type": "auto_compaction_start", "reason": "threshold"}
    assert (ended["aborted"], ended["willRetry"]) == (False, False)
    assert {"summary", "firstKeptEntryId", "tokensBefore", "details"} <= set(ended["result"])
    later = server.answers("ok")
    agent.run("six")
    assert "THE SUMMARY" in context(later)
    assert "answer one" not in context(later)
    assert ("compaction_start" in outline(agent.since(mark))) is (dialect == "pi")


@proves(
    "omp/auto_compaction.overflow",
    "omp/auto_compaction.overflow_end",
    "omp/auto_compaction.overflow_retry",
    dialects=("omp",),
)
@proves("dialect.one_end", dialects=("omp", "xcsh", "companion"))
@in_each("pi", "omp", "xcsh", "companion")
def test_an_overflow_is_recovered_from_inside_one_prompt(start: Start, server: ModelServer, dialect: str) -> None:
    agent = start(dialect=dialect, settings=KEEPS)
    for message in ("one", "two"):
        server.answers(f"answer {message}")
        mark = agent.mark()
        agent.send({"type": "prompt", "message": f"{message} {LONG}"})
        agent.wait_end(mark)
    server.fails(400, TOO_LONG, kind="invalid_request_error")
    server.answers("THE SUMMARY")
    again = server.answers("answer after overflow")
    mark = agent.mark()
    agent.send({"type": "prompt", "message": "three"})
    agent.wait(lambda r: r["type"] == "agent_end" and text_of(r["messages"][-1]) == "answer after overflow", mark)
    words = outline(agent.since(mark))
    assert "THE SUMMARY" in context(again)
    assert context(again).endswith("three")
    if dialect in ("omp", "xcsh"):
        assert agent.wait_event("auto_compaction_start", mark)["reason"] == "overflow"
        assert agent.wait_event("auto_compaction_end", mark)["willRetry"] is True
        assert words.index("auto_compaction_end") < words.index("agent_end")
    if dialect != "pi":
        assert words.count("agent_start") == words.count("agent_end") == 1
        end = agent.wait_event("agent_end", mark)
        assert [message["role"] for message in end["messages"]] == ["user", "assistant", "assistant"]
    assert answers(agent.since(mark))[0]["stopReason"] == "error"


@proves("omp/auto_compaction.aborted", "omp/auto_compaction.aborted_null", dialects=("omp",))
@in_each("omp", "xcsh")
def test_an_aborted_compaction_says_so_with_a_null_result(start: Start, server: ModelServer, dialect: str) -> None:
    agent = begin(start, server, dialect, models=SMALL)
    server.answers("full", usage=FULL)
    asked = server.answers("half a summ", Hang())
    mark = agent.mark()
    agent.ask("prompt", message="three")
    agent.wait_event("auto_compaction_start", mark)
    asked.wait_arrived()
    agent.ask("abort")
    ended = agent.wait_event("auto_compaction_end", mark)
    assert ended == {"type": "auto_compaction_end", "result": None, "aborted": True, "willRetry": False}
    asked.wait_dropped()
    assert outline(agent.since(mark)).count("agent_end") == 1


@proves("compaction.silent_overflow")
def test_a_model_that_had_no_room_to_answer_is_asked_again_after_compaction(start: Start, server: ModelServer) -> None:
    agent = start(settings=KEEPS)
    for message in ("one", "two"):
        server.answers(f"answer {message}")
        agent.run(f"{message} {LONG}")
    window = agent.ask("get_state")["model"]["contextWindow"]
    server.answers(stop="max_tokens", usage={"input_tokens": window, "output_tokens": 0})
    server.answers("THE SUMMARY")
    again = server.answers("with room")
    mark = agent.mark()
    agent.run("three")
    full, last = answers(agent.since(mark))
    assert (full["stopReason"], text_of(last)) == ("error", "with room")
    assert "no room" in full["errorMessage"]
    assert agent.wait_event("compaction_start", mark)["reason"] == "overflow"
    assert context(again).endswith("three")
