"""Another try after a transient failure: when, how it is told, and stopping it."""

from __future__ import annotations

import pytest

from fakes.contract_manifest import proves
from fakes.dialect_cases import in_each
from fakes.model_server import ModelServer
from fakes.record_outline import answers, outline, text_of
from fakes.rpc_process import Start

FAST = {"retry": {"baseDelayMs": 1, "maxRetries": 2}}
SLOW = {"retry": {"baseDelayMs": 50_000}}


@proves(
    "set_auto_retry.response",
    "set_auto_retry.off",
    "set_auto_retry.on",
    "auto_retry.start",
    "auto_retry.end",
    "command.set_auto_retry",
    dialects=("pi", "omp", "xcsh"),
)
@proves("auto_retry.rate_limit", "auto_retry.500", "auto_retry.503", dialects=("pi", "omp"))
@proves(
    "omp/auto_retry.start_shape",
    "omp/auto_retry.attempts",
    "omp/auto_retry.success",
    "omp/auto_retry.failure",
    dialects=("omp",),
)
@proves("dialect.one_end", dialects=("omp", "xcsh"))
@in_each("pi", "omp", "xcsh")
def test_a_transient_failure_is_tried_again_inside_one_prompt(start: Start, server: ModelServer, dialect: str) -> None:
    agent = start(dialect=dialect, settings=FAST)
    agent.send({"id": "r", "type": "set_auto_retry", "enabled": False})
    assert agent.response("r") == {"id": "r", "type": "response", "command": "set_auto_retry", "success": True}
    server.fails(529, "Overloaded", kind="overloaded_error")
    assert not [word for word in outline(agent.run("x")) if "retry" in word]
    agent.ask("set_auto_retry", enabled=True)
    for status in (429, 500, 503):
        server.fails(status, "not now")
        server.answers("recovered")
        mark = agent.mark()
        agent.ask("prompt", message="y")
        end = agent.wait_event("auto_retry_end", mark)
        agent.wait(lambda r: r["type"] == "agent_end" and text_of(r["messages"][-1]) == "recovered", mark)
        begun = agent.wait_event("auto_retry_start", mark)
        assert (begun["attempt"], begun["maxAttempts"]) == (1, 2)
        assert isinstance(begun["delayMs"], int)
        assert "not now" in begun["errorMessage"]
        assert (end["success"], end["attempt"], "finalError" in end) == (True, 1, False)
        agent.ask("get_state")
        words = outline(agent.since(mark))
        assert words.count("agent_end") == (2 if dialect == "pi" else 1)
        assert words.count("agent_start") == words.count("agent_end")
    for _ in range(3):
        server.fails(503, "never")
    mark = agent.mark()
    agent.ask("prompt", message="z")
    end = agent.wait_event("auto_retry_end", mark)
    assert [one["attempt"] for one in agent.since(mark, "auto_retry_start")] == [1, 2]
    assert (end["success"], end["attempt"]) == (False, 2)
    assert "never" in end["finalError"]
    agent.wait(lambda r: r["type"] == "agent_end" and not r.get("willRetry"), mark)
    assert server.left() == 0


@proves("abort_retry.response", "abort_retry.idle", "abort_retry.stops", "command.abort_retry",
        dialects=("pi", "omp", "xcsh"))  # fmt: skip
@proves("note/ops.abort_retry")
@proves("dialect.one_end", dialects=("companion",))
@in_each("pi", "omp", "xcsh", "companion")
def test_abort_retry_cancels_the_pause(start: Start, server: ModelServer, dialect: str) -> None:
    agent = start(dialect=dialect, settings=SLOW)
    if dialect == "companion":
        server.fails(503, "not now")
        agent.send({"type": "prompt", "message": "x"})
        agent.wait_event("turn_end")
        agent.send({"type": "abort"})
        assert text_of(agent.wait_event("agent_end")["messages"][0]) == "x"
        assert outline(agent.records).count("agent_end") == 1
        return
    idle = agent.request("abort_retry")
    assert (idle["command"], idle["success"], "data" in idle) == ("abort_retry", True, False)
    server.fails(503, "not now")
    mark = agent.mark()
    agent.ask("prompt", message="x")
    agent.wait_event("auto_retry_start", mark)
    assert agent.ask("abort_retry") is None
    end = agent.wait_event("auto_retry_end", mark)
    assert (end["success"], end["finalError"]) == (False, "Retry cancelled")
    agent.wait_event("agent_end" if dialect != "pi" else "agent_settled", mark)
    assert len(server.requests) == 1
    assert agent.ask("get_state")["isStreaming"] is False
    server.answers("fine")
    assert text_of(answers(agent.run("y"))[-1]) == "fine"


@proves("abort_retry.order", dialects=("pi", "pi-latest"))
@in_each("pi", "pi-latest")
def test_the_end_of_a_cancelled_retry_is_told_before_the_answer(
    start: Start, server: ModelServer, dialect: str
) -> None:
    agent = start(dialect=dialect, settings=SLOW)
    server.fails(503, "not now")
    agent.ask("prompt", message="x")
    agent.wait_event("auto_retry_start")
    mark = agent.mark()
    agent.send({"id": "a", "type": "abort_retry"}, {"id": "b", "type": "abort_retry"})
    agent.wait_event("agent_settled", mark)
    told = [word for word in outline(agent.since(mark)) if word != "entry_appended"]
    assert told[:2] == ["auto_retry_end", "response:abort_retry"]
    assert sorted(told[2:]) == ["agent_settled", "response:abort_retry"]


@proves("auto_retry.jitter")
def test_the_pause_is_a_little_off(start: Start, server: ModelServer) -> None:
    agent = start(settings=SLOW)
    pauses = set()
    for _ in range(4):
        server.fails(503, "not now")
        mark = agent.mark()
        agent.ask("prompt", message="x")
        pauses.add(agent.wait_event("auto_retry_start", mark)["delayMs"])
        agent.ask("abort_retry")
        agent.wait_event("agent_settled", mark)
    assert len(pauses) > 1
    assert all(40_000 <= pause <= 60_000 for pause in pauses)


@proves("auto_retry.texts", dialects=("pi-latest",))
@pytest.mark.parametrize(
    ("status", "text", "repeated"),
    [
        (400, "overloaded_error", True),
        (400, "the model is at capacity", True),
        (408, "", True),
        (529, "", True),
        (501, "", False),
        (400, "at most 500 items", False),
        (429, "out of budget", False),
        (503, "GoUsageLimitError", False),
    ],
)
def test_a_failure_is_repeated_by_what_the_server_says(
    start: Start, server: ModelServer, status: int, text: str, repeated: bool
) -> None:
    agent = start(settings={"retry": {"baseDelayMs": 1}}, dialect="pi-latest")
    server.fails(status, text, kind="invalid_request_error")
    server.answers("fine")
    records = agent.run("go")
    assert ("auto_retry_start" in outline(records)) is repeated


@proves("auto_retry.no_stream", dialects=("pi", "pi-latest"))
@pytest.mark.parametrize("dialect", ["pi", "pi-latest"])
def test_a_success_that_is_no_stream_is_repeated(start: Start, server: ModelServer, dialect: str) -> None:
    agent = start(settings={"retry": {"baseDelayMs": 1}}, dialect=dialect)
    server.fails(200, "please log in", headers={"content-type": "text/html"})
    server.answers("fine")
    records = agent.run("go")
    failed = next(record for record in records if record["type"] == "auto_retry_start")
    assert "Expected an event stream" in failed["errorMessage"]
    assert "please log in" in failed["errorMessage"]
    assert agent.ask("get_last_assistant_text")["text"] == "fine"
