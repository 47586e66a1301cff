"""How a run ended, by its last record and by the exit code of `--mode json`: one test for each cell of the table in
docs/run-limits.md."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from fakes.model_server import Call, Gate, Hang, ModelServer
from support.agent_folders import AgentFolders, extension, providers
from support.agent_process import RpcProcess
from support.contract import in_each, proves

ABORTS = """
@ext.on(TurnEnd)
async def end(event, ctx):
    ctx.abort()
"""
# How it ends: reason and status of the prompt, attended and unattended; exit codes of both.
ENDS: dict[str, tuple[tuple[str, str], tuple[str, str], int, int]] = {
    "done": (("done", "completed"), ("done", "completed"), 0, 0),
    "error": (("error", "error"), ("error", "error"), 1, 1),
    "limit": (("limit", "error"), ("limit", "error"), 3, 3),
    "denied": (("done", "completed"), ("denied", "error"), 0, 4),
    "aborted": (("aborted", "aborted"), ("aborted", "aborted"), 130, 130),
}


def script(server: ModelServer, how: str) -> None:
    if how == "error":
        server.fails(400, "no", "invalid_request_error")
    elif how != "done":
        server.answers(Call("bash", {"command": "true"}))
    if how == "aborted":
        # The extension aborts beside the run, which must not have ended before.
        server.answers(Hang())
    if how in ("done", "denied"):
        server.answers("That is all.")


def flags(folders: AgentFolders, how: str, unattended: bool) -> list[str]:
    given = ["--no-session", "--model", "fake/fake-1"] + ["--unattended"] * unattended
    more = {
        "limit": ["--max-turns", "1"],
        "denied": ["--permissions", '{"deny": ["bash"]}'],
        "aborted": extension(folders, ABORTS) if how == "aborted" else (),
    }
    return [*given, *more.get(how, ())]


@proves("ends.records", dialects=("pi", "pi-latest", "omp"))
@in_each("pi", "pi-latest", "omp")
@pytest.mark.parametrize("unattended", [False, True])
@pytest.mark.parametrize("how", ENDS)
def test_the_last_record_says_how_a_run_ended(
    folders: AgentFolders, server: ModelServer, how: str, unattended: bool, dialect: str
) -> None:
    folders.configure(providers(server.url), {"finishGate": False})
    script(server, how)
    reason, status = ENDS[how][int(unattended)]
    with RpcProcess(folders, *flags(folders, how, unattended), "--dialect", dialect) as agent:
        agent.send({"id": "p", "type": "prompt", "message": "go"})
        if dialect == "omp":
            assert agent.wait_event("prompt_result")["status"] == status
            agent.wait_event("session_settled")
        else:
            settled = agent.wait_event("agent_settled")
            assert (settled["reason"], settled["aborted"]) == (reason, reason == "aborted")
            assert ("limit" in settled) == (reason == "limit")
        agent.close_stdin()
        assert agent.wait_exit() == 0


def run_json(folders: AgentFolders, *args: str) -> tuple[int, list[dict[str, Any]]]:
    with RpcProcess(folders, *args, mode=("--mode", "json")) as once:
        once.close_stdin()
        return once.wait_exit(), once.records


@proves("ends.exit_codes")
@pytest.mark.parametrize("unattended", [False, True])
@pytest.mark.parametrize("how", ENDS)
def test_the_exit_code_says_how_a_run_ended(
    folders: AgentFolders, server: ModelServer, how: str, unattended: bool
) -> None:
    folders.configure(providers(server.url), {"finishGate": False})
    script(server, how)
    code, records = run_json(folders, *flags(folders, how, unattended), "go")
    assert code == ENDS[how][2 + int(unattended)]
    assert records[-1]["reason"] == ENDS[how][int(unattended)][0]


@proves("ends.exit_code_limit")
def test_a_prompt_that_a_limit_refuses_has_the_code_of_limits(folders: AgentFolders, server: ModelServer) -> None:
    folders.configure(providers(server.url))
    server.answers("one")
    code, records = run_json(folders, "--no-session", "--model", "fake/fake-1", "--max-turns", "1", "one", "two")
    assert (code, records[-1]["reason"]) == (3, "done")


@proves("ends.exit_code_signal")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_the_exit_code(folders: AgentFolders, server: ModelServer, sent: signal.Signals) -> None:
    folders.configure(providers(server.url))
    gate = Gate()
    server.answers("half", gate)
    args = ["--no-session", "--model", "fake/fake-1", "--unattended", "go"]
    with RpcProcess(folders, *args, mode=("--mode", "json")) as once:
        once.close_stdin()
        gate.wait_reached()
        once.signal(sent)
        assert once.wait_exit() == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}[sent]
    gate.open()
