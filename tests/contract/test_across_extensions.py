"""What extensions do, as hosts see it: dialogs, notices, commands, errors, and saying no."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes import contract_extension
from fakes.contract_manifest import proves
from fakes.dialect_cases import in_each
from fakes.model_server import Gate, ModelServer
from fakes.rpc_process import RpcProcess, Start
from fakes.rpc_story import answers, story, text_of

Record = dict[str, Any]
FILE = str(Path(contract_extension.__file__))
ASKED: dict[str, Record] = {
    "select": {"title": "Which?", "options": ["a", "b"]},
    "confirm": {"title": "Sure?", "message": "It cannot be undone."},
    "input": {"title": "Name?", "placeholder": "type here"},
    "editor": {"title": "Edit", "prefill": "line 1\nline 2"},
}
ANSWERED: dict[str, tuple[Record, str]] = {
    "select": ({"value": "b"}, "'b'"),
    "confirm": ({"confirmed": True}, "True"),
    "input": ({"value": "Ada"}, "'Ada'"),
    "editor": ({"value": "line 3"}, "'line 3'"),
}
TOLD: dict[str, Record] = {
    "notify": {"message": "careful", "notifyType": "warning"},
    "setStatus": {"statusKey": "key", "statusText": "working"},
    "setWidget": {"widgetKey": "box", "widgetLines": ["one", "two"], "widgetPlacement": "belowEditor"},
    "setTitle": {"title": "a title"},
    "set_editor_text": {"text": "some text"},
}


@pytest.fixture
def extended(start: Start, dialect: str) -> RpcProcess:
    """The program with an extension that does as it is told."""
    return start("--extension", FILE, dialect=dialect)


def requests(agent: RpcProcess, start: int = 0) -> list[Record]:
    return agent.since(start, "extension_ui_request")


def asked(agent: RpcProcess, method: str) -> Record:
    """Let the extension ask, and give the question."""
    start = agent.mark()
    agent.send({"id": f"ask-{start}", "type": "prompt", "message": f"/ask {method}"})
    return agent.wait_event("extension_ui_request", start)


def outcome(agent: RpcProcess, request: Record, **answer: Any) -> str:
    """Answer, and give what the extension made of it."""
    start = agent.mark()
    assert requests(agent)[-1] == request
    agent.send({"type": "extension_ui_response", "id": request["id"], **answer})
    return str(agent.wait_event("extension_ui_request", start, method="notify")["message"])


@proves(
    "ui.select",
    "ui.confirm",
    "ui.input",
    "ui.editor",
    "ui.select_value",
    "ui.confirm_value",
    "ui.input_value",
    "ui.editor_value",
    "ui.select_cancel",
    "ui.confirm_cancel",
    "ui.input_cancel",
    "ui.editor_cancel",
    "ui.blocks",
    "ui.timeout",
    "ui.prompt_after",
    "ui.unknown_answer",
    dialects=("pi", "omp", "xcsh"),
)
@proves(
    "prompt.ext_no_model",
    "note/in.ui_response",
    "note/ui.request",
    "note/ui.response",
    "note/ui.waits",
    "note/ui.extensions_run",
)
@in_each("pi", "omp", "xcsh")
def test_dialogs_ask_wait_and_take_their_answer(extended: RpcProcess, server: ModelServer) -> None:
    ids = set()
    for method, fields in ASKED.items():
        request = asked(extended, method)
        assert {key: request[key] for key in request if key != "id"} == {
            "type": "extension_ui_request",
            "method": method,
            **fields,
        }
        ids.add(request["id"])
        given, expected = ANSWERED[method]
        assert outcome(extended, request, **given) == f"{method}: {expected}"
        request = asked(extended, method)
        ids.add(request["id"])
        nothing = "False" if method == "confirm" else "None"
        assert outcome(extended, request, cancelled=True) == f"{method}: {nothing}"
    assert len(ids) == 8
    assert server.requests == []
    request = asked(extended, "input")
    server.answers("meanwhile")
    assert text_of(answers(extended.run("x"))[-1]) == "meanwhile"
    extended.send({"type": "extension_ui_response", "id": "nobody", "value": "y"})
    assert extended.ask("get_state")["isStreaming"] is False
    assert outcome(extended, request, value="late") == "input: 'late'"
    for method, default in (("quick", "False"), ("quick-select", "None")):
        start = extended.mark()
        extended.ask("prompt", message=f"/ask {method}")
        assert extended.wait_event("extension_ui_request", start)["timeout"] == 50
        assert extended.wait_event("extension_ui_request", start, method="notify")["message"] == f"{method}: {default}"
    assert all(record["success"] for record in extended.since(0, "response"))
    assert "extension_ui_response" not in str(extended.since(0, "response"))


@proves("ui.notify", "ui.setStatus", "ui.setWidget", "ui.setTitle", "ui.set_editor_text", "ui.ids", "note/ui.fire",
        "note/ui.setTitle")  # fmt: skip
@proves("ui.fire_no_answer", dialects=("pi", "xcsh"))
@proves(
    "xcsh/ui.notify",
    "xcsh/ui.setStatus",
    "xcsh/ui.setWidget",
    "xcsh/ui.set_editor_text",
    "xcsh/ui.title_suppressed",
    dialects=("xcsh",),
)
@in_each("pi", "pi-latest", "omp", "xcsh", "companion")
def test_notices_need_no_answer(extended: RpcProcess, server: ModelServer, dialect: str) -> None:
    server.answers("still here")
    extended.send({"type": "prompt", "message": "/tell"}, {"type": "prompt", "message": "x"})
    extended.wait_end()
    shown = {request["method"]: request for request in requests(extended)}
    expected = dict(TOLD) if dialect != "companion" else {}
    if dialect == "xcsh":
        del expected["setTitle"]
    without = {name: {k: v for k, v in one.items() if k not in ("type", "id", "method")} for name, one in shown.items()}
    assert without == expected
    assert len({request["id"] for request in shown.values()}) == len(expected)


@proves("xcsh/ui.title_env", dialects=("xcsh",))
@in_each("xcsh")
def test_a_host_of_xcsh_can_ask_for_titles(start: Start, dialect: str) -> None:
    agent = start("--extension", FILE, dialect=dialect, env={"PI_RPC_EMIT_TITLE": "1"})
    agent.ask("prompt", message="/tell")
    assert agent.wait_event("extension_ui_request", method="setTitle")["title"] == "a title"


@proves(
    "omp/ui.degraded_custom",
    "omp/ui.degraded_editor_text",
    "omp/ui.degraded_expanded",
    "omp/ui.degraded_themes",
    "omp/ui.degraded_theme",
    "omp/ui.degraded_set_theme",
    "omp/ui.has_ui",
    "omp/ui.degraded_silent",
    dialects=("omp",),
)
@proves("note/ui.theme", "note/ui.expanded", "note/ui.degraded_silent")
@in_each("pi", "omp")
def test_what_needs_a_terminal_is_silent(extended: RpcProcess) -> None:
    extended.ask("prompt", message="/degraded")
    extended.wait_event("extension_ui_request")
    (only,) = requests(extended)
    facts = [None, "", False, [], None, False, "Theme switching not supported in RPC mode", True]
    assert only["message"] == f"facts: {facts!r}"


@proves("event.extension_error", "event.extension_error_lives", dialects=("pi", "omp", "xcsh"))
@proves("note/ui.extension_error")
@in_each("pi", "omp", "xcsh")
def test_an_extension_that_fails_is_reported_and_the_run_goes_on(extended: RpcProcess, server: ModelServer) -> None:
    (extended.desk.work / "stumble").touch()
    server.answers("unmoved")
    assert text_of(answers(extended.run("x"))[-1]) == "unmoved"
    error = extended.wait_event("extension_error")
    assert error == {"type": "extension_error", "extensionPath": FILE, "event": "turn_start", "error": error["error"]}
    assert "stumbled" in error["error"]


@proves("new_session.cancel", "switch_session.cancel", dialects=("pi", "omp", "xcsh"))
@proves("omp/branch.cancel", "omp/branch.cancel_text", dialects=("omp",))
@in_each("pi", "omp", "xcsh")
def test_an_extension_can_say_no_to_another_session(start: Start, server: ModelServer, dialect: str) -> None:
    agent = start("--extension", FILE, dialect=dialect, keeps=True)
    server.answers("one")
    agent.run("first")
    before = agent.ask("get_state")
    (entry,) = agent.ask("get_branch_messages")["messages"]
    (agent.desk.work / "veto").touch()
    assert agent.ask("new_session") == {"cancelled": True}
    assert agent.ask("switch_session", sessionPath=before["sessionFile"]) == {"cancelled": True}
    assert agent.ask("branch", entryId=entry["entryId"]) == {"text": "first", "cancelled": True}
    after = agent.ask("get_state")
    assert (after["sessionId"], after["messageCount"]) == (before["sessionId"], 2)
    (agent.desk.work / "veto").unlink()
    assert agent.ask("new_session") == {"cancelled": False}


@proves("prompt.ext_streaming", "prompt.ext_no_model", "get_commands.extension", "get_commands.extension_path")
def test_a_command_of_an_extension_runs_at_once_also_in_a_run(start: Start, server: ModelServer) -> None:
    agent = start("--extension", FILE)
    listed = {command["name"]: command for command in agent.ask("get_commands")["commands"]}
    assert (listed["ask"]["source"], listed["ask"]["path"]) == ("extension", FILE)
    assert listed["ask"]["description"] == "Ask the host"
    gate = Gate()
    server.answers("one", gate)
    agent.ask("prompt", message="x")
    gate.wait_reached()
    assert agent.ask("prompt", message="/tell") is None
    agent.wait_event("extension_ui_request", method="notify")
    assert not agent.since(0, "agent_end")
    gate.open()
    agent.wait_end()
    assert len(server.requests) == 1
    assert story(agent.records).count("message_end:user") == 1


@proves("xcsh/exit.extension", dialects=("xcsh",))
@in_each("xcsh")
def test_an_extension_can_end_the_process(extended: RpcProcess) -> None:
    extended.send({"id": "q", "type": "prompt", "message": "/quit"})
    assert extended.wait_exit() == 0
    assert extended.response("q")["success"] is True
