"""How we are called: by which name, in which dialect, with whose flags."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from fakes.model_server import Call, ModelServer, said_in
from pigeon import __version__
from pigeon.wire.choices import DialectName
from support.agent_folders import AgentFolders, providers
from support.agent_process import RpcProcess, Start, command_line_named, run_pigeon
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import answers, outline, text_of

pytestmark = pytest.mark.by_exec  # how we start is the subject

CLIENTS: dict[str, str] = {
    "an editor bridge": "--no-themes --no-session",
    "an Emacs mode": "--approve --session-dir . --continue",
    "a desktop window": "--no-themes --offline --no-extensions --no-skills -e {extension} --session-id mine",
    "a chat bridge": "--session-id mine --model fake/fake-1:low --thinking high --name talk",
    "a phone": "--no-session --no-skills --no-prompt-templates --no-tools --no-approve",
    "a notebook": "--system-prompt Kind. --no-session --tools read,bash --provider fake --model fake-1 --thinking low",
    "an executor": "--no-session --approve --append-system-prompt Brief. --extension {extension} --skill {skill}",
    "a team": "--no-session --models fake/* --append-system-prompt {skill} --no-extensions --no-prompt-templates "
    "--no-themes --no-context-files --no-skills",
    "a Python client": "--provider fake --model fake-1 --session-dir . --thinking low --append-system-prompt Brief. "
    "--provider-session-id abc --no-tools --no-skills --no-rules --no-title",
    "a shell": "--mode rpc-ui --approval-mode write --cwd . --no-lsp --no-pty --no-session",
}


def version(program: list[str], folders: AgentFolders) -> str:
    done = subprocess.run(
        [*program, "--version"], env=folders.environment(), capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stderr == ""
    return done.stdout


def list_models(folders: AgentFolders) -> subprocess.CompletedProcess[str]:
    command = [*command_line_named(folders, "pigeon"), "--list-models"]
    return subprocess.run(command, env=folders.environment(), capture_output=True, text=True, timeout=20, check=True)


def spoken_by(folders: AgentFolders, server: ModelServer, name: str, *args: str, **env: str) -> str:
    """The dialect that the program speaks if it is called so."""
    folders.configure(providers(server.url))
    options = ("--no-session", "--model", "fake/fake-1", *args)
    with RpcProcess(folders, *options, env=env, program=command_line_named(folders, name)) as agent:
        agent.send({"id": "u", "type": "nope"})
        unknown = agent.wait_event("response")
        mode = agent.ask("get_state")["interruptMode"]
    seen = {
        ("response", True, "immediate"): "pi",
        ("ready", True, "immediate"): "omp",
        ("ready", False, "wait"): "xcsh",
    }
    assert agent.stderr == ""
    return seen[agent.records[0]["type"], "id" in unknown, mode]


@proves("dialect.by_name", dialects=("pi", "omp", "xcsh"))
@pytest.mark.parametrize(("name", "spoken"), [("pigeon", "pi"), ("pi", "pi"), ("omp", "omp"), ("xcsh", "xcsh")])
def test_the_dialect_follows_the_name(folders: AgentFolders, server: ModelServer, name: str, spoken: str) -> None:
    assert spoken_by(folders, server, name) == spoken


@proves("dialect.by_flag", dialects=("pi", "omp", "xcsh"))
@pytest.mark.parametrize(
    ("name", "flags", "spoken"),
    [
        ("pigeon", ["--no-title"], "xcsh"),
        ("pigeon", ["--provider-session-id", "x"], "xcsh"),
        ("pi", ["--no-title"], "pi"),
    ],
)
def test_the_dialect_follows_a_flag_that_only_one_family_has(
    folders: AgentFolders, server: ModelServer, name: str, flags: list[str], spoken: str
) -> None:
    assert spoken_by(folders, server, name, *flags) == spoken


@proves("dialect.by_env", dialects=("pi", "omp", "xcsh"))
@pytest.mark.parametrize(
    ("name", "flags", "variable", "spoken"),
    [("xcsh", [], "omp", "omp"), ("omp", ["--dialect", "xcsh"], "pi", "xcsh")],
)
def test_the_dialect_follows_the_option_and_then_the_environment(
    folders: AgentFolders, server: ModelServer, name: str, flags: list[str], variable: str, spoken: str
) -> None:
    assert spoken_by(folders, server, name, *flags, PIGEON_DIALECT=variable) == spoken


@proves("start.version_protocol")
def test_called_as_pi_the_version_is_that_of_the_protocol(folders: AgentFolders) -> None:
    as_pi, own = (
        version(command_line_named(folders, "pi"), folders),
        version(command_line_named(folders, "pigeon"), folders),
    )
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", as_pi)
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", own)
    assert tuple(map(int, as_pi.split("."))) >= (0, 80, 4)
    assert as_pi != own


@proves("dialect.unknown")
def test_a_dialect_that_nobody_speaks_is_an_error_that_lists_them(start: Start) -> None:
    refused = start(dialect="klingon")
    assert refused.wait_exit() == 2
    assert "klingon" in refused.stderr
    assert ", ".join(get_args(DialectName)) in refused.stderr


@proves("start.flags")
def test_no_flag_of_the_family_is_refused_or_complained_about(
    folders: AgentFolders, server: ModelServer, tmp_path: Path
) -> None:
    folders.configure(providers(server.url))
    skill, extension = tmp_path / "skill" / "SKILL.md", tmp_path / "nothing.py"
    skill.parent.mkdir()
    skill.write_text("---\nname: skill\ndescription: d\n---\nx")
    extension.write_text("def setup(ext):\n    pass\n")
    for client, line in CLIENTS.items():
        flags = line.format(skill=skill, extension=extension).split()
        with RpcProcess(folders, "--dialect", "pi", *flags) as agent:
            assert agent.ask("get_state")["sessionId"], client
        assert agent.stderr == "", client
        assert not [record for record in agent.records if record["type"] != "response"], client
    listed = list_models(folders)
    assert "fake-1" in listed.stdout


@proves("start.list_problems")
def test_the_list_of_models_says_what_is_wrong_with_the_file(folders: AgentFolders) -> None:
    folders.configure()
    (folders.agent / "models.json").write_text("{broken")
    listed = list_models(folders)
    assert "models.json" in listed.stderr


@proves("start.json_problems")
def test_one_prompt_at_the_command_line_says_what_is_wrong_too(folders: AgentFolders) -> None:
    folders.configure()
    (folders.agent / "models.json").write_text("{broken")
    command = [*command_line_named(folders, "pigeon"), "--mode", "json", "--model", "demo", "--no-session", "hello"]
    ran = subprocess.run(
        command,
        env=folders.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
        cwd=folders.work,
    )
    assert "models.json" in ran.stderr
    assert "agent_end" in ran.stdout


@scenario
def failed_json(stage: Stage) -> Seen:
    """A run of json mode that fails, with a text piped into it."""
    stage.folders.configure(providers(stage.server.url), {"retry": {"enabled": False}})
    args = ("--mode", "json", "--no-session", "--model", "fake/fake-1", "why?")
    return Seen(ended=run_pigeon(stage.folders, *args, given="a diff\n"), said=said_in(stage.server.requests[0])[-1])


@proves("json.failed_runs")
def test_a_failed_run_of_json_mode_is_a_failure_of_the_process(failed_json: Seen) -> None:
    assert failed_json.ended.code == 1
    assert failed_json.ended.err.startswith("The run ended: error (")


@proves("json.piped_text")
def test_piped_text_goes_before_the_prompt_of_json_mode(failed_json: Seen) -> None:
    assert failed_json.said == ("user", "a diff\n\nwhy?")


@proves("json.unknown_option")
def test_an_unknown_option_of_json_mode_is_an_error(folders: AgentFolders) -> None:
    folders.configure()
    ended = run_pigeon(folders, "--mode", "json", "--model", "demo", "--no-session", "--frobnicate", "hello")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Error: Unknown option --frobnicate.")


@proves("xcsh/start.at_file")
def test_file_arguments_are_refused_by_xcsh_too(start: Start, dialect: str) -> None:
    refused = start("@notes.txt", dialect=dialect)
    assert refused.wait_exit() == 1
    assert refused.stderr.strip() == "Error: @file arguments are not supported in RPC mode"
    assert refused.records == []


@proves("xcsh/start.at_file_control")
def test_without_file_arguments_xcsh_starts(start: Start, dialect: str) -> None:
    start(dialect=dialect).ask("get_state")


@scenario
def untitled(stage: Stage) -> Seen:
    """Three prompts, and the end of input."""
    agent = stage.start(by_exec=True)
    said = []
    for number in range(3):
        stage.server.answers(f"answer {number}")
        said.append(text_of(answers(agent.run("x"))[-1]))
    agent.close_stdin()
    return Seen(said=said, code=agent.wait_exit(), requests=len(stage.server.requests), records=str(agent.records))


@proves("xcsh/start.no_title")
def test_a_conversation_costs_no_request_for_a_title(untitled: Seen) -> None:
    assert untitled.said == ["answer 0", "answer 1", "answer 2"]
    assert untitled.requests == 3
    assert "sessionName" not in untitled.records


@proves("xcsh/start.eof_late")
def test_after_a_conversation_the_end_of_input_is_a_clean_end(untitled: Seen) -> None:
    assert untitled.code == 0


@proves("note/limits.stdin")
def test_piped_text_is_not_a_message(agent: RpcProcess, server: ModelServer) -> None:
    agent.send("please list the files")
    failure = agent.wait_event("response")
    assert (failure["command"], failure["success"]) == ("parse", False)
    assert failure["error"].startswith("Failed to parse command: ")
    agent.close()
    assert server.requests == []


@scenario
def once(stage: Stage) -> Seen:
    """The same prompt in json mode and in rpc mode."""
    folders, server = stage.folders, stage.server
    folders.configure(providers(server.url))
    server.answers("Looking.", Call("bash", {"command": "echo hi"}))
    server.answers("Done.")
    args = ["--no-session", "--model", "fake/fake-1", "--dialect", "pi", "list the files"]
    with RpcProcess(folders, *args, mode=("--mode", "json"), by_exec=True) as process:
        process.close_stdin()
        code = process.wait_exit()
    with RpcProcess(folders, *args[:-1], by_exec=True) as resident:
        server.answers("Looking.", Call("bash", {"command": "echo hi"}))
        server.answers("Done.")
        expected = outline(resident.run(args[-1]), updates=True)[1:]
    return Seen(code=code, records=process.records, expected=expected, said=said_in(server.requests[0])[-1])


@proves("note/json.once")
def test_json_mode_runs_one_prompt_and_ends(once: Seen) -> None:
    assert once.code == 0
    assert once.said == ("user", "list the files")


@proves("note/json.events")
def test_json_mode_prints_the_events_of_rpc_mode(once: Seen) -> None:
    assert once.records[0]["type"] == "session"
    told = outline(once.records[1:], updates=True)
    assert [word for word in told if word != "tool_execution_update"] == [
        word for word in once.expected if word != "tool_execution_update"
    ]


@proves("start.unknown_tool")
def test_a_tool_that_does_not_exist_is_reported_with_those_that_do(start: Start, server: ModelServer) -> None:
    agent = start("--tools", "read,raed,bash")
    asked = server.answers("hi")
    agent.run("x")
    assert [tool["name"] for tool in asked.request["tools"]] == ["read", "bash"]
    [warning] = agent.stderr.splitlines()
    assert warning.startswith('Warning: --tools: there is no tool "raed" (known: bash, edit, find, ')


@proves("start.extension_tools")
def test_tools_of_extensions_are_known_from_the_start(start: Start, folders: AgentFolders) -> None:
    path = folders.work / "mine.py"
    path.write_text(
        "from pigeon.extensions import Extension\n\next = Extension('mine')\n\n"
        '@ext.tool\ndef measure(path: str) -> str:\n    "Measure a file."\n    return path\n'
    )
    agent = start("--tools", "read,measure", "-e", str(path))
    agent.ask("get_state")
    assert agent.stderr == ""


@proves("start.version_as_pi")
@pytest.mark.parametrize(
    ("name", "spoken"), [("pi", "1.5.0"), ("omp", "18.3.4"), ("pigeon", __version__), ("xcsh", __version__)]
)
def test_the_version_is_that_of_the_protocol_if_called_like_its_agent(
    folders: AgentFolders, name: str, spoken: str
) -> None:
    assert version(command_line_named(folders, name), folders) == f"{spoken}\n"
