"""One conversation as each dialect tells it: the rows in which they differ, and what they share."""

from __future__ import annotations

import json
from typing import Any

from fakes.model_server import Call, Gate, Hang, ModelServer, said_in
from support.agent_process import RpcProcess
from support.contract import proves, proves_each
from support.contract_scenes import Seen, Stage, scenario
from support.records import answers, deltas, finished_messages, outline, text_of

LAST_WORDS = ("prompt_result", "session_settled", "agent_settled")
PLAIN = [
    "response:prompt",
    "agent_start",
    "turn_start",
    "message_start:user",
    "message_end:user",
    "message_start:assistant",
    "message_end:assistant",
    "turn_end",
    "agent_end",
]
SKIPS_BLANK = ("omp", "xcsh")
NO_JSON = ["", "   ", "{bad", '{"type":', "[1,", "nul", "\ufeff{}", '{"type":"get_state"} x', "'a'"]


@scenario
def plain(stage: Stage) -> Seen:
    """A prompt and its answer, lines that cannot be read, and a command that fails."""
    agent = stage.start()
    first_line = agent.wait(lambda record: True) if stage.dialect != "pi" else None
    asked = stage.server.answers("Hello there.")
    start = agent.mark()
    agent.send({"id": "p", "type": "prompt", "message": "Say hello"})
    ack = agent.response("p")
    agent.wait_end(start)
    records = agent.since(start)
    bad = {}
    for line in NO_JSON if stage.dialect not in SKIPS_BLANK else filter(str.strip, NO_JSON):
        mark = agent.mark()
        agent.send(line, {"type": "get_state"})
        bad[line] = agent.wait_count("response", 2, mark)
    failure = agent.request("set_model", provider="a", modelId="b")
    after = agent.request("get_state")
    return Seen(
        first_line=first_line, ack=ack, records=records, said=said_in(asked.request), bad=bad, failure=failure,
        after=after, raw=agent.raw, faults=agent.faults, responses=agent.since(0, "response"),
        requests=len(stage.server.requests),
    )  # fmt: skip


@proves("dialect.ready")
def test_the_first_line_of_the_forks_is_ready(plain: Seen) -> None:
    assert plain.first_line["type"] == "ready"


@proves("frame.json", same=("note/out.lines",))
def test_every_line_is_one_object(plain: Seen) -> None:
    assert plain.faults == []
    assert all(isinstance(json.loads(line), dict) for line in plain.raw)


@proves("frame.type")
def test_every_line_says_what_it_is(plain: Seen) -> None:
    assert all(isinstance(json.loads(line)["type"], str) for line in plain.raw)


@proves("note/out.kinds")
def test_every_line_is_a_response_or_an_event(plain: Seen) -> None:
    assert all(("command" in record) == (record["type"] == "response") for record in plain.records)


@proves("frame.command")
def test_a_response_names_the_command_it_answers(plain: Seen) -> None:
    assert (plain.after["type"], plain.after["command"]) == ("response", "get_state")


@proves("frame.success")
def test_a_response_says_whether_it_succeeded(plain: Seen) -> None:
    assert (plain.after["success"], plain.failure["success"]) == (True, False)
    assert all(isinstance(record["success"], bool) for record in plain.responses)


@proves("id.echo")
def test_a_response_has_the_id_of_its_command(plain: Seen) -> None:
    assert plain.ack["id"] == "p"


@proves("id.echo_failure")
def test_a_failure_has_the_id_of_its_command_too(plain: Seen) -> None:
    assert plain.failure["id"].startswith("auto-")


@proves("id.optional")
def test_without_an_id_the_response_has_none(plain: Seen) -> None:
    assert all("id" not in state and state["success"] for _, state in plain.bad.values())


@proves("error.response", same=("note/response.error",))
def test_a_failed_command_is_answered_with_a_text(plain: Seen) -> None:
    told = {key: value for key, value in plain.failure.items() if key != "id"}
    assert told == {
        "type": "response", "command": "set_model", "success": False, "error": "Model not found: a/b"
    }  # fmt: skip


@proves("error.parse")
def test_a_line_that_is_no_json_is_answered_by_the_command_parse(plain: Seen) -> None:
    for failure, _ in plain.bad.values():
        assert (failure["command"], failure["success"], "id" in failure) == ("parse", False, False)
        assert failure["error"].startswith("Failed to parse command: ")


@proves("frame.blank")
def test_a_blank_line_is_a_parse_error_that_says_the_input_ended(plain: Seen) -> None:
    assert plain.bad[""][0]["error"] == "Failed to parse command: Unexpected end of JSON input"
    assert plain.bad["   "][0]["command"] == "parse"


