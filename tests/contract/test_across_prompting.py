"""Prompting in every dialect that has commands: images, messages that wait, interrupt modes, and stopping."""

from __future__ import annotations

from typing import Any

from fakes.clock import within
from fakes.model_server import Answer, Call, Gate, Hang, ModelServer, Text, said_in
from support.agent_process import RpcProcess
from support.contract import proves, proves_each
from support.contract_scenes import Seen, Stage, scenario
from support.processes import Fifo
from support.records import answers, finished_messages, outline, text_of, tool_texts

DATA = "iVBORw0KGgo="
PLAIN = {"type": "image", "data": DATA, "mimeType": "image/png"}
SOURCE = {"type": "image", "source": {"type": "base64", "mediaType": "image/png", "data": DATA}}
SKIPPED = "Skipped due to queued user message."


def users(records: list[dict[str, Any]]) -> list[str]:
    return [text_of(message) for message in finished_messages(records, "user")]


def images_in(answer: Answer) -> int:
    """How many images the last message of a request has."""
    return sum(block["type"] == "image" for block in answer.wait_arrived()["messages"][-1]["content"])


def check_taken(response: dict[str, Any], dialect: str, disposition: str) -> None:
    """It is a success; pi says what became of the message, the forks nothing."""
    assert response["success"] is True
    assert response.get("data") == ({"disposition": disposition} if dialect == "pi" else None)


@scenario
def images(stage: Stage) -> Seen:
    """Images in a prompt, in the two kinds of messages that wait, and with `abort_and_prompt`."""
    agent, server = stage.start(), stage.server
    gate = Gate()
    first, second, third = server.answers("a", gate), server.answers("b"), server.answers("c")
    prompted = agent.request("prompt", message="see", images=[SOURCE, PLAIN])
    gate.wait_reached()
    steered = agent.request("steer", message="now", images=[SOURCE])
    followed = agent.request("follow_up", message="then", images=[PLAIN])
    gate.open()
    agent.wait_end()
    fourth = server.answers("d")
    start = agent.mark()
    instead = agent.request("abort_and_prompt", message="and", images=[PLAIN])
    agent.wait_end(start)
    return Seen(
        prompted=prompted, steered=steered, followed=followed, instead=instead, last=agent.since(start),
        sent=[images_in(answer) for answer in (first, second, third, fourth)],
        stored=finished_messages(agent.records, "user")[0]["content"], fourth=fourth.request["messages"][-1]["content"],
    )  # fmt: skip


@proves("prompt.images", same=("omp/prompt.images_plain",))
def test_images_of_a_prompt_reach_the_model_in_both_forms(images: Seen) -> None:
    assert images.sent[0] == 2


@proves("prompt.images_ack")
def test_a_prompt_with_images_is_acknowledged(images: Seen, dialect: str) -> None:
    check_taken(images.prompted, dialect, "started")


@proves("images.stored")
def test_images_are_kept_with_data_and_type(images: Seen) -> None:
    assert images.stored == [{"type": "text", "text": "see"}, PLAIN, PLAIN]


@proves("steer.images")
def test_images_of_a_steering_message_reach_the_model(images: Seen) -> None:
    assert images.sent[1] == 1


@proves("steer.images_response")
def test_a_steering_message_with_images_is_answered(images: Seen, dialect: str) -> None:
    check_taken(images.steered, dialect, "queued")


@proves("follow_up.images")
def test_images_of_a_follow_up_reach_the_model(images: Seen, dialect: str) -> None:
    assert images.sent[2] == 1
    check_taken(images.followed, dialect, "queued")


@proves("abort_and_prompt.idle", same=("xcsh/abort_and_prompt.idle",))
def test_abort_and_prompt_without_a_run_is_a_plain_prompt(images: Seen, dialect: str) -> None:
    check_taken(images.instead, dialect, "started")
    assert users(images.last) == ["and"]


@proves("abort_and_prompt.images", same=("xcsh/abort_and_prompt.images",))
def test_images_of_abort_and_prompt_reach_the_model(images: Seen) -> None:
    assert [block["type"] for block in images.fourth] == ["text", "image"]


