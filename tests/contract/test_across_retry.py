"""Another try after a transient failure: when, how it is told, and stopping it."""

from __future__ import annotations

import pytest

from fakes.model_server import ModelServer
from support.agent_process import Start
from support.contract import proves, proves_each
from support.contract_scenes import Seen, Stage, scenario
from support.records import answers, outline, text_of

FAST = {"retry": {"baseDelayMs": 1, "maxRetries": 2}}
SLOW = {"retry": {"baseDelayMs": 50_000}}


@scenario
def tries(stage: Stage) -> Seen:
    """Failures with retries switched off; three that pass, and one that does not, with them switched on."""
    agent, server = stage.start(settings=FAST), stage.server
    agent.send({"id": "r", "type": "set_auto_retry", "enabled": False})
    response = agent.response("r")
    server.fails(529, "Overloaded", kind="overloaded_error")
    off = outline(agent.run("x"))
    agent.ask("set_auto_retry", enabled=True)
    passed = {}
    for status in (429, 500, 503):
        server.fails(status, "not now")
        server.answers("recovered")
        mark = agent.mark()
        agent.ask("prompt", message="y")
        end = agent.wait_event("auto_retry_end", mark)
        agent.wait(lambda r: r["type"] == "agent_end" and text_of(r["messages"][-1]) == "recovered", mark)
        begun = agent.wait_event("auto_retry_start", mark)
        agent.ask("get_state")
        passed[status] = Seen(begun=begun, end=end, words=outline(agent.since(mark)))
    for _ in range(3):
        server.fails(503, "never")
    mark = agent.mark()
    agent.ask("prompt", message="z")
    end = agent.wait_event("auto_retry_end", mark)
    agent.wait(lambda r: r["type"] == "agent_end" and not r.get("willRetry"), mark)
    starts = agent.since(mark, "auto_retry_start")
    return Seen(response=response, off=off, passed=passed, end=end, starts=starts, left=server.count_unused_answers())


@proves("set_auto_retry.response")
def test_the_switch_is_answered_with_a_bare_success_under_its_name_and_id(tries: Seen) -> None:
    assert tries.response == {"id": "r", "type": "response", "command": "set_auto_retry", "success": True}


@proves("set_auto_retry.off")
def test_switched_off_a_failure_is_not_tried_again(tries: Seen) -> None:
    assert not [word for word in tries.off if "retry" in word]


@proves("set_auto_retry.on")
def test_switched_on_again_every_failure_is_tried_again(tries: Seen) -> None:
    assert [one.end["success"] for one in tries.passed.values()] == [True] * 3


@proves_each("status", {"auto_retry.rate_limit": (429,), "auto_retry.500": (500,), "auto_retry.503": (503,)})
def test_a_failure_with_this_status_is_tried_again_and_recovers(tries: Seen, status: int) -> None:
    assert "not now" in tries.passed[status].begun["errorMessage"]
    assert tries.passed[status].end["success"] is True


@proves("auto_retry.start")
def test_the_start_of_another_try_is_told_after_the_failure(tries: Seen) -> None:
    for one in tries.passed.values():
        assert one.words.index("message_end:assistant") < one.words.index("auto_retry_start")


@proves("auto_retry.end")
def test_the_end_of_the_tries_is_told_with_their_outcome(tries: Seen) -> None:
    for one in tries.passed.values():
        assert one.words.index("auto_retry_start") < one.words.index("auto_retry_end")


@proves("omp/auto_retry.start_shape")
def test_the_start_of_another_try_has_its_fields(tries: Seen) -> None:
    for one in tries.passed.values():
        assert (one.begun["attempt"], one.begun["maxAttempts"]) == (1, 2)
        assert isinstance(one.begun["delayMs"], int)
        assert "not now" in one.begun["errorMessage"]


@proves("omp/auto_retry.attempts")
def test_tries_are_counted_from_one(tries: Seen) -> None:
    assert [one["attempt"] for one in tries.starts] == [1, 2]


@proves("omp/auto_retry.success")
def test_a_try_that_works_says_so_with_its_number(tries: Seen) -> None:
    for one in tries.passed.values():
        assert (one.end["success"], one.end["attempt"], "finalError" in one.end) == (True, 1, False)


@proves("omp/auto_retry.failure")
def test_after_the_last_try_the_failure_is_told(tries: Seen) -> None:
    assert (tries.end["success"], tries.end["attempt"]) == (False, 2)
    assert "never" in tries.end["finalError"]
    assert tries.left == 0


@proves("dialect.one_end_retry")
def test_a_prompt_that_is_tried_again_has_one_end_but_in_pi(tries: Seen, dialect: str) -> None:
    for one in tries.passed.values():
        assert one.words.count("agent_end") == (2 if dialect == "pi" else 1)
        assert one.words.count("agent_start") == one.words.count("agent_end")


@scenario
def pause(stage: Stage) -> Seen:
    """A pause between two tries that is cut short, and a prompt after it."""
    agent, server = stage.start(settings=SLOW), stage.server
    idle = agent.request("abort_retry")
    server.fails(503, "not now")
    mark = agent.mark()
    agent.ask("prompt", message="x")
    agent.wait_event("auto_retry_start", mark)
    response = agent.request("abort_retry")
    end = agent.wait_event("auto_retry_end", mark)
    agent.wait_event("agent_end" if stage.dialect != "pi" else "agent_settled", mark)
    requests = len(server.requests)
    state = agent.ask("get_state")
    server.answers("fine")
    last = answers(agent.run("y"))[-1]
    return Seen(idle=idle, response=response, end=end, requests=requests, state=state, last=last)


@proves("abort_retry.idle")
def test_abort_retry_without_a_retry_is_a_success(pause: Seen) -> None:
    assert (pause.idle["command"], pause.idle["success"], "data" in pause.idle) == ("abort_retry", True, False)


@proves("abort_retry.response")
def test_abort_retry_is_answered_with_a_bare_success(pause: Seen) -> None:
    assert (pause.response["success"], "data" in pause.response) == (True, False)


@proves("abort_retry.stops", same=("note/ops.abort_retry",))
def test_abort_retry_cancels_the_pause_and_nothing_more_is_asked(pause: Seen) -> None:
    assert (pause.end["success"], pause.end["finalError"]) == (False, "Retry cancelled")
    assert pause.requests == 1
    assert pause.state["isStreaming"] is False
    assert text_of(pause.last) == "fine"


@proves("dialect.one_end_aborted_retry")
def test_in_the_early_protocol_an_abort_between_two_tries_has_one_end(
    start: Start, server: ModelServer, dialect: str
) -> None:
    agent = start(dialect=dialect, settings=SLOW)
    server.fails(503, "not now")
    agent.send({"type": "prompt", "message": "x"})
    agent.wait_event("turn_end")
    agent.send({"type": "abort"})
    assert text_of(agent.wait_event("agent_end")["messages"][0]) == "x"
    assert outline(agent.records).count("agent_end") == 1


@proves("abort_retry.order")
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


@proves("auto_retry.no_stream")
def test_a_success_that_is_no_stream_is_repeated(start: Start, server: ModelServer, dialect: str) -> None:
    agent = start(settings={"retry": {"baseDelayMs": 1}}, dialect=dialect)
    server.fails(200, "please log in", headers={"content-type": "text/html"})
    server.answers("fine")
    records = agent.run("go")
    failed = next(record for record in records if record["type"] == "auto_retry_start")
    assert "Expected an event stream" in failed["errorMessage"]
    assert "please log in" in failed["errorMessage"]
    assert agent.ask("get_last_assistant_text")["text"] == "fine"
