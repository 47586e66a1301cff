"""Making room: on request, by itself when the window is nearly full, and after the provider said it overflowed."""

from __future__ import annotations

from typing import Any

from fakes.model_server import Answer, Gate, Hang, ModelServer, said_in
from support.agent_folders import model
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import answers, outline, text_of

KEEPS = {"compaction": {"keepRecentTokens": 50, "reserveTokens": 1000}}
SMALL = [model("fake-1", contextWindow=10_000, maxTokens=1000)]
FULL = {"input_tokens": 9_500}
LONG = "lorem ipsum dolor sit amet " * 40
TOO_LONG = "prompt is too long: 213462 tokens > 200000 maximum"


def begin(stage: Stage, **more: Any) -> RpcProcess:
    """A conversation with something to summarize."""
    agent = stage.start(settings=KEEPS, **more)
    for message in ("one", "two"):
        stage.server.answers(f"answer {message}")
        agent.run(f"{message} {LONG}")
    return agent


def context(answer: Answer) -> str:
    return "\n".join(text for _, text in said_in(answer.wait_arrived()))


@scenario
def requested(stage: Stage) -> Seen:
    """A summary that the host asks for, and the prompt after it."""
    agent = begin(stage)
    gate = Gate()
    asked = stage.server.answers("THE SUMMARY", gate)
    before = agent.mark()
    agent.send({"id": "c", "type": "compact", "customInstructions": "look at the colours"})
    gate.wait_reached()
    during = agent.ask("get_state")
    gate.open()
    response = agent.response("c")
    after = agent.ask("get_state")
    told = {word for word in outline(agent.since(before)) if "compaction" in word}
    later = stage.server.answers("ok")
    agent.run("three")
    return Seen(during=during, response=response, data=response["data"], after=after, told=told,
                asked=context(asked), later=context(later))  # fmt: skip


@proves("compact.name")
def test_a_summary_is_answered_under_the_name_of_its_command(requested: Seen, dialect: str) -> None:
    assert (requested.response["command"], requested.response["success"]) == ("compact", True)
    assert requested.told == ({"compaction_start", "compaction_end"} if dialect == "pi" else set())


@proves("compact.response", same=("note/response.data_compact",))
def test_a_summary_is_answered_with_text_first_entry_and_size(requested: Seen) -> None:
    assert "THE SUMMARY" in requested.data["summary"]
    assert isinstance(requested.data["firstKeptEntryId"], str)
    assert requested.data["tokensBefore"] > 0


@proves("compact.details")
def test_a_summary_has_details(requested: Seen) -> None:
    assert isinstance(requested.data["details"], dict)


@proves("compact.instructions")
def test_instructions_reach_the_one_who_summarizes(requested: Seen) -> None:
    assert "look at the colours" in requested.asked


@proves("compact.context")
def test_the_next_prompt_has_the_summary_in_place_of_old_messages(requested: Seen) -> None:
    assert "THE SUMMARY" in requested.later
    assert "answer one" not in requested.later


@proves("get_state.compacting")
def test_the_state_is_compacting_meanwhile_and_not_after(requested: Seen) -> None:
    assert (requested.during["isCompacting"], requested.after["isCompacting"]) == (True, False)


@scenario
def by_itself(stage: Stage) -> Seen:
    """A window that is nearly full, with the switch off, and on again."""
    agent, server = begin(stage, models=SMALL), stage.server
    responses, states = {}, {}
    for enabled in (True, False):
        agent.send({"id": str(enabled), "type": "set_auto_compaction", "enabled": enabled})
        responses[enabled] = agent.response(str(enabled))
        states[enabled] = agent.ask("get_state")["autoCompactionEnabled"]
    server.answers("full", usage=FULL)
    agent.run("three")
    server.answers("still full", usage=FULL)
    agent.run("four")
    off = outline(agent.records)
    agent.ask("set_auto_compaction", enabled=True)
    server.answers("THE SUMMARY")
    server.answers("after it", usage=FULL)
    mark = agent.mark()
    agent.run("five")
    begun, ended = agent.wait_event("auto_compaction_start", mark), agent.wait_event("auto_compaction_end", mark)
    prompt = outline(agent.since(mark))
    later = server.answers("ok")
    agent.run("six")
    return Seen(responses=responses, states=states, off=off, begun=begun, ended=ended, prompt=prompt,
                words=outline(agent.since(mark)), later=context(later))  # fmt: skip


@proves("set_auto_compaction.response")
def test_the_switch_is_answered_with_a_bare_success_under_its_name_and_id(by_itself: Seen) -> None:
    assert by_itself.responses == {
        enabled: {"id": str(enabled), "type": "response", "command": "set_auto_compaction", "success": True}
        for enabled in (True, False)
    }