@scenario
def waiting(stage: Stage) -> Seen:
    """Four messages that wait while the first answer stands still."""
    agent, server = stage.start(), stage.server
    gate = Gate()
    server.answers("first", gate, " part")
    agent.send({"type": "prompt", "message": "start"})
    ack = agent.wait_event("response")
    gate.wait_reached()
    early_ends = agent.since(0, "agent_end")
    later = [server.answers("ok") for _ in range(4)]
    responses = [
        agent.request("prompt", message="f1", streamingBehavior="followUp"),
        agent.request("prompt", message="s1", streamingBehavior="steer"),
        agent.request("follow_up", message="f2"),
        agent.request("steer", message="s2"),
    ]
    during = agent.ask("get_state")
    told = agent.since(0, "queue_update")
    gate.open()
    agent.wait_end()
    return Seen(
        ack=ack, early_ends=early_ends, responses=responses, during=during, told=told,
        delivered=[said_in(answer.request)[-1][1] for answer in later], users=users(agent.records),
        ends=agent.since(0, "agent_end"), after=agent.ask("get_state"),
        begun=[record["message"] for record in agent.since(0, "message_start")],
    )  # fmt: skip


@proves("id.optional_prompt")
def test_a_prompt_without_id_is_acknowledged_without_id(waiting: Seen, dialect: str) -> None:
    data = {"data": {"disposition": "started"}} if dialect == "pi" else {}
    assert waiting.ack == {"type": "response", "command": "prompt", "success": True, **data}


@proves("prompt.ack_is_not_done", same=("xcsh/ack.not_done",))
def test_accepted_is_not_finished(waiting: Seen) -> None:
    assert not waiting.early_ends
    assert waiting.during["isStreaming"] is True


@proves("prompt.snapshot_start")
def test_an_answer_begins_empty_with_a_provisional_stop_reason(waiting: Seen) -> None:
    first = next(message for message in waiting.begun if message["role"] == "assistant")
    assert (first["content"], first["stopReason"]) == ([], "stop")


@proves("get_state.streaming")
def test_the_state_is_streaming_during_a_run(waiting: Seen) -> None:
    assert waiting.during["isStreaming"] is True


@proves("get_state.not_streaming")
def test_the_state_is_not_streaming_after_a_run(waiting: Seen) -> None:
    assert waiting.after["isStreaming"] is False


@proves("get_state.queue")
def test_the_state_counts_the_messages_that_wait(waiting: Seen, dialect: str) -> None:
    assert waiting.during["queuedMessageCount"] == 4
    assert dialect != "pi" or waiting.during["pendingMessageCount"] == 4


@proves("get_state.queue_empty")
def test_the_count_is_zero_when_they_were_delivered(waiting: Seen, dialect: str) -> None:
    assert waiting.after["queuedMessageCount"] == 0
    assert dialect != "pi" or waiting.after["pendingMessageCount"] == 0


@proves("queue.update")
def test_both_queues_are_told_when_they_change(waiting: Seen) -> None:
    assert waiting.told[-1] == {"type": "queue_update", "steering": ["s1", "s2"], "followUp": ["f1", "f2"]}


@proves("prompt.busy_steer", same=("note/steer.prompt",))
def test_a_prompt_that_steers_waits_for_the_next_turn(waiting: Seen, dialect: str) -> None:
    check_taken(waiting.responses[1], dialect, "queued")
    assert waiting.delivered[0] == "s1"


@proves("prompt.busy_follow", same=("note/followup.prompt",))
def test_a_prompt_that_follows_up_waits(waiting: Seen, dialect: str) -> None:
    check_taken(waiting.responses[0], dialect, "queued")
    assert waiting.delivered[2] == "f1"


@proves("steer.response", same=("note/steer.command",))
def test_a_steering_message_is_answered(waiting: Seen, dialect: str) -> None:
    check_taken(waiting.responses[3], dialect, "queued")


