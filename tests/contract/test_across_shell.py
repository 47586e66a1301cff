"""`bash` of the host: what comes back, what the model learns of it and when, and stopping it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fakes.model_server import Gate, ModelServer, said_in
from support.agent_process import RpcProcess
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario
from support.processes import Fifo
from support.records import outline

CANCELLED = "[Command cancelled]\n"
COUNTERS = ("totalLines", "totalBytes", "outputLines", "outputBytes")


def told(request: dict[str, Any]) -> str:
    return "\n".join(text for _, text in said_in(request))


@scenario
def commands(stage: Stage) -> Seen:
    """Two commands, and a prompt after them."""
    agent = stage.start()
    agent.ask("get_state")
    start = agent.mark()
    first = agent.ask("bash", command="echo out; echo err >&2")
    second = agent.ask("bash", command="echo again; exit 7")
    kinds = {record["type"] for record in agent.since(start)}
    messages = agent.ask("get_messages")["messages"]
    early = list(stage.server.requests)
    asked = stage.server.answers("I see")
    records = agent.run("x")
    return Seen(
        first=first, second=second, kinds=kinds, messages=messages, early=early, words=outline(records),
        context=told(asked.request),
    )  # fmt: skip


@proves("bash.response", same=("note/response.data_bash",))
def test_a_command_is_answered_with_its_output_and_how_it_ended(commands: Seen) -> None:
    first = commands.first
    assert (first["exitCode"], first["cancelled"], first["truncated"]) == (0, False, False)
    assert isinstance(first["output"], str)


@proves("bash.stderr")
def test_both_streams_are_in_the_output(commands: Seen) -> None:
    assert sorted(commands.first["output"].split()) == ["err", "out"]


@proves("omp/bash.counters")
def test_the_lines_and_bytes_of_the_output_are_counted(commands: Seen) -> None:
    assert [commands.first[key] for key in COUNTERS] == [3, 8, 3, 8]


@proves("bash.exit_code")
def test_the_exit_code_is_that_of_the_command(commands: Seen) -> None:
    assert (commands.second["exitCode"], commands.second["output"].strip()) == (7, "again")


@proves("bash.no_event")
def test_a_command_makes_no_event_of_a_message(commands: Seen) -> None:
    assert commands.kinds - {"bash_execution_update"} == {"response"}


@proves("bash.no_event_later")
def test_nor_does_the_prompt_that_takes_it_along(commands: Seen) -> None:
    assert not [word for word in commands.words if "bash" in word]


@proves("bash.message")
def test_a_command_is_kept_as_a_message(commands: Seen) -> None:
    assert [message["role"] for message in commands.messages] == ["bashExecution", "bashExecution"]
    second = commands.messages[1]
    assert (second["command"], second["exitCode"]) == ("echo again; exit 7", 7)
    assert {"output", "cancelled", "truncated", "timestamp"} <= set(second)


@proves("bash.later")
def test_the_model_is_not_asked_before_the_next_prompt(commands: Seen) -> None:
    assert commands.early == []


@proves("bash.context")
def test_the_output_goes_with_the_next_prompt(commands: Seen) -> None:
    assert "again" in commands.context
    assert commands.context.index("echo again") < commands.context.rindex("x")


@proves("bash.multiple")
def test_several_commands_go_with_one_prompt_in_their_order(commands: Seen) -> None:
    assert commands.context.index("echo out") < commands.context.index("echo again")


@proves("omp/bash.format")
def test_the_model_reads_the_command_and_its_output_in_a_fence(commands: Seen) -> None:
    assert "Ran `echo out; echo err >&2`\n```\n" in commands.context
    assert "Ran `echo again; exit 7`\n```\nagain" in commands.context


@scenario
def long_output(stage: Stage) -> Seen:
    """A command that prints more than is shown."""
    result = stage.start(keeps=True).ask("bash", command="seq 1 30000")
    return Seen(result=result, whole=Path(result["fullOutputPath"]).read_text())


@proves("bash.truncated")
def test_long_output_is_cut_and_says_so(long_output: Seen) -> None:
    result = long_output.result
    assert result["truncated"] is True
    assert result["output"].rstrip().endswith("30000")
    assert len(result["output"].encode()) <= 51_200


@proves("omp/bash.trunc_counters")
def test_the_totals_of_cut_output_exceed_what_is_shown(long_output: Seen) -> None:
    result = long_output.result
    assert result["totalLines"] > result["outputLines"]
    assert result["totalBytes"] > result["outputBytes"]


@proves("omp/bash.artifact")
def test_cut_output_is_kept_whole_elsewhere(long_output: Seen) -> None:
    assert isinstance(long_output.result["artifactId"], str)
    assert long_output.whole.split() == [str(number) for number in range(1, 30001)]


@proves("bash.streaming")
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


@scenario
def cancelled(stage: Stage) -> Seen:
    """A command that is stopped, and one that is not there to be stopped."""
    agent = stage.start()
    idle = agent.request("abort_bash")
    begun = Fifo(agent.folders.work, "begun")
    agent.send({"id": "b", "type": "bash", "command": f"echo before; {begun.tells}; sleep 600"})
    begun.wait()
    response = agent.request("abort_bash")
    return Seen(idle=idle, response=response, result=agent.response("b")["data"])


@proves("abort_bash.idle")
def test_abort_bash_without_a_command_is_a_success(cancelled: Seen) -> None:
    idle = cancelled.idle
    assert (idle["command"], idle["success"], "data" in idle) == ("abort_bash", True, False)


@proves("abort_bash.response")
def test_abort_bash_is_answered_with_a_bare_success(cancelled: Seen) -> None:
    assert (cancelled.response["success"], "data" in cancelled.response) == (True, False)


@proves("abort_bash.cancels", same=("note/ops.abort_bash",))
def test_abort_bash_ends_the_command_whose_result_says_so(cancelled: Seen) -> None:
    assert (cancelled.result["cancelled"], "exitCode" in cancelled.result) == (True, False)
    assert "before" in cancelled.result["output"]


@proves("abort_bash.preflight")
def test_abort_bash_in_the_same_write_reaches_a_command_that_has_not_started(spoken: RpcProcess, dialect: str) -> None:
    spoken.send({"id": "b", "type": "bash", "command": "touch begun; sleep 600"}, {"id": "a", "type": "abort_bash"})
    assert spoken.response("a")["success"] is True
    result = spoken.response("b")["data"]
    output = "" if dialect == "pi" else CANCELLED
    assert (result["output"], result["cancelled"], "exitCode" in result) == (output, True, False)
    assert not (spoken.folders.work / "begun").exists()


@proves("abort.ends_bash")
def test_abort_ends_a_shell_command_of_the_host_too(spoken: RpcProcess) -> None:
    begun = Fifo(spoken.folders.work, "begun")
    spoken.send({"id": "b", "type": "bash", "command": f"echo before; {begun.tells}; sleep 600"})
    begun.wait()
    spoken.ask("abort")
    result = spoken.response("b")["data"]
    assert (result["output"], result["cancelled"]) == (f"{CANCELLED}before\n", True)
    assert spoken.ask("bash", command="echo whole")["output"] == "whole\n"
