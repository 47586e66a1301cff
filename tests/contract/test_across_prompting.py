"""Prompting as the forks speak it: images, messages that wait, interrupt modes, and stopping."""

from __future__ import annotations

from typing import Any

from fakes.contract_manifest import proves
from fakes.dialect_cases import in_each
from fakes.fifo import Fifo
from fakes.model_server import Answer, Call, Gate, Hang, ModelServer, Text, said_in
from fakes.record_outline import answers, ended, outline, text_of, tool_texts
from fakes.rpc_process import RpcProcess

FORKS = ("omp", "xcsh")
DATA = "iVBORw0KGgo="
PLAIN = {"type": "image", "data": DATA, "mimeType": "image/png"}
SOURCE = {"type": "image", "source": {"type": "base64", "mediaType": "image/png", "data": DATA}}
SKIPPED = "Skipped due to queued user message."


def busy(agent: RpcProcess, server: ModelServer) -> Gate:
    """Begin a run that stands still in its first answer."""
    gate = Gate()
    server.answers("first", gate)
    agent.ask("prompt", message="start")
    gate.wait_reached()
    return gate


def users(records: list[dict[str, Any]]) -> list[str]:
    return [text_of(message) for message in ended(records, "user")]


def images_in(answer: Answer) -> int:
    """How many images the last message of a request has."""
    return sum(block["type"] == "image" for block in answer.wait_arrived()["messages"][-1]["content"])


@proves(
    "prompt.images",
    "prompt.images_ack",
    "steer.images",
    "steer.images_response",
    "follow_up.images",
    dialects=("omp", "xcsh"),
)
@proves("omp/prompt.images_plain", dialects=("omp",))
@proves("xcsh/abort_and_prompt.idle", "xcsh/abort_and_prompt.images", dialects=("xcsh",))
@in_each("omp", "xcsh")
def test_images_of_every_command_reach_the_model(spoken: RpcProcess, server: ModelServer) -> None:
    gate = Gate()
    first, second, third = server.answers("a", gate), server.answers("b"), server.answers("c")
    assert spoken.ask("prompt", message="see", images=[SOURCE, PLAIN]) is None
    gate.wait_reached()
    assert spoken.ask("steer", message="now", images=[SOURCE]) is None
    assert spoken.ask("follow_up", message="then", images=[PLAIN]) is None
    gate.open()
    spoken.wait_end()
    assert [images_in(answer) for answer in (first, second, third)] == [2, 1, 1]
    stored = ended(spoken.records, "user")[0]["content"]
    assert stored == [{"type": "text", "text": "see"}, PLAIN, PLAIN]
    fourth = server.answers("d")
    start = spoken.mark()
    assert spoken.ask("abort_and_prompt", message="and", images=[PLAIN]) is None
    spoken.wait_end(start)
    assert images_in(fourth) == 1


@proves(
    "id.optional_prompt",
    "prompt.busy_steer",
    "prompt.busy_follow",
    "prompt.busy_order",
    "prompt.follow_after_run",
    "steer.response",
    "follow_up.response",
    "get_state.queue",
    "get_state.queue_empty",
    "get_state.streaming",
    "get_state.not_streaming",
    "command.steer",
    "command.follow_up",
    dialects=("omp", "xcsh"),
)
@proves("xcsh/ack.not_done", dialects=("xcsh",))
@in_each("omp", "xcsh")
def test_messages_wait_their_turn_inside_one_run(spoken: RpcProcess, server: ModelServer) -> None:
    gate = Gate()
    server.answers("first", gate)
    spoken.send({"type": "prompt", "message": "start"})
    assert spoken.wait_event("response") == {"type": "response", "command": "prompt", "success": True}
    gate.wait_reached()
    assert not spoken.since(0, "agent_end")
    later = [server.answers("ok") for _ in range(4)]
    assert spoken.ask("prompt", message="f1", streamingBehavior="followUp") is None
    assert spoken.ask("prompt", message="s1", streamingBehavior="steer") is None
    assert spoken.ask("follow_up", message="f2") is None
    assert spoken.ask("steer", message="s2") is None
    state = spoken.ask("get_state")
    assert (state["queuedMessageCount"], state["isStreaming"]) == (4, True)
    gate.open()
    spoken.wait_end()
    assert [said_in(answer.request)[-1][1] for answer in later] == ["s1", "s2", "f1", "f2"]
    assert users(spoken.records) == ["start", "s1", "s2", "f1", "f2"]
    assert len(spoken.since(0, "agent_end")) == 1
    state = spoken.ask("get_state")
    assert (state["queuedMessageCount"], state["isStreaming"]) == (0, False)


@proves(
    "set_steering_mode.response",
    "set_steering_mode.state",
    "set_steering_mode.default",
    "set_steering_mode.default_state",
    "set_steering_mode.all",
    "set_steering_mode.one",
    "set_follow_up_mode.response",
    "set_follow_up_mode.state",
    "set_follow_up_mode.default",
    "set_follow_up_mode.default_state",
    "set_follow_up_mode.all",
    "set_follow_up_mode.one",
    "command.set_steering_mode",
    "command.set_follow_up_mode",
    dialects=("omp", "xcsh"),
)
@proves("xcsh/flow.adjust", dialects=("xcsh",))
@in_each("omp", "xcsh")
def test_queue_modes_can_be_read_and_changed(spoken: RpcProcess, server: ModelServer) -> None:
    state = spoken.ask("get_state")
    assert (state["steeringMode"], state["followUpMode"]) == ("one-at-a-time", "one-at-a-time")
    assert deliveries(spoken, server, runs=5) == [["s1"], ["s2"], ["f1"], ["f2"]]
    for kind, field in (("set_steering_mode", "steeringMode"), ("set_follow_up_mode", "followUpMode")):
        spoken.send({"id": kind, "type": kind, "mode": "all"})
        assert spoken.response(kind) == {"id": kind, "type": "response", "command": kind, "success": True}
        assert spoken.ask("get_state")[field] == "all"
    assert deliveries(spoken, server, runs=3) == [["s1", "s2"], ["f1", "f2"]]
    for kind in ("set_steering_mode", "set_follow_up_mode"):
        spoken.ask(kind, mode="one-at-a-time")
    assert deliveries(spoken, server, runs=5) == [["s1"], ["s2"], ["f1"], ["f2"]]