@proves("follow_up.response", same=("note/followup.command",))
def test_a_follow_up_is_answered(waiting: Seen, dialect: str) -> None:
    check_taken(waiting.responses[2], dialect, "queued")


@proves("prompt.busy_order")
def test_steering_comes_before_follow_ups_and_both_in_the_same_run(waiting: Seen) -> None:
    assert waiting.delivered == ["s1", "s2", "f1", "f2"]
    assert len(waiting.ends) == 1


@proves("prompt.follow_after_run")
def test_a_prompt_that_follows_up_is_delivered_when_nothing_else_is_left(waiting: Seen) -> None:
    assert waiting.users == ["start", "s1", "s2", "f1", "f2"]


@scenario
def modes(stage: Stage) -> Seen:
    """How many messages each request brings: by default, with `all`, and one at a time again."""
    agent, server = stage.start(), stage.server
    first = agent.ask("get_state")
    by_default = deliveries(agent, server, runs=5)
    responses, shown = {}, {}
    for kind, field in (("set_steering_mode", "steeringMode"), ("set_follow_up_mode", "followUpMode")):
        agent.send({"id": kind, "type": kind, "mode": "all"})
        responses[kind] = agent.response(kind)
        shown[field] = agent.ask("get_state")[field]
    at_once = deliveries(agent, server, runs=3)
    for kind in ("set_steering_mode", "set_follow_up_mode"):
        agent.ask(kind, mode="one-at-a-time")
    again = agent.ask("get_state")
    return Seen(
        first=first, by_default=by_default, responses=responses, shown=shown, at_once=at_once, again=again,
        one=deliveries(agent, server, runs=5),
    )  # fmt: skip


def deliveries(agent: RpcProcess, server: ModelServer, runs: int) -> list[list[str]]:
    """Queue two messages of each kind in a run, and see which of them each further request brings."""
    gate = Gate()
    server.answers("first", gate)
    agent.ask("prompt", message="start")
    gate.wait_reached()
    later = [server.answers("ok") for _ in range(runs - 1)]
    start = agent.mark()
    for message in ("s1", "s2"):
        agent.ask("steer", message=message)
    for message in ("f1", "f2"):
        agent.ask("follow_up", message=message)
    gate.open()
    agent.wait_end(start)
    assert server.count_unused_answers() == 0
    return [_last_words(answer) for answer in later]


def _last_words(answer: Answer) -> list[str]:
    found = []
    for role, text in reversed(said_in(answer.request)):
        if role != "user":
            break
        found.append(text)
    return found[::-1]


@proves_each("kind", {
    "set_steering_mode.response": ("set_steering_mode",),
    "set_follow_up_mode.response": ("set_follow_up_mode",),
})  # fmt: skip
def test_a_mode_is_answered_with_a_bare_success_under_its_name_and_id(modes: Seen, kind: str) -> None:
    assert modes.responses[kind] == {"id": kind, "type": "response", "command": kind, "success": True}


@proves_each("field", {
    "set_steering_mode.state": ("steeringMode",),
    "set_follow_up_mode.state": ("followUpMode",),
})  # fmt: skip
def test_the_state_shows_the_mode(modes: Seen, field: str) -> None:
    assert (modes.shown[field], modes.again[field]) == ("all", "one-at-a-time")


@proves_each("field", {
    "set_steering_mode.default_state": ("steeringMode",),
    "set_follow_up_mode.default_state": ("followUpMode",),
})  # fmt: skip
def test_the_state_says_one_at_a_time_by_default(modes: Seen, field: str) -> None:
    assert modes.first[field] == "one-at-a-time"


@proves("set_steering_mode.default")
def test_by_default_one_steering_message_is_delivered_per_turn(modes: Seen) -> None:
    assert modes.by_default[:2] == [["s1"], ["s2"]]


@proves("set_follow_up_mode.default")
def test_by_default_one_follow_up_is_delivered_per_completion(modes: Seen) -> None:
    assert modes.by_default[2:] == [["f1"], ["f2"]]


@proves("set_steering_mode.all")
def test_all_delivers_every_steering_message_at_once(modes: Seen) -> None:
    assert modes.at_once[0] == ["s1", "s2"]


