"""Arguments of tool calls that cannot be read, or can with a repair."""

from __future__ import annotations

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_process import RpcProcess
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import text_of

OBJECT = "Tool arguments must be a JSON object"


def called(agent: RpcProcess, server: ModelServer, name: str, arguments: str) -> tuple[dict[str, object], str]:
    """The block of a call with these arguments, and its result."""
    server.answers(Call(name, raw=arguments))
    server.answers("done")
    records = agent.run("go")
    ended = [record["message"] for record in records if record["type"] == "message_end"]
    [block] = [block for message in ended for block in message["content"] if block["type"] == "toolCall"]
    [result] = [message for message in ended if message["role"] == "toolResult"]
    return block, text_of(result)


@proves("tools.arguments_error")
@pytest.mark.parametrize(
    "raw", ['{"command": "touch made', '{"command":"touch made"}}', "{command:1}", "[1]", '"x"', "null"]
)
def test_a_call_that_cannot_be_read_is_not_run_and_shows_what_was_sent(
    agent: RpcProcess, server: ModelServer, raw: str
) -> None:
    block, result = called(agent, server, "bash", raw)
    error = str(block["argumentsError"])
    assert block["arguments"] == {}
    assert error.endswith(f"\n\nReceived arguments:\n{raw}")
    assert error.startswith(OBJECT) is (raw in ("[1]", '"x"', "null"))
    assert result == f'Invalid arguments for tool "bash": {error}'
    assert not (agent.folders.work / "made").exists()


@proves("tools.arguments_backslash")
def test_a_backslash_that_was_not_doubled_is_text(agent: RpcProcess, server: ModelServer) -> None:
    raw = r'{"path":"a.tex","content":"\usepackage{x} C:\users \u12 \d"}'
    block, _ = called(agent, server, "write", raw)
    assert "argumentsError" not in block
    assert (agent.folders.work / "a.tex").read_text() == r"\usepackage{x} C:\users \u12 \d"


@scenario
def plain(stage: Stage) -> Seen:
    """A call that fails, and what it costs."""
    agent = stage.start()
    called(agent, stage.server, "bash", '{"command":"echo hi; false"}')
    messages = [record["message"] for record in agent.since(0, "message_end")]
    return Seen(end=agent.wait_event("tool_execution_end"),
                answers=[message for message in messages if message["role"] == "assistant"])  # fmt: skip


@proves("result.plain")
def test_a_result_is_on_the_wire_once(plain: Seen) -> None:
    assert set(plain.end["result"]) <= {"content", "details"}
    assert plain.end["isError"] is True


@proves("usage.own_prices")
def test_costs_are_those_of_the_list(plain: Seen) -> None:
    assert all("totalFromProvider" not in answer["usage"]["cost"] for answer in plain.answers)


@proves("tools.arguments_named")
def test_what_is_missing_or_of_another_type_is_named(agent: RpcProcess, server: ModelServer) -> None:
    _, result = called(agent, server, "bash", '{"timeout":"soon"}')
    assert result == (
        'Validation failed for tool "bash":\n  - command: missing\n  - timeout: expected number, got string\n\n'
        'Received arguments:\n{\n  "timeout": "soon"\n}'
    )