def deliveries(agent: RpcProcess, server: ModelServer, runs: int) -> list[list[str]]:
    """Queue two messages of each kind in a run, and see which of them each further request brings."""
    gate = busy(agent, server)
    later = [server.answers("ok") for _ in range(runs - 1)]
    start = agent.mark()
    for message in ("s1", "s2"):
        agent.ask("steer", message=message)
    for message in ("f1", "f2"):
        agent.ask("follow_up", message=message)
    gate.open()
    agent.wait_end(start)
    assert server.left() == 0
    return [_last_words(answer) for answer in later]


def _last_words(answer: Answer) -> list[str]:
    found = []
    for role, text in reversed(said_in(answer.request)):
        if role != "user":
            break
        found.append(text)
    return found[::-1]


@proves("prompt.steer_after_tool", "steer.delivered", "follow_up.delivered", dialects=("omp", "xcsh"))
@proves(
    "omp/set_interrupt_mode.immediate",
    "omp/set_interrupt_mode.wait",
    "omp/set_interrupt_mode.wait_delivers",
    dialects=("omp",),
)
@proves(
    "xcsh/set_interrupt_mode.default",
    "xcsh/set_interrupt_mode.immediate",
    "xcsh/set_interrupt_mode.immediate_delivers",
    "xcsh/set_interrupt_mode.wait",
    "xcsh/set_interrupt_mode.wait_delivers",
    dialects=("xcsh",),
)
@in_each("omp", "xcsh")
def test_interrupt_modes_decide_what_becomes_of_the_remaining_tools(
    spoken: RpcProcess, server: ModelServer, dialect: str
) -> None:
    by_default = "wait" if dialect == "xcsh" else "immediate"
    for mode in (None, "immediate", "wait"):
        if mode is not None:
            spoken.ask("set_interrupt_mode", mode=mode)
        texts, told = steered(spoken, server)
        assert "finished" in texts[0]
        rest = [SKIPPED, SKIPPED] if (mode or by_default) == "immediate" else ["b", "c"]
        assert [text.strip() for text in texts[1:]] == rest
        assert told == ["now", "then"]


def steered(agent: RpcProcess, server: ModelServer) -> tuple[list[str], list[str]]:
    """Steer while the first of three tools runs: what the tools said, and what later requests end with."""
    go = Fifo(agent.folders.work, f"go-{agent.mark()}")
    server.answers(
        Call("bash", {"command": f"{go.waits}; echo finished"}, id="a"),
        Call("bash", {"command": "echo b"}, id="b"),
        Call("bash", {"command": "echo c"}, id="c"),
    )
    later = [server.answers("as you wish"), server.answers("done")]
    start = agent.mark()
    agent.ask("prompt", message="start")
    agent.wait_event("tool_execution_start", start, toolCallId="a")
    agent.ask("follow_up", message="then")
    agent.ask("prompt", message="now", streamingBehavior="steer")
    go.release()
    agent.wait_end(start)
    told = [said_in(answer.request)[-1][1] for answer in later]
    return tool_texts(agent.since(start)), [word for text in told for word in ("now", "then") if text.endswith(word)]


@proves(
    "abort.response",
    "abort.idle",
    "abort.stops",
    "abort.stream",
    "abort.state",
    "abort.tool",
    "abort.recovers",
    "command.abort",
    dialects=("omp", "xcsh"),
)
@proves("omp/type.aborted", dialects=("omp",))
@in_each("omp", "xcsh")
def test_abort_stops_the_stream_and_the_tools(spoken: RpcProcess, server: ModelServer) -> None:
    idle = spoken.request("abort")
    assert (idle["command"], idle["success"], "data" in idle) == ("abort", True, False)
    asked = server.answers(Text("half of", closes=False), Hang())
    spoken.ask("prompt", message="x")
    spoken.wait_delta("f")
    assert spoken.ask("abort") is None
    asked.wait_dropped()
    assert answers(spoken.records)[0]["stopReason"] == "aborted"
    told = [kind for kind in outline(spoken.records) if kind not in ("prompt_result", "session_settled")]
    assert told[-3:] == ["turn_end", "agent_end", "response:abort"]
    assert spoken.ask("get_state")["isStreaming"] is False
    server.answers(Call("bash", {"command": "sleep 600"}, id="a"))
    start = spoken.mark()
    spoken.ask("prompt", message="y")
    spoken.wait_event("tool_execution_start", start)
    spoken.ask("abort")
    assert [message["isError"] for message in ended(spoken.records, "toolResult")] == [True]
    assert len(spoken.since(start, "agent_end")) == 1
    server.answers("fine")
    assert text_of(answers(spoken.run("z"))[-1]) == "fine"