@proves("set_follow_up_mode.all")
def test_all_delivers_every_follow_up_at_once(modes: Seen) -> None:
    assert modes.at_once[1:] == [["f1", "f2"]]


@proves("set_steering_mode.one")
def test_one_at_a_time_delivers_one_steering_message_per_turn(modes: Seen) -> None:
    assert modes.one[:2] == [["s1"], ["s2"]]


@proves("set_follow_up_mode.one")
def test_one_at_a_time_delivers_one_follow_up_per_completion(modes: Seen) -> None:
    assert modes.one[2:] == [["f1"], ["f2"]]


@proves("xcsh/flow.adjust")
def test_queue_modes_can_be_read_and_changed(modes: Seen) -> None:
    read = [{modes.first[field], modes.shown[field]} for field in ("steeringMode", "followUpMode")]
    assert read == [{"one-at-a-time", "all"}] * 2


@scenario
def steering(stage: Stage) -> Seen:
    """Steering while the first of four tools runs: by default, and in both interrupt modes."""
    agent = stage.start()
    by_default = steered(agent, stage.server)
    agent.ask("set_interrupt_mode", mode="immediate")
    immediate = steered(agent, stage.server)
    agent.ask("set_interrupt_mode", mode="wait")
    return Seen(by_default=by_default, immediate=immediate, wait=steered(agent, stage.server))


def steered(agent: RpcProcess, server: ModelServer) -> Seen:
    """What the tools said and made, and with which message each later request ends."""
    number = agent.mark()
    go = Fifo(agent.folders.work, f"go-{number}")
    server.answers(
        Call("bash", {"command": f"{go.waits}; echo finished"}, id=f"a{number}"),
        Call("bash", {"command": f"echo b; touch b-{number}"}, id=f"b{number}"),
        Call("bash", {"command": "echo c"}, id=f"c{number}"),
        Call("write", {"path": f"d-{number}", "content": "x"}, id=f"d{number}"),
    )
    later = [server.answers("as you wish"), server.answers("done")]
    start = agent.mark()
    agent.ask("prompt", message="start")
    agent.wait_event("tool_execution_start", start, toolCallId=f"a{number}")
    agent.ask("follow_up", message="then")
    agent.ask("prompt", message="now", streamingBehavior="steer")
    go.release()
    agent.wait_end(start)
    ends = [said_in(answer.request)[-1][1] for answer in later]
    return Seen(
        texts=[text.strip() for text in tool_texts(agent.since(start))],
        errors=[message["isError"] for message in finished_messages(agent.since(start), "toolResult")],
        made=sorted(path.name for path in agent.folders.work.glob(f"[bd]-{number}")),
        told=[word for text in ends for word in ("now", "then") if text.endswith(word)],
    )  # fmt: skip


def check_skipped(run: Seen) -> None:
    assert run.texts[1:] == [SKIPPED] * 3
    assert run.errors == [False, True, True, True]
    assert run.made == []


def check_all_ran(run: Seen) -> None:
    assert run.texts[1:3] == ["b", "c"]
    assert run.errors == [False] * 4
    assert len(run.made) == 2


@proves("prompt.steer_after_tool")
def test_a_steering_prompt_is_delivered_after_the_tool_that_runs(steering: Seen) -> None:
    assert [run.texts[0] for run in (steering.by_default, steering.immediate, steering.wait)] == ["finished"] * 3


@proves("steer.delivered")
def test_a_steering_message_is_delivered_before_the_next_call_of_the_model(steering: Seen) -> None:
    assert [run.told[0] for run in (steering.by_default, steering.immediate, steering.wait)] == ["now"] * 3


@proves("follow_up.delivered")
def test_a_follow_up_waits_for_the_end_not_for_a_tool(steering: Seen) -> None:
    assert [run.told for run in (steering.by_default, steering.immediate, steering.wait)] == [["now", "then"]] * 3


@proves("steer.current_tool")
def test_the_tool_that_runs_ends_normally(steering: Seen) -> None:
    assert (steering.by_default.texts[0], steering.by_default.errors[0]) == ("finished", False)


