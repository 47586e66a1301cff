"""How the process starts and ends, and that nothing is left behind."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from fakes.clock import within
from fakes.model_server import Call, Gate, Hang, ModelServer, Text
from support.agent_folders import AgentFolders
from support.agent_process import AGAINST, RpcProcess, Start, command_line
from support.contract import proves, proves_each
from support.contract_scenes import Seen, Stage, scenario
from support.records import answers, outline, text_of


@proves("exit.eof")
def test_end_of_input_while_idle_is_a_clean_end(agent: RpcProcess) -> None:
    agent.ask("get_state")
    agent.close(expect=0)


@pytest.mark.by_exec
@proves("exit.eof_at_once")
def test_end_of_input_before_any_command_is_a_clean_end(agent: RpcProcess) -> None:
    agent.close(expect=0)
    assert agent.records == []


@proves("exit.eof_answers")
def test_commands_before_the_end_of_input_are_all_answered(agent: RpcProcess) -> None:
    agent.send(*({"id": number, "type": "get_state"} for number in range(50)))
    agent.close(expect=0)
    assert [record["id"] for record in agent.since(0, "response")] == list(range(50))


@proves("exit.under_way")
@pytest.mark.parametrize("number", [None, signal.SIGTERM])
def test_what_is_under_way_at_the_end_is_stopped_and_answered_exactly_once(
    start: Start, server: ModelServer, number: signal.Signals | None
) -> None:
    agent = start(settings={"compaction": {"keepRecentTokens": 10}})
    for message in ("one", "two"):
        server.answers(f"answer {message}")
        agent.run(f"{message} {'lorem ipsum ' * 100}")
    summary = Gate()
    server.answers(summary, "never")
    agent.send(
        {"id": "compact", "type": "compact"},
        {"id": "bash", "type": "bash", "command": "echo begun; sleep 600"},
        {"id": "prompt", "type": "prompt", "message": "x"},
    )
    summary.wait_reached()
    agent.wait(lambda record: record["type"] == "bash_execution_update")
    if number is None:
        agent.close(expect=0)
    else:
        agent.signal(number)
        assert agent.wait_exit() == 143
    responses = {record["id"]: record for record in agent.since(0, "response") if "id" in record}
    assert [record.get("id") for record in agent.since(0, "response")].count("compact") == 1
    assert [record.get("id") for record in agent.since(0, "response")].count("bash") == 1
    assert responses["compact"]["error"] == "Compaction cancelled"
    assert responses["bash"]["data"]["cancelled"] is True
    assert "compaction is in progress" in responses["prompt"]["error"]


@proves("exit.eof_busy")
def test_end_of_input_in_a_run_stops_it_and_its_tools(agent: RpcProcess, server: ModelServer) -> None:
    server.answers(Call("bash", {"command": "sleep 600 & sleep 600"}))
    agent.ask("prompt", message="x")
    agent.wait_event("tool_execution_start")
    with within(3):
        agent.close(expect=0)


@proves("exit.drain")
def test_with_drain_the_run_is_finished_first(start: Start, server: ModelServer) -> None:
    agent = start("--drain")
    gate = Gate()
    server.answers("one ", gate, Call("bash", {"command": "echo hi"}))
    server.answers("two")
    agent.send({"type": "prompt", "message": "x"})
    gate.wait_reached()
    agent.close_stdin()
    gate.open()
    assert agent.wait_exit() == 0
    assert outline(agent.records)[-2:] == ["agent_end", "agent_settled"]
    assert text_of(answers(agent.records)[-1]) == "two"


@pytest.mark.by_exec
@proves_each("name,code", {"exit.sigterm": ("SIGTERM", 143), "exit.sighup": ("SIGHUP", 129)})
@pytest.mark.parametrize("busy", [False, True])
def test_a_signal_ends_it_within_a_second_with_the_documented_code(
    agent: RpcProcess, server: ModelServer, name: str, code: int, busy: bool
) -> None:
    agent.ask("get_state")
    if busy:
        server.answers(Call("bash", {"command": "trap '' TERM HUP; sleep 600 & wait; sleep 600"}))
        agent.ask("prompt", message="x")
        agent.wait_event("tool_execution_start")
    with within(1.5):
        agent.signal(signal.Signals[name])
        assert agent.wait_exit() == code


@proves("exit.stdin_file")
def test_a_file_as_stdin_is_answered_line_by_line_and_then_over(folders: AgentFolders) -> None:
    names = [f"{number} {'x' * 1000}" for number in range(300)]
    commands = [{"id": name, "type": "get_state"} for name in names]
    (folders.work / "commands").write_text("\n".join(json.dumps(command) for command in commands))
    with (folders.work / "commands").open("rb") as given:
        done = subprocess.run(
            [*command_line(), "--mode", "rpc", "--no-session", "--model", "demo"],
            env=folders.environment(),
            cwd=folders.work,
            stdin=given,
            capture_output=True,
            timeout=50,
            check=True,
        )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers if answer["type"] == "response"] == names


@pytest.mark.by_exec
@proves("exit.sigint")
def test_an_interrupt_ends_it_as_an_interrupt(agent: RpcProcess) -> None:
    agent.ask("get_state")
    agent.signal(signal.SIGINT)
    assert agent.wait_exit() == -signal.SIGINT


@proves("exit.signal_stream")
def test_a_signal_in_the_stream_drops_the_connection(agent: RpcProcess, server: ModelServer) -> None:
    asked = server.answers("half", Hang())
    agent.ask("prompt", message="x")
    agent.wait_delta("f")
    agent.signal(signal.SIGTERM)
    assert agent.wait_exit() == 143
    asked.wait_dropped()


@pytest.mark.by_exec
@proves("exit.stdout_closed")
def test_a_closed_stdout_ends_it_with_1(start: Start, server: ModelServer) -> None:
    agent = start(reads=False)
    agent.send({"type": "get_state"})
    agent.wait_ready()
    agent.close_stdout()
    agent.send({"type": "get_state"}, {"type": "get_state"})
    assert agent.wait_exit() == 1


@pytest.mark.by_exec
@proves("exit.unread")
def test_a_signal_ends_it_even_if_nobody_reads(start: Start, server: ModelServer) -> None:
    agent = start(reads=False)
    server.answers(Text("0123456789" * 2_000, piece=20), Hang())
    agent.send({"type": "prompt", "message": "x"})
    agent.wait_ready()
    agent.wait_quiet()
    with within(2):
        agent.signal(signal.SIGTERM)
        assert agent.wait_exit_unread() == 143


@proves("start.at_file", same=("note/limits.at_file",))
def test_file_arguments_are_refused_at_the_start(start: Start) -> None:
    refused = start("@notes.txt")
    assert refused.wait_exit() == 1
    assert refused.stderr.strip() == "Error: @file arguments are not supported in RPC mode"
    assert refused.records == []


@proves("note/limits.at_file_control")
def test_the_same_command_line_without_file_arguments_works(agent: RpcProcess) -> None:
    agent.ask("get_state")


@scenario
def options(stage: Stage) -> Seen:
    """A start with options of the whole family, one that nobody knows, and a message."""
    agent = stage.start("some message", "--no-title", "--no-rules", "--no-skills", "--no-extensions", "--no-lsp",
                        "--no-pty", "--thinking", "low", "--append-system-prompt", "Be brief", "--tools", "read,bash",
                        "--sparkle")  # fmt: skip
    return Seen(state=agent.ask("get_state"), stderr=agent.stderr, begun=agent.since(0, "agent_start"))


@proves("start.known_flags")
def test_options_of_the_whole_family_are_taken(options: Seen) -> None:
    assert options.state["thinkingLevel"] == "low"
    assert "--no-pty" not in options.stderr


@proves("start.unknown_option")
def test_an_unknown_option_is_only_a_warning(options: Seen) -> None:
    assert "--sparkle" in options.stderr


@proves("start.messages_ignored")
def test_messages_on_the_command_line_are_ignored(options: Seen) -> None:
    assert not options.begun


@proves("start.model_pattern")
def test_a_model_is_named_with_its_provider(start: Start) -> None:
    assert start("--model", "fake/fake-2", model=None).ask("get_state")["model"]["id"] == "fake-2"


@proves("start.model_thinking")
@pytest.mark.parametrize(("pattern", "level"), [("fake-2:high", "high"), ("fake/fake-2:off", "off")])
def test_a_model_is_named_with_a_thinking_level(start: Start, pattern: str, level: str) -> None:
    state = start("--model", pattern, model=None).ask("get_state")
    assert (state["model"]["id"], state["thinkingLevel"]) == ("fake-2", level)


@proves("start.broken_files")
def test_broken_configuration_files_are_named_on_stderr_and_survived(start: Start) -> None:
    agent = start()
    agent.close()
    (agent.folders.agent / "settings.json").write_text("{broken")
    (agent.folders.agent / "models.json").write_text("[1, 2]")
    again = RpcProcess(agent.folders, "--no-session", "--model", "demo", by_exec=True)
    assert again.ask("get_state")["model"]["provider"] == "demo"
    again.close()
    assert "settings.json" in again.stderr
    assert "models.json" in again.stderr


@proves("start.invalid_mode")
def test_an_unknown_mode_is_an_error(agent: RpcProcess) -> None:
    done = subprocess.run(
        [*command_line(), "--mode", "song"],
        env=agent.folders.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1 if AGAINST else 2, "")
    assert "song" in done.stderr


@proves("start.version")
def test_the_version_is_one_line(agent: RpcProcess) -> None:
    done = subprocess.run(
        [*command_line(), "--version"],
        env=agent.folders.environment(),
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.by_exec
@proves("stdout.clean")
def test_neither_a_tool_nor_its_children_can_dirty_the_stream(agent: RpcProcess, server: ModelServer) -> None:
    peek = "ls -l /proc/self/fd; echo dirt >/proc/$PPID/fd/1; cat <&0; echo end"
    server.answers(Call("bash", {"command": peek}))
    server.answers("ok")
    records = agent.run("x")
    assert text_of(answers(records)[-1]) == "ok"
    agent.ask("get_state")
