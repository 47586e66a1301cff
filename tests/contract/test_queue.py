"""Messages that wait: steering, follow-ups, their modes, and taking them back."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.contract_manifest import proves
from fakes.fifo import Fifo
from fakes.model_server import Answer, Call, Gate, ModelServer, said_in
from fakes.record_outline import answers, ended, outline, text_of, tool_texts
from fakes.rpc_process import RpcProcess, Start

SKIPPED = "Skipped due to queued user message."


def busy(agent: RpcProcess, server: ModelServer, *rest: str) -> Gate:
    """Begin a run that stands still in its first answer."""
    gate = Gate()
    server.answers("first", gate, *rest)
    agent.ask("prompt", message="start")
    gate.wait_reached()
    return gate


def users(records: list[dict[str, Any]]) -> list[str]:
    return [text_of(message) for message in ended(records, "user")]


def new_in(answer: Answer) -> list[str]:
    """The user messages at the end of a request."""
    found = []
    for role, text in reversed(said_in(answer.request)):
        if role != "user":
            break
        found.append(text)
    return found[::-1]


@proves(
    "steer.response",
    "follow_up.response",
    "get_state.queue",
    "get_state.queue_empty",
    "queue.update",
    "command.steer",
    "command.follow_up",
    "prompt.busy_order",
    "note/steer.command",
    "note/followup.command",
)
def test_steering_comes_before_follow_ups_and_both_in_the_same_run(agent: RpcProcess, server: ModelServer) -> None:
    gate = busy(agent, server)
    second, third = server.answers("second"), server.answers("third")
    assert agent.ask("follow_up", message="later") == {"disposition": "queued"}
    assert agent.ask("steer", message="now") == {"disposition": "queued"}
    state = agent.ask("get_state")
    assert (state["pendingMessageCount"], state["queuedMessageCount"]) == (2, 2)
    assert agent.since(0, "queue_update")[-1] == {"type": "queue_update", "steering": ["now"], "followUp": ["later"]}
    gate.open()
    agent.wait_end()
    assert new_in(second)[-1] == "now"
    assert new_in(third)[-1] == "later"
    assert users(agent.records) == ["start", "now", "later"]
    assert len(agent.since(0, "agent_end")) == 1
    assert agent.ask("get_state")["pendingMessageCount"] == 0


@proves("queue.update_before_message")
def test_the_queue_is_told_just_before_its_message_begins(agent: RpcProcess, server: ModelServer) -> None:
    gate = busy(agent, server)
    server.answers("second")
    agent.ask("steer", message="now")
    gate.open()
    agent.wait_end()
    words = outline(agent.records)
    at = words.index("message_start:user", words.index("turn_end"))
    assert words[at - 2 : at + 2] == ["turn_start", "queue_update", "message_start:user", "message_end:user"]
    assert agent.since(0, "queue_update")[-1] == {"type": "queue_update", "steering": [], "followUp": []}


@proves("prompt.busy_steer", "prompt.busy_follow", "note/steer.prompt", "note/followup.prompt")
def test_a_prompt_that_says_how_is_queued(agent: RpcProcess, server: ModelServer) -> None:
    gate = busy(agent, server)
    agent.ask("prompt", message="f", streamingBehavior="followUp")
    agent.ask("prompt", message="s", streamingBehavior="steer")
    assert agent.since(0, "queue_update")[-1] == {"type": "queue_update", "steering": ["s"], "followUp": ["f"]}
    server.answers("second")
    server.answers("third")
    gate.open()
    agent.wait_end()
    assert users(agent.records) == ["start", "s", "f"]


@proves("follow_up.delivered", "prompt.follow_after_run")
def test_a_follow_up_waits_for_the_end_not_for_a_tool(agent: RpcProcess, server: ModelServer) -> None:
    gate = Gate()
    server.answers("look", gate, Call("bash", {"command": "echo hi"}))
    second, third = server.answers("done with tools"), server.answers("and that too")
    agent.ask("prompt", message="start")
    gate.wait_reached()
    agent.ask("follow_up", message="later")
    gate.open()
    agent.wait_end()
    assert "later" not in str(second.request)
    assert new_in(third) == ["later"]


@proves(
    "steer.delivered",
    "steer.current_tool",
    "steer.skips",
    "prompt.steer_skips",
    "prompt.steer_after_tool",
    "interrupt.default",
    "get_state.interruptMode",
)
def test_steering_lets_the_running_tool_finish_and_skips_the_rest(agent: RpcProcess, server: ModelServer) -> None:
    go = Fifo(agent.folders.work)
    server.answers(
        Call("bash", {"command": f"{go.waits}; echo finished"}, id="a"),
        Call("bash", {"command": "touch ran-b"}, id="b"),
        Call("write", {"path": "ran-c", "content": "x"}, id="c"),
    )
    second = server.answers("as you wish")
    assert agent.ask("get_state")["interruptMode"] == "immediate"
    agent.ask("prompt", message="start")
    agent.wait_event("tool_execution_start", toolCallId="a")
    agent.ask("steer", message="stop that")
    go.release()
    agent.wait_end()
    texts = tool_texts(agent.records)
    assert "finished" in texts[0]
    assert texts[1:] == [SKIPPED, SKIPPED]
    assert [message["isError"] for message in ended(agent.records, "toolResult")] == [False, True, True]
    assert new_in(second)[-1].endswith("stop that")
    assert sorted(path.name for path in agent.folders.work.iterdir()) == ["go"]


@proves("interrupt.wait", "set_interrupt_mode.response", "set_interrupt_mode.state", "command.set_interrupt_mode")
def test_in_wait_mode_all_tools_of_the_turn_run(agent: RpcProcess, server: ModelServer) -> None:
    go = Fifo(agent.folders.work)
    waits = Call("bash", {"command": f"{go.waits}; echo finished"}, id="a")
    server.answers(waits, Call("bash", {"command": "echo b"}, id="b"))
    second = server.answers("ok")
    assert agent.ask("set_interrupt_mode", mode="wait") is None
    assert agent.ask("get_state")["interruptMode"] == "wait"
    agent.ask("prompt", message="start")
    agent.wait_event("tool_execution_start", toolCallId="a")
    agent.ask("steer", message="also this")
    go.release()
    agent.wait_end()
    assert [text.split() for text in tool_texts(agent.records)] == [["finished"], ["b"]]
    assert new_in(second)[-1].endswith("also this")


@proves(
    "set_steering_mode.default",
    "set_steering_mode.default_state",
    "set_steering_mode.one",
    "set_steering_mode.all",
    "set_steering_mode.response",
    "set_steering_mode.state",
    "command.set_steering_mode",
)
@pytest.mark.parametrize("mode", [None, "one-at-a-time", "all"])
def test_steering_mode_decides_how_many_are_delivered_at_once(
    agent: RpcProcess, server: ModelServer, mode: str | None
) -> None:
    if mode is not None:
        assert agent.ask("set_steering_mode", mode=mode) is None
    assert agent.ask("get_state")["steeringMode"] == (mode or "one-at-a-time")
    gate = busy(agent, server)
    later = [server.answers("x") for _ in range(1 if mode == "all" else 2)]
    agent.ask("steer", message="s1")
    agent.ask("steer", message="s2")
    gate.open()
    agent.wait_end()
    assert [text for answer in later for text in new_in(answer)] == ["s1", "s2"]
    assert server.left() == 0


@proves(
    "set_follow_up_mode.default",
    "set_follow_up_mode.default_state",
    "set_follow_up_mode.one",
    "set_follow_up_mode.all",
    "set_follow_up_mode.response",
    "set_follow_up_mode.state",
    "command.set_follow_up_mode",
)
@pytest.mark.parametrize("mode", [None, "one-at-a-time", "all"])
def test_follow_up_mode_decides_how_many_are_delivered_at_once(
    agent: RpcProcess, server: ModelServer, mode: str | None
) -> None:
    if mode is not None:
        assert agent.ask("set_follow_up_mode", mode=mode) is None
    assert agent.ask("get_state")["followUpMode"] == (mode or "one-at-a-time")
    gate = busy(agent, server)
    later = [server.answers("x") for _ in range(1 if mode == "all" else 2)]
    agent.ask("follow_up", message="f1")
    agent.ask("follow_up", message="f2")
    gate.open()
    agent.wait_end()
    assert [text for answer in later for text in new_in(answer)] == ["f1", "f2"]
    assert server.left() == 0


@proves("queue.idle")
def test_what_is_queued_while_idle_goes_with_the_next_prompt(agent: RpcProcess, server: ModelServer) -> None:
    agent.ask("follow_up", message="last")
    agent.ask("steer", message="extra")
    assert agent.ask("get_state")["pendingMessageCount"] == 2
    assert not agent.since(0, "agent_start")
    server.answers("one")
    server.answers("two")
    agent.run("prompt")
    assert users(agent.records) == ["prompt", "extra", "last"]


@proves("queue.clear")
def test_clear_queue_takes_everything_back(agent: RpcProcess, server: ModelServer) -> None:
    gate = busy(agent, server)
    agent.ask("steer", message="s")
    agent.ask("follow_up", message="f")
    assert agent.ask("clear_queue") == {"steering": ["s"], "followUp": ["f"]}
    assert agent.since(0, "queue_update")[-1] == {"type": "queue_update", "steering": [], "followUp": []}
    assert agent.ask("clear_queue") == {"steering": [], "followUp": []}
    gate.open()
    agent.wait_end()
    assert users(agent.records) == ["start"]


@proves("queue.same_text")
def test_two_waiting_messages_with_the_same_text_are_both_delivered(agent: RpcProcess, server: ModelServer) -> None:
    gate = busy(agent, server)
    for _ in range(2):
        agent.ask("steer", message="again")
        server.answers("ok")
    agent.ask("follow_up", message="again")
    server.answers("ok")
    gate.open()
    agent.wait_end()
    assert users(agent.records) == ["start", "again", "again", "again"]
    assert [update["followUp"] for update in agent.since(0, "queue_update")][-2:] == [["again"], []]


@proves("steer.images", "steer.images_response", "follow_up.images")
@pytest.mark.parametrize("command", ["steer", "follow_up"])
def test_images_of_waiting_messages_reach_the_model(agent: RpcProcess, server: ModelServer, command: str) -> None:
    gate = busy(agent, server)
    later = server.answers("ok")
    agent.ask(command, message="see", images=[{"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}])
    gate.open()
    agent.wait_end()
    kinds = [block["type"] for block in later.request["messages"][-1]["content"]]
    assert kinds == ["text", "image"]


@proves("queue.after_error")
def test_an_error_leaves_the_queue_for_the_next_prompt(start: Start, server: ModelServer) -> None:
    agent = start(settings={"retry": {"enabled": False}})
    gate = Gate()
    failing = server.fails(400, "no", kind="invalid_request_error")
    agent.ask("follow_up", message="later")
    agent.run("one")
    assert failing.arrived.is_set()
    assert agent.ask("get_state")["pendingMessageCount"] == 1
    server.answers("two")
    server.answers("three")
    records = agent.run("again")
    assert users(records) == ["again", "later"]
    assert text_of(answers(records)[-1]) == "three"
    gate.open()