@proves("steer.skips")
def test_the_remaining_tools_are_skipped_each_with_an_error(steering: Seen) -> None:
    assert steering.by_default.errors[1:] == [True, True, True]


@proves("prompt.steer_skips")
def test_a_steering_prompt_skips_the_remaining_tools(steering: Seen) -> None:
    assert steering.by_default.made == []


@proves("interrupt.default")
def test_by_default_steering_skips_the_calls_that_have_not_started(steering: Seen) -> None:
    check_skipped(steering.by_default)


@proves("omp/set_interrupt_mode.immediate", same=("xcsh/set_interrupt_mode.immediate",))
def test_in_immediate_mode_the_remaining_tools_do_not_run(steering: Seen) -> None:
    check_skipped(steering.immediate)


@proves("xcsh/set_interrupt_mode.immediate_delivers")
def test_in_immediate_mode_the_message_is_delivered_next(steering: Seen) -> None:
    assert steering.immediate.told[0] == "now"


@proves("interrupt.wait", same=("omp/set_interrupt_mode.wait", "xcsh/set_interrupt_mode.wait"))
def test_in_wait_mode_all_tools_of_the_turn_run(steering: Seen) -> None:
    assert steering.wait.texts[0] == "finished"
    check_all_ran(steering.wait)


@proves("omp/set_interrupt_mode.wait_delivers", same=("xcsh/set_interrupt_mode.wait_delivers",))
def test_in_wait_mode_the_message_follows_the_tools(steering: Seen) -> None:
    assert steering.wait.told == ["now", "then"]


@proves("xcsh/set_interrupt_mode.default")
def test_in_xcsh_all_tools_of_the_turn_run_by_default(steering: Seen) -> None:
    check_all_ran(steering.by_default)


@scenario
def stopped(stage: Stage) -> Seen:
    """An abort without a run, in the stream, and in a tool; and a prompt after it."""
    agent, server = stage.start(), stage.server
    idle = agent.request("abort")
    asked = server.answers(Text("half of", closes=False), Hang())
    agent.ask("prompt", message="x")
    agent.wait_delta("f")
    mark = agent.mark()
    response = agent.request("abort")
    asked.wait_dropped()
    stream = agent.since(mark)
    aborted = answers(agent.records)[0]
    state = agent.ask("get_state")
    server.answers(
        Call("bash", {"command": "echo begun; sleep 600"}, id="a"), Call("bash", {"command": "touch never"}, id="b")
    )
    mark = agent.mark()
    agent.ask("prompt", message="y")
    agent.wait_event("tool_execution_start", mark, toolCallId="a")
    with within(3):
        agent.ask("abort")
    tool = agent.since(mark)
    requests = len(server.requests)
    later = server.answers("fine")
    last = answers(agent.run("z"))[-1]
    return Seen(
        idle=idle, asked=asked, response=response, stream=stream, aborted=aborted, state=state, tool=tool,
        requests=requests, last=last, said=said_in(later.request)[-1],
        never=(stage.folders.work / "never").exists(),
    )  # fmt: skip


def check_end(records: list[dict[str, Any]], dialect: str) -> None:
    """The run has ended, and all that is told of its end comes before the answer to `abort`."""
    words = [word for word in outline(records) if word not in ("prompt_result", "session_settled")]
    last = ["turn_end", "agent_end", *(["agent_settled"] if dialect == "pi" else []), "response:abort"]
    assert words[-len(last) :] == last


@proves("abort.idle")
def test_abort_without_a_run_is_a_success(stopped: Seen) -> None:
    assert (stopped.idle["command"], stopped.idle["success"], "data" in stopped.idle) == ("abort", True, False)


@proves("abort.response")
def test_abort_is_answered_with_a_bare_success(stopped: Seen) -> None:
    assert (stopped.response["success"], "data" in stopped.response) == (True, False)


@proves("abort.stops", same=("note/ops.abort",))
def test_abort_ends_the_answer_and_the_run(stopped: Seen, dialect: str) -> None:
    assert stopped.aborted["stopReason"] == "aborted"
    check_end(stopped.stream, dialect)