@proves("error.parse_recovers")
def test_after_bad_json_the_next_line_is_answered(plain: Seen) -> None:
    assert [state["command"] for _, state in plain.bad.values()] == ["get_state"] * len(plain.bad)


@proves("frame.blank_skipped")
def test_a_blank_line_is_skipped(spoken: RpcProcess) -> None:
    spoken.ask("get_state")
    start = spoken.mark()
    spoken.send("", "   ", "\r", "\t", {"id": "after", "type": "get_state"})
    spoken.response("after")
    assert outline(spoken.since(start)) == ["response:get_state"]


@proves("prompt.ack", same=("note/prompt.ack",))
def test_a_prompt_is_answered_with_success_under_its_id(plain: Seen) -> None:
    assert (plain.ack["id"], plain.ack["command"], plain.ack["success"]) == ("p", "prompt", True)


@proves("prompt.async")
def test_a_prompt_is_answered_before_the_events_of_its_run(plain: Seen) -> None:
    words = outline(plain.records)
    assert words.index("response:prompt") < words.index("agent_start")


@proves("prompt.stream", same=("note/prompt.complete",))
def test_the_events_of_the_run_follow_up_to_its_end(plain: Seen) -> None:
    words = outline(plain.records)
    assert words.index("agent_start") < words.index("agent_end")
    assert set(words[words.index("agent_end") + 1 :]) <= set(LAST_WORDS)


@proves("prompt.reaches_model")
def test_the_message_of_a_prompt_reaches_the_model(plain: Seen) -> None:
    assert (plain.said, plain.requests) == ([("user", "Say hello")], 1)


@proves("event.order")
def test_the_events_of_a_simple_run_come_in_the_documented_order(plain: Seen, dialect: str) -> None:
    last = {"pi": ["agent_settled"], "omp": ["prompt_result", "session_settled"], "xcsh": []}
    assert outline(plain.records) == PLAIN + last[dialect]


@proves("event.agent_end_messages")
def test_the_end_of_a_run_has_all_its_messages(plain: Seen, dialect: str) -> None:
    end = next(record for record in plain.records if record["type"] == "agent_end")
    assert [message["role"] for message in end["messages"]] == ["user", "assistant"]
    assert text_of(end["messages"][1]) == "Hello there."
    assert text_of(deltas(plain.records, "text_end")[0]["partial"]) == "Hello there."
    assert end.get("willRetry") is (False if dialect == "pi" else None)


@scenario
def busy(stage: Stage) -> Seen:
    """A prompt that says nothing of queues, while another one runs."""
    agent = stage.start()
    gate = Gate()
    stage.server.answers(gate, "one")
    agent.ask("prompt", message="first")
    gate.wait_reached()
    agent.send({"id": "late", "type": "prompt", "message": "second"})
    agent.wait(lambda record: record.get("id") == "late" and record["success"] is False)
    found = [record for record in agent.since(0, "response") if record.get("id") == "late"]
    gate.open()
    agent.wait_end()
    return Seen(found=found, requests=len(stage.server.requests), count=agent.ask("get_state")["messageCount"])


@proves("prompt.busy_refused", same=("omp+xcsh/prompt.busy_refused",))
def test_a_second_prompt_is_refused_while_one_runs(busy: Seen, dialect: str) -> None:
    assert dialect != "pi" or len(busy.found) == 1
    advice = (
        "Specify streamingBehavior ('steer' or 'followUp') to queue the message."
        if dialect == "pi"
        else "Use steer() or followUp() to queue messages, or wait for completion."
    )
    assert busy.found[-1]["error"] == f"Agent is already processing. {advice}"


@proves("omp+xcsh/prompt.busy_late")
def test_in_the_forks_a_refused_prompt_is_acknowledged_and_then_fails(busy: Seen) -> None:
    assert [record["success"] for record in busy.found] == [True, False]


@proves("prompt.busy_dropped")
def test_a_refused_prompt_never_reaches_the_model(busy: Seen) -> None:
    assert (busy.requests, busy.count) == (1, 2)


@scenario
def unknown(stage: Stage) -> Seen:
    """A command that nobody knows, and a line that is none."""
    agent = stage.start()
    agent.send({"id": "u", "type": "nope"}, "{bad")
    command, parse = agent.wait_count("response", 2)
    return Seen(command=command, parse=parse)


@proves("dialect.unknown_id", same=("xcsh/id.unknown",))
def test_an_unknown_command_is_answered_without_id(unknown: Seen) -> None:
    wanted = {"type": "response", "command": "nope", "success": False, "error": "Unknown command: nope"}
    assert unknown.command == wanted


@proves("xcsh/id.parse")
def test_a_line_that_is_no_json_is_answered_without_id(unknown: Seen) -> None:
    assert "id" not in unknown.parse


