"""`--unattended`: nothing waits for a person, the work is verified once, and the end says how it went."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.model_server import Call, Gate, ModelServer, said_in
from support.agent_folders import AgentFolders, example, providers
from support.agent_process import RpcProcess, Start
from support.contract import in_each, proves
from support.records import answers, text_of, tool_texts

ASKS = ("--permissions", '{"ask": ["bash"]}')
VERIFY = "Before this ends"


def gates(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The requests to verify that were told."""
    found = [record["message"] for record in records if record["type"] == "message_end"]
    return [message for message in found if message.get("customType") == "finish-gate"]


@proves("unattended.prompt")
def test_the_model_is_told_that_nobody_can_answer(start: Start, server: ModelServer) -> None:
    told = {}
    for flags in ((), ("--unattended",), ("--unattended", "--system-prompt", "You are a duck.")):
        first = server.answers("hi")
        if flags:
            server.answers("verified")
        start(*flags).run("x")
        told[flags] = str(first.request["system"])
    attended, unattended, custom = told.values()
    assert "needs the user's word first" in attended
    assert "nobody can answer" not in attended
    for prompt in (unattended, custom):
        assert "nobody can answer" in prompt
        assert "user's word" not in prompt
        assert "ask only" not in prompt
        assert "or decide" not in prompt


@proves("unattended.denied", dialects=("pi", "pi-latest"))
@in_each("pi", "pi-latest")
def test_what_would_be_asked_is_denied_at_once_and_the_end_says_so(
    start: Start, server: ModelServer, dialect: str
) -> None:
    agent = start("--unattended", *ASKS, dialect=dialect)
    server.answers(Call("bash", {"command": "touch ran"}))
    server.answers("I was not allowed to.")
    server.answers("Still not.")
    settled = agent.run("x")[-1]
    assert (settled["aborted"], settled["reason"]) == (False, "denied")
    (text,) = tool_texts(agent.records)
    assert "nobody can be asked" in text
    assert "ask the user" not in text
    assert not agent.since(0, "extension_ui_request")
    assert not list(agent.folders.work.iterdir())


@proves("unattended.denied_omp", dialects=("omp",))
@in_each("omp")
def test_in_omp_a_denied_run_ends_as_an_error(start: Start, server: ModelServer, dialect: str) -> None:
    agent = start("--unattended", *ASKS, dialect=dialect)
    server.answers(Call("bash", {"command": "touch ran"}))
    server.answers("I was not allowed to.")
    server.answers("Still not.")
    agent.run("x")
    (result,) = agent.since(0, "prompt_result")
    assert (result["status"], result["error"]["retryable"]) == ("error", False)
    assert "allowed" in result["error"]["message"]


@proves("unattended.not_denied")
@pytest.mark.parametrize("later", ["beside", "after"])
def test_a_run_that_got_on_after_a_denial_is_done(start: Start, server: ModelServer, later: str) -> None:
    agent = start("--unattended", *ASKS)
    denied = Call("bash", {"command": "touch ran"}, id="a")
    allowed = Call("write", {"path": "notes", "content": "x"}, id="b")
    if later == "beside":
        server.answers(denied, allowed)
    else:
        server.answers(denied)
        server.answers(allowed)
    server.answers("Done without.")
    server.answers("Verified.")
    assert agent.run("x")[-1]["reason"] == "done"


@proves("unattended.attended_done")
def test_an_attended_run_is_done_whatever_was_denied(start: Start, server: ModelServer) -> None:
    agent = start("--permissions", '{"deny": ["bash"]}')
    server.answers(Call("bash", {"command": "touch ran"}))
    server.answers("I was not allowed to.")
    assert agent.run("x")[-1]["reason"] == "done"
    assert "ask the user" in tool_texts(agent.records)[0]


@proves("unattended.dialogs")
@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("select", "select: selected None"),
        ("confirm", "confirm: confirmed False"),
        ("input", "input: typed None"),
        ("editor", "editor: edited None"),
    ],
)
def test_a_question_of_an_extension_gets_its_safe_answer_at_once(start: Start, method: str, result: str) -> None:
    agent = start("--unattended", *example("ui_demo"))
    agent.ask("prompt", message=f"/demo {method}")
    agent.wait_event("extension_ui_request", method="notify", message=result)
    assert not [record for record in agent.since(0, "extension_ui_request") if record["method"] == method]


@proves("unattended.finish_gate")
def test_the_model_verifies_its_work_once_for_each_prompt(start: Start, server: ModelServer) -> None:
    agent = start("--unattended")
    for number in (1, 2):
        server.answers(f"First {number}.")
        second = server.answers("Checking.", Call("bash", {"command": "echo checked"}))
        server.answers(f"Final {number}.")
        begin = agent.mark()
        records = agent.run("x")
        assert [text_of(answer) for answer in answers(records)] == [f"First {number}.", "Checking.", f"Final {number}."]
        (gate,) = gates(agent.since(begin))
        assert (gate["display"], VERIFY in gate["content"]) == (False, True)
        assert VERIFY in said_in(second.request)[-1][1]
        assert len([record for record in records if record["type"] == "agent_end"]) == 1
    assert len(server.requests) == 6


@proves("unattended.finish_setting")
def test_the_setting_switches_the_finish_gate(start: Start, server: ModelServer) -> None:
    server.answers("Only.")
    assert not gates(start("--unattended", settings={"finishGate": False}).run("x"))
    server.answers("First.")
    server.answers("Final.")
    assert len(gates(start(settings={"finishGate": True}).run("x"))) == 1
    server.answers("Only.")
    assert not gates(start().run("x"))


@proves("unattended.finish_aborted")
def test_an_aborted_run_is_not_verified(start: Start, server: ModelServer) -> None:
    agent = start("--unattended")
    gate = Gate()
    server.answers("First", gate)
    agent.ask("prompt", message="x")
    gate.wait_reached()
    agent.ask("abort")
    gate.open()
    assert not gates(agent.records)
    assert agent.wait_event("agent_settled")["reason"] == "aborted"


@proves("unattended.finish_limit")
def test_a_run_that_may_ask_no_further_answer_is_done_without_verifying(start: Start, server: ModelServer) -> None:
    agent = start("--unattended", "--max-turns", "1")
    server.answers("Only.")
    assert agent.run("x")[-1]["reason"] == "done"
    assert not gates(agent.records)


@proves("unattended.exit_codes")
@pytest.mark.parametrize(("flags", "code"), [((), 0), (("--unattended",), 4)])
def test_json_mode_ends_with_a_code_that_says_how_it_ended(
    folders: AgentFolders, server: ModelServer, flags: tuple[str, ...], code: int
) -> None:
    folders.configure(providers(server.url))
    server.answers(Call("bash", {"command": "touch ran"}))
    for _ in range(3):
        server.answers("I was not allowed to.")
    args = ["--no-session", "--model", "fake/fake-1", "--dialect", "pi", *ASKS, *flags, "first", "second"]
    with RpcProcess(folders, *args, mode=("--mode", "json")) as once:
        once.close_stdin()
        assert once.wait_exit() == code
    settled = [record["reason"] for record in once.records if record["type"] == "agent_settled"]
    assert settled == (["denied"] if code else ["done", "done"])
    assert ("denied" in once.stderr) == bool(code)