@proves("abort.order")
def test_the_end_of_the_run_is_told_before_abort_is_answered(stopped: Seen) -> None:
    assert outline(stopped.stream, updates=True)[-6:] == [
        "text_end", "message_end:assistant", "turn_end", "agent_end", "agent_settled", "response:abort"
    ]  # fmt: skip


@proves("abort.stream")
def test_abort_drops_the_stream_of_the_model(stopped: Seen) -> None:
    stopped.asked.wait_dropped()


@proves("abort.state")
def test_after_abort_nothing_streams(stopped: Seen) -> None:
    assert stopped.state["isStreaming"] is False


@proves("omp/type.aborted")
def test_an_aborted_answer_says_so(stopped: Seen) -> None:
    assert stopped.aborted["stopReason"] == "aborted"


@proves("stop.aborted")
def test_an_aborted_answer_keeps_what_came_and_has_an_error_text(stopped: Seen) -> None:
    text = text_of(stopped.aborted)
    assert text
    assert "half of".startswith(text)
    assert stopped.aborted["stopReason"] == "aborted"
    assert stopped.aborted["errorMessage"]
    assert stopped.aborted["responseId"]


@proves("abort.tool")
def test_abort_stops_a_running_tool_and_the_run(stopped: Seen, dialect: str) -> None:
    assert finished_messages(stopped.tool, "toolResult")[0]["isError"] is True
    assert "aborted" in tool_texts(stopped.tool)[0]
    assert outline(stopped.tool).count("agent_end") == 1
    check_end(stopped.tool, dialect)
    assert not stopped.never


@proves("abort.balanced")
def test_after_an_abort_in_a_tool_every_call_has_a_result(stopped: Seen) -> None:
    results = finished_messages(stopped.tool, "toolResult")
    assert [(message["toolCallId"], message["isError"]) for message in results] == [("a", True), ("b", True)]


@proves("abort.no_extra_turn")
def test_an_abort_in_a_tool_ends_the_run_in_that_turn(stopped: Seen) -> None:
    words = outline(stopped.tool)
    assert words.count("turn_start") == words.count("turn_end") == 1
    assert stopped.requests == 2


@proves("abort.recovers")
def test_after_abort_the_next_prompt_runs_normally(stopped: Seen) -> None:
    assert text_of(stopped.last) == "fine"
    assert stopped.said[1].endswith("z")


@scenario
def replaced(stage: Stage) -> Seen:
    """`abort_and_prompt` while an answer hangs."""
    agent = stage.start()
    stage.server.answers("half", Hang())
    agent.ask("prompt", message="x")
    agent.wait_delta("f")
    start = agent.mark()
    later = stage.server.answers("new")
    response = agent.request("abort_and_prompt", message="instead")
    agent.wait(lambda record: record["type"] == "agent_end" and text_of(record["messages"][-1]) == "new", start)
    return Seen(response=response, words=outline(agent.since(start)), said=said_in(later.request)[-1])


@proves("abort_and_prompt.flow", same=("xcsh/abort_and_prompt.flow",))
def test_abort_and_prompt_ends_one_run_and_begins_the_next(replaced: Seen) -> None:
    words = replaced.words
    assert words.index("agent_end") < words.index("response:abort_and_prompt") < words.index("agent_start")
    assert replaced.said == ("user", "instead")


@proves("abort_and_prompt.response", same=("xcsh/abort_and_prompt.response",))
def test_abort_and_prompt_is_answered_under_its_own_name(replaced: Seen) -> None:
    assert (replaced.response["command"], replaced.response["success"]) == ("abort_and_prompt", True)


@proves("abort_and_prompt.end", same=("xcsh/abort_and_prompt.end",))
def test_the_run_that_abort_and_prompt_begins_has_its_end(replaced: Seen) -> None:
    assert replaced.words.count("agent_end") == 2
    assert replaced.words.index("agent_start") < len(replaced.words) - 1 - replaced.words[::-1].index("agent_end")