@proves("dialect.unknown_id_newest")
def test_an_unknown_command_is_answered_with_its_id_where_clients_wait_for_it(unknown: Seen) -> None:
    assert (unknown.command["id"], unknown.command["error"]) == ("u", "Unknown command: nope")


@proves("dialect.prompt_result")
def test_every_accepted_prompt_has_one_result_and_then_the_session_is_settled(
    spoken: RpcProcess, server: ModelServer
) -> None:
    gate = Gate()
    server.answers(gate, "one")
    server.answers("two")
    spoken.send({"id": "a", "type": "prompt", "message": "first"})
    gate.wait_reached()
    spoken.send({"id": "b", "type": "prompt", "message": "second", "streamingBehavior": "followUp"})
    spoken.wait_event("response", id="b")
    gate.open()
    spoken.wait_event("session_settled")
    results = [(record["id"], record["status"]) for record in spoken.since(0, "prompt_result")]
    assert sorted(results) == [("a", "completed"), ("b", "completed")]
    (end,) = spoken.since(0, "agent_end")
    assert (end["isTerminal"], end["yielded"]) == (True, True)
    kinds = [record["type"] for record in spoken.records]
    assert kinds[-4:] == ["agent_end", "prompt_result", "prompt_result", "session_settled"]


@scenario
def members(stage: Stage) -> Seen:
    """The state as the forks have it, and their interrupt mode."""
    agent = stage.start()
    state = agent.ask("get_state")
    modes, responses = {}, {}
    for mode in ("immediate", "wait"):
        responses[mode] = agent.request("set_interrupt_mode", mode=mode)
        modes[mode] = agent.ask("get_state")["interruptMode"]
    return Seen(state=state, modes=modes, responses=responses)


@proves_each("field,value", {
    "omp+xcsh/get_state.queuedMessageCount": ("queuedMessageCount", 0),
    "omp/get_state.interrupt_default": ("interruptMode", "immediate"),
    "xcsh/get_state.interrupt_default": ("interruptMode", "wait"),
    "get_state.interruptMode": ("interruptMode", "immediate"),
    "xcsh/get_state.todo_default": ("todoPhases", []),
})  # fmt: skip
def test_the_state_of_the_forks_has_this_value_at_first(members: Seen, field: str, value: Any) -> None:
    assert members.state[field] == value


@proves_each("field", {
    "omp+xcsh/get_state.interruptMode": ("interruptMode",),
    "xcsh/get_state.todoPhases": ("todoPhases",),
})  # fmt: skip
def test_the_state_of_the_forks_has_this_member(members: Seen, field: str) -> None:
    assert field in members.state


@proves("set_interrupt_mode.response", same=("omp+xcsh/set_interrupt_mode.response",))
def test_an_interrupt_mode_is_answered_with_a_bare_success(members: Seen) -> None:
    assert {(one["success"], "data" in one) for one in members.responses.values()} == {(True, False)}


@proves("set_interrupt_mode.state", same=("omp+xcsh/set_interrupt_mode.state",))
def test_the_state_shows_the_interrupt_mode(members: Seen) -> None:
    assert members.modes == {"immediate": "immediate", "wait": "wait"}


@proves("dialect.exit", same=("xcsh/start.eof",))
def test_every_dialect_ends_cleanly_with_its_input(spoken: RpcProcess) -> None:
    spoken.close(expect=0)


@scenario
def newest(stage: Stage) -> Seen:
    """A run with a tool in the newest dialect."""
    agent = stage.start()
    stage.server.answers("Looking.", Call("bash", {"command": "true"}, id="c1"))
    stage.server.answers("Done.")
    return Seen(records=agent.run("x"), state=agent.ask("get_state"))


@proves("dialect.delta_only")
def test_the_newest_dialect_carries_deltas_only(newest: Seen) -> None:
    updates = [record for record in newest.records if record["type"] == "message_update"]
    assert all(set(record) == {"type", "usage", "assistantMessageEvent"} for record in updates)
    assert all("partial" not in record["assistantMessageEvent"] for record in updates)
    begun = deltas(newest.records, "toolcall_start")[0]
    assert (begun["id"], begun["toolName"]) == ("c1", "bash")
    assert outline(newest.records)[-2:] == ["agent_end", "agent_settled"]
    assert newest.state["interruptMode"] == "wait"


@proves("dialect.pending")
def test_in_the_newest_dialect_an_answer_in_progress_is_pending(newest: Seen) -> None:
    begun = [record["message"] for record in newest.records if record["type"] == "message_start"]
    first = next(message for message in begun if message["role"] == "assistant")
    assert (first["stopReason"], first["content"]) == ("pending", [])


