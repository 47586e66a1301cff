"""How we are called: by which name, in which dialect, with whose flags."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from fakes.agent_desk import Desk, providers
from fakes.called_by_name import called
from fakes.contract_manifest import proves
from fakes.dialect_cases import in_each
from fakes.model_server import ModelServer
from fakes.rpc_process import RpcProcess, Start
from fakes.rpc_story import answers, text_of

FLAGS: list[list[str]] = [
    ["--provider", "fake"],
    ["--model", "fake/fake-1:low"],
    ["--models", "fake/*"],
    ["--thinking", "high"],
    ["--session-id", "mine"],
    ["--session-dir", "."],
    ["--no-session"],
    ["--continue"],
    ["--name", "a name"],
    ["--system-prompt", "Be kind."],
    ["--append-system-prompt", "Be brief."],
    ["--tools", "read,bash"],
    ["--no-tools"],
    ["--no-extensions"],
    ["--no-skills"],
    ["--no-rules"],
    ["--no-prompt-templates"],
    ["--no-themes"],
    ["--no-context-files"],
    ["--approve"],
    ["--no-approve"],
    ["--offline"],
    ["--no-title"],
    ["--no-lsp"],
    ["--no-pty"],
    ["--approval-mode", "write"],
    ["--cwd", "."],
    ["--provider-session-id", "abc"],
]


def version(program: list[str], desk: Desk) -> str:
    done = subprocess.run(
        [*program, "--version"], env=desk.environment(), capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stderr == ""
    return done.stdout


@proves("dialect.by_name", "dialect.by_env", "dialect.by_flag", dialects=("pi", "omp", "xcsh"))
@pytest.mark.parametrize(
    ("name", "args", "env", "spoken"),
    [
        ("pigeon", [], {}, "pi"),
        ("pi", [], {}, "pi"),
        ("omp", [], {}, "omp"),
        ("xcsh", [], {}, "xcsh"),
        ("pigeon", ["--no-title"], {}, "xcsh"),
        ("pigeon", ["--provider-session-id", "x"], {}, "xcsh"),
        ("pi", ["--no-title"], {}, "pi"),
        ("xcsh", [], {"PIGEON_DIALECT": "omp"}, "omp"),
        ("omp", ["--dialect", "xcsh"], {"PIGEON_DIALECT": "pi"}, "xcsh"),
    ],
)
def test_the_dialect_follows_the_name_the_environment_and_the_flags(
    desk: Desk, server: ModelServer, name: str, args: list[str], env: dict[str, str], spoken: str
) -> None:
    desk.configure(providers(server.url))
    with RpcProcess(desk, "--no-session", "--model", "fake/fake-1", *args, env=env, program=called(desk, name)) as agent:
        agent.send({"id": "u", "type": "nope"})
        unknown = agent.wait_event("response")
        mode = agent.ask("get_state")["interruptMode"]
    first = agent.records[0]
    seen = {
        ("response", True, "immediate"): "pi",
        ("ready", False, "immediate"): "omp",
        ("ready", False, "wait"): "xcsh",
    }
    assert seen[first["type"], "id" in unknown, mode] == spoken
    assert agent.stderr == ""


@proves("start.version_as_pi", "start.version")
def test_called_as_pi_the_version_is_that_of_the_protocol(desk: Desk) -> None:
    as_pi, own = version(called(desk, "pi"), desk), version(called(desk, "pigeon"), desk)
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", as_pi)
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", own)
    assert tuple(map(int, as_pi.split("."))) >= (0, 80, 4)
    assert as_pi != own


@proves("dialect.unknown")
def test_a_dialect_that_nobody_speaks_is_an_error_that_lists_them(start: Start) -> None:
    refused = start(dialect="klingon")
    assert refused.wait_exit() == 1
    assert "klingon" in refused.stderr
    assert "pi-latest, omp, xcsh, companion" in refused.stderr


@proves("start.flags")
def test_no_flag_of_the_family_is_refused_or_complained_about(desk: Desk, server: ModelServer, tmp_path: Path) -> None:
    desk.configure(providers(server.url))
    skill = tmp_path / "skill" / "SKILL.md"
    skill.parent.mkdir()
    skill.write_text("---\nname: s\ndescription: d\n---\nx")
    flags = [*FLAGS, ["--skill", str(skill)], ["--mode", "rpc-ui"]]
    for at in range(0, len(flags), 8):
        many = [word for flag in flags[at : at + 8] for word in flag]
        with RpcProcess(desk, "--dialect", "pi", "--model", "fake/fake-1", *many) as agent:
            agent.ask("get_state")
        assert agent.stderr == "", many


@proves("xcsh/start.at_file", "xcsh/start.at_file_control", dialects=("xcsh",))
@in_each("xcsh")
def test_file_arguments_are_refused_by_xcsh_too(start: Start, dialect: str) -> None:
    refused = start("@notes.txt", dialect=dialect)
    assert refused.wait_exit() == 1
    assert refused.stderr.strip() == "Error: @file arguments are not supported in RPC mode"
    assert refused.records == []
    start(dialect=dialect).ask("get_state")


@proves("xcsh/start.no_title", "xcsh/start.eof_late", dialects=("xcsh",))
@in_each("xcsh")
def test_a_conversation_costs_no_request_for_a_title(spoken: RpcProcess, server: ModelServer) -> None:
    for number in range(3):
        server.answers(f"answer {number}")
        assert text_of(answers(spoken.run("x"))[-1]) == f"answer {number}"
    spoken.close(expect=0)
    assert len(server.requests) == 3
    assert "sessionName" not in str(spoken.records)


@proves("note/limits.stdin", "note/response.error")
def test_piped_text_is_not_a_message(agent: RpcProcess, server: ModelServer) -> None:
    agent.send("please list the files")
    failure = agent.wait_event("response")
    assert (failure["command"], failure["success"]) == ("parse", False)
    assert failure["error"].startswith("Failed to parse command: ")
    agent.close()
    assert server.requests == []
