"""`bash` of the host: what comes back, what the model learns of it and when, and stopping it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fakes.contract_manifest import proves
from fakes.dialect_cases import in_each
from fakes.fifo import Fifo
from fakes.model_server import Gate, ModelServer, said_in
from fakes.record_outline import outline
from fakes.rpc_process import RpcProcess, Start

COUNTERS = ("totalLines", "totalBytes", "outputLines", "outputBytes")


def told(request: dict[str, Any]) -> str:
    return "\n".join(text for _, text in said_in(request))


@proves(
    "bash.response",
    "bash.exit_code",
    "bash.stderr",
    "bash.context",
    "command.bash",
    dialects=("pi", "omp", "xcsh"),
)
@proves(
    "bash.multiple",
    "bash.later",
    "bash.no_event",
    "bash.no_event_later",
    "bash.message",
    dialects=("pi", "omp"),
)
@proves("omp/bash.format", "omp/bash.counters", dialects=("omp",))
@proves("note/response.data_bash")
@in_each("pi", "omp", "xcsh")
def test_the_output_of_bash_is_answered_and_goes_with_the_next_prompt(spoken: RpcProcess, server: ModelServer) -> None:
    spoken.ask("get_state")
    start = spoken.mark()
    first = spoken.ask("bash", command="echo out; echo err >&2")
    assert (first["exitCode"], first["cancelled"], first["truncated"]) == (0, False, False)
    assert sorted(first["output"].split()) == ["err", "out"]
    assert [first[key] for key in COUNTERS] == [3, 8, 3, 8]
    second = spoken.ask("bash", command="echo again; exit 7")
    assert (second["exitCode"], second["output"].strip()) == (7, "again")
    assert {record["type"] for record in spoken.since(start)} - {"bash_execution_update"} == {"response"}
    messages = spoken.ask("get_messages")["messages"]
    assert [message["role"] for message in messages] == ["bashExecution", "bashExecution"]
    assert (messages[1]["command"], messages[1]["exitCode"]) == ("echo again; exit 7", 7)
    assert {"output", "cancelled", "truncated", "timestamp"} <= set(messages[1])
    assert server.requests == []
    asked = server.answers("I see")
    records = spoken.run("x")
    assert not [word for word in outline(records) if "bash" in word]
    context = told(asked.request)
    assert "Ran `echo out; echo err >&2`\n```\n" in context
    assert "Ran `echo again; exit 7`\n```\nagain" in context
    assert context.index("echo out") < context.index("echo again") < context.rindex("x")


@proves("bash.truncated", dialects=("pi", "omp", "xcsh"))
@proves("omp/bash.trunc_counters", "omp/bash.artifact", dialects=("omp",))
@in_each("pi", "omp", "xcsh")
def test_long_output_is_cut_counted_and_kept_elsewhere(start: Start, dialect: str) -> None:
    agent = start(dialect=dialect, keeps=True)
    result = agent.ask("bash", command="seq 1 30000")
    assert result["truncated"] is True
    assert result["output"].rstrip().endswith("30000")
    assert result["totalLines"] > result["outputLines"]
    assert result["totalBytes"] > result["outputBytes"]
    assert len(result["output"].encode()) <= 51_200
    assert isinstance(result["artifactId"], str)
    whole = Path(result["fullOutputPath"]).read_text()
    assert whole.split() == [str(number) for number in range(1, 30001)]


@proves("bash.streaming", dialects=("pi", "omp"))
@in_each("pi", "omp")
def test_bash_during_a_stream_is_there_at_the_next_prompt(spoken: RpcProcess, server: ModelServer) -> None:
    gate = Gate()
    server.answers("one", gate)
    spoken.ask("prompt", message="x")
    gate.wait_reached()
    assert spoken.ask("bash", command="echo meanwhile")["output"].strip() == "meanwhile"
    gate.open()
    spoken.wait_end()
    asked = server.answers("two")
    spoken.run("y")
    assert "meanwhile" in told(asked.request)


@proves("abort_bash.response", "abort_bash.idle", "abort_bash.cancels", "command.abort_bash",
        dialects=("pi", "omp", "xcsh"))  # fmt: skip
@proves("note/ops.abort_bash")
@in_each("pi", "omp", "xcsh")
def test_abort_bash_ends_the_command(spoken: RpcProcess) -> None:
    idle = spoken.request("abort_bash")
    assert (idle["command"], idle["success"], "data" in idle) == ("abort_bash", True, False)
    begun = Fifo(spoken.folders.work, "begun")
    spoken.send({"id": "b", "type": "bash", "command": f"echo before; {begun.tells}; sleep 600"})
    begun.wait()
    assert spoken.ask("abort_bash") is None
    result = spoken.response("b")["data"]
    assert (result["cancelled"], "exitCode" in result) == (True, False)
    assert "before" in result["output"]


@proves("abort_bash.preflight", dialects=("pi", "omp", "xcsh"))
@in_each("pi", "omp", "xcsh")
def test_abort_bash_in_the_same_write_reaches_a_command_that_has_not_started(spoken: RpcProcess) -> None:
    spoken.send({"id": "b", "type": "bash", "command": "touch begun; sleep 600"}, {"id": "a", "type": "abort_bash"})
    assert spoken.response("a")["success"] is True
    result = spoken.response("b")["data"]
    assert (result["output"], result["cancelled"], "exitCode" in result) == ("", True, False)
    assert not (spoken.folders.work / "begun").exists()