@scenario
def early_failures(stage: Stage) -> Seen:
    """Two lines that are no prompt, and one that is, in the early protocol."""
    agent = stage.start()
    stage.server.answers("ok")
    agent.send("{bad", {"type": "prompt"}, {"type": "prompt", "message": "x"})
    agent.wait_end()
    return Seen(records=agent.since(0), errors=agent.since(0, "error"))


@proves("companion/event.error")
def test_in_the_early_protocol_a_failure_is_an_error_event(early_failures: Seen) -> None:
    assert len(early_failures.errors) == 2
    assert all(set(record) == {"type", "error"} for record in early_failures.errors)


@proves("companion/event.error_recovers")
def test_in_the_early_protocol_the_line_after_a_failure_is_handled(early_failures: Seen) -> None:
    assert text_of(answers(early_failures.records)[0]) == "ok"


@proves("companion/out.no_responses_errors")
def test_in_the_early_protocol_not_even_a_failure_is_a_response(early_failures: Seen) -> None:
    assert "response" not in {record["type"] for record in early_failures.records}


@scenario
def early_abort(stage: Stage) -> Seen:
    """An answer that is stopped in the early protocol, and a prompt after it."""
    agent = stage.start()
    asked = stage.server.answers("half", Hang())
    agent.send({"type": "prompt", "message": "x"})
    agent.wait_delta("f")
    agent.send({"type": "abort"})
    agent.wait_end()
    asked.wait_dropped()
    stopped = agent.since(0)
    stage.server.answers("fine")
    start = agent.mark()
    agent.send({"type": "prompt", "message": "y"})
    agent.wait_end(start)
    return Seen(stopped=stopped, dropped=asked, later=agent.since(start))


@proves("companion/in.abort")
def test_in_the_early_protocol_abort_ends_the_answer_as_aborted(early_abort: Seen) -> None:
    assert answers(early_abort.stopped)[0]["stopReason"] == "aborted"


@proves("companion/in.abort_end")
def test_in_the_early_protocol_the_end_of_the_run_follows_an_abort(early_abort: Seen) -> None:
    assert early_abort.stopped[-1]["type"] == "agent_end"


@proves("companion/in.abort_stream")
def test_in_the_early_protocol_abort_drops_the_stream(early_abort: Seen) -> None:
    early_abort.dropped.wait_dropped()


@proves("companion/in.abort_recovers")
def test_in_the_early_protocol_the_prompt_after_an_abort_works(early_abort: Seen) -> None:
    assert text_of(answers(early_abort.later)[0]) == "fine"


IMAGE = {
    "id": "1",
    "type": "image",
    "fileName": "a.png",
    "mimeType": "image/png",
    "size": 8,
    "content": "iVBORw0KGgo=",
    "extractedText": None,
    "preview": None,
}
PAPER = {
    "id": "2",
    "type": "document",
    "fileName": "b.pdf",
    "mimeType": "application/pdf",
    "size": 3,
    "content": "AAAA",
    "extractedText": "the text of the paper",
}


@scenario
def attached(stage: Stage) -> Seen:
    """A prompt with an image and a document, and one with an empty list."""
    agent = stage.start()
    asked = stage.server.answers("ok")
    agent.send({"type": "prompt", "message": "look", "attachments": [IMAGE, PAPER]})
    agent.wait_end()
    content = asked.request["messages"][-1]["content"]
    (user,) = finished_messages(agent.records, "user")
    stage.server.answers("ok")
    start = agent.mark()
    agent.send({"type": "prompt", "message": "plain", "attachments": []})
    agent.wait_end(start)
    said = "".join(block.get("text", "") for block in content)
    return Seen(content=content, said=said, user=user, empty=finished_messages(agent.since(start), "user")[0])


@proves("companion/attach.image")
def test_an_attached_image_reaches_the_model_as_an_image(attached: Seen) -> None:
    assert "image" in [block["type"] for block in attached.content]


@proves("companion/attach.document")
def test_the_text_of_an_attached_document_reaches_the_model(attached: Seen) -> None:
    assert "the text of the paper" in attached.said


@proves("companion/attach.document_name")
def test_an_attached_document_is_named_to_the_model(attached: Seen) -> None:
    assert "b.pdf" in attached.said


@proves("companion/attach.kept")
def test_the_message_keeps_its_attachments(attached: Seen) -> None:
    assert [one["fileName"] for one in attached.user["attachments"]] == ["a.png", "b.pdf"]
    assert set(attached.user["attachments"][0]) == {"id", "type", "fileName", "mimeType", "size", "content"}


@proves("companion/attach.empty")
def test_an_empty_list_of_attachments_is_a_plain_prompt(attached: Seen) -> None:
    assert text_of(attached.empty) == "plain"
