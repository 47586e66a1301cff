"""A long conversation as the strictest clients of the forks read it: no frame may have another shape than they expect,
and for each accepted prompt there is exactly one end."""

from __future__ import annotations

from typing import Any

from fakes import contract_extension
from fakes.model_server import Call, Gate, Hang, ModelServer, Thinking
from fakes.strict_client import complaints
from support.agent_folders import model
from support.agent_process import RpcProcess
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario

SETTINGS = {"retry": {"baseDelayMs": 1}, "compaction": {"keepRecentTokens": 50, "reserveTokens": 1000}}
SMALL = [model("fake-1", contextWindow=10_000, maxTokens=1000), model("fake-2")]
LONG = "lorem ipsum dolor sit amet " * 40
PLAN = [{"name": "Work", "tasks": [{"content": "do it"}]}]
ECHO = {"name": "echo_host", "description": "Echo", "parameters": {"type": "object", "properties": {}}}


class Client:
    """Counts as those clients do: a prompt that was accepted ends with `agent_end`, or with a late failure."""

    def __init__(self, agent: RpcProcess) -> None:
        self.agent = agent
        self.accepted = 0

    def prompt(self, message: str, **more: Any) -> None:
        self.agent.ask("prompt", message=message, **more)
        self.accepted += 1

    def wait_for_idle(self) -> None:
        self.agent.wait_count("agent_end", self.accepted)

    def ends(self) -> int:
        return len(self.agent.since(0, "agent_end"))


@scenario
def conversation(stage: Stage) -> Seen:
    """A long conversation with everything that follows by itself."""
    flags = ("--no-title", "--extension", contract_extension.__file__)
    client = Client(stage.start(*flags, settings=SETTINGS, models=SMALL, keeps=True))
    agent = client.agent
    first_line = agent.wait(lambda record: True)
    _talk(client, stage.server)
    _things_that_follow_by_themselves(client, stage.server)
    _ask_for_everything(agent)
    return Seen(first_line=first_line, ends=client.ends(), accepted=client.accepted, records=agent.since(0))


@proves("dialect.strict")
def test_nothing_of_a_long_conversation_offends_a_strict_client(conversation: Seen) -> None:
    assert conversation.first_line["type"] == "ready"
    assert [text for record in conversation.records for text in complaints(record)] == []


@proves("dialect.one_end", dialects=("omp", "xcsh"))
def test_every_accepted_prompt_of_a_long_conversation_has_one_end(conversation: Seen) -> None:
    assert conversation.ends == conversation.accepted


def _talk(client: Client, server: ModelServer) -> None:
    agent = client.agent
    agent.ask("set_host_tools", tools=[ECHO])
    server.answers(Thinking("hm"), "Looking.", Call("bash", {"command": "echo hi"}), Call("echo_host", {}, id="h"))
    server.answers(LONG)
    client.prompt(f"first {LONG}")
    call = agent.wait_event("host_tool_call")
    agent.send({"type": "host_tool_result", "id": call["id"], "result": {"content": [{"type": "text", "text": "x"}]}})
    client.wait_for_idle()
    gate = Gate()
    server.answers("one", gate)
    server.answers("two")
    client.prompt("second")
    gate.wait_reached()
    agent.send({"id": "refused", "type": "prompt", "message": "refused"})
    agent.wait(lambda record: record.get("id") == "refused" and record["success"] is False)
    agent.ask("follow_up", message="later")
    gate.open()
    client.wait_for_idle()
    server.answers("half", Hang())
    start = agent.mark()
    client.prompt("third")
    agent.wait_delta("f", start)
    agent.ask("abort")
    client.wait_for_idle()


def _things_that_follow_by_themselves(client: Client, server: ModelServer) -> None:
    agent = client.agent
    server.fails(529, "Overloaded", kind="overloaded_error")
    server.answers("recovered")
    client.prompt("a retry")
    client.wait_for_idle()
    agent.ask("set_todos", phases=PLAN)
    for number in range(4):
        server.answers(f"reminded {number}")
    client.prompt("reminders")
    client.wait_for_idle()
    agent.ask("set_todos", phases=[])
    server.answers("full", usage={"input_tokens": 9_500})
    server.answers("THE SUMMARY")
    client.prompt(f"a compaction {LONG}")
    client.wait_for_idle()
    agent.wait_event("auto_compaction_end")
    agent.send({"type": "prompt", "message": "/tell"})
    agent.wait_event("extension_ui_request", method="set_editor_text")


def _ask_for_everything(agent: RpcProcess) -> None:
    (agent.folders.work / "stumble").touch()
    agent.ask("bash", command="echo hi; exit 3")
    agent.ask("set_thinking_level", level="high")
    agent.ask("set_session_name", name="strict")
    agent.expect_error("set_model", provider="a", modelId="b")
    agent.send({"id": "u", "type": "nope"}, "{bad")
    for command in ("get_state", "get_messages", "get_session_stats", "export_html", "get_branch_messages",
                    "get_available_models", "cycle_thinking_level", "get_last_assistant_text"):  # fmt: skip
        agent.ask(command)