@proves("set_auto_compaction.on")
def test_switched_on_the_state_says_so(by_itself: Seen) -> None:
    assert by_itself.states[True] is True


@proves("set_auto_compaction.off")
def test_switched_off_the_state_says_so(by_itself: Seen) -> None:
    assert by_itself.states[False] is False


@proves("set_auto_compaction.effect")
def test_switched_off_nothing_is_summarized(by_itself: Seen) -> None:
    assert not [word for word in by_itself.off if word.endswith(("compaction_start", "compaction_end"))]


@proves("auto_compaction.start")
def test_a_window_that_is_nearly_full_is_summarized_by_itself(by_itself: Seen, dialect: str) -> None:
    assert by_itself.begun["type"] == "auto_compaction_start"
    assert ("compaction_start" in by_itself.words) is (dialect == "pi")


@proves("omp/auto_compaction.threshold")
def test_the_reason_is_the_threshold(by_itself: Seen) -> None:
    assert by_itself.begun == {"type": "auto_compaction_start", "reason": "threshold"}


@proves("auto_compaction.end")
def test_the_end_of_a_summary_follows(by_itself: Seen) -> None:
    assert by_itself.words.index("auto_compaction_start") < by_itself.words.index("auto_compaction_end")


@proves("omp/auto_compaction.end_shape")
def test_the_end_of_a_summary_has_its_result(by_itself: Seen) -> None:
    assert (by_itself.ended["aborted"], by_itself.ended["willRetry"]) == (False, False)
    assert {"summary", "firstKeptEntryId", "tokensBefore", "details"} <= set(by_itself.ended["result"])


@proves("auto_compaction.context")
def test_the_prompt_after_it_sees_the_summary(by_itself: Seen) -> None:
    assert "THE SUMMARY" in by_itself.later
    assert "answer one" not in by_itself.later


@proves("dialect.one_end_compaction")
def test_a_prompt_that_makes_room_has_one_end(by_itself: Seen) -> None:
    assert by_itself.prompt.count("agent_end") == 1


@scenario
def overflow(stage: Stage) -> Seen:
    """A provider that says the prompt is too long, and an answer after room was made."""
    agent, server = stage.start(settings=KEEPS), stage.server
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
    return Seen(records=agent.since(mark), words=outline(agent.since(mark)), again=context(again))


def first(records: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(record for record in records if record["type"] == kind)


@proves("omp/auto_compaction.overflow")
def test_the_reason_is_the_overflow(overflow: Seen) -> None:
    assert first(overflow.records, "auto_compaction_start")["reason"] == "overflow"


@proves("omp/auto_compaction.overflow_end")
def test_after_an_overflow_the_summary_says_that_the_prompt_is_tried_again(overflow: Seen) -> None:
    assert first(overflow.records, "auto_compaction_end")["willRetry"] is True
    assert overflow.words.index("auto_compaction_end") < overflow.words.index("agent_end")


@proves("omp/auto_compaction.overflow_retry")
def test_the_prompt_is_tried_again_with_the_summary(overflow: Seen) -> None:
    assert "THE SUMMARY" in overflow.again
    assert overflow.again.endswith("three")
    assert answers(overflow.records)[0]["stopReason"] == "error"


@proves("dialect.one_end_overflow")
def test_a_prompt_that_recovers_from_an_overflow_has_one_end(overflow: Seen) -> None:
    assert overflow.words.count("agent_start") == overflow.words.count("agent_end") == 1
    end = first(overflow.records, "agent_end")
    assert [message["role"] for message in end["messages"]] == ["user", "assistant", "assistant"]


@scenario
def aborted(stage: Stage) -> Seen:
    """A summary that is stopped half way."""
    agent = begin(stage, models=SMALL)
    stage.server.answers("full", usage=FULL)
    asked = stage.server.answers("half a summ", Hang())
    mark = agent.mark()
    agent.ask("prompt", message="three")
    agent.wait_event("auto_compaction_start", mark)
    asked.wait_arrived()
    agent.ask("abort")
    ended = agent.wait_event("auto_compaction_end", mark)
    asked.wait_dropped()
    return Seen(ended=ended, words=outline(agent.since(mark)))


@proves("omp/auto_compaction.aborted")
def test_an_aborted_summary_says_so(aborted: Seen) -> None:
    assert (aborted.ended["aborted"], aborted.ended["willRetry"]) == (True, False)
    assert aborted.words.count("agent_end") == 1


@proves("omp/auto_compaction.aborted_null")
def test_the_result_of_an_aborted_summary_is_null(aborted: Seen) -> None:
    assert aborted.ended == {"type": "auto_compaction_end", "result": None, "aborted": True, "willRetry": False}


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
